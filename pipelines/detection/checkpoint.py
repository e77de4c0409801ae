"""The model that a detection uses, and what a reader of its scores must know."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import CheckpointError
from lstr.extractors.home import DEFAULTS, default_model, home
from lstr.extractors.weights.published_files import sha256_of
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.model_files.description import is_demo
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.model_files.opening import assumptions_of, open_checkpoint
from lstr.pipelines.networks.checkpoint_recipe import recipe_of


def find_checkpoint(path: str | Path | None) -> Path:
    """`path`, else $LSTR_CHECKPOINT, else the default model.

    Raises CheckpointError when there is none.
    """
    if path:
        return Path(path)
    if os.environ.get("LSTR_CHECKPOINT"):
        return Path(os.environ["LSTR_CHECKPOINT"])
    default = default_model()
    if default is None:
        raise CheckpointError(
            "There is no model to detect with: none was named, and none is the default one.",
            "name a model file with [[checkpoint=FILE]], which holds all that is needed;\n"
            "  to make one of your own labelled videos: lstr learn VIDEOS LABELS -o my.lstr",
        )
    return default


def make_default(path: str | Path) -> Path:
    """Copy a model file or checkpoint to where `lstr detect` looks when no other is named; returns that path.

    Raises CheckpointError for a demo model, whose detections on other videos mean nothing, and OutputError.
    """
    packed = is_model(path)
    if packed and is_demo(open_model(path).about):
        raise CheckpointError(
            f"{path} is a demo model, which is of no use for other videos.",
            "make a model of your own videos the default: lstr learn VIDEOS LABELS -o my.lstr",
        )
    kept, removed = DEFAULTS if packed else reversed(DEFAULTS)
    target = home() / kept
    with replacing(target) as temporary:
        shutil.copyfile(path, temporary)
    (home() / removed).unlink(missing_ok=True)
    return target


def load_checkpoint(
    path: str | Path | None, overrides: Mapping[str, str] | None = None, device: str | None = None
) -> Checkpoint:
    """The checkpoint to use, its model on `device` (a GPU when there is one).

    Raises CheckpointError when there is none, or it cannot be read.
    """
    return open_checkpoint(find_checkpoint(path), overrides, device)


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


def _has_seen(seen: Mapping[str, Any], source_id: str, video: Path | None) -> bool:
    """Whether a source is among videos {id: SHA-256, or None where that is not known}."""
    hashes = {sha256 for sha256 in seen.values() if sha256}
    if video and hashes:
        with suppress(OSError):  # opening it says why
            return sha256_of(video) in hashes or seen.get(source_id, "") is None
    return source_id in seen
