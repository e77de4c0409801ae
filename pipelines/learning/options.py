"""What `lstr learn` takes, typed, and how its parts are set, also where networks begin with what was learnt before."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError
from lstr.extractors.flow.workers import ALGORITHMS
from lstr.extractors.presets import IMAGENET, Preset, preset_of
from lstr.extractors.recipe import Recipe
from lstr.extractors.weights.model_card import is_weights_folder
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.training.finetune import VideoOptions
from lstr.pipelines.training.network_config import defaults, trainable, trainable_network
from lstr.pipelines.training.recogniser import initial_weights
from lstr.pipelines.weights.folder import open_weights
from lstr.settings import check_range

PRETRAINED = ("pretrained", "motion")
"""Recipes whose networks begin with ImageNet weights, the dearest first: of two networks to train, and of one."""
OF_ONE = "difference"
"""The recipe where one recording teaches: a model of several streams learns by heart how each action of it looks"""
OF_THE_MODEL = ("model", "train")
MOST_FOLDS = 10
OF_PICTURES = ("short_side", "crop", "height", "width", "margin")
CUSTOM = "custom"  # what weights have learnt from that is no published set
Features = tuple[str | Preset, str, str | None]
"""Recipe, streams and flow algorithm"""


@dataclass(frozen=True)
class LearnOptions(VideoOptions):
    """Which actions to learn from which videos; `lstr learn` has an option for each.

    settings: also `model.NAME` and `train.NAME` of the model that sees the features.
    """

    recipe: str | None = None
    """How features are made; None for the first of PRETRAINED that the time allows, or for OF_ONE."""
    stream: str | None = None
    """`rgb`, `flow` or `both`; None for all that a named recipe has."""
    algorithm: str | None = None
    """Algorithm of optical flow; None for that of a named recipe."""
    false_alarms: float | None = None
    """Choose the thresholds with which most is found for so many false alarms an hour; None for the highest F1."""
    folds: int | None = None
    """In how many folds of the videos it is measured, each of which networks and models of its own lack, so that every
    video can be learnt from; 0 to hold out videos instead, None for 3, or for 0 where the time is too short."""
    at_once: int | None = None
    """Networks of a stream that are trained at once on a CPU; None for what suits job and machine."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What else the model file is to state about itself."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a time, a flow or a number that does not exist."""
        super().__post_init__()
        check_range(self, least={"at_once": 1}, choices={"algorithm": ALGORITHMS})
        if self.false_alarms is not None and not 0 < self.false_alarms < math.inf:
            raise ConfigError(
                f"{self.false_alarms:g} false alarms an hour cannot be aimed at.",
                "give a number above 0, as --false-alarms 2.",
            )
        if self.folds is not None and not (self.folds == 0 or 2 <= self.folds <= MOST_FOLDS):
            raise ConfigError(f"folds is {self.folds}.", f"give 0, or a number from 2 to {MOST_FOLDS}.")

    @property
    def of_networks(self) -> dict[str, str]:
        """The settings of the feature networks."""
        chosen = {name: value for name, value in self.settings.items() if name.split(".")[0] not in OF_THE_MODEL}
        return chosen | ({"seed": str(self.seed)} if self.seed is not None else {})

    @property
    def of_model(self) -> dict[str, str]:
        """The settings of the model that sees the features."""
        chosen = {name: value for name, value in self.settings.items() if name.split(".")[0] in OF_THE_MODEL}
        return ({"train.seed": str(self.seed)} if self.seed is not None else {}) | chosen


def recipe_of(init: str | None) -> Recipe | None:
    """The recipe of a model file or weights folder; None of other weights and of none."""
    if init is None:
        return None
    if is_model(init):
        return open_model(init).recipe
    return open_weights(init).recipe if is_weights_folder(Path(init)) else None


def features_of(options: LearnOptions, begun: Recipe | None) -> tuple[Features, ...]:
    """Recipe, streams and flow algorithm: as named, else those that the networks begin with (`begun`).

    Else what needs no GPU, no flow and few videos: those of PRETRAINED, of which the time allows the first or the last.
    """
    if options.recipe is not None:
        return ((options.recipe, options.stream or "both", options.algorithm),)
    if begun and options.stream is None and options.algorithm is None:
        return ((preset_of(begun), "both", None),)
    if options.stream is None and options.algorithm is None and options.init in (None, IMAGENET):
        return tuple((name, "both", None) for name in PRETRAINED)
    return (("fast", options.stream or "flow", None if options.stream == "rgb" else options.algorithm or "dis"),)


def settings_of(options: LearnOptions, begun: Recipe | None, features: Features) -> dict[str, str]:
    """The settings of the networks for these features: as set, else gentle ones of networks that were learnt before.

    Gentle are a third of the rate and half of the epochs that they had by default when they were first learnt, from
    whatever weights. begun: the recipe of such networks, whose pictures have this size; None of others. Raises as
    `trainable` and `initial_weights`.
    """
    own = options.of_networks
    if begun is None:
        return own
    recipe, streams, algorithm = features
    preset = trainable(recipe, streams, {}, algorithm)
    gentle: dict[str, str] = {}
    for stream, begins in initial_weights(preset, options.init, {}).items():
        if begins.path is None:
            continue
        network = trainable_network(preset.parts[stream].network, stream)
        first = defaults(stream, (begins.origin.dataset or CUSTOM) if begins.origin else None, network)
        wanted = first.replace(lr=first.lr / 3, epochs=first.epochs // 2).to_dict()
        usual = defaults(stream, begins.dataset, network).to_dict()
        kept = {*own, *OF_PICTURES} - ({"epochs"} if not first.epochs else set())  # what was not trained is not now
        gentle |= {f"{stream}.{n}": str(v) for n, v in wanted.items() if v != usual[n] and n not in kept}
    return {**gentle, "short_side": str(begun.short_side), "crop": str(begun.crop), **own}
