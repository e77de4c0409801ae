"""The model that a detection uses, and what a reader of its scores must know."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import CheckpointError, ConfigError, DeviceError
from lstr.files.atomic import replacing
from lstr.files.home import DEFAULTS, default_model, home
from lstr.pipelines.model_files.description import is_demo
from lstr.pipelines.model_files.exported_file import load_exported
from lstr.pipelines.model_files.model_file import is_model, load, open_checkpoint, open_model


def find_checkpoint(path: str | Path | None) -> Path:
    """`path`, else $LSTR_CHECKPOINT, else the default model. Raises CheckpointError when there is none."""
    if named := path or os.environ.get("LSTR_CHECKPOINT"):
        return Path(named)
    default = default_model()
    if default is None:
        raise CheckpointError(
            "There is no model to detect with: none was named, and none is the default one.",
            "name a model file with -m FILE, or as `model` in the file of `lstr watch`;\n"
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
    """The checkpoint to use, its model on `device` (a GPU when there is one), or an exported model.

    Raises CheckpointError when there is none, or it cannot be read.
    """
    found = find_checkpoint(path)
    if exported := _exported(found, overrides):
        return exported
    return open_checkpoint(found, overrides, device)


def read_checkpoint(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """The checkpoint of a path, its model on the CPU, or an exported model. Raises as `load_checkpoint`."""
    return _exported(path, overrides) or load(path, overrides)


def exported_path(checkpoint: Checkpoint | str | Path | None) -> Path | None:
    """The path of a checkpoint to use, where it is an exported model. Raises as `load_checkpoint`."""
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.path if checkpoint.exported else None
    found = find_checkpoint(checkpoint)
    return found if is_model(found) and open_model(found).exported is not None else None


def processor_of(path: Path, wanted: str | None) -> str:
    """The device of an exported model, where `wanted` may be another. Raises DeviceError for that."""
    if wanted not in (None, "cpu"):
        raise DeviceError(
            f"{path} is exported, and runs on the processor, not on {wanted}.",
            "leave the device out, or use the model file that it was exported from.",
        )
    return "cpu"


def _exported(path: str | Path, overrides: Mapping[str, Any] | None) -> Checkpoint | None:
    """An exported model; None where a path is no such file. Raises CheckpointError, ConfigError for overrides."""
    if not is_model(path) or (model := open_model(path)).exported is None:
        return None
    if overrides:
        raise ConfigError(f"{path} is exported: its settings are in its graphs.", "leave the settings out.")
    return load_exported(model)
