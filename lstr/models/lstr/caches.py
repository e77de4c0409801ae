"""What a stream of LSTR keeps between chunks, and the arithmetic that makes it enough (paper, section 3.6).

Keys and values are linear in token plus position, so each splits into a part of the chunk, computed when it arrives,
and a part of the position, computed once. What the mathematics leaves of a step, in matrix products of D x D per token
(the feature heads, D_in x D, are 1 per chunk; the long memory's only for chunks its grid can use):

- Decoder, every chunk: 3 for the newest chunk's query, key and value; then for each layer but the last 5 (output,
  cross query, cross output, feed-forward 2) for all W work tokens, and 3 W more from the second layer on; in the last
  layer 8 for the newest alone. All tokens of the earlier layers change with every chunk, for their slots move.
- Encoder, only when the long memory's chunks or positions changed (fixed grid and slot positions: once per stride;
  otherwise every chunk): the weighted sums, n0 D for each ring row and for each slot, which alone grow with the memory;
  3 n0 after them; for stage 2, 2 n0 + 3 n1 in the first layer, 8 n1 + 2 n0 in each other; 2 n1 for each decoder
  layer's keys and values.

A TeSTra has no positions in the long memory and none of their sums. Its decoder layers attend to the work tokens as
they enter the first, whose keys and values split in the same way: 2 products more for each layer, for the newest chunk
alone.

Both stages' first self-attention and stage 2's first queries are constants (`precomputed`). Encoders without stage
1 ("one-stage" and the others of `models.lstr.network.Network`) are run anew from stored tokens when the memory changes;
"joined" is run anew at every chunk, for there each work token meets the whole long memory in every layer.

A stream stores, in floats: for the long memory D + n_heads * n0 per stored chunk (D without stage 1), of which a fixed
grid keeps (long_length + W) / stride + 2 and another long_length + W + 2; 4 (2 W + 1) D for the work
memory; 2 n1 D for each decoder layer, and 2 (2 W + 1) D more of a TeSTra; with a GRU (long_length + W + 2) D.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lstr.models.kind import Tensors
from lstr.models.lstr.config import LSTRConfig
from lstr.models.lstr.network import Network, mean_token
from lstr.models.lstr.precomputed import Constants, Stage1, has_stage1, sees_work
from lstr.models.lstr.stream_plan import Plan, long_rows, make_plan, waiting_rows


def begin(model: Network, n_streams: int) -> Tensors:
    """Tensors of B streams before their first chunk, by name; the streams are the first dimension."""
    config = model.config
    N = config.work_length + config.anticipation
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parts in _work_rings(model).items():
        shapes[name] = (config.work_length + 1, parts * config.d_model)
        shapes[f"{name}_by_slot"] = (N, parts * config.d_model)
    rows = long_rows(config)
    if has_stage1(config):
        shapes["long_scores"] = (rows, config.n_heads * config.n0)
        shapes["long_values"] = (rows, config.d_model)
    elif config.n_long:
        shapes["long_tokens"] = (rows, config.d_model)
    if config.gru:
        shapes["waiting"] = (waiting_rows(config), config.d_model)
        shapes["history"] = (config.d_model,)
    n_memory = _memory_length(config)
    if model.integration == "cross-attention":
        for i in range(config.l_dec):
            shapes[f"keys.{i}"] = shapes[f"values.{i}"] = (config.n_heads, n_memory, config.d_model // config.n_heads)
    elif model.has_memory:
        shapes["memory"] = (n_memory, config.d_model)
    weight = model.classifier.weight
    tensors = {name: weight.new_zeros(n_streams, *shape) for name, shape in shapes.items()}
    if _keeps_mask(config):
        tensors["memory_mask"] = weight.new_ones(n_streams, n_memory, dtype=torch.bool)
    return tensors


def advance(constants: Constants, tensors: Tensors, chunks: NDArray[np.int64], features: Tensor) -> Tensor:
    """Logits (B, 1 + anticipation, C) of the next chunk of B streams, features (B, D); changes `tensors` in place.

    `chunks` (B,) counts the chunks each stream has seen.
    """
    return run(constants, tensors, make_plan(constants.model.config, chunks).to(features.device), features)


def run(constants: Constants, tensors: Tensors, plan: Plan, features: Tensor) -> Tensor:
    """The arithmetic of `advance`: tensors alone, nothing that waits for a GPU."""
    model = constants.model
    token = model.feature_head_work(features)  # (B, D)
    for name, kept in of_work(model, token).items():
        _put(tensors, name, plan.work_row, kept)
    if model.config.gru:
        _put(tensors, "waiting", plan.waiting_row, model.feature_head_long(features))
        _sum_up(model, tensors, plan)
    if len(plan.storing):
        _store(constants, tensors, plan, features[plan.storing])
    if len(plan.changed):
        _update(constants, tensors, plan)
    return model.classifier(decode(constants, tensors, plan))


def _work_rings(model: Network) -> dict[str, int]:
    """What is kept of each work token, and its width in d_model."""
    rings = {"work": 1}
    if model.integration not in ("mlp", "joined"):
        rings["work_qkv"] = 3
    if sees_work(model):
        rings["work_seen"] = 2 * model.config.l_dec
    return rings


def of_work(model: Network, tokens: Tensor) -> Tensors:
    """What is kept of work tokens (..., D): themselves, and what the decoder projects them to, without positions."""
    kept, rings = {"work": tokens}, _work_rings(model)
    if "work_qkv" in rings:
        kept["work_qkv"] = model.dec_modules.layers[0].self_attn.project(tokens, 0, 3)
    if "work_seen" in rings:
        layers = [layer.multihead_attn for layer in model.dec_modules.layers]
        kept["work_seen"] = torch.cat([layer.project(tokens, 1, 3) for layer in layers], dim=-1)
    return kept


def _keeps_mask(config: LSTRConfig) -> bool:
    """Whether the decoder sees the long memory slot by slot, some of them hidden at first."""
    return config.n_long > 0 and config.encoder in ("self-attention", "none", "joined")


def _memory_length(config: LSTRConfig) -> int:
    """Tokens M that the decoder attends to, the GRU's last."""
    encoded = {"two-stage": config.n1, "one-stage": config.n1, "projection": config.n1}
    encoded["stage2-self-attention"] = config.n0
    return (encoded.get(config.encoder, config.n_long) if config.n_long else 0) + config.gru


def _put(tensors: Tensors, name: str, rows: Tensor, values: Tensor) -> None:
    tensors[name].flatten(0, 1).index_copy_(0, rows, values)


def _by_slot(tensors: Tensors, name: str, plan: Plan) -> Tensor:
    """A ring of the work memory in the order of its slots: (B, W + anticipation, ...), in memory of its own.

    Memory that is new at every step costs more than what is done with it.
    """
    taken = tensors[f"{name}_by_slot"]
    torch.index_select(tensors[name].flatten(0, 1), 0, plan.work_rows, out=taken.flatten(0, 1))
    return taken


def _take(tensors: Tensors, name: str, rows: Tensor, length: int) -> Tensor:
    """Rows (n * length,) of a ring as (n, length, ...)."""
    return tensors[name].flatten(0, 1).index_select(0, rows).unflatten(0, (-1, length))


def _sum_up(model: Network, tensors: Tensors, plan: Plan) -> None:
    """Let the GRU take the chunk that leaves the long memory, and hand its state to the decoder."""
    history = tensors["history"]
    if plan.fresh is not None:
        history.masked_fill_(plan.fresh[:, None], 0)
    if plan.leaving is not None:
        token = tensors["waiting"].flatten(0, 1).index_select(0, plan.leaving_row)  # (B, D)
        _, after = model.gru(token[:, None], history[None])  # (1, B, D)
        history.copy_(torch.where(plan.leaving[:, None], after[0], history))
    if plan.fresh is not None or plan.leaving is not None:
        _hand_over(model, tensors, history[:, None], slice(None), slice(-1, None))


def _store(constants: Constants, tensors: Tensors, plan: Plan, features: Tensor) -> None:
    """Keep what the encoder will need of this chunk."""
    token = constants.model.feature_head_long(features)  # (S, D)
    if constants.stage1 is None:
        _put(tensors, "long_tokens", plan.long_row, token)
    else:
        _put(tensors, "long_scores", plan.long_row, F.linear(token, constants.stage1.score_weight))
        _put(tensors, "long_values", plan.long_row, F.linear(token, constants.stage1.value_weight))


def _update(constants: Constants, tensors: Tensors, plan: Plan) -> None:
    """Run the encoder where its input is not what it was, and hand its tokens to the decoder."""
    tokens, seen = encode(constants, tensors, plan)
    if seen is not None:
        tensors["memory_mask"][plan.changed, : seen.shape[1]] = seen
    _hand_over(constants.model, tensors, tokens, plan.changed, slice(tokens.shape[1]))


def encode(constants: Constants, tensors: Tensors, plan: Plan) -> tuple[Tensor, Tensor | None]:
    """Encoder tokens (U, M, D) of the changed streams without a GRU's, and their mask (U, M), None for all visible."""
    model, config = constants.model, constants.model.config
    if constants.stage1 is None:
        long = _take(tensors, "long_tokens", plan.long_rows, config.n_long)  # (U, n_long, D)
        visible = long.new_ones(long.shape[:2], dtype=torch.bool) if plan.long_mask is None else plan.long_mask
        return model.encode(long, visible, plan.positions, None)
    tokens = _stage1(model, constants.stage1, tensors, plan)  # (U, n0, D)
    stack = model.enc_modules[1]
    if constants.stage2 is None:
        return stack(tokens), None
    layer = stack.layers[0]
    attended = layer.multihead_attn.attend(constants.stage2.queries, *layer.multihead_attn.keys_values(tokens))
    compressed = layer.after_cross(constants.stage2.tokens, attended)  # (U, n1, D)
    for layer in stack.layers[1:]:
        compressed = layer(compressed, tokens)
    return stack.norm(compressed), None


def _stage1(model: Network, stage1: Stage1, tensors: Tensors, plan: Plan) -> Tensor:
    """Stage 1 from stored scores and values: (U, n0, D)."""
    config = model.config
    scores = _take(tensors, "long_scores", plan.long_rows, config.n_long)  # (U, n_long, n_heads * n0)
    by_slot = config.positions == "slot"
    scores += stage1.position_scores if by_slot else stage1.position_scores[plan.positions]
    if plan.long_mask is not None:
        scores = scores.masked_fill(~plan.long_mask[..., None], -torch.inf)
    weights = scores.softmax(dim=1)
    layer = model.enc_modules[0].layers[0]
    attended = layer.multihead_attn.merge(_weigh(model, stage1, tensors, plan, weights))  # (U, n0, D)
    return model.enc_modules[0].norm(layer.after_cross(stage1.tokens, attended))


def _weigh(model: Network, stage1: Stage1, tensors: Tensors, plan: Plan, weights: Tensor) -> Tensor:
    """Sums of values and of their positions under weights (U, n_long, n_heads * n0): (U, n_heads, n0, D / n_heads).

    The weights are put in the order of the ring: putting the values in that of the slots would move more memory.
    """
    U, n_long, _ = weights.shape
    n_streams, n_rows, _ = tensors["long_values"].shape
    split = model.enc_modules[0].layers[0].multihead_attn.split
    in_ring = weights.new_zeros(U * n_rows, weights.shape[-1]).index_copy_(0, plan.ring_rows, weights.flatten(0, 1))
    in_ring = split(in_ring.unflatten(0, (U, n_rows))).transpose(-1, -2)  # (U, n_heads, n0, n_rows)
    if n_streams == 1:  # the windows of one ring share it
        heads = in_ring.transpose(0, 1).flatten(1, 2) @ split(tensors["long_values"][0])  # (n_heads, U * n0, ...)
        heads = heads.unflatten(1, (U, -1)).transpose(0, 1)
    else:
        streams = range(n_streams) if U == n_streams else plan.changed.tolist()
        heads = torch.stack([w @ split(tensors["long_values"][b]) for w, b in zip(in_ring, streams, strict=True)])
    if len(stage1.position_values) == 1:  # the same for every slot, and the weights sum to 1
        return heads + split(stage1.position_values)
    weights = split(weights).transpose(-1, -2)  # (U, n_heads, n0, n_long)
    if model.config.positions == "slot":
        return heads + torch.einsum("uhqn,hnd->uhqd", weights, split(stage1.position_values))
    places = (split(stage1.position_values[rows]) for rows in plan.positions)
    return heads + torch.stack([w @ place for w, place in zip(weights, places, strict=True)])


def _hand_over(model: Network, tensors: Tensors, tokens: Tensor, streams: Tensor | slice, places: slice) -> None:
    """Store encoder tokens (U, M, D) in the form the decoder takes them."""
    for name, form in as_decoded(model, tokens).items():
        if name == "memory":
            tensors[name][streams, places] = form
        else:
            tensors[name][streams, :, places] = form


def as_decoded(model: Network, tokens: Tensor) -> Tensors:
    """Encoder tokens (U, M, D) as the decoder takes them: `memory`, or each layer's keys and values (U, ..., M, D')."""
    if model.integration != "cross-attention":
        return {"memory": tokens}
    made = {}
    for i, layer in enumerate(model.dec_modules.layers):
        made[f"keys.{i}"], made[f"values.{i}"] = layer.multihead_attn.keys_values(tokens)
    return made


def decode(constants: Constants, tensors: Tensors, plan: Plan) -> Tensor:
    """Decoder output (B, 1 + anticipation, ...) of the newest chunk and the future, and no more than that needs."""
    model, W = constants.model, constants.model.config.work_length
    memory, memory_mask = tensors.get("memory"), tensors.get("memory_mask")
    x = _by_slot(tensors, "work", plan)  # (B, W + anticipation, D)
    if constants.work_qkv is None:
        return _pick(model.decode(x[:, :W], plan.work_mask, memory, memory_mask), plan, W)
    B, N, _ = x.shape
    x += constants.work
    qkv = _by_slot(tensors, "work_qkv", plan)
    qkv += constants.work_qkv
    mask = torch.ones(N, N, dtype=torch.bool, device=x.device).tril().expand(B, 1, N, N)
    if plan.work_mask is not None:
        itself = torch.eye(N, dtype=torch.bool, device=x.device)
        mask = mask & (F.pad(plan.work_mask, (0, N - W), value=True)[:, None, None, :] | itself)
    allowed = None if memory_mask is None else memory_mask[:, None, None, :]
    layers = model.dec_modules.layers
    seen_work = _seen_work(constants, tensors, plan)
    for i, layer in enumerate(layers):
        last = i == len(layers) - 1
        attention = layer.self_attn
        asking = _pick(x, plan, W) if last else x
        seen = _pick(mask.transpose(1, 2), plan, W).transpose(1, 2) if last else mask
        if i == 0:
            queries, keys, values = (attention.split(part) for part in qkv.chunk(3, dim=-1))
            queries = _pick(queries.transpose(1, 2), plan, W).transpose(1, 2) if last else queries
            attended = attention.attend(queries, keys, values, seen)
        elif last:
            attended = attention.attend_few(asking, x, seen)
        else:
            attended = attention(x, x, seen)
        x = layer.after_self(asking, attended)
        if model.integration == "cross-attention":
            cross = layer.multihead_attn
            keys, values = tensors[f"keys.{i}"], tensors[f"values.{i}"]
            if seen_work:
                allowed = F.pad(seen, (keys.shape[2], 0), value=True)
                keys, values = (torch.cat(pair, dim=2) for pair in zip((keys, values), seen_work[i], strict=True))
            attended = cross.attend(cross.queries(x), keys, values, allowed)
            x = layer.after_cross(x, attended)
    x = model.dec_modules.norm(x)
    return x if memory is None else model.integrate(x, mean_token(memory, memory_mask))


def _seen_work(constants: Constants, tensors: Tensors, plan: Plan) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of the work tokens as they enter the decoder, for each of its layers; empty where none sees them.

    Each is (B, n_heads, W + anticipation, D / n_heads).
    """
    if constants.work_seen is None:
        return []
    both = _by_slot(tensors, "work_seen", plan)
    both += constants.work_seen
    split = constants.model.dec_modules.layers[0].multihead_attn.split
    parts = [split(part) for part in both.chunk(2 * constants.model.config.l_dec, dim=-1)]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _pick(x: Tensor, plan: Plan, W: int) -> Tensor:
    """Of x (B, W + anticipation, ...) the newest slot and those of the future: (B, 1 + anticipation, ...)."""
    if plan.work_mask is None:
        return x[:, W - 1 :]
    newest = plan.work_mask.sum(dim=1) - 1  # (B,)
    streams = torch.arange(len(x), device=x.device)
    return torch.cat([x[streams, newest, None], x[:, W:]], dim=1)
