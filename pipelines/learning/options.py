"""The options of `lstr learn`, and the settings of networks that are initialised from an earlier result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError
from lstr.extractors.flow.workers import Algorithm
from lstr.extractors.networks.weights_file import is_weights_folder
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.presets import IMAGENET, Preset, preset_of
from lstr.extractors.recipe import Recipe
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.training.finetune import VideoOptions
from lstr.pipelines.training.network_config import defaults, trainable, trainable_network
from lstr.pipelines.training.recogniser import initial_weights
from lstr.settings import Positive

MODEL_SETTINGS = ("model", "train")
IMAGE_SETTINGS = ("short_side", "crop", "height", "width", "margin")
MAX_FOLDS = 10
# Recipe, streams and flow algorithm.
Features = tuple[str | Preset, str, Algorithm | None]
# Defaults, with ImageNet weights: for several recordings, and for a single one, which a model of appearance would
# overfit.
SEVERAL_RECORDINGS: Features = ("pretrained", "both", None)
ONE_RECORDING: Features = ("difference", "both", None)


@dataclass(frozen=True)
class LearnOptions(VideoOptions):
    """Options of `lstr learn`.

    `settings` may also contain `model.NAME` and `train.NAME` for the models on the features.
    """

    recipe: str | None = None
    """How features are made; None for SEVERAL_RECORDINGS, or ONE_RECORDING."""
    stream: str | None = None
    """`rgb`, `flow` or `both`; None for all streams of a named recipe."""
    algorithm: Algorithm | None = None
    """Algorithm of optical flow; None for the recipe's algorithm."""
    false_alarms: float | None = None
    """Maximum false alarms per hour for choosing thresholds; None for the highest F1."""
    folds: int | None = None
    """Number of folds for cross-validation, so that all videos can be used for training; 0 to hold out videos instead,
    None for 3, or for 0 if the time limit is too short."""
    at_once: Positive | None = None
    """Networks of a stream that are trained in parallel on a CPU; None chooses the number."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Additional entries of the model file."""

    def __post_init__(self) -> None:
        """Raises ConfigError for values out of range."""
        super().__post_init__()
        if self.false_alarms is not None and not 0 < self.false_alarms < math.inf:
            raise ConfigError(
                f"{self.false_alarms:g} is not a valid number of false alarms per hour.",
                "use a number above 0, for example --false-alarms 2.",
            )
        if self.folds is not None and not (self.folds == 0 or 2 <= self.folds <= MAX_FOLDS):
            raise ConfigError(f"folds is {self.folds}.", f"use 0, or a number from 2 to {MAX_FOLDS}.")

    @property
    def network_settings(self) -> dict[str, str]:
        """The settings of the feature networks."""
        chosen = {name: value for name, value in self.settings.items() if name.split(".")[0] not in MODEL_SETTINGS}
        return chosen | ({"seed": str(self.seed)} if self.seed is not None else {})

    @property
    def model_settings(self) -> dict[str, str]:
        """The settings of the models on the features."""
        chosen = {name: value for name, value in self.settings.items() if name.split(".")[0] in MODEL_SETTINGS}
        return ({"train.seed": str(self.seed)} if self.seed is not None else {}) | chosen


def initial_recipe(init: str | None) -> Recipe | None:
    """Return the recipe of a model file or weights folder; None for other weights."""
    if init is None:
        return None
    if is_model(init):
        return open_model(init).recipe
    return open_weights(init).recipe if is_weights_folder(Path(init)) else None


def choose_features(options: LearnOptions, initial: Recipe | None) -> Features | None:
    """Return recipe, streams and flow algorithm, from the options or from the initial networks; None without both."""
    if options.recipe is not None:
        return options.recipe, options.stream or "both", options.algorithm
    if options.stream is None and options.algorithm is None:
        if initial:
            return preset_of(initial), "both", None
        if options.init in (None, IMAGENET):
            return None
    return "fast", options.stream or "flow", None if options.stream == "rgb" else options.algorithm or "dis"


def settings_of_networks(options: LearnOptions, initial: Recipe | None, features: Features) -> dict[str, str]:
    """Return the settings of the networks; networks of an earlier result are finetuned gently by default.

    Gentle means a third of the learning rate and half of the epochs of their first training. `initial` is the recipe of
    such networks; their image sizes are kept. Raises as `trainable` and `initial_weights`.
    """
    own = options.network_settings
    if initial is None:
        return own
    recipe, streams, algorithm = features
    preset = trainable(recipe, streams, {}, algorithm)
    gentle: dict[str, str] = {}
    for stream, begins in initial_weights(preset, options.init, {}).items():
        if begins.path is None:
            continue
        network = trainable_network(preset.parts[stream].network, stream)
        first = defaults(stream, (begins.origin.dataset or "custom") if begins.origin else None, network)
        wanted = first.replace(lr=first.lr / 3, epochs=first.epochs // 2).to_dict()
        usual = defaults(stream, begins.dataset, network).to_dict()
        # a network that was not trained the first time is not trained now
        kept = {*own, *IMAGE_SETTINGS} - ({"epochs"} if not first.epochs else set())
        gentle |= {f"{stream}.{n}": str(v) for n, v in wanted.items() if v != usual[n] and n not in kept}
    return {**gentle, "short_side": str(initial.short_side), "crop": str(initial.crop), **own}
