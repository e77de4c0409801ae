"""What an exported step takes and gives: every tensor by name, of a fixed shape, and the plan that it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lstr.config import MOST, SizeOrZero, WindowConfig
from lstr.errors import CheckpointError, ConfigError
from lstr.windows.plans import Plan, Planner, from_dict, to_dict

FEATURES, SCORES = "features", "scores"
# What the names of inputs and outputs begin with that are of a plan, and of what is kept from chunk to chunk
PLAN, BEFORE, AFTER = "plan.", "before.", "after."
MOST_STREAMS = 256
# What is kept of all streams of a step takes no more.
MOST_BYTES = 2 << 30
TYPES = {"float32": np.float32, "bool": np.bool_, "int64": np.int64}
AGAIN = "export the model again with `lstr export`."


@dataclass(frozen=True)
class Kept:
    """A tensor that a stream keeps from chunk to chunk, without the streams' own dimension."""

    shape: tuple[int, ...]
    dtype: str
    """float32, or bool, which is true before the first chunk; numbers are 0 then."""

    def begun(self, n_streams: int) -> NDArray[Any]:
        """The tensor of streams before their first chunk: (B, ...)."""
        begin = np.ones if self.dtype == "bool" else np.zeros
        return begin((n_streams, *self.shape), TYPES[self.dtype])


@dataclass(frozen=True)
class StepDescription:
    """What an exported step takes and gives.

    Inputs: `features` (B, rgb_dim + flow_dim), `plan.NAME` and `before.NAME` (B, ...). Outputs: `scores`
    (B, 1 + ahead, classes), a softmax, and `after.NAME`, which are the next chunk's `before.NAME`.
    """

    streams: int
    """B, the streams that one call of the graph steps"""
    rgb_dim: int
    flow_dim: int
    classes: int
    ahead: int
    """Chunks ahead of the newest that it scores too"""
    work_length: int
    long_length: int
    """Chunks that its long memory spans; 0 without one"""
    kept: Mapping[str, Kept]
    planner: Planner

    @property
    def input_dim(self) -> int:
        """Width of a chunk's features: appearance first, then motion."""
        return self.rgb_dim + self.flow_dim

    def plan(self, chunks: NDArray[np.int64]) -> Plan:
        """The plan of the next chunk of streams that have seen `chunks` (B,)."""
        return self.planner(chunks)

    def inputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each input by name."""
        plan = self.plan(np.zeros(self.streams, dtype=np.int64))
        return {
            FEATURES: ((self.streams, self.input_dim), "float32"),
            **{f"{PLAN}{name}": (values.shape, str(values.dtype)) for name, values in plan.items()},
            **{f"{BEFORE}{name}": ((self.streams, *kept.shape), kept.dtype) for name, kept in self.kept.items()},
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each output by name."""
        return {
            SCORES: ((self.streams, 1 + self.ahead, self.classes), "float32"),
            **{f"{AFTER}{name}": ((self.streams, *kept.shape), kept.dtype) for name, kept in self.kept.items()},
        }

    def to_dict(self) -> dict[str, Any]:
        """It as JSON has it."""
        return {
            **{name: getattr(self, name) for name in NUMBERS},
            "kept": {name: {"shape": list(kept.shape), "dtype": kept.dtype} for name, kept in self.kept.items()},
            "plan": to_dict(self.planner),
        }

    @classmethod
    def from_dict(cls, entry: Any) -> StepDescription:
        """A description from its JSON. Raises CheckpointError for anything else, and for sizes that no model has."""
        try:
            values = msgspec.convert(entry, dict[str, Any])
            numbers = {name: msgspec.convert(values[name], int) for name in NUMBERS}
            kept = msgspec.convert(values["kept"], dict[str, Kept])
            found = cls(**numbers, kept=kept, planner=from_dict(values["plan"]))
            if fault := found._fault():
                raise ValueError(fault)
        except (ValueError, LookupError, TypeError, ConfigError) as error:
            raise CheckpointError(f"What is said of an exported step cannot be ({error}).", AGAIN) from error
        return found

    def _fault(self) -> str:
        """Why it is that of no step; nothing where it may be."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        if min(numbers.values()) < 0 or max(numbers.values()) >= MOST or self.classes < 1 or self.input_dim < 1:
            return f"its sizes are {numbers}"
        if not 1 <= self.streams <= MOST_STREAMS:
            return f"it is for {self.streams} streams"
        total = 0
        for name, kept in self.kept.items():
            if kept.dtype not in ("float32", "bool") or any(not 0 <= size < MOST for size in kept.shape):
                return f"{name} is {kept.dtype} of shape {kept.shape}"
            total += self.streams * math.prod(kept.shape) * np.dtype(TYPES[kept.dtype]).itemsize
        return f"what it keeps takes {total} bytes" if total > MOST_BYTES else ""


NUMBERS = ("streams", "rgb_dim", "flow_dim", "classes", "ahead", "work_length", "long_length")


class ExportedConfig(WindowConfig, frozen=True):
    """The widths and lengths of a model whose step is a graph, whatever its kind is: nothing can be made of it."""

    ahead: SizeOrZero = 0

    def __post_init__(self) -> None:
        """Nothing is checked: the description was."""

    @classmethod
    def of(cls, step: StepDescription, kind: str) -> ExportedConfig:
        """The widths and lengths of a step."""
        return cls(
            kind=kind,
            rgb_dim=step.rgb_dim,
            flow_dim=step.flow_dim,
            work_length=step.work_length,
            long_length=step.long_length,
            long_stride=1,
            ahead=step.ahead,
        )

    @property
    def n_ahead(self) -> int:
        """Like `WindowConfig.n_ahead`."""
        return self.ahead
