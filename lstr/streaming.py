"""Exact inference one chunk at a time, at a cost and a memory that do not grow (paper, section 3.6).

    state = create(model)
    for rgb, flow in chunks:
        scores = step(model, state, rgb, flow)

What a step costs and a stream keeps is stated in `lstr.models.lstr_step` for LSTR.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr import checkpoint
from lstr.config import WindowConfig
from lstr.errors import CheckpointError, LstrError
from lstr.files.arrays import tensor_of
from lstr.kinds import from_json
from lstr.models.cuda_graphs import CapturedStep, Tensors
from lstr.models.kind import Model
from lstr.settings import to_json

STATE_FORMAT = "lstr-stream/2"

Features = Tensor | NDArray[np.float32]


@dataclass
class StreamState:
    """The memory of one stream, or of several that step together. Make it with `create`.

    It belongs to the weights the model had then.
    """

    config: WindowConfig
    constants: Any
    """What follows from the weights alone; states of one model may share it."""
    tensors: Tensors
    """By name, each (B, ...), of a size that never changes."""
    chunks: NDArray[np.int64]
    """(B,) chunks seen; the next one has this index."""
    captured: CapturedStep | None = None
    """The step as CUDA graphs, after `capture`."""
    model: Model | None = None
    """The model that it is of; `save` writes the hash of its weights."""


def create(model: Model, n_streams: int = 1, like: StreamState | None = None) -> StreamState:
    """Streams before their first chunk. With `like`, a state of the same model, they share what never changes.

    Raises LstrError when the model is in training mode.
    """
    _check_model(model, None if like is None else like.config)
    if n_streams < 1:
        raise LstrError(f"{n_streams} streams are none.", "make one or more.")
    with torch.no_grad():
        constants = model.constants() if like is None else like.constants
        tensors = model.begin(n_streams)
    chunks = np.zeros(n_streams, dtype=np.int64)
    return StreamState(model.config, constants, tensors, chunks, model=model)


def reset(state: StreamState, streams: Sequence[int] | None = None) -> None:
    """Forget every chunk of all streams, or of some, as if they had just been made.

    Raises LstrError for a stream that the state does not have.
    """
    which = slice(None) if streams is None else list(streams)
    if streams is not None and (wrong := [n for n in streams if not 0 <= n < len(state.chunks)]):
        raise LstrError(f"There is no stream {wrong[0]}.", f"the state has streams 0 to {len(state.chunks) - 1}.")
    state.chunks[which] = 0
    for tensor in state.tensors.values():
        if tensor.is_floating_point():  # a number that overflowed would outlive its video: 0 times it is not 0
            tensor[which] = 0


def step(model: Model, state: StreamState, rgb: Features | None, flow: Features | None) -> Tensor:
    """Class scores (C,) of the next chunk, from its features rgb (rgb_dim,) and flow (flow_dim,).

    A state of B streams takes rgb (B, rgb_dim) and flow (B, flow_dim), the next chunk of each, and returns (B, C). The
    scores are a softmax over the model's classes, float32 on the CPU, equal to `lstr.batch.predict` at this chunk. A
    feature the model was made without is None. Raises LstrError on features that do not fit or are not finite;
    the state is then unchanged.
    """
    return step_ahead(model, state, rgb, flow)[..., 0, :]


def step_ahead(model: Model, state: StreamState, rgb: Features | None, flow: Features | None) -> Tensor:
    """Like `step`, with the chunks to come: (1 + n_ahead, C) or (B, 1 + n_ahead, C); entry 0 is the chunk itself."""
    _check_model(model, state.config)
    features, single = _features(model, rgb, flow, len(state.chunks))
    scores = _step(model, state, features, np.ones(len(state.chunks), dtype=np.bool_))
    return scores[0] if single else scores


@torch.no_grad()
def _step(model: Model, state: StreamState, features: Tensor, taking: NDArray[np.bool_]) -> Tensor:
    """Scores (B, 1 + n_ahead, C) of B streams with features (B, D), of which some, taking (B,), have a next chunk."""
    if state.captured:
        logits = state.captured(state.chunks, features, taking)
    else:  # all have
        features = features.to(model.classifier.weight)
        logits = model.advance(state.constants, state.tensors, state.chunks, features)
    state.chunks += taking
    return logits.float().softmax(dim=-1).cpu()


def step_some(
    model: Model, state: StreamState, streams: Sequence[int], rgb: Features | None, flow: Features | None
) -> Tensor:
    """Like `step_ahead` for some of the streams, each named once: rgb (n, rgb_dim), flow (n, flow_dim), in their order.

    The others stay as they are. Returns (n, 1 + n_ahead, C). Streams side by side in the state are cheaper; a captured
    step costs the same of some as of all.
    """
    if state.captured:
        _check_model(model, state.config)
        part, _ = _features(model, rgb, flow, len(streams))
        features = part.new_zeros(len(state.chunks), part.shape[1])
        features[list(streams)] = part
        return _step(model, state, features, np.isin(np.arange(len(features)), streams))[list(streams)]
    first, last = min(streams), max(streams)
    beside = list(streams) == list(range(first, last + 1))
    which = slice(first, last + 1) if beside else torch.tensor(streams)
    tensors = {name: tensor[which] for name, tensor in state.tensors.items()}  # views where they are side by side
    portion = StreamState(state.config, state.constants, tensors, state.chunks[list(streams)])
    scores = step_ahead(model, portion, rgb, flow)  # (n, 1 + n_ahead, C)
    if not beside:
        for name, tensor in portion.tensors.items():
            state.tensors[name][which] = tensor
    state.chunks[list(streams)] = portion.chunks
    return scores


def can_capture(model: Model) -> bool:
    """Whether `capture` can: on a GPU."""
    return model.classifier.weight.device.type == "cuda"


def capture(model: Model, state: StreamState) -> None:
    """Capture the steps of streams on a GPU, which are replayed from now on, and with `reset` for the next streams too.

    No other thread may capture or synchronise the whole device meanwhile. Raises LstrError unless `can_capture`.
    """
    _check_model(model, state.config)
    if not can_capture(model):
        raise LstrError("Only steps on a GPU can be captured.", "Move the model first: model.to('cuda').")
    captured = CapturedStep(model, state.constants, state.tensors)
    captured.prepare()
    state.captured = captured


def save(path: str | Path, state: StreamState) -> None:
    """Write the streams to a file, whole or not at all. Raises CheckpointError when it cannot be written."""
    content = {
        "format": STATE_FORMAT,
        "config": to_json(state.config),
        "chunks": torch.from_numpy(state.chunks),
        "tensors": state.tensors,
        "weights": None if state.model is None else _hash_of(state.model),
    }
    checkpoint.write_atomically(path, content)


def restore(path: str | Path, model: Model) -> StreamState:
    """The streams that `save` wrote, with the same model: they go on to the bit where they stopped.

    Raises CheckpointError when the file is missing or damaged, LstrError when it is another model's: of another shape,
    or of other weights.
    """
    saved = checkpoint.read(path)
    if not isinstance(saved, dict) or saved.get("format") != STATE_FORMAT:
        raise LstrError(f"{path} is not a saved stream.", "Pass a file that lstr.streaming.save wrote.")
    if saved.get("precision", "float32") != "float32":
        raise LstrError(
            f"The stream in {path} has weights in {saved['precision']}, which is no longer supported.",
            "Begin the stream again with create.",
        )
    try:
        _check_model(model, from_json(saved["config"]))
        if saved["weights"] != _hash_of(model):
            raise LstrError(
                f"The stream in {path} belongs to a model of this shape with other weights.",
                "Restore it with the model that it was saved with, or begin it anew with create.",
            )
        chunks = saved["chunks"]
        if chunks.dtype != torch.int64 or chunks.ndim != 1 or chunks.stride() != (1,) or (chunks < 0).any():
            raise ValueError("chunks are no counts of 64 bits")
        state = create(model, len(chunks))
        for name, tensor in state.tensors.items():
            of_one = saved["tensors"][name]
            if of_one.shape != tensor.shape or of_one.dtype != tensor.dtype:
                raise ValueError(f"{name} has another shape or type")
            tensor.copy_(of_one)
        state.chunks[:] = chunks.numpy()
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise CheckpointError(f"The stream in {path} is damaged ({error}).", "Begin the stream anew.") from error
    return state


def _hash_of(model: Model) -> str:
    """The SHA-256 of a model's weights, wherever they are."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _check_model(model: Model, config: WindowConfig | None = None) -> None:
    if not isinstance(model, Model):
        raise LstrError(f"{type(model).__name__} is no model.", "give `model` of what lstr.load returns.")
    if model.training:
        raise LstrError("The model is in training mode, so its scores are random.", "Call model.eval() first.")
    if config is not None and model.config != config:
        raise LstrError("The stream belongs to a model of another shape.", "Make a stream of this model with create.")


def _features(model: Model, rgb: Any, flow: Any, n_streams: int) -> tuple[Tensor, bool]:
    """Both features of a chunk, checked and joined, (B, D), and whether they came without the B.

    They stay on the device that they are on: a look at what a GPU holds waits for it.
    """
    parts: list[Tensor] = []
    single = False
    for name, values, width in (("rgb", rgb, model.config.rgb_dim), ("flow", flow, model.config.flow_dim)):
        if width == 0:
            continue
        if values is None:
            raise LstrError(f"The model takes {name} features but the chunk has none.", f"Extract {name} features too.")
        try:
            part = values if isinstance(values, Tensor) and not values.is_complex() else tensor_of(values)
        except ValueError as error:
            raise LstrError(f"The {name} features are no numbers: {error}.", "Use features of real numbers.") from error
        if n_streams == 1 and part.ndim == 1:
            part, single = part[None], True
        if part.shape != (n_streams, width):
            raise LstrError(
                f"The {name} features have shape {tuple(part.shape)}, the stream takes ({n_streams}, {width}).",
                "Use features from the recipe the model was trained on, one row per stream.",
            )
        parts.append(part.to(parts[0].device if parts else part.device, model.classifier.weight.dtype))
    features = torch.cat(parts, dim=1)  # (B, D)
    if not torch.isfinite(features).all():
        raise LstrError("The features of the chunk are not finite.", "Leave this chunk out, or extract it again.")
    return features, single
