"""Exact inference one chunk at a time, with constant cost and memory (paper, section 3.6).

    state = create(model)
    for rgb, flow in chunks:
        scores = step(model, state, rgb, flow)

`lstr.models.lstr_step` describes the step and the memory of LSTR.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr import checkpoint
from lstr.chunk import check_finite, check_streams, taken_features
from lstr.config import WindowConfig
from lstr.errors import CheckpointError, LstrError
from lstr.files.arrays import tensor_of
from lstr.kinds import from_json
from lstr.models.kind import Model
from lstr.models.layers import Tensors, keep
from lstr.settings import to_json
from lstr.windows.plans import Plan, Planner, needed

if TYPE_CHECKING:  # on a CPU no step is captured
    from lstr.models.cuda_graphs import CapturedStep

STATE_FORMAT = "lstr-stream/2"
# Chunks of one stream that are planned together: 27 µs a chunk of the published size, instead of 148 one by one.
PLANNED_CHUNKS = 32

Features = Tensor | NDArray[np.float32]


@dataclass
class StreamState:
    """The memory of one stream, or of several that step together. Create it with `create`.

    It is valid for the weights that the model had at that time.
    """

    constants: Any  # computed from the weights alone; states of one model may share them
    tensors: Tensors  # by name, each (B, ...), of a size that never changes
    chunks: NDArray[np.int64]  # (B,) number of chunks so far, which is the index of the next one
    model: Model
    planner: Planner
    # For streams that step alone: the plans of their next chunks, by stream and chunk.
    plans: dict[int, dict[int, Tensors]] = field(default_factory=dict)
    captured: "CapturedStep | None" = None  # the step as CUDA graphs, after `capture`


def create(model: Model, n_streams: int = 1) -> StreamState:
    """Return the state of new streams.

    Args:
        model: The model, in evaluation mode.
        n_streams: Number of streams that step together.

    Raises:
        LstrError: The model is in training mode.
    """
    _check_model(model)
    if not isinstance(n_streams, int | np.integer) or n_streams < 1:
        raise LstrError(f"The number of streams is {n_streams!r}.", "use a whole number of at least 1.")
    with torch.no_grad():
        constants, tensors = model.constants(), model.begin(n_streams)
    return StreamState(constants, tensors, np.zeros(n_streams, dtype=np.int64), model, model.planner)


def reset(state: StreamState, streams: Sequence[int] | None = None) -> None:
    """Forget every chunk of the given streams, by default of all streams.

    Raises:
        LstrError: The state does not have one of the streams.
    """
    which = check_streams(range(len(state.chunks)) if streams is None else streams, len(state.chunks))
    state.chunks[which] = 0
    for tensor in state.tensors.values():
        if tensor.is_floating_point():  # 0 times infinity is not 0: a number that overflowed would outlive its video
            tensor[which] = 0


def step(model: Model, state: StreamState, rgb: Features | None, flow: Features | None) -> Tensor:
    """Return the class scores of the next chunk.

    Args:
        model: The model of the state.
        state: Streams of `create`; changed in place.
        rgb: (rgb_dim,), or (B, rgb_dim) for B streams; None if the model does not use it.
        flow: (flow_dim,), or (B, flow_dim); None if the model does not use it.

    Returns:
        (C,) or (B, C), a softmax over the classes, float32 on the CPU, equal to `lstr.batch.predict` at this chunk.

    Raises:
        LstrError: The features do not fit or are not finite; the state is then unchanged.
    """
    return step_ahead(model, state, rgb, flow)[..., 0, :]


def step_ahead(model: Model, state: StreamState, rgb: Features | None, flow: Features | None) -> Tensor:
    """Like `step`, with future chunks: return (1 + n_ahead, C) or (B, 1 + n_ahead, C); entry 0 is the chunk itself."""
    parts = [part if part is None or isinstance(part, Tensor) else np.asarray(part) for part in (rgb, flow)]
    single = len(state.chunks) == 1 and any(part is not None and part.ndim == 1 for part in parts)
    if single:
        parts = [part if part is None or part.ndim != 1 else part[None] for part in parts]
    scores = step_streams(model, state, range(len(state.chunks)), *parts)
    return scores[0] if single else scores


@torch.no_grad()
def step_streams(
    model: Model, state: StreamState, streams: Sequence[int], rgb: Features | None, flow: Features | None
) -> Tensor:
    """Like `step_ahead` for n different streams of a state; the other streams do not change.

    Consecutive streams are cheaper; a captured step costs the same for any number.

    Args:
        model: The model of the state.
        state: Streams of `create`; changed in place.
        streams: Indices of n streams.
        rgb: (n, rgb_dim), in the order of `streams`.
        flow: (n, flow_dim).

    Returns:
        (n, 1 + n_ahead, C).
    """
    _check_model(model, state.model.config)
    which, parts = check_streams(streams, len(state.chunks)), list[Tensor]()
    for name, values in taken_features(model.config.rgb_dim, model.config.flow_dim, rgb, flow, len(which)).items():
        try:
            part = tensor_of(values)
        except ValueError as error:
            hint = "use features of real numbers."
            raise LstrError(f"The {name} features are not numbers: {error}.", hint) from error
        parts.append(part.to(parts[0].device if parts else part.device, model.classifier.weight.dtype))
    features = torch.cat(parts, dim=1)  # (n, D)
    check_finite(features)  # on their own device: moving them first would wait for the GPU
    if state.captured:
        every = features.new_zeros(len(state.chunks), features.shape[1])
        every[which] = features
        taking = np.isin(np.arange(len(every)), which)
        logits = state.captured(state.chunks, every, taking)[which]
    else:
        first, device = which[0], model.classifier.weight.device
        is_run = which == list(range(first, first + len(which)))
        place = slice(first, first + len(which)) if is_run else torch.tensor(which)
        tensors = {name: tensor[place] for name, tensor in state.tensors.items()}  # views of consecutive streams
        if len(which) > 1:
            plan = _as_tensors(needed(state.planner(state.chunks[which])), device)
        else:
            chunk = int(state.chunks[first])
            if chunk not in state.plans.get(first, {}):  # the stream has used up its plans, or started over
                chunks = np.arange(chunk, chunk + PLANNED_CHUNKS)
                ahead = state.planner.plan(chunks, np.zeros_like(chunks))
                pieces = {name: np.split(values, PLANNED_CHUNKS) for name, values in ahead.items()}
                each = (needed({name: piece[i] for name, piece in pieces.items()}) for i in range(PLANNED_CHUNKS))
                state.plans[first] = {k: _as_tensors(own, device) for k, own in zip(chunks.tolist(), each, strict=True)}
            plan = state.plans[first][chunk]
        features = features.to(model.classifier.weight)
        logits, after = model.step(state.constants, tensors, plan, features, donate=True)
        keep(tensors, after)
        if not is_run:
            for name, tensor in tensors.items():
                state.tensors[name][place] = tensor
    state.chunks[which] += 1
    return logits.float().softmax(dim=-1).cpu()


def can_capture(model: Model) -> bool:
    """Return whether the steps of a model can be captured, which needs a GPU."""
    return model.classifier.weight.device.type == "cuda"


def capture(model: Model, state: StreamState) -> None:
    """Capture the steps of streams on a GPU and replay them from now on, also after `reset`.

    No other thread may capture or synchronise the whole device at the same time.

    Raises:
        LstrError: The model is not on a GPU.
    """
    _check_model(model, state.model.config)
    if not can_capture(model):
        raise LstrError("Only steps on a GPU can be captured.", "move the model first: model.to('cuda').")
    from lstr.models.cuda_graphs import CapturedStep

    state.captured = CapturedStep(model, state.constants, state.tensors)


def save(path: str | Path, state: StreamState) -> None:
    """Write the streams to a file, completely or not at all.

    Raises:
        CheckpointError: The file cannot be written.
    """
    content = {
        "format": STATE_FORMAT,
        "config": to_json(state.model.config),
        "chunks": torch.from_numpy(state.chunks),
        "tensors": state.tensors,
        "weights": _hash_weights(state.model),
    }
    checkpoint.write_atomically(path, content)


def restore(path: str | Path, model: Model) -> StreamState:
    """Return the streams that `save` wrote, for the same model; they continue exactly where they stopped.

    Raises:
        CheckpointError: The file is missing or damaged.
        LstrError: The model has another shape or other weights.
    """
    saved = checkpoint.read(path)
    if not isinstance(saved, dict) or saved.get("format") != STATE_FORMAT:
        raise LstrError(f"{path} is not a saved stream.", "pass a file that lstr.streaming.save wrote.")
    try:
        _check_model(model, from_json(saved["config"]))
        if saved["weights"] != _hash_weights(model):
            hint = "restore it with the model that it was saved with, or start it again with create."
            raise LstrError(f"The stream in {path} belongs to a model with other weights.", hint)
        chunks = saved["chunks"]
        if chunks.dtype != torch.int64 or chunks.ndim != 1 or chunks.stride() != (1,) or (chunks < 0).any():
            raise ValueError("the numbers of chunks are not 64-bit integers")
        state = create(model, len(chunks))
        state.chunks[:] = chunks.numpy()
        for name, tensor in state.tensors.items():
            values = saved["tensors"][name]
            if values.shape != tensor.shape or values.dtype != tensor.dtype:
                raise ValueError(f"{name} has another shape or type")
            tensor.copy_(values)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise CheckpointError(f"The stream in {path} is damaged ({error}).", "start it again with create.") from error
    return state


def _hash_weights(model: Model) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _as_tensors(plan: Plan, device: torch.device) -> Tensors:
    return {name: torch.from_numpy(values).to(device) for name, values in plan.items()}


def _check_model(model: Model, config: WindowConfig | None = None) -> None:
    if not isinstance(model, Model):
        raise LstrError(f"{type(model).__name__} is not a model.", "pass `lstr.load(FILE).model`.")
    if model.training:
        raise LstrError("The model is in training mode, so its scores are random.", "call model.eval() first.")
    if config is not None and model.config != config:
        raise LstrError("The stream belongs to a model of another shape.", "make a stream of this model with create.")
