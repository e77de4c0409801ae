"""Where the weights of a recipe's networks are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lstr.extractors.streams import STREAMS

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class WeightSources:
    """Where the networks' weights come from: a file, a weights folder, or None for seeded random weights."""

    rgb: str | None = None
    flow: str | None = None
    calibration: "Mapping[str, Mapping[str, Tensor]]" = field(default_factory=dict)
    """Stored batch-norm statistics by stream, for random weights."""
    calibrated_on: tuple[str, ...] = ()
    grey: str | None = None
    difference: str | None = None
    change: str | None = None
    graphs: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    """Reads the graph of a stream's network, where those are of an exported model."""

    @classmethod
    def of(cls, files: "Mapping[str, str | None]") -> "WeightSources":
        """The sources of files by stream."""
        named: dict[str, Any] = dict(files)
        return cls(**named)

    @property
    def files(self) -> dict[str, str | None]:
        """Where each stream's weights come from."""
        return {stream: getattr(self, stream) for stream in STREAMS}
