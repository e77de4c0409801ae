"""Layers that several kinds share, with published names of parameters, and the rings that streams keep chunks in."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import WindowConfig

Tensors = dict[str, Tensor]
Mask = Tensor | None  # which tokens may be seen or exist, as bool or as numbers that are added to scores; None if all
Step = tuple[Tensor, Tensors]  # logits of a chunk, and the tensors of the streams after it


def sinusoid(length: int, d_model: int) -> Tensor:
    """Return a table (length, d_model) of interleaved sines and cosines, base 10000 (Vaswani et al. 2017, 3.5)."""
    position = torch.arange(length, dtype=torch.float32).unsqueeze(1)  # (length, 1)
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float32) * (-math.log(10000.0) / d_model))
    table = torch.zeros(length, d_model)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table


class Head(nn.Sequential):
    """Layers that a chunk's features (..., D) enter through."""

    input_linear: nn.Sequential

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(OrderedDict(input_linear=nn.Sequential(*layers)))


class FeatureHead(Head):
    """Linear and ReLU from a chunk's features (..., D) to tokens (..., d_model)."""

    def __init__(self, input_dim: int, d_model: int) -> None:
        super().__init__(nn.Linear(input_dim, d_model), nn.ReLU())


PUBLISHED_POSITIONS = 5000  # rows of the position table in published checkpoints


class PositionalEncoding(nn.Module):
    """Adds rows of a table of sinusoids to tokens, then drops out. It is saved with the weights, as published."""

    pe: Tensor

    def __init__(self, config: WindowConfig, reach: int) -> None:
        super().__init__()
        # the work memory and the chunks ahead come after `reach` positions
        length = max(PUBLISHED_POSITIONS, reach + config.work_length + config.anticipation)
        self.register_buffer("pe", sinusoid(length, config.d_model).unsqueeze(1))  # (length, 1, d_model)
        self.dropout = nn.Dropout(config.dropout)

    def rows(self, positions: Tensor) -> Tensor:
        """Return table rows (..., d_model) of positions (...)."""
        return self.pe[:, 0][positions]

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return tokens (B, N, d_model) with positions (N,) or (B, N)."""
        return self.dropout(tokens + self.rows(positions))


class Scaled(nn.Module):
    """Each feature times a number plus a number, neither of them trained: what brings features to one scale."""

    weight: Tensor
    bias: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        """Return scaled features (..., D)."""
        return features * self.weight + self.bias


def causal_mask(length: int, present: Mask, device: torch.device) -> Tensor:
    """Return which tokens see which: (N, N), or (B, 1, N, N) of present (B, N) bool; True = may be seen.

    A token sees itself and the present ones before it; itself even if absent, because its output must not be NaN.
    """
    places = torch.arange(length, device=device)
    mask = places[:, None] >= places
    if present is None:
        return mask
    return mask & (present[:, None, None, :] | (places[:, None] == places))


def mean_token(memory: Tensor, mask: Mask) -> Tensor:
    """Return the mean (B, d_model) of the visible tokens of memory (B, M, d_model); mask (B, M), None for all."""
    if mask is None:
        return memory.mean(dim=1)
    weight = mask / mask.sum(dim=1, keepdim=True)  # (B, M)
    return (weight[:, None].to(memory) @ memory)[:, 0]


class Attention(nn.Module):
    """Multi-head attention with packed projections; same numbers and keys as nn.MultiheadAttention.

    Its parts are public because a stream calls them one by one, for new chunks only.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        out_proj = nn.Linear(d_model, d_model)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(out_proj.bias)
        self.out_proj: nn.Module = out_proj

    def split(self, x: Tensor) -> Tensor:
        """Return tokens (..., N, D) by head: (..., n_heads, N, D / n_heads)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)

    def project(self, x: Tensor, first: int, last: int) -> Tensor:
        """Return x (..., D) through parts `first` to `last` of queries, keys, values: (..., (last - first) D)."""
        rows = slice(first * x.shape[-1], last * x.shape[-1])
        return F.linear(x, self.in_proj_weight[rows], self.in_proj_bias[rows])

    def queries(self, x: Tensor) -> Tensor:
        """Return projected queries of x (..., N, D): (..., n_heads, N, D / n_heads)."""
        return self.split(self.project(x, 0, 1))

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return projected keys and values of x (..., N, D), each (..., n_heads, N, D / n_heads)."""
        keys, values = self.project(x, 1, 3).chunk(2, dim=-1)
        return self.split(keys), self.split(values)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask = None, causal: bool = False) -> Tensor:
        """Return attention output (..., N, D), under a mask that is broadcast to (..., n_heads, N, M).

        The mask is bool, True = may be seen, or numbers that are added to the scores.
        """
        dropout = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(queries, keys, values, mask, dropout, causal)
        return self.merge(heads)

    def attend_few(self, x: Tensor, memory: Tensor, mask: Mask = None) -> Tensor:
        """Return what `forward` gives, projecting none of memory (B, M, D): cheaper when x (B, N, D) has fewer tokens.

        A score is query · (W_k token), which is (W_kᵀ query) · token; and a weighted sum of projected values is the
        projection of the weighted sum. The bias of the keys moves all scores of a query alike, so softmax drops it.
        """
        B, N, d_model = x.shape
        _, key_weight, value_weight = (part.unflatten(0, (self.n_heads, -1)) for part in self.in_proj_weight.chunk(3))
        queries = self.queries(x) * (d_model // self.n_heads) ** -0.5  # (B, n_heads, N, D / n_heads)
        queries = torch.einsum("bhnd,hde->bhne", queries, key_weight).flatten(1, 2)  # (B, n_heads * N, D)
        scores = (queries @ memory.transpose(1, 2)).unflatten(1, (self.n_heads, N))  # (B, n_heads, N, M)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        seen = (scores.softmax(dim=-1).flatten(1, 2) @ memory).unflatten(1, (self.n_heads, N))  # (B, n_heads, N, D)
        heads = torch.einsum("bhne,hde->bhnd", seen, value_weight)
        return self.merge(heads + self.in_proj_bias[2 * d_model :].unflatten(0, (self.n_heads, 1, -1)))

    def merge(self, heads: Tensor) -> Tensor:
        """Return heads (..., n_heads, N, D / n_heads) through the output projection: (..., N, D)."""
        return self.out_proj(heads.transpose(-3, -2).flatten(-2))

    def forward(self, x: Tensor, memory: Tensor, mask: Mask = None) -> Tensor:
        """Return attention output (B, N, D) of tokens x (B, N, D) that look at memory (B, M, D)."""
        return self.attend(self.queries(x), *self.keys_values(memory), mask)


class Layer(nn.Module):
    """Attentions and a feed-forward; the result of each is added to the tokens, which are then normalised."""

    attentions: ClassVar[tuple[str, ...]]
    norms: ClassVar[tuple[str, ...]]  # the last two are before and after the feed-forward
    activation: ClassVar[staticmethod[..., Tensor]] = staticmethod(F.relu)
    norm1: nn.LayerNorm

    def __init__(self, d_model: int, n_heads: int, d_feedforward: int, dropout: float) -> None:
        super().__init__()
        for name in self.attentions:  # in the published order of parameters, in which weights are drawn too
            setattr(self, name, Attention(d_model, n_heads, dropout))
        self.linear1 = nn.Linear(d_model, d_feedforward)
        self.linear2 = nn.Linear(d_feedforward, d_model)
        for name in self.norms:
            setattr(self, name, nn.LayerNorm(d_model))
        self.dropout = nn.Dropout(dropout)

    def after_self(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return tokens x (..., N, D) after the self-attention output `attended` joins them."""
        return self.norm1(x + self.dropout(attended))

    def feed_forward(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return tokens x (..., N, D) after the output of the last attention joins them, and the feed-forward."""
        before, after = (getattr(self, name) for name in self.norms[-2:])
        x = before(x + self.dropout(attended))
        hidden = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return after(x + self.dropout(hidden))


class DecoderLayer(Layer):
    """Self-attention, cross-attention, feed-forward (paper, section 3.3)."""

    attentions = "self_attn", "multihead_attn"
    norms = "norm1", "norm2", "norm3"
    self_attn: Attention
    multihead_attn: Attention

    def forward(self, x: Tensor, memory: Tensor, mask: Mask = None, memory_mask: Mask = None) -> Tensor:
        """Return x (B, N, D) after it met itself and memory (B, M, D); masks are bool, True = may be seen."""
        x = self.after_self(x, self.self_attn(x, x, mask))
        return self.feed_forward(x, self.multihead_attn(x, memory, memory_mask))


class EncoderLayer(Layer):
    """Self-attention and feed-forward: the decoder layer of a model that has no long memory."""

    attentions = ("self_attn",)
    norms = "norm1", "norm2"
    self_attn: Attention

    def after_self(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return tokens x (..., N, D) after the self-attention output joins them, and the feed-forward."""
        return self.feed_forward(x, attended)

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Mask = None, memory_mask: Mask = None) -> Tensor:
        """Return x (B, N, D) after its self-attention, without a memory."""
        return self.feed_forward(x, self.self_attn(x, x, mask))


def module_list(modules: Iterable[nn.Module]) -> Sequence[Any]:
    """Return nn.ModuleList as a sequence, so that an annotation can name the type of its modules."""
    return cast(Sequence[Any], nn.ModuleList(modules))


class Stack(nn.Module):
    """A sequence of layers of one shape, then a LayerNorm."""

    layers: Sequence[Any]  # DecoderLayer or EncoderLayer, all of one class

    def __init__(self, layer: DecoderLayer | EncoderLayer, n_layers: int, d_model: int) -> None:
        super().__init__()
        self.layers = module_list(copy.deepcopy(layer) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        # As published: copies start with equal packed projections, and only their Linear weights are drawn again.
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5))

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Mask = None, memory_mask: Mask = None) -> Tensor:
        """Return x (B, N, D) after it met itself and memory (B, M, D)."""
        for layer in self.layers:
            x = layer(x, memory, mask, memory_mask)
        return self.norm(x)


class Block(Layer):
    """One attention and a feed-forward with GELU."""

    attentions = ("attention",)
    norms = "norm2", "norm3"
    activation = staticmethod(F.gelu)
    attention: Attention

    def forward(self, x: Tensor, memory: Tensor, mask: Mask = None) -> Tensor:
        """Return x (B, N, D) after it met memory (B, M, D); the mask is as of `Attention.attend`."""
        return self.feed_forward(x, self.attention(x, memory, mask))


class CausalBlock(Block):
    """A causal self-attention before the attention to a memory."""

    def __init__(self, d_model: int, n_heads: int, d_feedforward: int, dropout: float) -> None:
        super().__init__(d_model, n_heads, d_feedforward, dropout)
        self.self_attn = Attention(d_model, n_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, memory: Tensor, mask: Mask = None) -> Tensor:
        """Return x (B, N, D) after each token met the tokens up to itself, and memory (B, M, D)."""
        queries, (keys, values) = self.self_attn.queries(x), self.self_attn.keys_values(x)
        x = self.after_self(x, self.self_attn.attend(queries, keys, values, causal=True))
        return super().forward(x, memory, mask)


Packed = TypeVar("Packed", bound=nn.Module)
TOKENS = 32  # tokens the layout of packed weights is made for: a full work memory


class PackedLinear(nn.Module):
    """A linear layer for inference, in float64 if its weights are, else in float32; the output has the input's dtype.

    A step of a stream multiplies few tokens by many weights, so most of its time goes to reading weights. The layout of
    oneDNN reads them almost twice as fast as a plain matrix.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        # float16 and bfloat16 are computed in float32; the operator of oneDNN has no float64
        self.dtype = torch.promote_types(weight.dtype, torch.float32)
        self.bias = None if bias is None else bias.detach().to(self.dtype)
        # The operator is torch's own, made for its compiler and not documented, so it may be missing.
        has_operator = hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        self.packed = has_operator and weight.device.type == "cpu" and self.dtype == torch.float32
        self.weight = weight.detach().to(self.dtype)
        if self.packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., D_in) through the layer: (..., D_out)."""
        x_in = x.to(self.dtype)
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x_in, self.weight, self.bias, "none", [], "").to(x.dtype)
        return F.linear(x_in, self.weight, self.bias).to(x.dtype)


class PackedAttention(Attention):
    """Attention with projections that are packed at their first use."""

    def __init__(self, plain: Attention) -> None:
        nn.Module.__init__(self)
        self.n_heads, self.dropout = plain.n_heads, plain.dropout
        self.in_proj_weight, self.in_proj_bias = plain.in_proj_weight, plain.in_proj_bias
        linear = cast(nn.Linear, plain.out_proj)
        self.out_proj = PackedLinear(linear.weight, linear.bias)
        self.projections: dict[tuple[int, int], PackedLinear] = {}

    def project(self, x: Tensor, first: int, last: int) -> Tensor:
        if (first, last) not in self.projections:
            rows = slice(first * x.shape[-1], last * x.shape[-1])
            self.projections[first, last] = PackedLinear(self.in_proj_weight[rows], self.in_proj_bias[rows])
        return self.projections[first, last](x)


def pack(model: Packed) -> Packed:
    """Return the model with packed linear layers, for inference; it shares every other tensor with `model`."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    packed = copy.deepcopy(model, shared)
    for parent in list(packed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Attention):
                setattr(parent, name, PackedAttention(child))
            elif isinstance(child, nn.Linear) and not isinstance(parent, Attention):
                setattr(parent, name, PackedLinear(child.weight, child.bias))
    return packed.eval()


def at_slots(states: Tensor, slots: Tensor) -> Tensor:
    """Return the states (B, N, E) at some slots (B, N) of windows of states (B, W, E)."""
    return states.gather(1, slots[..., None].expand(-1, -1, states.shape[2]))


def keep(tensors: Tensors, after: Tensors, taking: Tensor | None = None) -> None:
    """Copy the result of a step into the tensors of streams, only of streams that took a chunk: taking (B,) bool.

    Tensors that came back as the same object were donated, and hold it already.
    """
    memory = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    given = {name: tensor for name, tensor in after.items() if tensor is not tensors[name]}
    if taking is not None:
        given = {n: torch.where(taking.view(-1, *[1] * (t.ndim - 1)), t, tensors[n]) for n, t in given.items()}
    # A result in the memory of another tensor must be copied before that one is overwritten.
    for name, tensor in given.items():
        given[name] = tensor.clone() if tensor.untyped_storage().data_ptr() in memory else tensor
    for name, tensor in given.items():
        tensors[name].copy_(tensor)


def reset_fresh(tensor: Tensor, fresh: Tensor | None) -> Tensor:
    """Return the tensor (B, ...) with zeros for the streams that start, fresh (B,) bool; None if no stream does."""
    return tensor if fresh is None else tensor.masked_fill(fresh.view(-1, *[1] * (tensor.ndim - 1)), 0)


def put(ring: Tensor, rows: Tensor, values: Tensor, donate: bool = False) -> Tensor:
    """Return rings (B, R, ...) with values (n, ...) at rows (n,); donate: whether in the same memory."""
    flat = ring.flatten(0, 1)
    if not donate:
        return flat.index_copy(0, rows, values).view_as(ring)
    flat.index_copy_(0, rows, values)
    return ring


def take(ring: Tensor, rows: Tensor, length: int, out: Tensor | None = None) -> Tensor:
    """Return rows (n * length,) of rings (B, R, ...) as (n, length, ...), in new memory or in the memory of `out`."""
    flat = ring.flatten(0, 1)
    if out is None:
        return flat.index_select(0, rows).unflatten(0, (-1, length))
    torch.index_select(flat, 0, rows, out=out.flatten(0, 1))
    return out


def newest(x: Tensor, present: Mask, W: int) -> Tensor:
    """Return the newest present work slot and the future of x (B, W + anticipation, ...): (B, 1 + anticipation, ...).

    present (B, W) bool, None where all are.
    """
    if present is None:
        return x[:, W - 1 :]
    streams = torch.arange(len(x), device=x.device)
    return torch.cat([x[streams, present.sum(dim=1) - 1, None], x[:, W:]], dim=1)


def replace(tensor: Tensor, streams: Tensor, values: Tensor, donate: bool = False) -> Tensor:
    """Return the tensor (B, ...) with new values (n, ...) for some streams (n,)."""
    if len(values) == len(tensor):
        return values
    if not donate:
        return tensor.index_copy(0, streams, values)
    return tensor.index_copy_(0, streams, values)
