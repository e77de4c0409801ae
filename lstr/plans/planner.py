"""What makes the plans of a model: a value of numbers alone, which can be written beside a model and read again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lstr.config import MOST, WindowConfig
from lstr.errors import ConfigError
from lstr.plans.plan import Plan

GRIDS = tuple(WindowConfig.choices["grid"])
MAY_BE_0 = ("long_length", "anticipation", "context")


class Planner(ABC):
    """Plans by the number of chunks that streams have seen. Each form is a frozen dataclass; `forms` lists them."""

    @abstractmethod
    def __call__(self, chunks: NDArray[np.int64]) -> Plan:
        """The plan of the next chunk of streams that have seen `chunks` (B,); one at 0 begins anew.

        Its arrays have shapes that follow from B alone.
        """

    @classmethod
    def of(cls, config: Any) -> Self:
        """The planner of this form that has its numbers from a configuration, by their names."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})  # type: ignore[arg-type]

    def check(self) -> None:
        """Raise ConfigError for a length that no memory has."""
        for field in fields(self):  # type: ignore[arg-type]
            value, least = getattr(self, field.name), 0 if field.name in MAY_BE_0 else 1
            if type(value) is int and not least <= value < MOST:
                raise ConfigError(f"A plan has {field.name} {value}.", "Export the model again.")


@dataclass(frozen=True)
class Memories(Planner):
    """What the forms with a long memory share; `lstr.windows.indices` takes it for a configuration."""

    work_length: int
    long_length: int
    long_stride: int
    grid: str

    @property
    def n_long(self) -> int:
        """Slots of the long memory."""
        return self.long_length // self.long_stride

    def check(self) -> None:
        """Like `Planner.check`, for the grid too."""
        super().check()
        if self.grid not in GRIDS or self.long_length % self.long_stride:
            raise ConfigError(f"A plan has no grid {self.grid!r} of such lengths.", "Export the model again.")
