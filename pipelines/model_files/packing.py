"""Pack runs and the networks of their features into model files, change such files, and unpack them."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr import __version__
from lstr.checkpoint import FORMAT, interpret, read, write_atomically
from lstr.errors import CheckpointError, MissingPathError, OutputError, RecipeError, WeightsError
from lstr.extractors.networks.archive import (
    CARD,
    DOCUMENT,
    TENSORS,
    Archive,
    Tensors,
    member_path,
    write_archive,
)
from lstr.extractors.networks.build import build_network
from lstr.extractors.networks.manifest import origin_of
from lstr.extractors.networks.weights_file import (
    DESCRIPTION,
    WeightSources,
    file_name,
    network_file,
    read_card,
    read_content,
    read_state_dict,
)
from lstr.extractors.networks.weights_file import FORMAT as WEIGHTS_FORMAT
from lstr.extractors.recipe import Recipe
from lstr.extractors.streams import streams_of_model
from lstr.files.atomic import replacing, sweep, write_bytes, write_tensors, write_text
from lstr.files.content import read_text, write_json
from lstr.files.home import home
from lstr.loaded_checkpoint import CALIBRATION, Checkpoint
from lstr.loaded_checkpoint import TENSORS as OF_MODEL
from lstr.pipelines.model_files.card import card_of
from lstr.pipelines.model_files.model_file import (
    MODEL,
    SEPARATOR,
    ModelFile,
    is_model,
    open_model,
    published_file,
    refusals,
)
from lstr.pipelines.model_files.networks import find_networks

if TYPE_CHECKING:
    from torch import Tensor

METRICS_HINT = "give what `lstr evaluate MODEL FEATURES --labels FILE --json` prints."
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
    """Pack a checkpoint and the networks of its features into a model file, completely or not at all.

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
    """Return a path for a model file. Raises OutputError if another file is there, or the model that it is made of."""
    path = Path(path)
    if model and path.exists() and path.samefile(model):
        raise OutputError(f"{path} is what this is made from, and would be replaced.", "choose another name with -o.")
    if path.exists() and not is_model(path):
        hint = "choose another name with -o, as in fall.lstr."
        raise OutputError(f"{path} exists and is not a model file.", hint)
    return path


def _without_places(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run says about itself, without its date, command and paths: equal runs give equal files."""
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
    """Write a copy of a model file with other entries of model.json."""
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
    """Return the tensors of a checkpoint by name: the model's own, and calibration/STREAM/NAME."""
    named = dict(content[OF_MODEL])
    for stream, tensors in content.get(CALIBRATION, {}).items():
        named |= {SEPARATOR.join((CALIBRATION, stream, name)): tensor for name, tensor in tensors.items()}
    return named


def _origin(loaded: Checkpoint, stream: str, recipe: Recipe, source: str | None) -> str:
    """Return where a stream's network will come from. Raises WeightsError if its weights are missing."""
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
    """Return a value as JSON has it; numbers that are not finite are null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checkpoint_of(run: Path) -> Path:
    """Return the checkpoint of a run's folder, best.pt if it has one; a file is itself. Raises MissingPathError."""
    if not run.is_dir():
        return run
    found = [path for name in ("best.pt", "checkpoint.pt") if (path := run / name).is_file()]
    if not found:
        raise MissingPathError(f"{run} holds no checkpoint.", "give the folder that `lstr train` wrote.")
    return found[0]


def metrics_from(path: str | Path) -> dict[str, Any]:
    """Read the metrics that `lstr evaluate --json` printed into a file. Raises MissingPathError for any other file."""
    try:
        document = json.loads(read_text(Path(path)))
        json.dumps(document, ensure_ascii=False).encode()  # the card holds them: no lone surrogate
    except (OSError, ValueError, RecursionError) as error:
        raise MissingPathError(f"{path} is not a readable JSON file ({error}).", METRICS_HINT) from error
    if not isinstance(document, dict) or not isinstance(document.get("lstr"), dict):
        raise MissingPathError(f"{path} holds no metrics of one model.", METRICS_HINT)
    return document


def unpack_model(path: str | Path, folder: str | Path) -> Path:
    """Write checkpoint.pt, card.md and, if networks are inside, the weights folder `weights` into a folder; return it.

    The tensors are those of the file to the bit. Raises CheckpointError or WeightsError for a file that cannot be read,
    OutputError for a folder that has such files already or cannot be written.
    """
    model, folder = open_model(path), Path(folder)
    taken = next((folder / name for name in ("checkpoint.pt", CARD, "weights") if (folder / name).exists()), None)
    if taken:
        raise OutputError(f"{taken} exists already.", "choose another folder with -o.")
    content = model.content()
    write_bytes(folder / CARD, [Archive(path).read(CARD)])  # as it is: it may be in no encoding at all
    weights, cards = folder / "weights", {}
    inside = [stream for stream in model.networks if model.has_inside(stream)]
    for stream in inside:
        member = member_path(model.path, stream)
        with replacing(weights / file_name(stream)) as temporary:
            write_tensors(temporary, read_content(member))
        if card := read_card(member):
            cards[stream] = card
    if inside and len(cards) == len(inside):  # else they are files of other programs, not a folder of `lstr finetune`
        write_text(weights / "recipe.json", model.recipe.narrowed(inside).without_folds().to_json() + "\n")
        card = cards[inside[0]]
        about = {"format": WEIGHTS_FORMAT, "name": card.name, "classes": list(card.classes), "streams": inside}
        metrics = {stream: {"all": {"mAP": found.mAP}} for stream, found in cards.items()}
        write_json(weights / DESCRIPTION, {**about, "folds": {}, "training": dict(card.seen), "metrics": metrics})
    write_atomically(folder / "checkpoint.pt", content)
    return folder
