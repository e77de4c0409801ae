"""A checkpoint or a model file as jobs use it: on a device, and with what its file left open."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lstr.checkpoints.loaded import Checkpoint
from lstr.extractors.devices import choose_device
from lstr.pipelines.model_files.model_file import is_meant_as_model, open_model


def open_checkpoint(
    path: str | Path, overrides: Mapping[str, str] | None = None, device: str | None = None
) -> Checkpoint:
    """A checkpoint, or that of a model file, with its model on `device` (a GPU when there is one).

    Raises CheckpointError and DeviceError.
    """
    place = choose_device(device)
    loaded = load(path, overrides)
    loaded.model.to(place)
    return loaded


def load(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint of ours or of the published code, or a model file; its model is on the CPU.

    `overrides` (setting to value) are what a published checkpoint does not say: n_heads, long_length,
    long_stride. Raises CheckpointError when the file is missing, damaged, unsafe, or contradicts its configuration, and
    ConfigError on a bad override.
    """
    if is_meant_as_model(path):
        return open_model(path).checkpoint(overrides=overrides)
    from lstr.checkpoints import checkpoint

    return checkpoint.load(path, overrides)


def assumptions_of(loaded: Checkpoint) -> list[str]:
    """What was assumed because a published checkpoint does not say it, in a sentence; empty when nothing was."""
    if not loaded.assumed:
        return []
    values = ", ".join(f"{name} {value}" for name, value in loaded.assumed.items())
    return [f"{loaded.path} does not say {values}: these are the published defaults; the settings model.… change them"]
