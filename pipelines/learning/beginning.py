"""What networks bring that were trained before: their recipe, gentler settings, and the videos they have seen."""

from collections.abc import Mapping
from pathlib import Path

from lstr.extractors.presets import preset_of
from lstr.extractors.recipe import Recipe
from lstr.extractors.weights.model_card import is_weights_folder
from lstr.extractors.weights.published_files import sha256_of
from lstr.pipelines.files.remote import Place
from lstr.pipelines.finetuning.initial_weights import Initial
from lstr.pipelines.learning.options import Features, LearnOptions
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.weights.folder import open_weights

GENTLE = {
    "optimiser": "adamw",
    "lr": "0.0003",
    "weight_decay": "0.05",
    "segments": "1",
    "batch_size": "24",
    "mixup": "0.4",
    "partial_bn": "false",
    "epochs": "15",
}
"""Settings for networks that an earlier learning has trained: a third of the rate, half of the epochs."""


def recipe_of(init: str | None) -> Recipe | None:
    """The recipe of a model file or weights folder; None of other weights and of none."""
    if init is None:
        return None
    if is_model(init):
        return open_model(init).recipe
    return open_weights(init).recipe if is_weights_folder(Path(init)) else None


def features_of(options: LearnOptions) -> Features:
    """Recipe, streams and flow algorithm: as named, else those of what the networks begin with, else the usual ones."""
    recipe = recipe_of(options.init)
    if recipe is None or options.names_features:
        return options.features
    return preset_of(recipe), "both", None


def settings_of(options: LearnOptions) -> dict[str, str]:
    """The settings of the networks: as set, else the gentle ones of networks that were learnt before."""
    recipe = recipe_of(options.init)
    if recipe is None:
        return options.of_networks
    return {**GENTLE, "short_side": str(recipe.short_side), "crop": str(recipe.crop), **options.of_networks}


def seen_among(videos: Mapping[str, Place], initial: Mapping[str, Initial]) -> set[str]:
    """The ids of videos that first weights have seen, by id or by content."""
    known = {name for begins in initial.values() for pair in begins.seen.items() for name in pair}
    if not known:
        return set()
    here = {video_id: source for video_id, source in videos.items() if isinstance(source, Path)}
    return {i for i in videos if i in known} | {i for i, path in here.items() if sha256_of(path) in known}
