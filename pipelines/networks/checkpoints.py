"""A checkpoint as jobs use it: on a device, and with what its file left open."""

from collections.abc import Mapping
from pathlib import Path

from extractors.devices import choose_device
from lstr import checkpoint
from lstr.checkpoint import Checkpoint


def open_checkpoint(
    path: str | Path, overrides: Mapping[str, str] | None = None, device: str | None = None
) -> Checkpoint:
    """A checkpoint with its model on `device` (a GPU when there is one). Raises CheckpointError and DeviceError."""
    place = choose_device(device)
    loaded = checkpoint.load(path, overrides)
    loaded.model.to(place)
    return loaded


def assumptions_of(loaded: Checkpoint) -> list[str]:
    """What was assumed because a published checkpoint does not say it, in a sentence; empty when nothing was."""
    if not loaded.assumed:
        return []
    values = ", ".join(f"{name} {value}" for name, value in loaded.assumed.items())
    return [f"{loaded.path} does not say {values}: these are the published defaults; change them with --set model.…"]
