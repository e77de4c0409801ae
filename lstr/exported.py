"""Exported steps: what one takes and gives, and streams of it, as `lstr.streaming` has, by NumPy and ONNX Runtime.

    step = open_step(description, graph)
    state = create(step)
    for rgb, flow in chunks:
        scores = step_ahead(step, state, rgb, flow)[0]

A description has every tensor by name, of a fixed shape, and the plan that the step needs. A graph steps as many
streams as it was exported for. A state may have any number: those that have a chunk go through the graph as many at a
time, and what is kept of the others stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstr.config import MOST, SizeOrZero, WindowConfig
from lstr.errors import CheckpointError, ConfigError, LstrError
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


INSTALL = 'pip install "lstr-video[onnxruntime]"'
# Types of tensors as ONNX Runtime names them
NAMES = {"tensor(float)": "float32", "tensor(bool)": "bool", "tensor(int64)": "int64"}

Features = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ExportedStep:
    """The step of a model in ONNX Runtime; as many threads as like may run it."""

    description: StepDescription
    session: Any


@dataclass
class ExportedState:
    """The memory of some streams of an exported step. Make it with `create`."""

    step: ExportedStep
    tensors: Arrays
    """By name, each (B, ...)."""
    chunks: NDArray[np.int64]
    """(B,) chunks seen; the next one has this index."""


def open_step(description: StepDescription, graph: bytes, threads: int = 1) -> ExportedStep:
    """A graph, from a file that was checked, ready to run on so many threads.

    Raises LstrError where ONNX Runtime is not installed, CheckpointError where the graph is not what it is said to be.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise LstrError("The package onnxruntime is not installed, which runs exported models.", INSTALL) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3  # errors
    try:
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # a runtime fails in as many ways as there are graphs
        first = str(error).partition("\n")[0]
        raise CheckpointError(f"ONNX Runtime cannot run the exported step ({first}).", "update onnxruntime.") from error
    for found, stated in (
        (session.get_inputs(), description.inputs()),
        (session.get_outputs(), description.outputs()),
    ):
        if {one.name: (tuple(one.shape), NAMES.get(one.type, one.type)) for one in found} != stated:
            raise CheckpointError(
                "The exported step takes and gives other tensors than its file says.", "export the model again."
            )
    return ExportedStep(description, session)


def create(step: ExportedStep, n_streams: int = 1) -> ExportedState:
    """Streams before their first chunk. Raises LstrError for none."""
    if n_streams < 1:
        raise LstrError(f"{n_streams} streams are none.", "make one or more.")
    tensors = {name: kept.begun(n_streams) for name, kept in step.description.kept.items()}
    return ExportedState(step, tensors, np.zeros(n_streams, dtype=np.int64))


def reset(state: ExportedState, streams: Sequence[int] | None = None) -> None:
    """Forget every chunk of all streams, or of some, as if they had just been made.

    Raises LstrError for a stream that the state does not have.
    """
    which = range(len(state.chunks)) if streams is None else streams
    if wrong := [n for n in which if not 0 <= n < len(state.chunks)]:
        raise LstrError(f"There is no stream {wrong[0]}.", f"the state has streams 0 to {len(state.chunks) - 1}.")
    state.chunks[list(which)] = 0
    for name, kept in state.step.description.kept.items():
        state.tensors[name][list(which)] = kept.begun(len(which))


def step_ahead(
    step: ExportedStep, state: ExportedState, rgb: ArrayLike | None, flow: ArrayLike | None
) -> NDArray[np.float32]:
    """Like `lstr.streaming.step_ahead`: (1 + n_ahead, C) of one stream, or (B, 1 + n_ahead, C); entry 0 is the chunk.

    Raises LstrError on features that do not fit or are not finite; the state is then unchanged.
    """
    single = len(state.chunks) == 1 and all(part is None or np.ndim(part) == 1 for part in (rgb, flow))
    given = [None if part is None else np.asarray(part)[None] if single else np.asarray(part) for part in (rgb, flow)]
    scores = step_some(step, state, range(len(state.chunks)), *given)
    return scores[0] if single else scores


def step_some(
    step: ExportedStep, state: ExportedState, streams: Sequence[int], rgb: ArrayLike | None, flow: ArrayLike | None
) -> NDArray[np.float32]:
    """Like `step_ahead` for some of the streams, each named once: rgb (n, rgb_dim), flow (n, flow_dim), in their order.

    The others stay as they are. Returns (n, 1 + n_ahead, C).
    """
    features = _features(step.description, rgb, flow, len(streams))
    size, which = step.description.streams, np.array(streams, dtype=np.int64)
    starts = range(0, len(which), size)
    parts = [_after(step, state, which[at : at + size], features[at : at + size]) for at in starts]
    for at, (_, after) in zip(starts, parts, strict=True):  # once all have been computed
        for name, values in after.items():
            state.tensors[name][which[at : at + size]] = values
    state.chunks[which] += 1
    return np.concatenate([scores for scores, _ in parts])


def _after(
    step: ExportedStep, state: ExportedState, which: NDArray[np.int64], features: Features
) -> tuple[NDArray[np.float32], Arrays]:
    """Scores (n, 1 + n_ahead, C) of streams (n,), no more than the graph steps at once, and what they keep then."""
    about, spare = step.description, step.description.streams - len(which)
    chunks = np.pad(state.chunks[which], (0, spare))  # those to spare are as before their first chunk
    given = {FEATURES: np.pad(features, ((0, spare), (0, 0)))}
    given |= {f"{PLAN}{name}": values for name, values in about.plan(chunks).items()}
    for name, kept in about.kept.items():
        own = state.tensors[name][which]
        given[f"{BEFORE}{name}"] = np.concatenate([own, kept.begun(spare)]) if spare else own
    names = [SCORES, *(f"{AFTER}{name}" for name in about.kept)]
    scores, *after = step.session.run(names, given)
    kept_after = {name: values[: len(which)] for name, values in zip(about.kept, after, strict=True)}
    return scores[: len(which)], kept_after


def _features(about: StepDescription, rgb: ArrayLike | None, flow: ArrayLike | None, n_streams: int) -> Features:
    """Both features of a chunk, checked and joined, (n, D)."""
    parts: list[NDArray[np.float32]] = []
    for name, values, width in (("rgb", rgb, about.rgb_dim), ("flow", flow, about.flow_dim)):
        if width == 0:
            continue
        if values is None:
            raise LstrError(f"The model takes {name} features but the chunk has none.", f"Extract {name} features too.")
        part = np.asarray(values)
        if part.dtype.kind not in "biuf":
            raise LstrError(f"The {name} features are no numbers ({part.dtype}).", "Use features of real numbers.")
        if part.shape != (n_streams, width):
            raise LstrError(
                f"The {name} features have shape {part.shape}, the stream takes ({n_streams}, {width}).",
                "Use features from the recipe the model was trained on, one row per stream.",
            )
        parts.append(part.astype(np.float32, copy=False))
    features = np.concatenate(parts, axis=1)  # (n, D)
    if not np.isfinite(features).all():
        raise LstrError("The features of the chunk are not finite.", "Leave this chunk out, or extract it again.")
    return features
