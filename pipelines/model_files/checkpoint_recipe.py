"""The recipe of the features a checkpoint was trained on, compared with the features and networks it is to use."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr.chunk import Clock
from lstr.errors import CheckpointError, RecipeError
from lstr.extractors.flow.workers import ALGORITHMS
from lstr.extractors.networks.runtime import AUTO
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.recipe import Recipe, differences
from lstr.extractors.run import RunOptions, TwoStream
from lstr.extractors.streams import streams_of_model
from lstr.extractors.twostream import build_as
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.model_files.known_networks import find_networks
from lstr.pipelines.model_files.model_file import is_model, open_model

if TYPE_CHECKING:  # a video needs no feature folders
    from lstr.pipelines.features.folder import FeatureFolder
    from lstr.pipelines.features.joined_folders import FeatureFolders

ALLOW = "--set recipe.allow_mismatch=true"
# Under which entry of its data a checkpoint names the folders of the arrays that it was trained on.
ARRAYS = "arrays"


def recipe_of(loaded: Checkpoint) -> Recipe | None:
    """The recipe of the features a checkpoint was trained on, of the streams it takes; None when it does not say."""
    return (
        Recipe.from_dict(loaded.recipe, loaded.path).narrowed(streams_of_model(loaded.config.streams))
        if loaded.recipe
        else None
    )


def open_learnt(path: str | Path, loaded: Checkpoint) -> "FeatureFolder":
    """A folder or store of features as a checkpoint has learnt to read it. Raises as `open_features`, and RecipeError
    for features of another rate."""
    from lstr.pipelines.features.folder import open_features

    return open_features(path).on(loaded.clock)


def streams_taken(loaded: Checkpoint) -> tuple[str, ...]:
    """The streams whose features a checkpoint takes; none where it does not say."""
    recipe = recipe_of(loaded)
    return recipe.streams if recipe else ()


def check_recipe(loaded: Checkpoint, folder: "FeatureFolder | FeatureFolders", allow: bool = False) -> list[str]:
    """Raise RecipeError, with the difference, when features and checkpoint have different recipes.

    What the checkpoint does not take may differ. With `allow` the difference is returned, as a sentence to warn with.
    Features of other people state no recipe: arrays by other names than the checkpoint was trained on are worth a
    sentence.
    """
    trained, recipe = recipe_of(loaded), folder.recipe
    theirs = folder.describe()
    if bool(loaded.store) != bool(theirs) and (trained or recipe) and not allow:
        foreign, own = (loaded.path, folder.path) if loaded.store else (folder.path, loaded.path)
        verb = "has learnt from" if loaded.store else "holds"
        raise RecipeError(
            f"{foreign} {verb} features of other people{_named(loaded.store or theirs or {})}, and {own} is of "
            "features that `lstr extract` makes.",
            "give features and a model that belong together.",
        )
    if not trained or not recipe:
        return _other_arrays(loaded, folder)
    shared = set(recipe.streams) & set(trained.streams)
    # whatever folds the features are from, those of a video that no network has seen are those of `sha256`
    used = (recipe.narrowed(trained.streams) if shared else recipe).without_folds()
    different = differences(used, trained.without_folds())
    if different and not allow:
        raise RecipeError(
            f"{folder.path} and {loaded.path} were made by different recipes ({'; '.join(different)}).",
            f"extract the videos again with `--recipe {shlex.quote(str(loaded.path))}`, or add {ALLOW}.",
        )
    return _mismatch(loaded, different)


def _other_arrays(loaded: Checkpoint, folder: "FeatureFolder | FeatureFolders") -> list[str]:
    trained = (loaded.extra.get("data") or {}).get(ARRAYS) or []
    names = folder.only(streams_of_model(loaded.config.streams)).names
    if set(trained) <= set(names):
        return []
    return [
        f"{loaded.path} was trained on arrays called {', '.join(trained)}, and these are called {', '.join(names)}: if "
        "another network made them, the scores are wrong."
    ]


def _named(store: Mapping[str, Any]) -> str:
    """What is told of a store's features: ` (I3D, 7.5 a second)`."""
    rate = ""
    if "rate" in store:
        with suppress(ValueError):
            rate = f"{float(Clock.from_dict(store).rate):.4g} a second"
    told = ", ".join(filter(None, [str(store.get("name") or ""), rate]))
    return f" ({told})" if told else ""


def _mismatch(loaded: Checkpoint, different: list[str]) -> list[str]:
    if not different:
        return []
    return [
        f"{loaded.path} was trained on features of another recipe ({'; '.join(different)}): its scores can be wrong."
    ]


def networks_of(
    loaded: Checkpoint,
    weights: Mapping[str, str | None],
    device: str,
    algorithm: str | None = None,
    allow: bool = False,
) -> tuple[TwoStream, list[str]]:
    """The feature networks a checkpoint needs for raw video, of the streams its model takes, and what to warn of.

    weights: by stream; those of no file are found where the checkpoint's file or run has them. `algorithm` of optical
    flow is the recipe's where it is None. With `allow`, other weights or flow than the recipe's are taken, and the
    difference is the warning; without, RecipeError has it. Raises CheckpointError when it does not record its recipe,
    WeightsError when the weights are not at hand.
    """
    recipe = recipe_of(loaded)
    if recipe is None:
        if loaded.store:
            raise CheckpointError(
                f"{loaded.path} has learnt from features of other people{_named(loaded.store)}, and no network here "
                "makes such features of a video.",
                "give a store of such features in place of a video.",
            )
        raise CheckpointError(
            f"{loaded.path} does not say how its features were made, so raw video cannot be scored with it.",
            "give a feature folder instead of a video, or train with `lstr train` on extracted features.",
        )
    requested = replace(recipe, flow_algorithm=ALGORITHMS[algorithm]) if algorithm and recipe.flow else recipe
    if loaded.exported:
        if given := [stream for stream, path in dict(weights).items() if path]:
            raise RecipeError(
                f"{loaded.path} is exported, with the {given[0]} network in it.", "leave the weights out."
            )
        return _exported_networks(loaded, requested, recipe, allow)
    files = dict(weights)
    missing = [stream for stream in recipe.streams if files.get(stream) is None]
    if is_model(loaded.path):
        files |= {stream: open_model(loaded.path).source(stream) for stream in missing}
    else:
        files |= find_networks(loaded, missing)
    sources = replace(WeightSources(files), calibration=loaded.calibration, calibrated_on=recipe.calibrated_on)
    twostream = build_as(requested, sources, device)
    return twostream, _differing(loaded, twostream.recipe, recipe, allow)


def _exported_networks(
    loaded: Checkpoint, requested: Recipe, recipe: Recipe, allow: bool
) -> tuple[TwoStream, list[str]]:
    """Like `networks_of`, of the graphs of an exported file."""
    model = open_model(loaded.path)
    graphs = {stream: partial(model.graph, stream) for stream in recipe.streams}
    networks: dict[str, Any] = dict.fromkeys(recipe.streams)  # which are never asked for
    twostream = TwoStream(networks, requested, "cpu", WeightSources(graphs=graphs), RunOptions(AUTO))
    return twostream, _differing(loaded, requested, recipe, allow)


def _differing(loaded: Checkpoint, found: Recipe, recipe: Recipe, allow: bool) -> list[str]:
    """What to warn of where networks are not those of a checkpoint's recipe. Raises RecipeError unless `allow`."""
    different = differences(found, recipe)
    if different and not allow:
        raise RecipeError(
            f"The networks here are not those that {loaded.path} was trained with ({'; '.join(different)}).",
            f"give the weights and the flow of its features, or add {ALLOW}.",
        )
    return _mismatch(loaded, different)
