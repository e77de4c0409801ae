"""What a model file is made of: a run's checkpoint, the networks of its features, and what else is known."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr import __version__
from lstr.checkpoint import FORMAT, interpret, read
from lstr.checkpoint import TENSORS as OF_MODEL
from lstr.errors import CheckpointError, OutputError, RecipeError, WeightsError
from lstr.extractors.networks.archive import CARD, DOCUMENT, TENSORS, Archive, Tensors, write_archive
from lstr.extractors.networks.build import build_network
from lstr.extractors.networks.manifest import origin_of
from lstr.extractors.networks.weights_file import WeightSources, network_file, read_card, read_state_dict
from lstr.extractors.recipe import Recipe
from lstr.extractors.streams import streams_of_model
from lstr.files.atomic import replacing, sweep
from lstr.files.home import home
from lstr.loaded_checkpoint import CALIBRATION, Checkpoint
from lstr.pipelines.model_files.card import card_of
from lstr.pipelines.model_files.known_networks import find_networks, published_file
from lstr.pipelines.model_files.model_file import MODEL, SEPARATOR, ModelFile, is_model, open_model, refusals

if TYPE_CHECKING:
    from torch import Tensor

# Entries of model.json that `write_model` alone makes.
OWN = (
    "lstr",
    "classes",
    "recipe",
    "config",
    "thresholds",
    "networks",
    "seen",
    "checkpoint",
    "members",
    "format",
)


def write_model(path: str | Path, checkpoint: Path, weights: Path | None, about: Mapping[str, Any]) -> ModelFile:
    """Pack a checkpoint and the networks of its features into a model file, which appears whole or not at all.

    checkpoint: a run's file. weights: the weights folder (or file) of its networks; with None they are looked for where
    the run's features recorded them; random ones need no file, published ones are found in the home folder by whoever
    uses the model. about: what else model.json says, such as title, metrics (as `lstr evaluate --json`), demo, videos;
    `seen` adds videos {id: SHA-256 or None} to those that the checkpoint and its networks name. The same arguments give
    the same bytes. Raises CheckpointError, WeightsError, RecipeError or OutputError.
    """
    path = free_path(path)
    content = read(checkpoint)
    loaded = interpret(checkpoint, content)
    if (loaded.recipe is None and not loaded.store) or loaded.format != FORMAT:
        raise CheckpointError(
            f"{checkpoint} does not say how its features were made, so a model file of it could not look at a video.",
            "train it with `lstr train` on features that `lstr extract` made, or add --set features.rate=4.",
        )
    recipe = Recipe.from_dict(loaded.recipe, checkpoint) if loaded.recipe else None
    recipe = recipe and recipe.narrowed(streams_of_model(loaded.config.streams))
    sources = dict.fromkeys(recipe.streams, str(weights)) if recipe and weights else find_networks(loaded)
    parts: dict[str, Tensors | bytes] = {MODEL: Tensors(_named(content))}
    networks: dict[str, dict[str, Any]] = {}
    seen = dict[str, Any](dict.fromkeys(loaded.metrics.get("training_videos") or ()))
    for stream, part in recipe.parts.items() if recipe else ():
        assert recipe
        origin = _origin(loaded, stream, recipe, sources.get(stream))
        networks[stream] = {"from": origin, "network": part.network, "weights": part.weights}
        source = sources.get(stream)
        if origin != "random" and source and (began := origin_of(network_file(source, stream))):
            networks[stream]["origin"] = asdict(began)
        if origin == "inside" and source:
            card = read_card(network_file(source, stream))
            seen |= card.seen if card else {}
            note = card.to_json() if card else None
            parts[f"{stream}{TENSORS}"] = Tensors(read_state_dict(network_file(source, stream)), note)
    document = {
        "title": path.stem,
        "metrics": {},
        **{name: value for name, value in about.items() if name not in OWN},
        "lstr": __version__,
        "classes": list(loaded.classes),
        "recipe": loaded.recipe,
        "config": json.loads(content["config"]),
        "thresholds": loaded.extra.get("thresholds") or {},
        "networks": networks,
        "seen": seen | dict(about.get("seen") or {}),
        "checkpoint": {
            "metrics": loaded.metrics,
            "extra": _without_places(loaded.extra),
            "versions": loaded.versions,
        },
    }
    return _written(path, document, parts)


def free_path(path: str | Path, model: Path | None = None) -> Path:
    """A path for a model file. Raises OutputError where another file is, or the model that is made into it."""
    path = Path(path)
    if model and path.exists() and path.samefile(model):
        raise OutputError(f"{path} is what this is made from, and would be replaced.", "choose another name with -o.")
    if path.exists() and not is_model(path):
        hint = "choose another name with -o, as in fall.lstr."
        raise OutputError(f"{path} exists and is no model file.", hint)
    return path


def _without_places(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What a run states of itself, without when and where it was made, nor whether somebody edits the sources at the
    moment: equal runs give equal files, and no path of this machine goes along."""
    left = {name: value for name, value in extra.items() if name not in ("networks", "thresholds")}
    for part, names in (("made_by", ("command", "date", "git")), ("data", ("features",))):
        if isinstance(left.get(part), dict):
            left[part] = {name: value for name, value in left[part].items() if name not in names}
    return left


def _written(path: Path, document: Mapping[str, Any], parts: Mapping[str, Tensors | bytes]) -> ModelFile:
    document = _plain(document)
    with refusals(path):  # what somebody else has measured may be anything
        card = card_of(document, path.name)
    sweep(path.parent, beside=path.name)
    with replacing(path) as temporary:
        write_archive(temporary, document, card, parts)
    return open_model(path)


def change_thresholds(path: str | Path, thresholds: Mapping[str, Mapping[str, float]]) -> Path:
    """Put other thresholds into a model file; nothing else of it changes but the card. The file is replaced whole."""
    return _changed(Path(path), Path(path), {"thresholds": thresholds}).path


def change_about(path: str | Path, output: str | Path, about: Mapping[str, Any]) -> ModelFile:
    """Write a copy of a model file that says other things about itself, such as title or metrics.

    Raises OutputError where `output` is the same or another file than a model file, or cannot be written.
    """
    entries = {name: value for name, value in about.items() if name not in OWN}
    return _changed(Path(path), free_path(output, Path(path)), entries)


def change_precision(path: str | Path, output: Path, recipe: Recipe, measured: Mapping[str, Any]) -> ModelFile:
    """Write a copy of a model file whose networks compute by another recipe; `measured` says what that costs.

    Raises OutputError where `output` is another file than a model file, or cannot be written.
    """
    return _changed(Path(path), free_path(output), {"recipe": recipe.to_dict(), recipe.precision: measured})


def _changed(path: Path, output: Path, entries: dict[str, Any]) -> ModelFile:
    """A copy of a model file with other entries of model.json."""
    model, archive = open_model(path), Archive(path)
    with refusals(path):
        parts = {name: archive.read(name) for name in archive.sizes if name not in (DOCUMENT, CARD)}
    return write_changed(model, output, entries, parts)


def write_changed(
    model: ModelFile, output: str | Path, entries: Mapping[str, Any], parts: Mapping[str, Tensors | bytes]
) -> ModelFile:
    """Write a file with other entries of model.json than a model file has, and other members.

    Raises OutputError where `output` is another file than a model file, or cannot be written.
    """
    document = {name: value for name, value in model.about.items() if name not in ("format", "members", "teller")}
    return _written(free_path(output), {**document, **entries}, parts)


def _named(content: Mapping[str, Any]) -> "dict[str, Tensor]":
    """The tensors of a checkpoint under one name each: the model's own, and calibration/STREAM/NAME."""
    named = dict(content[OF_MODEL])
    for stream, tensors in content.get(CALIBRATION, {}).items():
        named |= {SEPARATOR.join((CALIBRATION, stream, name)): tensor for name, tensor in tensors.items()}
    return named


def _origin(loaded: Checkpoint, stream: str, recipe: Recipe, source: str | None) -> str:
    """Where a stream's network will come from. Raises WeightsError where its weights are not at hand."""
    part = recipe.parts[stream]
    if part.weights == "random":
        return "random"
    if published_file(part, stream) and (source is None or Path(source).parent == home()):
        return "published"
    if source is None:
        raise WeightsError(
            f"{loaded.path} needs its {stream} network, of {part.weights} weights, and nothing says where they are.",
            "name the folder that `lstr finetune` wrote: --weights DIR.",
        )
    found = build_network(stream, part, WeightSources({stream: source}))[1]
    if found.sha256 != part.sha256:
        raise RecipeError(
            f"The {stream} network in {source} is {found.weights} {found.sha256}, the features of {loaded.path} come "
            f"from {part.weights} {part.sha256}.",
            "name the weights that its features were made with: --weights DIR.",
        )
    return "inside"


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers that are not finite are null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
