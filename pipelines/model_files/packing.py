"""Pack runs, or the average of several, and their networks into model files; change such files, and unpack them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from lstr import __version__
from lstr.average import Columns, average
from lstr.checkpoint import FORMAT, interpret, read, save, write_atomically
from lstr.errors import CheckpointError, MissingPathError, OutputError, RecipeError, WeightsError
from lstr.extractors.networks import weights_file
from lstr.extractors.networks.archive import CARD, TENSORS, Archive, Part, member_path, write_archive
from lstr.extractors.networks.build import build_network
from lstr.extractors.networks.manifest import origin_of
from lstr.extractors.networks.weights_folder import write_weights
from lstr.extractors.recipe import differences
from lstr.files.atomic import replacing, sweep, unwritable, write_bytes, write_tensors
from lstr.files.content import SURROGATE, read_object
from lstr.files.home import home
from lstr.loaded_checkpoint import CALIBRATION
from lstr.loaded_checkpoint import TENSORS as OF_MODEL
from lstr.pipelines.model_files.card import card_of
from lstr.pipelines.model_files.model_file import (
    MODEL,
    SEPARATOR,
    ModelFile,
    is_model,
    open_checkpoint,
    open_model,
    published_file,
    refusals,
    validation_videos,
)
from lstr.pipelines.model_files.networks import find_networks, recipe_of

AVERAGE_HINT = "average models that were trained with the same labels on features of the same networks."
# Entries of model.json that only `write_model` makes
OWN = tuple("lstr classes recipe config thresholds networks seen checkpoint members format".split())


def write_model(path: str | Path, checkpoint: Path, weights: Path | None, about: Mapping[str, Any]) -> ModelFile:
    """Pack a checkpoint and the networks of its features into a model file, completely or not at all.

    The same arguments give the same bytes.

    Args:
        path: The file to write.
        checkpoint: A run's file.
        weights: The weights folder (or file) of its networks; with None they are looked for where the run's features
            recorded them. Random ones need no file; published ones are not packed.
        about: Other entries of model.json, such as title, metrics (as `lstr evaluate --json`), demo, videos; `seen`
            adds videos {id: SHA-256 or None} to those that the checkpoint and its networks name.

    Raises:
        CheckpointError, WeightsError, RecipeError, OutputError: It cannot be packed or written.
    """
    path = free_path(path)
    content = read(checkpoint)
    loaded = interpret(checkpoint, content)
    if (loaded.recipe is None and not loaded.store) or loaded.format != FORMAT:
        raise CheckpointError(
            f"{checkpoint} does not record the recipe of its features, so its model file could not process a video.",
            "train it with `lstr train` on features that `lstr extract` made, or add --set features.rate=4.",
        )
    recipe = recipe_of(loaded)
    sources = dict.fromkeys(recipe.streams, str(weights)) if recipe and weights else find_networks(loaded)
    tensors = dict(content[OF_MODEL])
    for stream, table in content.get(CALIBRATION, {}).items():
        tensors |= {SEPARATOR.join((CALIBRATION, stream, name)): tensor for name, tensor in table.items()}
    parts: dict[str, Part] = {MODEL: (tensors, None)}
    networks: dict[str, dict[str, Any]] = {}
    seen = dict[str, Any](dict.fromkeys(loaded.metrics.get("training_videos") or ()))
    for stream, part in recipe.parts.items() if recipe else ():
        source = sources.get(stream)
        origin = "inside"
        if part.weights == "random":
            origin = "random"
        elif published_file(part, stream) and (source is None or Path(source).parent == home()):
            origin = "published"
        networks[stream] = {"from": origin, "network": part.network, "weights": part.weights}
        if origin == "inside" and source is None:
            raise WeightsError(
                f"{checkpoint} does not record where the weights of its {stream} network ({part.weights}) are.",
                "name the folder that `lstr finetune` wrote: --weights DIR.",
            )
        if origin == "random" or source is None:
            continue
        file = weights_file.network_file(source, stream)
        if origin == "inside":
            found = build_network(stream, part, weights_file.WeightSources({stream: source}))[1]
            if found.sha256 != part.sha256:
                raise RecipeError(
                    f"The {stream} network in {source} is {found.weights} {found.sha256}; the features of {checkpoint} "
                    f"were made with {part.weights} {part.sha256}.",
                    "name the folder of these weights: --weights DIR.",
                )
            card = weights_file.read_card(file)
            seen |= card.seen if card else {}
            parts[f"{stream}{TENSORS}"] = weights_file.read_state_dict(file), card.to_json() if card else None
        if began := origin_of(file):
            networks[stream]["origin"] = asdict(began)
    # Without date, command and paths, so that equal runs give equal files
    extra = {name: value for name, value in loaded.extra.items() if name not in ("networks", "thresholds")}
    for part_name, names in (("made_by", ("command", "date", "git")), ("data", ("features",))):
        if isinstance(extra.get(part_name), dict):
            extra[part_name] = {name: value for name, value in extra[part_name].items() if name not in names}
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
        "checkpoint": {"metrics": loaded.metrics, "extra": extra, "versions": loaded.versions},
    }
    return _write(path, document, parts)


def write_average(path: str | Path, sources: Sequence[str | Path]) -> Path:
    """Write the average of checkpoints and model files as one checkpoint, completely or not at all.

    Its features are those that any member takes. It keeps thresholds if all members have the same. Raises
    CheckpointError if classes differ, RecipeError if recipes do.
    """
    members = [open_checkpoint(source) for source in sources]
    first = members[0]
    for member in members:
        if member.classes != first.classes:
            message = f"{first.path} and {member.path} have different classes, or a different order of classes."
            raise CheckpointError(message, AVERAGE_HINT)
        if not member.recipe or member.format != FORMAT or member.config.kind == "average":
            what = "is already an average" if member.config.kind == "average" else "does not record a recipe"
            raise CheckpointError(f"{member.path} {what}, and cannot be part of an average.", AVERAGE_HINT)
    recipes = [recipe for recipe in map(recipe_of, members) if recipe]
    parts: dict[str, Any] = {}
    for recipe in reversed(recipes):
        parts |= recipe.parts
    framed = next((recipe for recipe in recipes if recipe.rgb), recipes[0])
    moving = next((recipe for recipe in recipes if recipe.flow), recipes[0])
    joined = replace(recipes[0], **parts, rgb_frame=framed.rgb_frame, flow_algorithm=moving.flow_algorithm)
    for member, recipe in zip(members, recipes, strict=True):
        if different := differences(joined.narrowed(recipe.streams).without_folds(), recipe.without_folds()):
            raise RecipeError(
                f"{first.path} and {member.path} take features of different recipes ({'; '.join(different)}).",
                AVERAGE_HINT,
            )
    # The place of each member's features among the joined ones; nothing for a member that takes all of them
    ends = list(accumulate(part.dim for part in joined.parts.values()))
    spans = {stream: (end - part.dim, end) for (stream, part), end in zip(joined.parts.items(), ends, strict=True)}
    columns: list[Columns] = [
        () if recipe.streams == joined.streams else tuple(spans[stream] for stream in recipe.streams)
        for recipe in recipes
    ]
    model = average([member.model for member in members], columns, *joined.dims)
    calibration = {stream: tables for member in members for stream, tables in member.calibration.items()}
    named = {
        "training_videos": [i for member in members for i in member.metrics.get("training_videos") or ()],
        "validation_videos": [i for member in members for i in validation_videos(member.metrics, member.about)],
    }
    metrics = {name: list(dict.fromkeys(ids)) for name, ids in named.items() if ids}
    places: dict[str, str] = {}
    for member in members:
        if is_model(member.path):
            places |= dict.fromkeys(open_model(member.path).inside, str(member.path.absolute()))
        else:
            places |= {stream: str(Path(place).absolute()) for stream, place in find_networks(member).items() if place}
    extra: dict[str, Any] = {"networks": {stream: {"path": place} for stream, place in places.items()}}
    extra["members"] = [{"kind": member.config.kind, "preset": member.extra.get("preset")} for member in members]
    data = [member.extra["data"] for member in members if isinstance(member.extra.get("data"), dict)]
    if data:
        extra["data"] = max(data, key=lambda about: (about.get("seen") or {}).get("videos", 0))
    thresholds = [member.extra.get("thresholds") for member in members]
    if all(rules == thresholds[0] for rules in thresholds):
        extra["thresholds"] = thresholds[0]
    save(path, model, first.classes, joined.to_dict(), metrics, extra, calibration)
    return Path(path)


def pack(runs: Sequence[Path], output: Path, weights: Path | None, about: Mapping[str, Any]) -> ModelFile:
    """Pack a run, checkpoint or model file, or the average of several, into a model file; arguments as `write_model`.

    A single model file is copied with other entries `about` itself. Raises OutputError if the output cannot be written,
    and as `write_model` and `write_average`.
    """
    sources = [checkpoint_of(run) for run in runs]
    if len(sources) == 1 and is_model(sources[0]):
        return change_model(open_model(sources[0]), free_path(output, sources[0]), about)
    if len(sources) == 1:
        return write_model(output, sources[0], weights, about)
    temporary = output.with_name(f".{output.name}.average.pt")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(output.parent, error) from error
    try:
        return write_model(output, write_average(temporary, sources), weights, about)
    finally:
        temporary.unlink(missing_ok=True)


def free_path(path: str | Path, model: Path | None = None) -> Path:
    """Return the path for a new model file. Raises OutputError if it is another kind of file, or its own source."""
    path = Path(path)
    if model and path.exists() and path.samefile(model):
        raise OutputError(f"{path} is the source and would be overwritten.", "choose another name with -o.")
    if path.exists() and not is_model(path):
        hint = "choose another name with -o, as in fall.lstr."
        raise OutputError(f"{path} exists and is not a model file.", hint)
    return path


def _write(path: Path, document: Mapping[str, Any], parts: Mapping[str, Part]) -> ModelFile:
    with refusals(path):  # metrics of other programs may be anything
        # as JSON has it: numbers that are not finite are null
        document = json.loads(msgspec.json.encode(document, enc_hook=lambda value: value.item()))
        card = card_of(document, path.name)
    sweep(path.parent, file_name=path.name)
    with replacing(path) as temporary:
        write_archive(temporary, document, card, parts)
    return open_model(path)


def change_model(
    model: ModelFile, output: str | Path, entries: Mapping[str, Any], parts: Mapping[str, Part] | None = None
) -> ModelFile:
    """Write a model file with changed entries of model.json, and with other `parts` if given, and so another card.

    The output may be the file itself: it is replaced, completely or not at all. Raises OutputError if it is not a model
    file, or cannot be written.
    """
    if parts is None:
        archive = Archive(model.path)
        with refusals(model.path):
            parts = {name: archive.read(name) for name in archive.members if name != CARD}
    document = {name: value for name, value in model.about.items() if name not in ("format", "members")}
    return _write(free_path(output), {**document, **entries}, parts)


def checkpoint_of(run: Path) -> Path:
    """Return the checkpoint of a run's folder, best.pt if it has one; a file is itself. Raises MissingPathError."""
    if not run.is_dir():
        return run
    found = [path for name in ("best.pt", "checkpoint.pt") if (path := run / name).is_file()]
    if not found:
        raise MissingPathError(f"{run} contains no checkpoint.", "use the folder that `lstr train` wrote.")
    return found[0]


def metrics_from(path: str | Path) -> dict[str, Any]:
    """Read the metrics that `lstr evaluate --json` printed into a file. Raises MissingPathError for any other file."""
    document = read_object(Path(path)) or {}
    is_text = not SURROGATE.search(json.dumps(document, ensure_ascii=False))  # else no card could hold it
    if not is_text or not isinstance(document.get("lstr"), dict):
        raise MissingPathError(
            f"{path} does not contain the metrics of one model.",
            "use what `lstr evaluate MODEL FEATURES --labels FILE --json` prints.",
        )
    return document


def unpack_model(path: str | Path, folder: str | Path) -> Path:
    """Unpack a model file to checkpoint.pt, card.md and, if it has networks, the folder `weights`; return the folder.

    Tensors are equal to the bit. Raises CheckpointError or WeightsError for a file that cannot be read, and OutputError
    if the folder already contains such files or cannot be written.
    """
    model, folder = open_model(path), Path(folder)
    taken = next((folder / name for name in ("checkpoint.pt", CARD, "weights") if (folder / name).exists()), None)
    if taken:
        raise OutputError(f"{taken} exists already.", "choose another folder with -o.")
    content = model.content()
    write_bytes(folder / CARD, [Archive(path).read(CARD)])  # as it is: it may be in no encoding at all
    weights, cards = folder / "weights", {}
    for stream in model.inside:
        member = member_path(model.path, stream)
        with replacing(weights / weights_file.file_name(stream)) as temporary:
            write_tensors(temporary, weights_file.read_content(member))
        if card := weights_file.read_card(member):
            cards[stream] = card
    if cards and len(cards) == len(model.inside):  # else they are files of other programs
        metrics = {stream: {"all": {"mAP": card.mAP}} for stream, card in cards.items()}
        recipe, seen = model.recipe.narrowed(cards), cards[model.inside[0]].seen
        write_weights(weights, recipe, {}, seen, {"metrics": metrics})
    write_atomically(folder / "checkpoint.pt", content)
    return folder
