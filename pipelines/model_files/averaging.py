"""Several trained models as one checkpoint: the average of their scores, on the features that all of them take."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lstr import checkpoint
from lstr.average import Columns, average
from lstr.errors import CheckpointError, RecipeError
from lstr.extractors.recipe import Recipe, differences
from lstr.extractors.streams import streams_of_model
from lstr.files.atomic import unwritable
from lstr.loaded_checkpoint import FORMAT, Checkpoint
from lstr.pipelines.model_files.known_networks import find_networks
from lstr.pipelines.model_files.model_file import chosen_on, is_model, load, open_model

HINT = "average models that were trained with the same labels on features of the same networks."


def write_average(path: str | Path, sources: Sequence[str | Path]) -> Path:
    """Write the average of checkpoints and model files as one checkpoint, which appears whole or not at all.

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
    model = average([one.model for one in members], [_columns(own, recipe) for own in taken], *recipe.dims)
    calibration = {stream: tables for one in members for stream, tables in one.calibration.items()}
    videos = dict.fromkeys(i for one in members for i in one.metrics.get("training_videos") or ())
    chosen = dict.fromkeys(i for one in members for i in chosen_on(one.metrics, one.about))
    named = {"training_videos": list(videos), "validation_videos": list(chosen)}
    metrics = {name: ids for name, ids in named.items() if ids}
    checkpoint.save(path, model, first.classes, recipe.to_dict(), metrics, _extra(members), calibration)
    return Path(path)


@contextmanager
def averaged(sources: Sequence[Path], output: Path) -> Iterator[Path]:
    """A checkpoint to pack: the only one of several, or their average in a file beside `output`, which goes again.

    The folder is made. Raises OutputError where it cannot be, and as `write_average`.
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
    """The recipe that makes the features of all members. Raises RecipeError where two do not go together."""
    parts: dict[str, Any] = {}
    for recipe in recipes:
        parts = {**recipe.parts, **parts}
    framed = next((recipe for recipe in recipes if recipe.rgb), recipes[0])
    moving = next((recipe for recipe in recipes if recipe.flow), recipes[0])
    joined = replace(recipes[0], **parts, rgb_frame=framed.rgb_frame, flow_algorithm=moving.flow_algorithm)
    for one, recipe in zip(members, recipes, strict=True):
        if different := differences(joined.narrowed(recipe.streams).without_folds(), recipe.without_folds()):
            raise RecipeError(
                f"{members[0].path} and {one.path} take features of other recipes ({'; '.join(different)}).", HINT
            )
    return joined


def _columns(recipe: Recipe, joined: Recipe) -> Columns:
    """Where the features of a recipe are among the joined ones; nothing where they are all of them."""
    found, start = [], 0
    for stream, part in joined.parts.items():
        if stream in recipe.streams:
            found.append((start, start + part.dim))
        start += part.dim
    return () if len(found) == len(joined.parts) else tuple(found)


def _extra(members: Sequence[Checkpoint]) -> dict[str, Any]:
    """What the members say beside classes and recipe, as far as it is also true of their average."""
    places = {stream: str(place) for one in members for stream, place in _networks(one).items() if place}
    extra: dict[str, Any] = {"networks": {stream: {"path": place} for stream, place in places.items()}}
    extra["members"] = [{"kind": one.config.kind, "preset": one.extra.get("preset")} for one in members]
    data = [one.extra["data"] for one in members if isinstance(one.extra.get("data"), dict)]
    if data:
        extra["data"] = max(data, key=lambda about: (about.get("seen") or {}).get("videos", 0))
    thresholds = [one.extra.get("thresholds") for one in members]
    return extra | ({"thresholds": thresholds[0]} if all(one == thresholds[0] for one in thresholds) else {})


def _networks(loaded: Checkpoint) -> Mapping[str, str | None]:
    """Where the networks of a member's features are, by stream."""
    if is_model(loaded.path):
        model = open_model(loaded.path)
        return {stream: str(Path(loaded.path).absolute()) for stream in model.networks if model.has_inside(stream)}
    return {stream: place and str(Path(place).absolute()) for stream, place in find_networks(loaded).items()}
