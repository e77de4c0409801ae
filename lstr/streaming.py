"""Exact inference one chunk at a time, at a cost and a memory that do not grow (paper, section 3.6).

Nothing about an old chunk is projected twice. Keys and values are linear in token plus position, so each splits
into a part of the chunk, computed when it arrives, and a part of the position, computed once a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lstr import memory
from lstr.config import LSTRConfig, from_json, to_json
from lstr.errors import LstrError
from lstr.model import LSTR

STATE_FORMAT = "lstr-stream/1"

KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Constants:
    """What depends on the weights alone; streams of one model may share it. P is the number of positions."""

    score_weight: Tensor | None
    """(n_heads * n0, d_model): stage-1 queries times key weights, so a token gives its scores in one product"""
    value_weight: Tensor | None
    """(d_model, d_model)"""
    position_scores: Tensor | None
    """(P, n_heads * n0)"""
    position_values: Tensor | None
    """(P, d_model)"""
    stage1: Tensor | None
    """(n0, d_model): stage-1 queries after their self-attention"""
    stage2: Tensor | None
    """(n1, d_model): stage-2 queries after the first layer's self-attention"""
    work_positions: Tensor
    """(work_length, d_model)"""
    work_position_qkv: Tensor
    """(work_length, 3 * d_model), with the bias"""


@dataclass
class StreamState:
    """One stream's memory. Make it with `create`; it belongs to the weights the model had then."""

    config: LSTRConfig
    constants: Constants
    long_scores: Tensor
    """(rows, n_heads * n0): a ring of stored chunks"""
    long_values: Tensor
    """(rows, d_model)"""
    work: Tensor
    """(n <= work_length, d_model), oldest first"""
    work_qkv: Tensor
    """(n <= work_length, 3 * d_model), without position and bias"""
    chunks: int = 0
    """Chunks seen; the next one has this index."""
    compressed_from: tuple[bytes, bytes] | None = None
    """The chunks and positions that `compressed` was made from."""
    compressed: list[KeysValues] = field(default_factory=list)
    """Keys and values of the compressed long memory, a pair for each decoder layer."""


def create(model: LSTR, like: StreamState | None = None) -> StreamState:
    """A stream before its first chunk. With `like`, a stream of the same model, they share what never changes.

    Raises LstrError when the model is in training mode.
    """
    _check_model(model, model.config if like is None else like.config)
    config = model.config
    with torch.no_grad():
        constants = _constants(model) if like is None else like.constants
    weight = model.classifier.weight
    rows = _ring_rows(config)
    return StreamState(
        config=config,
        constants=constants,
        long_scores=weight.new_zeros(rows, config.n_heads * config.n0),
        long_values=weight.new_zeros(rows, config.d_model),
        work=weight.new_zeros(0, config.d_model),
        work_qkv=weight.new_zeros(0, 3 * config.d_model),
    )


def reset(state: StreamState) -> None:
    """Forget every chunk, as if the stream had just been made."""
    state.work = state.work[:0]
    state.work_qkv = state.work_qkv[:0]
    state.chunks = 0
    state.compressed_from = None
    state.compressed = []


@torch.no_grad()
def step(
    model: LSTR,
    state: StreamState,
    rgb: Tensor | NDArray[np.float32] | None,
    flow: Tensor | NDArray[np.float32] | None,
) -> Tensor:
    """Take the next chunk's features, rgb (rgb_dim,) and flow (flow_dim,), and give its class scores (C,).

    The scores are a softmax over the model's classes, float32 on the CPU, equal to `lstr.batch.predict` at this
    chunk. A stream the model was made without is None. Raises LstrError on features that do not fit
    or are not finite; the state is then unchanged.
    """
    _check_model(model, state.config)
    features = _features(model, rgb, flow)
    token = model.feature_head_work(features)  # (1, d_model)
    self_attn = model.dec_modules.layers[0].self_attn
    keep = state.config.work_length - 1
    state.work = torch.cat([state.work[-keep:] if keep else state.work[:0], token])
    qkv = F.linear(token, self_attn.in_proj_weight)  # (1, 3 * d_model)
    state.work_qkv = torch.cat([state.work_qkv[-keep:] if keep else state.work_qkv[:0], qkv])
    if state.config.n_long:
        _remember(model, state, features)
        _compress(model, state)
    state.chunks += 1
    return model.classifier(_decode(model, state)).float().softmax(dim=-1).cpu()


def to_dict(state: StreamState) -> dict[str, Any]:
    """The stream as tensors, numbers and text, for torch.save; it can be read back with weights_only=True."""
    return {
        "format": STATE_FORMAT,
        "config": to_json(state.config),
        "chunks": state.chunks,
        "long_scores": state.long_scores.clone(),
        "long_values": state.long_values.clone(),
        "work": state.work.clone(),
        "work_qkv": state.work_qkv.clone(),
    }


def from_dict(model: LSTR, saved: dict[str, Any]) -> StreamState:
    """The stream that `to_dict` saved, with the same model. Raises LstrError when it is another model's."""
    if not isinstance(saved, dict) or saved.get("format") != STATE_FORMAT:
        raise LstrError("This is not a saved stream.", "Save one with lstr.streaming.to_dict and torch.save.")
    _check_model(model, from_json(saved["config"]))
    state = create(model)
    for name in ("long_scores", "long_values", "work", "work_qkv"):
        setattr(state, name, saved[name].to(state.work).clone())
    state.chunks = saved["chunks"]
    return state


def _check_model(model: LSTR, config: LSTRConfig) -> None:
    if model.training:
        raise LstrError("The model is in training mode, so its scores are random.", "Call model.eval() first.")
    if model.config != config:
        raise LstrError("The stream belongs to a model of another shape.", "Make a stream of this model with create.")


def _features(model: LSTR, rgb: Any, flow: Any) -> Tensor:
    """Both streams of a chunk, checked and joined: (1, D)."""
    parts = []
    for name, given, width in (("rgb", rgb, model.config.rgb_dim), ("flow", flow, model.config.flow_dim)):
        if width == 0:
            continue
        if given is None:
            raise LstrError(f"The model takes {name} features but the chunk has none.", f"Extract {name} features too.")
        part = torch.as_tensor(given)
        if part.shape != (width,):
            raise LstrError(
                f"The {name} features have shape {tuple(part.shape)}, the model takes ({width},).",
                "Use features from the recipe the model was trained on.",
            )
        parts.append(part.to(model.classifier.weight))
    features = torch.cat(parts)[None]  # (1, D)
    if not torch.isfinite(features).all():
        raise LstrError("The features of the chunk are not finite.", "Leave this chunk out, or extract it again.")
    return features


def _spacing(config: LSTRConfig) -> int:
    """Chunks between two that are stored: a sliding grid comes to use every chunk, a fixed one its multiples."""
    return config.long_stride if config.grid == "fixed" else 1


def _ring_rows(config: LSTRConfig) -> int:
    """Rows for the long memory and for the chunks still in the work memory, which will enter it."""
    return (config.long_length + config.work_length) // _spacing(config) + 1 if config.n_long else 0


def _constants(model: LSTR) -> Constants:
    config = model.config
    work_positions = model.pos_encoding.rows(model.work_positions(config.work_length))  # (work_length, d_model)
    self_attn = model.dec_modules.layers[0].self_attn
    qkv = F.linear(work_positions, self_attn.in_proj_weight, self_attn.in_proj_bias)
    if not config.n_long:
        return Constants(None, None, None, None, None, None, work_positions, qkv)
    first, second = (stack.layers[0] for stack in model.enc_modules)
    query1, query2 = (query.weight for query in model.enc_queries)
    stage1 = first.after_self(query1, first.self_attn(query1, query1))  # (n0, d_model)
    stage2 = second.after_self(query2, second.self_attn(query2, query2))  # (n1, d_model)
    cross = first.multihead_attn
    _, key_weight, value_weight = cross.in_proj_weight.chunk(3)
    # The key bias adds the same to every score of a query, so the softmax does not see it.
    value_bias = cross.in_proj_bias.chunk(3)[2]
    queries = cross.queries(stage1) * (config.d_model // config.n_heads) ** -0.5  # (n_heads, n0, d_head)
    by_head = key_weight.unflatten(0, (config.n_heads, -1))  # (n_heads, d_head, d_model)
    score_weight = (queries @ by_head).flatten(0, 1)  # (n_heads * n0, d_model)
    n_positions = config.n_long if config.positions == "slot" else config.long_length + config.work_length
    table = model.pos_encoding.pe[:n_positions, 0]  # (P, d_model)
    return Constants(
        score_weight=score_weight,
        value_weight=value_weight.detach(),
        position_scores=F.linear(table, score_weight),
        position_values=F.linear(table, value_weight, value_bias),
        stage1=stage1,
        stage2=stage2,
        work_positions=work_positions,
        work_position_qkv=qkv,
    )


def _remember(model: LSTR, state: StreamState, features: Tensor) -> None:
    """Store what stage 1 will need of this chunk. It is needed at once only while the long memory is chunk 0."""
    spacing = _spacing(state.config)
    if state.chunks % spacing:
        return
    row = state.chunks // spacing % len(state.long_scores)
    token = model.feature_head_long(features)  # (1, d_model)
    state.long_scores[row] = F.linear(token, state.constants.score_weight)[0]
    state.long_values[row] = F.linear(token, state.constants.value_weight)[0]


def _compress(model: LSTR, state: StreamState) -> None:
    """Run both encoder stages, unless their input is what it was at the last chunk."""
    config, constants = state.config, state.constants
    indices, mask = memory.long_indices(state.chunks, config)
    chunks = indices[mask]  # (M,)
    if config.positions == "slot":
        positions = np.flatnonzero(mask)
    else:
        positions = memory.long_distances(state.chunks, config)[mask]
    made_from = (chunks.tobytes(), positions.tobytes())
    if made_from == state.compressed_from:
        return
    rows = torch.from_numpy(chunks // _spacing(config) % len(state.long_scores)).to(state.work.device)
    places = torch.from_numpy(positions).to(state.work.device)
    scores = state.long_scores[rows] + constants.position_scores[places]  # (M, n_heads * n0)
    values = state.long_values[rows] + constants.position_values[places]  # (M, d_model)
    weights = scores.T.unflatten(0, (config.n_heads, config.n0)).softmax(dim=-1)  # (n_heads, n0, M)
    stage1, stage2 = model.enc_modules
    layer = stage1.layers[0]
    cross = layer.multihead_attn
    tokens = layer.after_cross(constants.stage1, cross.merge(weights @ cross.split(values)))
    tokens = stage1.norm(tokens)  # (n0, d_model)
    layer = stage2.layers[0]
    compressed = layer.after_cross(constants.stage2, layer.multihead_attn(constants.stage2, tokens))
    for layer in stage2.layers[1:]:
        compressed = layer(compressed, tokens)
    compressed = stage2.norm(compressed)  # (n1, d_model)
    state.compressed = [layer.multihead_attn.keys_values(compressed) for layer in model.dec_modules.layers]
    state.compressed_from = made_from


def _decode(model: LSTR, state: StreamState) -> Tensor:
    """The newest work token (d_model,) after the decoder; older tokens only as far as it needs them."""
    n = len(state.work)
    layers = model.dec_modules.layers
    tokens = state.work + state.constants.work_positions[:n]  # (n, d_model)
    for i, layer in enumerate(layers):
        newest = i == len(layers) - 1
        asking = tokens[-1:] if newest else tokens
        attention = layer.self_attn
        if i == 0:
            qkv = state.work_qkv + state.constants.work_position_qkv[:n]  # (n, 3 * d_model)
            queries, keys, values = (attention.split(part) for part in qkv.chunk(3, dim=-1))
            queries = queries[:, -1:] if newest else queries
        else:
            queries = attention.queries(asking)
            keys, values = attention.keys_values(tokens)
        tokens = layer.after_self(asking, attention.attend(queries, keys, values, causal=not newest))
        if state.config.n_long:
            cross = layer.multihead_attn
            tokens = layer.after_cross(tokens, cross.attend(cross.queries(tokens), *state.compressed[i]))
    return model.dec_modules.norm(tokens)[-1]
