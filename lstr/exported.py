"""Exported steps: a step's description, and streams of it by NumPy and ONNX Runtime, as `lstr.streaming` has by torch.

    step = open_step(description, graph)
    state = create(step)
    for rgb, flow in chunks:
        scores = step_streams(step, state, [0], rgb[None], flow[None])[0]

A graph has tensors of fixed shapes, so it steps the number of streams that it was exported for. A state may have any
number of streams: they pass the graph in groups.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike, NDArray

from lstr.chunk import check_finite, check_streams, taken_features
from lstr.config import Size, SizeOrZero, WindowConfig
from lstr.errors import CheckpointError, LstrError, install_hint
from lstr.windows.plans import Form, Joined

FEATURES, SCORES = "features", "scores"
# Prefixes of the names of inputs and outputs: a plan, and what streams remember before and after a chunk
PLAN, BEFORE, AFTER = "plan.", "before.", "after."
MAX_STREAMS = 256
# What all streams of one call remember: a limit for descriptions from anywhere, far above every published model
MAX_BYTES = 2 << 30
TYPES = {"float32": np.float32, "bool": np.bool_}
# Types of tensors as ONNX Runtime names them
ONNX_TYPES = {"tensor(float)": "float32", "tensor(bool)": "bool", "tensor(int64)": "int64"}
EXPORT_AGAIN = "export the model again with `lstr export`."

Arrays = dict[str, NDArray[Any]]
Signature = dict[str, tuple[tuple[int, ...], str]]  # shape and type by name


class StreamTensor(msgspec.Struct, frozen=True):
    """A tensor that a stream remembers from chunk to chunk, without the dimension of the streams."""

    shape: tuple[SizeOrZero, ...]
    dtype: Literal["float32", "bool"]

    def create(self, n_streams: int) -> NDArray[Any]:
        """Return the tensor (B, ...) of streams before their first chunk: zeros, or true."""
        fill = np.ones if self.dtype == "bool" else np.zeros
        return fill((n_streams, *self.shape), TYPES[self.dtype])


class StepDescription(msgspec.Struct, frozen=True):
    """Inputs and outputs of an exported step.

    Inputs: `features` (B, rgb_dim + flow_dim), `plan.NAME` and `before.NAME` (B, ...). Outputs: `scores`
    (B, 1 + ahead, classes), a softmax, and `after.NAME`, which are the next chunk's `before.NAME`.
    """

    streams: Annotated[int, Meta(ge=1, le=MAX_STREAMS)]  # B, the streams of one call of the graph
    rgb_dim: SizeOrZero
    flow_dim: SizeOrZero
    classes: Size
    ahead: SizeOrZero  # future chunks that it scores too
    work_length: SizeOrZero
    long_length: SizeOrZero  # chunks that its long memory spans; 0 without one
    kept: dict[str, StreamTensor]
    plan: Form | Joined

    def __post_init__(self) -> None:
        sizes = [math.prod(tensor.shape) * np.dtype(TYPES[tensor.dtype]).itemsize for tensor in self.kept.values()]
        if self.input_dim < 1 or self.streams * sum(sizes) > MAX_BYTES:
            raise ValueError(f"a stream has {self.input_dim} features and remembers {sum(sizes)} bytes")

    @property
    def input_dim(self) -> int:
        """Width of a chunk's features: appearance first, then motion."""
        return self.rgb_dim + self.flow_dim

    def inputs(self) -> Signature:
        """Return shape and type of each input by name."""
        plan = self.plan(np.zeros(self.streams, dtype=np.int64))
        return {
            FEATURES: ((self.streams, self.input_dim), "float32"),
            **{f"{PLAN}{name}": (values.shape, str(values.dtype)) for name, values in plan.items()},
            **{f"{BEFORE}{name}": ((self.streams, *kept.shape), kept.dtype) for name, kept in self.kept.items()},
        }

    def outputs(self) -> Signature:
        """Return shape and type of each output by name."""
        return {
            SCORES: ((self.streams, 1 + self.ahead, self.classes), "float32"),
            **{f"{AFTER}{name}": ((self.streams, *kept.shape), kept.dtype) for name, kept in self.kept.items()},
        }

    @classmethod
    def from_dict(cls, entry: Any) -> "StepDescription":
        """Return a description from its JSON object. Raises CheckpointError for anything else."""
        try:
            return msgspec.convert(entry, cls)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"The description of an exported step is invalid ({error}).", EXPORT_AGAIN) from error


class ExportedConfig(WindowConfig, frozen=True):
    """The widths and lengths of an exported model of any kind; a model of torch cannot be built from it."""

    kind: str = ""  # type: ignore[misc]  # of the exported model

    def __post_init__(self) -> None:
        """Check nothing: the description was checked."""


@dataclass(frozen=True)
class ExportedStep:
    """The step of a model in ONNX Runtime; any number of threads may run it."""

    description: StepDescription
    session: Any


@dataclass
class ExportedState:
    """The memory of several streams of an exported step. Make it with `create`."""

    step: ExportedStep
    tensors: Arrays  # by name, each (B, ...)
    chunks: NDArray[np.int64]  # (B,) number of chunks so far, which is the index of the next one


def open_step(description: StepDescription, graph: bytes) -> ExportedStep:
    """Return a graph, from a file that was checked, ready to run, each call in one thread.

    Raises LstrError if ONNX Runtime is not installed, CheckpointError if the graph is not the described one.
    """
    try:
        import onnxruntime
    except ImportError as error:
        message = "Exported models need the package onnxruntime, which is not installed."
        raise LstrError(message, install_hint("onnxruntime")) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    try:
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    # The errors of ONNX Runtime have no common class.
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise CheckpointError(f"ONNX Runtime cannot run the exported step ({first}).", "update onnxruntime.") from error
    sides = ((session.get_inputs(), description.inputs()), (session.get_outputs(), description.outputs()))
    for tensors, stated in sides:
        if {tensor.name: (tuple(tensor.shape), ONNX_TYPES.get(tensor.type)) for tensor in tensors} != stated:
            raise CheckpointError("The tensors of the exported step do not match its description.", EXPORT_AGAIN)
    return ExportedStep(description, session)


def create(step: ExportedStep, n_streams: int = 1) -> ExportedState:
    """Return streams before their first chunk."""
    tensors = {name: kept.create(n_streams) for name, kept in step.description.kept.items()}
    return ExportedState(step, tensors, np.zeros(n_streams, dtype=np.int64))


def reset(state: ExportedState, streams: Sequence[int]) -> None:
    """Forget every chunk of some streams, as if they had just been created."""
    which = check_streams(streams, len(state.chunks))
    state.chunks[which] = 0
    for name, kept in state.step.description.kept.items():
        state.tensors[name][which] = kept.create(len(which))


def step_streams(
    step: ExportedStep, state: ExportedState, streams: Sequence[int], rgb: ArrayLike | None, flow: ArrayLike | None
) -> NDArray[np.float32]:
    """Like `lstr.streaming.step_streams`, in arrays: scores (n, 1 + n_ahead, C) of n different streams.

    Raises LstrError on features that do not fit or are not finite; the state is then unchanged.
    """
    about, parts = step.description, []
    which = np.array(check_streams(streams, len(state.chunks)), dtype=np.int64)
    for stream, given in taken_features(about.rgb_dim, about.flow_dim, rgb, flow, len(which)).items():
        part = np.asarray(given)
        if part.dtype.kind not in "biuf":
            raise LstrError(f"The {stream} features are not numbers ({part.dtype}).", "use features of real numbers.")
        parts.append(part.astype(np.float32, copy=False))
    features = np.concatenate(parts, axis=1)
    check_finite(features)
    names = [SCORES, *(f"{AFTER}{name}" for name in about.kept)]
    scores, changes = [], []
    for group in np.split(np.arange(len(which)), range(about.streams, len(which), about.streams)):
        own = which[group]
        unused = about.streams - len(own)  # these streams of the graph are as before their first chunk
        values = {FEATURES: np.pad(features[group], ((0, unused), (0, 0)))}
        plan = about.plan(np.pad(state.chunks[own], (0, unused)))
        values |= {f"{PLAN}{name}": array for name, array in plan.items()}
        for name, kept in about.kept.items():
            array = state.tensors[name][own]
            values[f"{BEFORE}{name}"] = np.concatenate([array, kept.create(unused)]) if unused else array
        found, *after = step.session.run(names, values)
        scores.append(found[: len(own)])
        changes.append((own, after))
    for own, after in changes:  # after all groups, so that an error changes no stream
        for name, array in zip(about.kept, after, strict=True):
            state.tensors[name][own] = array[: len(own)]
    state.chunks[which] += 1
    return np.concatenate(scores)
