"""What a stream of LSTR keeps between chunks, and the arithmetic that makes that enough (paper, section 3.6).

Keys and values are linear in token plus position. So each is a sum of a part of the chunk, computed when it arrives,
and a part of the position, computed once (`Constants`). A step computes:

- Decoder, every chunk: query, key and value of the newest chunk; then all layers for all work tokens, whose slots move
  with every chunk, except the last layer, which only the newest chunk needs.
- Encoder, only if chunks or positions of the long memory changed (fixed grid and slot positions: once per stride, else
  every chunk): the weighted sums, which alone grow with the memory, and the layers on the n0 and n1 queries.

TeSTra has no positions in the long memory. Its decoder layers attend to the work tokens as they enter the first layer;
those keys and values split in the same way.

Encoders without stage 1 ("one-stage" and others) run again from stored tokens when the memory changes; "joined" runs
at every chunk, because there each work token meets the whole long memory in every layer.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from lstr.models.layers import Tensors, causal_mask, mean_token, newest, put, replace, reset_fresh, take
from lstr.windows import indices as index

LSTR: TypeAlias = Any  # a `lstr.models.lstr.LSTR`; that module imports this one


@dataclass(frozen=True)
class Constants:
    """What follows from the weights alone; streams of one model may share it."""

    model: LSTR  # the model, packed for streams on this machine
    work: Tensor  # (W + anticipation, D): positions of the work slots, then the tokens of the future
    # (W + anticipation, 3 D): their queries, keys and values; slots without the bias, which the chunk has
    work_qkv: Tensor | None
    # (W + anticipation, l_dec * 2 D): their keys and values for each layer, if it sees them; bias as above
    work_seen: Tensor | None
    # What the queries of stage 1 amount to, by name; None if no queries attend to the long memory
    stage1: Tensors | None
    # The queries of stage 2 after their self-attention (n1, D), and projected for the first cross-attention (n_heads,
    # n1, D / n_heads); None if it has none
    stage2: tuple[Tensor, Tensor] | None


def constants(model: LSTR, packed: LSTR) -> Constants:
    """Compute what never changes of a model. `packed` is the model that steps use: packed, or the same model."""
    config = model.config
    D, W = config.d_model, config.work_length
    work = model.pos_encoding.rows(model.work_positions())  # (W, D)
    if config.anticipation:
        work = torch.cat([work, model.future()])
    work_qkv = work_seen = stage1 = stage2 = None
    if model.integration not in ("mlp", "joined"):
        attention = model.dec_modules.layers[0].self_attn
        work_qkv = F.linear(work, attention.in_proj_weight)
        work_qkv[W:] += attention.in_proj_bias
    if model.sees_work:
        layers = [layer.multihead_attn for layer in model.dec_modules.layers]
        work_seen = F.linear(work, torch.cat([layer.in_proj_weight[D:] for layer in layers]))
        work_seen[W:] += torch.cat([layer.in_proj_bias[D:] for layer in layers])
    if model.has_stage1:
        layer, query = model.enc_modules[0].layers[0], model.enc_queries[0].weight
        tokens = layer.after_self(query, layer.self_attn(query, query))  # (n0, D)
        stage1, cross = {"tokens": tokens}, layer.multihead_attn
        _, key_weight, value_weight = cross.in_proj_weight.chunk(3)
        # The key bias adds the same number to all scores of a query, so the softmax removes it.
        value_bias = cross.in_proj_bias.chunk(3)[2]
        queries = cross.queries(tokens) * (D // config.n_heads) ** -0.5  # (n_heads, n0, d_head)
        by_head = key_weight.unflatten(0, (config.n_heads, -1))  # (n_heads, d_head, D)
        # (n_heads * n0, D) and (D, D): one product with a token gives its scores, or its values
        stage1 |= {"score_weight": (queries @ by_head).flatten(0, 1), "value_weight": value_weight.detach()}
        if model.slot_scores is None:
            n_positions = config.n_long if config.positions == "slot" else config.long_length + W
            table = model.pos_encoding.pe[:n_positions, 0]  # (P, D)
            stage1["position_scores"] = F.linear(table, stage1["score_weight"])  # (P, n_heads * n0)
            stage1["position_values"] = F.linear(table, value_weight, value_bias)  # (P, D)
        else:  # a kernel over slots without positions: (n_long, 1) and (1, D)
            stage1 |= {"position_scores": model.slot_scores[:, None], "position_values": value_bias.detach()[None]}
        if config.encoder == "two-stage":
            layer, query = model.enc_modules[1].layers[0], model.enc_queries[1].weight
            tokens = layer.after_self(query, layer.self_attn(query, query))  # (n1, D)
            stage2 = tokens, layer.multihead_attn.queries(tokens)
    return Constants(packed, work, work_qkv, work_seen, stage1, stage2)


def begin(model: LSTR, n_streams: int) -> Tensors:
    """Return tensors of B streams before their first chunk, by name; the streams are the first dimension."""
    config, weight = model.config, model.classifier.weight
    D, rows = config.d_model, index.long_rows(config) + 1
    shapes: dict[str, tuple[int, ...]] = {}
    for name, kept in of_work(model, weight.new_zeros(D)).items():
        shapes[name] = config.work_length + 1, len(kept)
    if model.has_stage1:
        shapes |= {"long_scores": (rows, config.n_heads * config.n0), "long_values": (rows, D)}
    elif config.n_long:
        shapes["long_tokens"] = (rows, D)
    if config.gru:
        # Chunks that the GRU takes once they are older than both memories.
        shapes |= {"waiting": (config.long_length + config.work_length + 1, D), "history": (D,)}
    # tokens that the decoder attends to; that of the GRU is the last
    encoded = {"two-stage": config.n1, "one-stage": config.n1, "projection": config.n1}
    encoded["stage2-self-attention"] = config.n0
    n_memory = (encoded.get(config.encoder, config.n_long) if config.n_long else 0) + config.gru
    if model.integration == "cross-attention":
        for i in range(config.l_dec):
            shapes[f"keys.{i}"] = shapes[f"values.{i}"] = (config.n_heads, n_memory, D // config.n_heads)
    elif model.has_memory:
        shapes["memory"] = (n_memory, D)
    tensors = {name: weight.new_zeros(n_streams, *shape) for name, shape in shapes.items()}
    if config.n_long and config.encoder in ("self-attention", "none", "joined"):  # at first some slots are hidden
        tensors["memory_mask"] = weight.new_ones(n_streams, n_memory, dtype=torch.bool)
    return tensors


def step(
    constants: Constants, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
) -> tuple[Tensor, Tensors]:
    """See `Model.step`; the plan is of `lstr.windows.plans.Compressed`."""
    model, config = constants.model, constants.model.config
    after, work = dict(tensors), of_work(model, model.feature_head_work(features))  # (B, ...)
    for name, kept in work.items():
        after[name] = put(tensors[name], plan["work_row"], kept, donate)
    if config.gru:
        after["waiting"] = put(tensors["waiting"], plan["waiting_row"], model.feature_head_long(features), donate)
        if "fresh" in plan or "leaving" in plan:
            history = reset_fresh(tensors["history"], plan.get("fresh"))
            if "leaving" in plan:  # the chunk that leaves the long memory
                token = take(after["waiting"], plan["leaving_row"], 1)  # (B, 1, D)
                _, state = model.gru(token, history[None])  # (1, B, D)
                history = torch.where(plan["leaving"][:, None], state[0], history)
            after["history"] = history
            for name, last in as_decoded(model, history[:, None]).items():
                before = after[name].narrow(-2, 0, after[name].shape[-2] - 1)
                after[name] = torch.cat([before, last], dim=-2)
    if "stores.streams" in plan:
        for name, kept in stored(constants, features.index_select(0, plan["stores.streams"])).items():
            after[name] = put(tensors[name], plan["stores.row"], kept, donate)
    if "changes.streams" in plan:
        streams, hidden = plan["changes.streams"], plan.get("changes.hidden")
        made = encode(constants, after, streams, plan["changes.held"], hidden, plan.get("changes.positions"))
        for name, form in made.items():
            if config.gru:  # keep its token, the last
                along = -1 if name == "memory_mask" else -2
                last = after[name].narrow(along, after[name].shape[along] - 1, 1).index_select(0, streams)
                form = torch.cat([form, last], dim=along)
            after[name] = replace(after[name], streams, form, donate)
    N = config.work_length + config.anticipation
    work = {name: take(after[name], plan["work_rows"], N) for name in work}
    return model.classifier(decode(constants, work, after, plan.get("absent"))), after


def of_work(model: LSTR, tokens: Tensor) -> Tensors:
    """Return the stored tensors of work tokens (..., D): the tokens, and their projections without positions."""
    kept = {"work": tokens}
    if model.integration not in ("mlp", "joined"):
        kept["work_qkv"] = model.dec_modules.layers[0].self_attn.project(tokens, 0, 3)
    if model.sees_work:
        layers = [layer.multihead_attn for layer in model.dec_modules.layers]
        kept["work_seen"] = torch.cat([layer.project(tokens, 1, 3) for layer in layers], dim=-1)
    return kept


def stored(constants: Constants, features: Tensor) -> Tensors:
    """Return the rows that chunks with features (..., D) have in the rings of the encoder, by name."""
    token = constants.model.feature_head_long(features)
    if constants.stage1 is None:
        return {"long_tokens": token}
    return {
        "long_scores": F.linear(token, constants.stage1["score_weight"]),
        "long_values": F.linear(token, constants.stage1["value_weight"]),
    }


def encode(
    constants: Constants, rings: Tensors, streams: Tensor, held: Tensor, hidden: Tensor | None, positions: Tensor | None
) -> Tensors:
    """Return the long memories of some streams, without the GRU, as the decoder takes them, and `memory_mask` (U, M).

    Args:
        constants: of the model.
        rings: the rings of chunks by name; all U share them if they are of one stream.
        streams: (U,) which streams.
        held: (U, n_long) rows of the ring of each stream; the spare row if hidden.
        hidden: (U, n_long) bool, None if no slot is.
        positions: (U, n_long) rows of the position table, if positions are distances.
    """
    model, stage1, (U, n_long) = constants.model, constants.stage1, held.shape
    ring = rings["long_tokens" if stage1 is None else "long_values"]
    n_rows = ring.shape[1]
    rows = (streams[:, None] * n_rows + held).flatten()
    if stage1 is None:
        long = take(ring, rows, n_long)  # (U, n_long, D)
        visible = long.new_ones(U, n_long, dtype=torch.bool) if hidden is None else ~hidden
        tokens, seen = model.encode(long, visible, positions, None)
        return as_decoded(model, tokens) | ({} if seen is None else {"memory_mask": seen})
    scores = take(rings["long_scores"], rows, n_long)  # (U, n_long, n_heads * n0)
    scores += stage1["position_scores"] if positions is None else stage1["position_scores"][positions]
    if hidden is not None:
        scores = scores.masked_fill(hidden[..., None], -torch.inf)
    weights, layer = scores.softmax(dim=1), model.enc_modules[0].layers[0]
    split = layer.multihead_attn.split
    # The weights are put in the order of the ring, because putting the values in slot order would move more memory.
    rows = (n_rows * torch.arange(U, device=held.device)[:, None] + held).flatten()
    in_ring = split(put(weights.new_zeros(U, n_rows, weights.shape[-1]), rows, weights.flatten(0, 1)))
    in_ring = in_ring.transpose(-1, -2)  # (U, n_heads, n0, n_rows)
    if len(ring) == 1:  # the windows of one ring share it
        heads = in_ring.transpose(0, 1).flatten(1, 2) @ split(ring[0])  # (n_heads, U * n0, d_head)
        heads = heads.unflatten(1, (U, -1)).transpose(0, 1)
    else:
        values = ring if U == len(ring) else ring.index_select(0, streams)
        heads = torch.stack([w @ split(v) for w, v in zip(in_ring, values, strict=True)])
    of_positions, weights = stage1["position_values"], split(weights).transpose(-1, -2)  # (U, n_heads, n0, n_long)
    if len(of_positions) == 1:  # the same values for every slot, and the weights sum to 1
        heads = heads + split(of_positions)
    elif positions is None:
        heads = heads + torch.einsum("uhqn,hnd->uhqd", weights, split(of_positions))
    else:
        places = (split(of_positions[rows]) for rows in positions)
        heads = heads + torch.stack([w @ place for w, place in zip(weights, places, strict=True)])
    tokens = layer.feed_forward(stage1["tokens"], layer.multihead_attn.merge(heads))
    tokens, stack = model.enc_modules[0].norm(tokens), model.enc_modules[1]  # (U, n0, D)
    if constants.stage2 is None:
        return as_decoded(model, stack(tokens))
    layer, (asking, queries) = stack.layers[0], constants.stage2
    attended = layer.multihead_attn.attend(queries, *layer.multihead_attn.keys_values(tokens))
    compressed = layer.feed_forward(asking, attended)  # (U, n1, D)
    for layer in stack.layers[1:]:
        compressed = layer(compressed, tokens)
    return as_decoded(model, stack.norm(compressed))


def as_decoded(model: LSTR, tokens: Tensor) -> Tensors:
    """Return encoder tokens (U, M, D) as the decoder takes them: `memory`, or keys and values of each layer."""
    if model.integration != "cross-attention":
        return {"memory": tokens}
    made = {}
    for i, layer in enumerate(model.dec_modules.layers):
        made[f"keys.{i}"], made[f"values.{i}"] = layer.multihead_attn.keys_values(tokens)
    return made


def decode(constants: Constants, work: Tensors, past: Tensors, absent: Tensor | None) -> Tensor:
    """Return decoder output (B, 1 + anticipation, ...) of the newest chunk and the future, with no work beyond that.

    Args:
        constants: of the model.
        work: work tokens and their projections by slot, (B, W + anticipation, ...); overwritten.
        past: the result of `as_decoded`, and `memory_mask`.
        absent: (B, W) bool, None if no slot is.
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
    seen_work: list[Tensor] = []  # keys and values of the work tokens for each layer, (B, n_heads, N, d_head)
    if constants.work_seen is not None:
        both = work["work_seen"]
        both += constants.work_seen
        seen_work = [layers[0].multihead_attn.split(part) for part in both.chunk(2 * len(layers), dim=-1)]
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
                keys = torch.cat([keys, seen_work[2 * i]], dim=2)
                values = torch.cat([values, seen_work[2 * i + 1]], dim=2)
            attended = cross.attend(cross.queries(x), keys, values, allowed)
            x = layer.feed_forward(x, attended)
    x = model.dec_modules.norm(x)
    return x if memory is None else model.integrate(x, mean_token(memory, memory_mask))
