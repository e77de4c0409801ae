"""Several trained models as one checkpoint: the average of their scores, on the features that all of them take."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from lstr.average import Columns, average
from lstr.checkpoint import FORMAT, save
from lstr.errors import CheckpointError, RecipeError
from lstr.extractors.networks.archive import is_archive
from lstr.extractors.recipe import Recipe, differences
from lstr.extractors.streams import streams_of_model
from lstr.files.atomic import unwritable
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.model_files.model_file import chosen_on, load, open_model
from lstr.pipelines.model_files.networks import find_networks

HINT = "average models that were trained with the same labels on features of the same networks."


def write_average(path: str | Path, sources: Sequence[str | Path]) -> Path:
    """Write the average of checkpoints and model files as one checkpoint, completely or not at all.

    Its features are those that any member takes. It keeps thresholds where all members have the same. Raises
    CheckpointError where classes differ, RecipeError where recipes do.
    """
    members = [load(source) for source in sources]
    first = members[0]
    for other in members:
        if other.classes != first.classes:
            raise CheckpointError(f"{first.path} and {other.path} know other classes, or in another order.", HINT)
        if other.recipe is None or other.format != FORMAT or other.config.kind == "average":
            what = "is an average already" if other.config.kind == "average" else "does not say how features are made"
            raise CheckpointError(f"{other.path} {what}, and cannot be part of an average.", HINT)
    taken = [Recipe.from_dict(one.recipe, one.path).narrowed(streams_of_model(one.config.streams)) for one in members]
    recipe = _joined(members, taken)
    # Where the features of each member are among the joined ones; nothing for a member that takes all of them.
    ends = list(accumulate(part.dim for part in recipe.parts.values()))
    spans = {stream: (end - part.dim, end) for (stream, part), end in zip(recipe.parts.items(), ends, strict=True)}
    columns: list[Columns] = [
        () if own.streams == recipe.streams else tuple(spans[stream] for stream in own.streams) for own in taken
    ]
    model = average([one.model for one in members], columns, *recipe.dims)
    calibration = {stream: tables for one in members for stream, tables in one.calibration.items()}
    videos = dict.fromkeys(i for one in members for i in one.metrics.get("training_videos") or ())
    chosen = dict.fromkeys(i for one in members for i in chosen_on(one.metrics, one.about))
    named = {"training_videos": list(videos), "validation_videos": list(chosen)}
    metrics = {name: ids for name, ids in named.items() if ids}
    save(path, model, first.classes, recipe.to_dict(), metrics, _extra(members), calibration)
    return Path(path)


@contextmanager
def averaged(sources: Sequence[Path], output: Path) -> Iterator[Path]:
    """Yield a checkpoint to pack: the only one, or the average of several in a temporary file next to `output`.

    The folder is made. Raises OutputError if it cannot be, and as `write_average`.
    """
    if len(sources) == 1:
        yield sources[0]
        return
    beside = output.with_name(f".{output.name}.average.pt")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(output.parent, error) from error
    try:
        yield write_average(beside, sources)
    finally:
        beside.unlink(missing_ok=True)


def _joined(members: Sequence[Checkpoint], recipes: Sequence[Recipe]) -> Recipe:
    """Return the recipe that makes the features of all members. Raises RecipeError if two do not go together."""
    parts: dict[str, Any] = {}
    for recipe in recipes:
        parts = {**recipe.parts, **parts}
    framed = next((recipe for recipe in recipes if recipe.rgb), recipes[0])
    moving = next((recipe for recipe in recipes if recipe.flow), recipes[0])
    joined = replace(recipes[0], **parts, rgb_frame=framed.rgb_frame, flow_algorithm=moving.flow_algorithm)
    for one, recipe in zip(members, recipes, strict=True):
        if different := differences(joined.narrowed(recipe.streams).without_folds(), recipe.without_folds()):
            raise RecipeError(
                f"{members[0].path} and {one.path} take features of other recipes ({'; '.join(different)}).",
                HINT,
            )
    return joined


def _extra(members: Sequence[Checkpoint]) -> dict[str, Any]:
    """Return what the members say besides classes and recipe, as far as it is also true of their average."""
    places: dict[str, str] = {}
    for one in members:
        if is_archive(one.path):
            model = open_model(one.path)
            places |= {stream: str(one.path.absolute()) for stream in model.networks if model.has_inside(stream)}
        else:
            places |= {stream: str(Path(place).absolute()) for stream, place in find_networks(one).items() if place}
    extra: dict[str, Any] = {"networks": {stream: {"path": place} for stream, place in places.items()}}
    extra["members"] = [{"kind": one.config.kind, "preset": one.extra.get("preset")} for one in members]
    data = [one.extra["data"] for one in members if isinstance(one.extra.get("data"), dict)]
    if data:
        extra["data"] = max(data, key=lambda about: (about.get("seen") or {}).get("videos", 0))
    thresholds = [one.extra.get("thresholds") for one in members]
    return extra | ({"thresholds": thresholds[0]} if all(one == thresholds[0] for one in thresholds) else {})
