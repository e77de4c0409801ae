"""Find the feature networks that a checkpoint or model file needs, and check that they are the right ones.

Their paths are recorded next to the features and in the run; networks are also found by their hash.
"""

import os
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lstr.chunk import Clock
from lstr.errors import CheckpointError, ExtractorError, RecipeError, WeightsError
from lstr.extractors.flow.workers import ALGORITHMS
from lstr.extractors.networks.archive import Archive, is_archive
from lstr.extractors.networks.manifest import origin_of
from lstr.extractors.networks.runtime import AUTO
from lstr.extractors.networks.weights_file import Origin, WeightSources, is_weights_folder, network_file
from lstr.extractors.recipe import Recipe, differences
from lstr.extractors.run import RunOptions, TwoStream
from lstr.extractors.streams import STREAMS, streams_of_model
from lstr.files.atomic import write_text
from lstr.files.content import read_object, to_json
from lstr.files.remote import Place
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.model_files.model_file import open_model, published_file

RECORD = "weights.json"  # of a feature folder: where the weights of each stream were, by stream
ALLOW = "--set recipe.allow_mismatch=true"
ARRAYS = "arrays"  # entry of a checkpoint's data: the names of the folders that it was trained on


def record_weights(folder: Place, files: Mapping[str, str | None]) -> None:
    """Write the paths of the networks' weights to a feature folder, if they have changed."""
    places = {stream: os.path.abspath(path) for stream, path in files.items() if path}
    if not places:
        return
    if not isinstance(folder, Path) or recorded_weights(folder) != places:
        write_text(folder.joinpath(RECORD), to_json(places, indent=1) + "\n")


def recorded_weights(path: Path) -> dict[str, str]:
    """Return the recorded paths of the weights of a feature folder's networks, by stream; empty without a record."""
    places = read_object(path / RECORD) or {}
    return {stream: place for stream, place in places.items() if isinstance(place, str)}


def find_networks(loaded: Checkpoint, streams: Collection[str] = STREAMS) -> dict[str, str | None]:
    """Return the paths of the weights of a checkpoint's feature networks, by stream; None if unknown.

    Searches the paths recorded by the run, published weights in the home folder, and weights folders next to the run.
    Raises WeightsError if recorded weights are missing or have changed.
    """
    if loaded.recipe is None:
        return {}
    parts = Recipe.from_dict(loaded.recipe, loaded.path).parts.items()
    wanted = {*streams} & {*streams_of_model(loaded.config.streams)}
    recorded, places = loaded.extra.get("networks"), dict[str, list[Path]]()
    found: dict[str, str | None] = {}
    for stream, part in parts:
        if stream not in wanted or part.weights == "random":
            continue
        entry = recorded.get(stream) if isinstance(recorded, dict) else None
        # The relative path works after run and weights were moved together.
        roots = {"path": Path(), "relative": loaded.path.absolute().parent}
        places[stream] = [
            Path(os.path.normpath(root / entry[name]))
            for name, root in roots.items()
            if isinstance(entry, dict) and isinstance(entry.get(name), str)
        ]
        published, folders = published_file(part, stream), list[Path]()
        for parent in loaded.path.absolute().parents[:2]:  # next to a checkpoint, or next to its run
            with suppress(OSError):
                folders += sorted(folder for folder in parent.iterdir() if is_weights_folder(folder))
        candidates = (*places[stream], *([published.place] if published else []), *folders)
        found[stream] = next((str(place) for place in candidates if _holds(place, stream, part.sha256)), None)
    if lost := [stream for stream, path in found.items() if path is None and places[stream]]:
        place = next((place for place in places[lost[0]] if place.exists()), places[lost[0]][0])
        state = "which contains other networks now" if place.exists() else "which no longer exists"
        options = " ".join(f"--weights {stream}={shlex.quote(place.name)}" for stream in lost)
        raise WeightsError(f"{loaded.path} needs the networks of {place}, {state}.", f"name their folder: {options}.")
    return found


def _holds(place: Path, stream: str, sha256: str) -> bool:
    """Return whether weights have a hash, as their recipe says; a plain file is checked later."""
    try:
        if is_archive(place):
            values = Archive(place).document["recipe"]
        elif place.is_dir():
            values = read_object(place / "recipe.json") or {}
        else:
            return place.is_file()
        return Recipe.from_dict(values).parts[stream].sha256 == sha256
    except (OSError, KeyError, TypeError, RecipeError, WeightsError):
        return False


def origins_of(recipe: Recipe, places: Mapping[str, str]) -> dict[str, str]:
    """Return the origin and licence of the networks of a recipe, in words by stream, as far as they are known.

    places: where the weights of a stream were, as `recorded_weights` returns it.
    """
    origins: dict[str, str] = {}
    for stream, part in recipe.parts.items():
        entry, place = published_file(part, stream), places.get(stream)
        with suppress(ExtractorError):  # weights that are gone, or others now
            if entry:
                origins[stream] = str(entry.origin(entry.sha256_prefix or ""))
            elif place and _holds(Path(place), stream, part.sha256) and (own := origin_of(network_file(place, stream))):
                origins[stream] = str(own)
    return origins


def origins_of_checkpoint(loaded: Checkpoint) -> dict[str, str]:
    """Return the origins of the networks of a checkpoint or model file, as `origins_of`; a model file states them."""
    if loaded.about:
        entries = loaded.about["networks"].items()
        return {stream: str(Origin(**entry["origin"])) for stream, entry in entries if "origin" in entry}
    if not (recipe := recipe_of(loaded)):
        return {}
    places: dict[str, str | None] = {}
    with suppress(WeightsError):  # weights that are missing or have changed
        places = find_networks(loaded)
    return origins_of(recipe, {stream: place for stream, place in places.items() if place})


def recipe_of(loaded: Checkpoint) -> Recipe | None:
    """Return the recipe of the features a checkpoint was trained on, of the streams it takes; None if unknown."""
    if not loaded.recipe:
        return None
    return Recipe.from_dict(loaded.recipe, loaded.path).narrowed(streams_of_model(loaded.config.streams))


def streams_of_checkpoint(loaded: Checkpoint) -> tuple[str, ...]:
    """Return the input streams of a checkpoint; empty if unknown."""
    recipe = recipe_of(loaded)
    return recipe.streams if recipe else ()


def store_in_words(store: Mapping[str, Any]) -> str:
    """Return the name and rate of another program's features: ` (I3D, 7.5 per second)`."""
    rate = ""
    if "rate" in store:
        with suppress(ValueError):
            rate = f"{float(Clock.from_dict(store).rate):.4g} per second"
    description = ", ".join(filter(None, [str(store.get("name") or ""), rate]))
    return f" ({description})" if description else ""


def mismatch_warnings(loaded: Checkpoint, different: list[str]) -> list[str]:
    """Return a warning if a recipe differs from the checkpoint's recipe."""
    text = f"{loaded.path} was trained on features of another recipe ({'; '.join(different)}): its scores can be wrong."
    return [text] if different else []


def networks_of(
    loaded: Checkpoint,
    weights: Mapping[str, str | None],
    device: str,
    algorithm: str | None = None,
    allow: bool = False,
) -> tuple[TwoStream, list[str]]:
    """Return the feature networks of a checkpoint's input streams, for raw video, and warnings.

    Args:
        loaded: The checkpoint.
        weights: Weights by stream; others are found where the checkpoint's file or run has them.
        device: Device of the networks.
        algorithm: Algorithm of optical flow, if it is not the recipe's.
        allow: Take other weights or flow than the recipe's, with a warning.

    Raises:
        CheckpointError: It does not record its recipe.
        RecipeError: The networks do not match its recipe.
        WeightsError: The weights are missing.
    """
    recipe = recipe_of(loaded)
    if recipe is None:
        reason = "does not record the recipe of its features"
        if loaded.store:
            reason = f"was trained on features of another program{store_in_words(loaded.store)}"
        raise CheckpointError(
            f"{loaded.path} {reason}, so it cannot score raw video.",
            "use a folder of such features instead of a video, or train with `lstr train` on extracted features.",
        )
    requested = replace(recipe, flow_algorithm=ALGORITHMS[algorithm]) if algorithm and recipe.flow else recipe
    given = {stream: path for stream, path in weights.items() if path}
    if loaded.exported:
        if given:
            raise RecipeError(
                f"{loaded.path} is exported and contains its {next(iter(given))} network.", "leave out --weights."
            )
        model = open_model(loaded.path)
        graphs = {stream: partial(model.graph, stream) for stream in recipe.streams}
        networks: dict[str, Any] = dict.fromkeys(recipe.streams)  # which are never asked for
        twostream = TwoStream(networks, requested, "cpu", WeightSources(graphs=graphs), RunOptions(AUTO))
    else:
        missing = [stream for stream in recipe.streams if stream not in given]
        if given and len(missing) == len(recipe.streams):
            raise WeightsError(f"{loaded.path} has no {min(given)} network.", f"use --weights {missing[0]}=FILE.")
        files: dict[str, str | None] = {**dict.fromkeys(weights), **given}
        if is_archive(loaded.path):
            files |= {stream: open_model(loaded.path).source(stream) for stream in missing}
        else:
            files |= find_networks(loaded, missing)
        from lstr.extractors.twostream import build_as  # stored features need no networks

        twostream = build_as(requested, WeightSources(files, loaded.calibration, recipe.calibrated_on), device)
    different = differences(twostream.recipe, recipe)
    if different and not allow:
        raise RecipeError(
            f"The networks differ from those that {loaded.path} was trained with ({'; '.join(different)}).",
            f"use the weights and the flow of its features, or add {ALLOW}.",
        )
    return twostream, mismatch_warnings(loaded, different)
