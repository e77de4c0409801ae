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
grid keeps (long_length + W) / stride + 2 and another long_length + W + 2; 4 (W + 1) D for the work
memory; 2 n1 D for each decoder layer, and 2 (W + 1) D more of a TeSTra; with a GRU (long_length + W + 2) D.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lstr.models.lstr_config import LSTRConfig
from lstr.models.lstr_network import LSTRNetwork, mean_token
from lstr.models.lstr_precomputed import Constants, Stage1, has_stage1, sees_work
from lstr.models.stream import Tensors, begun, newest, put, replace, take
from lstr.models.transformer import causal_mask
from lstr.windows import indices as index
from lstr.windows.long_plan import waiting_rows


def begin(model: LSTRNetwork, n_streams: int) -> Tensors:
    """Tensors of B streams before their first chunk, by name; the streams are the first dimension."""
    config = model.config
    shapes: dict[str, tuple[int, ...]] = {
        name: (config.work_length + 1, parts * config.d_model) for name, parts in _work_rings(model).items()
    }
    rows = index.long_rows(config) + 1
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


def step(
    constants: Constants, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
) -> tuple[Tensor, Tensors]:
    """Like `Model.step`, by the plan of `lstr.windows.long_plan.Compressed`."""
    model, config = constants.model, constants.model.config
    after = dict(tensors)
    for name, kept in of_work(model, model.feature_head_work(features)).items():  # (B, ...)
        after[name] = put(tensors[name], plan["work_row"], kept, donate)
    if config.gru:
        after["waiting"] = put(tensors["waiting"], plan["waiting_row"], model.feature_head_long(features), donate)
        after |= _summed_up(model, after, plan)
    if "stores.streams" in plan:
        for name, kept in stored(constants, features.index_select(0, plan["stores.streams"])).items():
            after[name] = put(tensors[name], plan["stores.row"], kept, donate)
    if "changes.streams" in plan:
        after |= _updated(constants, after, plan, donate)
    N = config.work_length + config.anticipation
    work = {name: take(after[name], plan["work_rows"], N) for name in _work_rings(model)}
    return model.classifier(decode(constants, work, after, plan.get("absent"))), after


def _work_rings(model: LSTRNetwork) -> dict[str, int]:
    """What is kept of each work token, and its width in d_model."""
    rings = {"work": 1}
    if model.integration not in ("mlp", "joined"):
        rings["work_qkv"] = 3
    if sees_work(model):
        rings["work_seen"] = 2 * model.config.l_dec
    return rings


def of_work(model: LSTRNetwork, tokens: Tensor) -> Tensors:
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


def _summed_up(model: LSTRNetwork, tensors: Tensors, plan: Tensors) -> Tensors:
    """The state of the GRU after the chunk that leaves the long memory, and what the decoder takes of it."""
    if "fresh" not in plan and "leaving" not in plan:
        return {}
    history = begun(tensors["history"], plan.get("fresh"))
    if "leaving" in plan:
        token = take(tensors["waiting"], plan["leaving_row"], 1)  # (B, 1, D)
        _, after = model.gru(token, history[None])  # (1, B, D)
        history = torch.where(plan["leaving"][:, None], after[0], history)
    given = as_decoded(model, history[:, None])
    return {"history": history} | {
        name: torch.cat([tensors[name].narrow(-2, 0, tensors[name].shape[-2] - 1), last], dim=-2)
        for name, last in given.items()
    }


def stored(constants: Constants, features: Tensor) -> Tensors:
    """What the encoder will need of chunks with features (..., D), by the names of its rings."""
    token = constants.model.feature_head_long(features)
    if constants.stage1 is None:
        return {"long_tokens": token}
    return {
        "long_scores": F.linear(token, constants.stage1.score_weight),
        "long_values": F.linear(token, constants.stage1.value_weight),
    }


def _updated(constants: Constants, tensors: Tensors, plan: Tensors, donate: bool) -> Tensors:
    """What the decoder takes of the long memories that are not what they were, in place of what it had."""
    model, streams = constants.model, plan["changes.streams"]
    tokens, seen = encode(
        constants, tensors, streams, plan["changes.held"], plan.get("changes.hidden"), plan.get("changes.positions")
    )
    made = as_decoded(model, tokens)
    if seen is not None:
        made["memory_mask"] = seen
    if model.config.gru:  # whose token is the last
        for name, form in made.items():
            along = -1 if name == "memory_mask" else -2
            last = tensors[name].narrow(along, tensors[name].shape[along] - 1, 1).index_select(0, streams)
            made[name] = torch.cat([form, last], dim=along)
    return {name: replace(tensors[name], streams, form, donate) for name, form in made.items()}


def encode(
    constants: Constants,
    rings: Tensors,
    streams: Tensor,
    held: Tensor,
    hidden: Tensor | None,
    positions: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Encoder tokens (U, M, D) of some streams' long memories without a GRU's, and their mask (U, M), None for all.

    streams (U,) have held (U, n_long) in rows of their ring, the spare one where hidden (U, n_long), None for none.
    Rings of one stream are those of all U. positions (U, n_long) are rows of the position table, of distances.
    """
    model = constants.model
    n_rows = next(rings[name].shape[1] for name in ("long_tokens", "long_values") if name in rings)
    rows = (streams[:, None] * n_rows + held).flatten()
    if constants.stage1 is None:
        long = take(rings["long_tokens"], rows, held.shape[1])  # (U, n_long, D)
        visible = long.new_ones(long.shape[:2], dtype=torch.bool) if hidden is None else ~hidden
        return model.encode(long, visible, positions, None)
    scores = take(rings["long_scores"], rows, held.shape[1])  # (U, n_long, n_heads * n0)
    scores += constants.stage1.position_scores if positions is None else constants.stage1.position_scores[positions]
    if hidden is not None:
        scores = scores.masked_fill(hidden[..., None], -torch.inf)
    weights = scores.softmax(dim=1)
    layer = model.enc_modules[0].layers[0]
    summed = _weigh(model, constants.stage1, rings["long_values"], streams, held, positions, weights)
    tokens = layer.after_cross(constants.stage1.tokens, layer.multihead_attn.merge(summed))
    tokens = model.enc_modules[0].norm(tokens)  # (U, n0, D)
    stack = model.enc_modules[1]
    if constants.stage2 is None:
        return stack(tokens), None
    layer = stack.layers[0]
    attended = layer.multihead_attn.attend(constants.stage2.queries, *layer.multihead_attn.keys_values(tokens))
    compressed = layer.after_cross(constants.stage2.tokens, attended)  # (U, n1, D)
    for layer in stack.layers[1:]:
        compressed = layer(compressed, tokens)
    return stack.norm(compressed), None


def _weigh(
    model: LSTRNetwork,
    stage1: Stage1,
    ring: Tensor,
    streams: Tensor,
    held: Tensor,
    positions: Tensor | None,
    weights: Tensor,
) -> Tensor:
    """Sums of values and of their positions under weights (U, n_long, n_heads * n0): (U, n_heads, n0, D / n_heads).

    The weights are put in the order of the ring: putting the values in that of the slots would move more memory.
    """
    U, n_rows = len(held), ring.shape[1]
    split = model.enc_modules[0].layers[0].multihead_attn.split
    rows = (n_rows * torch.arange(U, device=held.device)[:, None] + held).flatten()
    in_ring = put(weights.new_zeros(U, n_rows, weights.shape[-1]), rows, weights.flatten(0, 1))
    in_ring = split(in_ring).transpose(-1, -2)  # (U, n_heads, n0, n_rows)
    if len(ring) == 1:  # the windows of one ring share it
        heads = in_ring.transpose(0, 1).flatten(1, 2) @ split(ring[0])  # (n_heads, U * n0, D / n_heads)
        heads = heads.unflatten(1, (U, -1)).transpose(0, 1)
    else:
        values = ring if U == len(ring) else ring.index_select(0, streams)
        heads = torch.stack([w @ split(v) for w, v in zip(in_ring, values, strict=True)])
    if len(stage1.position_values) == 1:  # the same for every slot, and the weights sum to 1
        return heads + split(stage1.position_values)
    weights = split(weights).transpose(-1, -2)  # (U, n_heads, n0, n_long)
    if positions is None:
        return heads + torch.einsum("uhqn,hnd->uhqd", weights, split(stage1.position_values))
    places = (split(stage1.position_values[rows]) for rows in positions)
    return heads + torch.stack([w @ place for w, place in zip(weights, places, strict=True)])


def as_decoded(model: LSTRNetwork, tokens: Tensor) -> Tensors:
    """Encoder tokens (U, M, D) as the decoder takes them: `memory`, or each layer's keys and values (U, ..., M, D')."""
    if model.integration != "cross-attention":
        return {"memory": tokens}
    made = {}
    for i, layer in enumerate(model.dec_modules.layers):
        made[f"keys.{i}"], made[f"values.{i}"] = layer.multihead_attn.keys_values(tokens)
    return made


def decode(constants: Constants, work: Tensors, past: Tensors, absent: Tensor | None) -> Tensor:
    """Decoder output (B, 1 + anticipation, ...) of the newest chunk and the future, and no more than that needs.

    work: the rings of work tokens by slot, (B, W + anticipation, ...), which are overwritten. past: what `as_decoded`
    made, and `memory_mask`. absent (B, W) bool, None where no slot is.
    """
    model, W = constants.model, constants.model.config.work_length
    memory, memory_mask = past.get("memory"), past.get("memory_mask")
    x = work["work"]
    present = None if absent is None else ~absent
    if constants.work_qkv is None:
        return newest(model.decode(x[:, :W], present, memory, memory_mask), present, W)
    B, N, _ = x.shape
    x += constants.work
    qkv = work["work_qkv"]
    qkv += constants.work_qkv
    mask = causal_mask(N, None if present is None else F.pad(present, (0, N - W), value=True), x.device)
    mask = mask.expand(B, 1, N, N)
    allowed = None if memory_mask is None else memory_mask[:, None, None, :]
    layers = model.dec_modules.layers
    seen_work = _seen_work(constants, work)
    for i, layer in enumerate(layers):
        last = i == len(layers) - 1
        attention = layer.self_attn
        asking = newest(x, present, W) if last else x
        seen = newest(mask.transpose(1, 2), present, W).transpose(1, 2) if last else mask
        if i == 0:
            queries, keys, values = (attention.split(part) for part in qkv.chunk(3, dim=-1))
            queries = newest(queries.transpose(1, 2), present, W).transpose(1, 2) if last else queries
            attended = attention.attend(queries, keys, values, seen)
        elif last:
            attended = attention.attend_few(asking, x, seen)
        else:
            attended = attention(x, x, seen)
        x = layer.after_self(asking, attended)
        if model.integration == "cross-attention":
            cross = layer.multihead_attn
            keys, values = past[f"keys.{i}"], past[f"values.{i}"]
            if seen_work:
                allowed = F.pad(seen, (keys.shape[2], 0), value=True)
                keys, values = (torch.cat(pair, dim=2) for pair in zip((keys, values), seen_work[i], strict=True))
            attended = cross.attend(cross.queries(x), keys, values, allowed)
            x = layer.after_cross(x, attended)
    x = model.dec_modules.norm(x)
    return x if memory is None else model.integrate(x, mean_token(memory, memory_mask))


def _seen_work(constants: Constants, work: Tensors) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of the work tokens as they enter the decoder, for each of its layers; empty where none sees them.

    Each is (B, n_heads, W + anticipation, D / n_heads).
    """
    if constants.work_seen is None:
        return []
    both = work["work_seen"]
    both += constants.work_seen
    split = constants.model.dec_modules.layers[0].multihead_attn.split
    parts = [split(part) for part in both.chunk(2 * constants.model.config.l_dec, dim=-1)]
    return list(zip(parts[::2], parts[1::2], strict=True))
