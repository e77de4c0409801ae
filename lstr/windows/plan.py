"""A plan: what the next chunk of each of B streams needs to know of its place in time, as arrays by name.

The numbers follow from how many chunks each stream has seen. `Model.step` then is arithmetic on tensors alone. Of the
arrays

- a bool one tells where something is to be done; where that is so nowhere it may be missing, which costs less.
- `NAME.…`, each (B, ...), are about the streams where the bool array NAME (B,) is true, and do no harm to the others.
  They may be cut to those streams (NAME is then missing), and missing where there are none.

Rows count through the rings of all streams, one ring after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from lstr.config import MOST, WindowConfig
from lstr.errors import ConfigError
from lstr.settings import field_types

Plan = dict[str, NDArray[Any]]

# The streams whose long memory is not what it was, and has to be summed up anew: what costs most of a step.
CHANGES = "changes"
GRIDS: tuple[str, ...] = get_args(field_types(WindowConfig)["grid"])
MAY_BE_0 = ("long_length", "anticipation", "context")


def needed(plan: Plan) -> Plan:
    """What of a plan does anything: the least work, in shapes that differ from chunk to chunk."""
    groups = {name.partition(".")[0] for name in plan if "." in name}
    kept = {}
    for name, values in plan.items():
        group, _, rest = name.partition(".")
        if rest:
            values = values[plan[group]]
        if name not in groups and len(values) and (values.dtype != np.bool_ or values.any()):
            kept[name] = values
    return kept


def of_two_shapes(plan: Plan) -> Plan:
    """The plan, without what sums up long memories where none is to be: what a captured or exported step needs."""
    if CHANGES not in plan or plan[CHANGES].any():
        return plan
    # of a model of several each group has its member's number before it
    return {n: values for n, values in plan.items() if n.partition(".")[0].rpartition("/")[2] != CHANGES}


def joined(plans: Iterable[Plan]) -> Plan:
    """The plan of several models that step together: each one's arrays as NUMBER/NAME, and whether any has CHANGES."""
    plan = {f"{at}/{name}": values for at, own in enumerate(plans) for name, values in own.items()}
    changes = [values for name, values in plan.items() if name.endswith(f"/{CHANGES}")]
    return plan | ({CHANGES: np.logical_or.reduce(changes)} if changes else {})


class Planner(ABC):
    """Plans by the number of chunks that streams have seen. Each form is a frozen dataclass; `forms` lists them."""

    @abstractmethod
    def __call__(self, chunks: NDArray[np.int64]) -> Plan:
        """The plan of the next chunk of streams that have seen `chunks` (B,); one at 0 begins anew.

        Its arrays have shapes that follow from B alone.
        """

    @classmethod
    def of(cls, config: Any) -> Self:
        """The planner of this form that has its numbers from a configuration, by their names, else by default."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: getattr(config, name) for name in names if hasattr(config, name)})

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
