"""A checkpoint that was read: a model ready to score, and what is known of it. Whoever holds one needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr.chunk import CLOCK, Clock
from lstr.config import WindowConfig
from lstr.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from lstr.exported_streaming import ExportedStep
    from lstr.models.kind import Model

FORMAT = "lstr-checkpoint/1"
TENSORS = "model_state_dict"
CALIBRATION = "calibration"


@dataclass(frozen=True)
class Checkpoint:
    """A model ready to score, and what is known of it."""

    model: Model
    """In eval mode, on the CPU; None of an exported file, where `exported` is in its place."""
    config: WindowConfig
    classes: tuple[str, ...]
    recipe: dict[str, Any] | None
    """The feature recipe it was trained on; None when not recorded."""
    metrics: dict[str, Any]
    extra: dict[str, Any]
    calibration: dict[str, dict[str, Tensor]]
    """Batch-norm statistics of random feature networks by stream: part of the recipe that JSON cannot hold."""
    versions: dict[str, str]
    format: str
    path: Path
    assumed: dict[str, Any]
    """Configuration that neither the file nor the caller states."""
    exported: ExportedStep | None = None
    """The step of an exported file, which runs without torch."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the model file states that it is from; empty for a checkpoint."""

    @property
    def store(self) -> Mapping[str, Any]:
        """What it states of the store of other people whose features it has learnt from; empty of features that are
        made here, and of arrays as these."""
        data = self.extra.get("data")
        store = data.get("store") if isinstance(data, dict) else None
        return store if isinstance(store, dict) else {}

    @property
    def clock(self) -> Clock:
        """When the chunks of its features are. Raises CheckpointError where what it states is no clock."""
        try:
            return Clock.from_dict(self.store) if self.store else CLOCK
        except ValueError as error:
            raise CheckpointError(
                f"{self.path} states no rate of its features that can be used ({error}).",
                "Fetch or copy the file again.",
            ) from error
