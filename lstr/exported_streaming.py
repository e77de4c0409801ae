"""Streams of an exported step: what `lstr.streaming` does with a model, by NumPy and ONNX Runtime.

    step = open_step(description, graph)
    state = create(step)
    for rgb, flow in chunks:
        scores = step_ahead(step, state, rgb, flow)[0]

A graph steps as many streams as it was exported for. A state may have any number: those that have a chunk go through
the graph as many at a time, and what is kept of the others stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstr.errors import CheckpointError, LstrError
from lstr.exported_description import AFTER, BEFORE, FEATURES, PLAN, SCORES, StepDescription

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
