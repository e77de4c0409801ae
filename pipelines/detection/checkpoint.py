"""The model that a detection uses, and what a reader of its scores must know."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import CheckpointError
from lstr.extractors.home import DEFAULTS, default_model, home
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.model_files.description import is_demo
from lstr.pipelines.model_files.hub import local_model
from lstr.pipelines.model_files.model_file import is_model, open_checkpoint, open_model


def find_checkpoint(path: str | Path | None) -> Path:
    """`path`, else $LSTR_CHECKPOINT, else the default model; of either an address on the Hub is fetched.

    Raises CheckpointError when there is none, or it cannot be fetched.
    """
    if named := path or os.environ.get("LSTR_CHECKPOINT"):
        return Path(local_model(named))
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
