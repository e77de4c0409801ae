"""What follows from the weights of LSTR alone, computed once for all its streams and videos."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lstr.models.lstr_config import LSTRConfig
from lstr.models.lstr_network import LSTRNetwork


@dataclass(frozen=True)
class Stage1:
    """What the queries of stage 1 come to. P is the number of positions."""

    score_weight: Tensor
    """(n_heads * n0, D): stage-1 queries times key weights, so a token gives its scores in one product"""
    value_weight: Tensor
    """(D, D)"""
    position_scores: Tensor
    """(P, n_heads * n0), or (n_long, 1) of a kernel over slots without positions"""
    position_values: Tensor
    """(P, D), or (1, D) of slots without positions; with the bias"""
    tokens: Tensor
    """(n0, D): the queries after their self-attention"""


@dataclass(frozen=True)
class Stage2:
    """What the queries of stage 2 come to."""

    tokens: Tensor
    """(n1, D): the queries after their self-attention"""
    queries: Tensor
    """(n_heads, n1, D / n_heads): those projected for the first cross-attention"""


@dataclass(frozen=True)
class Constants:
    """What follows from the weights alone; streams of one model may share it."""

    model: LSTRNetwork
    """The model, packed where it is for streams here."""
    work: Tensor
    """(W + anticipation, D): positions of the work slots, then the tokens of the future"""
    work_qkv: Tensor | None
    """(W + anticipation, 3 D): their queries, keys and values; without the bias for the slots, for the chunk has it"""
    work_seen: Tensor | None
    """(W + anticipation, l_dec * 2 D): their keys and values for each layer where `Network.sees_work`, without and with
    bias as above"""
    stage1: Stage1 | None
    """None without such a stage, as in the other encoders"""
    stage2: Stage2 | None
    """None where stage 2 has no queries"""


def constants(model: LSTRNetwork, packed: LSTRNetwork) -> Constants:
    """Compute what never changes of a model, `packed` or as it is where its layers are to be the usual ones."""
    config = model.config
    W = config.work_length
    work = model.pos_encoding.rows(model.work_positions())  # (W, D)
    if config.anticipation:
        work = torch.cat([work, model.future()])
    work_qkv = None
    if model.integration not in ("mlp", "joined"):
        attention = model.dec_modules.layers[0].self_attn
        work_qkv = F.linear(work, attention.in_proj_weight)
        work_qkv[W:] += attention.in_proj_bias
    work_seen = None
    if sees_work(model):
        layers = [layer.multihead_attn for layer in model.dec_modules.layers]
        work_seen = F.linear(work, torch.cat([layer.in_proj_weight[config.d_model :] for layer in layers]))
        work_seen[W:] += torch.cat([layer.in_proj_bias[config.d_model :] for layer in layers])
    stage1 = _stage1_constants(model) if has_stage1(config) else None
    stage2 = None
    if stage1 and config.encoder == "two-stage":
        layer, query = model.enc_modules[1].layers[0], model.enc_queries[1].weight
        tokens = layer.after_self(query, layer.self_attn(query, query))  # (n1, D)
        stage2 = Stage2(tokens, layer.multihead_attn.queries(tokens))
    return Constants(packed, work, work_qkv, work_seen, stage1, stage2)


def _stage1_constants(model: LSTRNetwork) -> Stage1:
    config = model.config
    layer = model.enc_modules[0].layers[0]
    query = model.enc_queries[0].weight
    tokens = layer.after_self(query, layer.self_attn(query, query))  # (n0, D)
    cross = layer.multihead_attn
    _, key_weight, value_weight = cross.in_proj_weight.chunk(3)
    # The key bias adds the same to every score of a query, so the softmax does not see it.
    value_bias = cross.in_proj_bias.chunk(3)[2]
    queries = cross.queries(tokens) * (config.d_model // config.n_heads) ** -0.5  # (n_heads, n0, d_head)
    by_head = key_weight.unflatten(0, (config.n_heads, -1))  # (n_heads, d_head, D)
    score_weight = (queries @ by_head).flatten(0, 1)  # (n_heads * n0, D)
    kernel = model.kernel()
    if kernel is None:
        n_positions = config.n_long if config.positions == "slot" else config.long_length + config.work_length
        table = model.pos_encoding.pe[:n_positions, 0]  # (P, D)
        scores, values = F.linear(table, score_weight), F.linear(table, value_weight, value_bias)
    else:
        scores, values = kernel[:, None], value_bias.detach()[None]
    return Stage1(score_weight, value_weight.detach(), scores, values, tokens)


def sees_work(model: LSTRNetwork) -> bool:
    """Whether decoder layers attend to the work tokens as they enter the decoder; without a memory none attends."""
    return model.sees_work and model.integration == "cross-attention"


def has_stage1(config: LSTRConfig) -> bool:
    """Whether queries of a first stage attend to the long memory."""
    return config.n_long > 0 and config.encoder in ("two-stage", "stage2-self-attention")
