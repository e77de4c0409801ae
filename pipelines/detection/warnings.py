"""What a reader of the scores must know, of the model and of one source."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lstr.checkpoints.loaded import Checkpoint
from lstr.extractors.weights.published_files import sha256_of
from lstr.pipelines.model_files.description import is_demo
from lstr.pipelines.model_files.model_file import assumptions_of
from lstr.pipelines.networks.checkpoint_recipe import recipe_of

NEARLY_ALL = 0.85  # of the shorter part of a picture that is seen: from 3:2 to 4:3, no more


def warnings_of(loaded: Checkpoint) -> list[str]:
    """What a reader of the scores must know."""
    warnings = [*assumptions_of(loaded)]
    recipe = recipe_of(loaded)
    if recipe and recipe.is_random:
        warnings.append(f"the {recipe.random_streams} networks carry random weights: the features are untrained.")
    return warnings


def warnings_of_source(loaded: Checkpoint, source_id: str, video: Path | None = None) -> list[str]:
    """What a reader of one source's scores must know, as far as the model file says what it has seen.

    A video file is known by its SHA-256, another source by its id alone.
    """
    seen: Mapping[str, Any] = loaded.about.get("seen") or {}
    if _has_seen(seen, source_id, video):
        return [f"{loaded.path} was trained on {source_id}: on new videos it is likely to do worse."]
    if is_demo(loaded.about) and source_id not in (loaded.about.get("videos") or ()):
        return [f"{loaded.path} is a demo model: it has only seen drawings, so what it says of other videos is chance."]
    return []


def warnings_of_shape(loaded: Checkpoint, width: int, height: int) -> list[str]:
    """What a reader of the scores of pictures of this size must know, where networks see less of them than of others.

    A square of the middle is what published networks see of any picture, and is no news.
    """
    recipe, shown = recipe_of(loaded), width / height
    sizes = [part.size for part in recipe.parts.values() if part.size] if recipe else []
    parts = [(across / down / shown, "width") for down, across in sizes]
    parts += [(1 / part, "height") for part, _ in parts]
    share, side = min(parts, default=(1.0, ""))
    if share >= NEARLY_ALL:
        return []
    what = f"of pictures of {width}×{height} pixels only the middle {100 * share:.0f} % of the {side} is seen"
    return [f"{what}: {loaded.path} learnt from pictures of another shape."]


def _has_seen(seen: Mapping[str, Any], source_id: str, video: Path | None) -> bool:
    """Whether a source is among videos {id: SHA-256, or None where that is not known}."""
    hashes = {sha256 for sha256 in seen.values() if sha256}
    if video and hashes:
        with suppress(OSError):  # opening it says why
            return sha256_of(video) in hashes or seen.get(source_id, "") is None
    return source_id in seen
