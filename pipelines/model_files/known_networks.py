"""Where the networks of features are: recorded beside the features and in the run, and found again by their hash."""

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr.errors import ExtractorError, RecipeError, WeightsError
from lstr.extractors.networks.archive import Archive, is_archive
from lstr.extractors.networks.manifest import PublishedFile, origin_of, read_manifest
from lstr.extractors.networks.published import place_of
from lstr.extractors.networks.weights_file import Origin, is_weights_folder, network_file
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.streams import STREAMS, model_stream, streams_of_model
from lstr.files.atomic import write_text
from lstr.files.content import read_object, to_json
from lstr.loaded_checkpoint import Checkpoint

if TYPE_CHECKING:  # a video needs no feature folders
    from lstr.pipelines.features.any_folder import Features

RECORD = "weights.json"  # of a feature folder: where the weights of each stream were, by stream


def record_weights(folder: "Features", files: Mapping[str, str | None]) -> None:
    """Write into a feature folder where the weights of its networks are. A finished folder is left as it is."""
    places = {stream: os.path.abspath(path) for stream, path in files.items() if path}
    if not places:
        return
    if not isinstance(folder.path, Path) or recorded_weights(folder.path) != places:
        write_text(folder.path.joinpath(RECORD), to_json(places, indent=1) + "\n")


def recorded_weights(path: Path) -> dict[str, str]:
    """Where the weights of a feature folder's networks were, by stream; empty where it does not say."""
    places = read_object(path / RECORD) or {}
    return {stream: place for stream, place in places.items() if isinstance(place, str)}


def run_record(features: Any, run: Path) -> dict[str, dict[str, dict[str, str]]]:
    """What a run records of the networks of its features, as entries of a checkpoint; empty where nobody knows.

    Each place is absolute, and relative to the run, so that both can be moved together.
    """
    from lstr.pipelines.features.joined_folders import FeatureFolders

    first = features.folders[0] if isinstance(features, FeatureFolders) else features
    places = recorded_weights(Path(first.path))
    entries = {s: {"path": place, "relative": os.path.relpath(place, run.absolute())} for s, place in places.items()}
    return {"networks": entries} if entries else {}


def find_networks(loaded: Checkpoint, streams: Collection[str] = STREAMS) -> dict[str, str | None]:
    """Where the weights of the networks of a checkpoint's features are, by stream; None where nothing says it.

    Looks where its run recorded them, for published ones in the home folder, and for weights folders beside the run.
    Raises WeightsError where the recorded ones are gone, or are others now.
    """
    if loaded.recipe is None:
        return {}
    parts = Recipe.from_dict(loaded.recipe, loaded.path).parts.items()
    wanted = {*streams} & {*streams_of_model(loaded.config.streams)}
    needed = {stream: part for stream, part in parts if stream in wanted and part.weights != "random"}
    recorded = loaded.extra.get("networks")
    places = {stream: list(_recorded(loaded.path, recorded, stream)) for stream in needed}
    found = {stream: _first(part, stream, places[stream], loaded.path) for stream, part in needed.items()}
    lost = [stream for stream, path in found.items() if path is None and places[stream]]
    if lost:
        raise _lost(loaded.path, lost, places[lost[0]])
    return found


def _recorded(path: Path, recorded: Any, stream: str) -> Iterator[Path]:
    entry = recorded.get(stream) if isinstance(recorded, dict) else None
    for name, folder in (("path", Path()), ("relative", path.absolute().parent)):
        if isinstance(entry, dict) and isinstance(entry.get(name), str):
            yield Path(os.path.normpath(folder / entry[name]))


def _first(part: NetworkRecipe, stream: str, places: Iterable[Path], path: Path) -> str | None:
    entry = published_file(part, stream)
    fetched = [entry.place] if entry else []
    for place in (*places, *fetched, *_beside(path)):
        if _holds(place, stream, part.sha256):
            return str(place)
    return None


def _beside(path: Path) -> list[Path]:
    """Weights folders beside a checkpoint, or beside its run."""
    found = []
    for folder in path.absolute().parents[:2]:
        with suppress(OSError):
            found += sorted(beside for beside in folder.iterdir() if is_weights_folder(beside))
    return found


def _holds(place: Path, stream: str, sha256: str) -> bool:
    """Whether weights are those of a hash, as their recipe states; a plain file is checked later."""
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


def _lost(path: Path, streams: list[str], places: list[Path]) -> WeightsError:
    place = next((place for place in places if place.exists()), places[0])
    state = "which holds other networks now" if place.exists() else "which does not exist any more"
    options = " ".join(f"--weights {stream}={shlex.quote(place.name)}" for stream in streams)
    return WeightsError(f"{path} needs the networks of {place}, {state}.", f"say where their folder is now: {options}.")


def published_file(part: NetworkRecipe, stream: str) -> PublishedFile | None:
    """The published file of a network; None where its weights are not published ones."""
    for entry in read_manifest():
        # its stem was made for other channels here, or it sees other pictures
        trained_for = "rgb" if part.stem else model_stream(stream)
        if (entry.dataset, entry.stream, entry.network) == (part.weights, trained_for, part.network):
            return entry
    return None


def origins_of(recipe: Recipe, places: Mapping[str, str]) -> dict[str, str]:
    """What the networks of a recipe began with, and its licence, in words by stream, as far as it can be known.

    places: where the weights of a stream were, as `recorded_weights` has it.
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
    """What the networks of a checkpoint or model file began with, as `origins_of`; a model file states it."""
    if loaded.about:
        entries = loaded.about["networks"].items()
        return {stream: str(Origin(**entry["origin"])) for stream, entry in entries if "origin" in entry}
    if loaded.recipe is None:
        return {}
    places: dict[str, str | None] = {}
    with suppress(WeightsError):  # weights that are gone, or others now
        places = find_networks(loaded)
    recipe = Recipe.from_dict(loaded.recipe, loaded.path).narrowed(streams_of_model(loaded.config.streams))
    return origins_of(recipe, {stream: place for stream, place in places.items() if place})


def published_path(part: NetworkRecipe, stream: str) -> str:
    """The published file of a network, in the home folder. Raises WeightsError where it has not been fetched."""
    entry = published_file(part, stream)
    if entry is None:
        raise WeightsError(f"No published file has {part.weights} {part.network} weights.", "pack the model again.")
    return str(place_of(entry))
