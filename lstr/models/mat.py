"""MAT (Wang et al., ICCV 2023): memory and future tokens refine each other, with attention to the best keys alone.

Tokens of the future are generated from the memory and the work tokens. Then work tokens attend to those, the future to
the work tokens, and work tokens to the future again. Every query attends to the three quarters of its keys with the
highest scores; hidden keys count among those it drops.

A long memory with few hidden slots is compressed in `config.groups` runs to one token each, any other as a whole to n0
tokens.

The published evaluation takes the first chunks of a video from one full window, where every work token has seen the
future generated from all of them: all scores but the last use later chunks. Here a window that is not full has only the
work tokens that exist. Training, where a window is full and every slot an output, is as published.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor

from lstr.config import MOST, Size, SizeOrZero
from lstr.errors import ConfigError
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.foresight import Foresight, ForesightConfig, PublishedForesight
from lstr.models.kind import PUBLISHED_TRAINING, Kind, Preset
from lstr.models.layers import Attention, DecoderLayer, EncoderLayer, Mask, Stack, Tensors, module_list, newest
from lstr.models.published import read_publication
from lstr.windows.indices import Indices
from lstr.windows.windows import Outputs

FUTURE_WEIGHT = 0.1  # weight of the loss of each generation of future tokens (published code)
PUBLISHED_BATCH = 16  # windows that the published evaluation computes together


def attend_to_best(attention: Attention, x: Tensor, memory: Tensor, mask: Mask = None, counted: Mask = None) -> Tensor:
    """Return attention output (B, N, D) of x (B, N, D) over the best three quarters of memory (B, M, D), at least one.

    mask is bool, broadcast to (B, n_heads, N, M), True = may be seen; what may not still is one of the M. counted (B,
    M) are the tokens that exist, None for all.
    """
    keys, values = attention.keys_values(memory)
    return attend_to_best_of(attention, attention.queries(x), keys, values, mask, counted)


def attend_to_best_of(
    attention: Attention, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, counted: Mask
) -> Tensor:
    """See `attend_to_best`, for projected queries (..., n_heads, N, D / n_heads), keys and values."""
    scores = queries * queries.shape[-1] ** -0.5 @ keys.transpose(-1, -2)  # (..., n_heads, N, M)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if counted is not None:
        scores = scores.masked_fill(~counted[:, None, None, :], -torch.inf)
    best = scores.topk(max(1, 3 * keys.shape[-2] // 4), dim=-1).indices
    among = torch.ones_like(best, dtype=torch.bool)
    if counted is not None:
        share = (3 * counted.sum(dim=-1) // 4).clamp(min=1)[:, None, None, None]  # (B, 1, 1, 1)
        among = (torch.arange(best.shape[-1], device=best.device) < share).expand_as(best)
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, among)
    weights = scores.masked_fill(~kept, -torch.inf).softmax(dim=-1)
    if attention.training and attention.dropout:
        weights = F.dropout(weights, attention.dropout)
    return attention.merge(weights @ values)


class BestLayer(DecoderLayer):
    """A decoder layer with `attend_to_best` as attention, and GELU in its feed-forward."""

    activation = staticmethod(F.gelu)

    def look(self, x: Tensor, memory: Tensor, mask: Mask = None, counted: Mask = None) -> Tensor:
        """Return the rest of the layer for tokens x (B, N, D) after their self-attention; as `attend_to_best`."""
        return self.feed_forward(x, attend_to_best(self.multihead_attn, x, memory, mask, counted))


class BestEncoderLayer(EncoderLayer):
    """A self-attention layer with GELU in its feed-forward; its attention is `attend_to_best`."""

    activation = staticmethod(F.gelu)


class MATConfig(ForesightConfig, frozen=True):
    kind = "mat"
    refinements: Annotated[int, Meta(ge=2, lt=MOST)] = 2
    """How often it refines the work tokens, two times at least; the future is refined once less."""
    l_stage1: Size = 1
    """Layers of encoder stage 1 (`ENC_MODULE` of the published code)."""
    groups: SizeOrZero = 0
    """Runs that it sums the long memory up in where fewer of its slots than these are hidden; 0 for no runs."""
    grouping: Literal["window", "batch"] = "window"
    """Where hidden slots are counted for `groups`. window: in each window; batch (published code): in all windows of a
    batch, in training and for whole videos, where batches are of 16; a stream has windows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups and (self.n_long % self.groups or self.groups > self.n_long // self.groups):
            raise ConfigError(
                f"The long memory of {self.n_long} slots cannot be divided into {self.groups} groups.",
                "choose a divisor of the slots with at least as many slots per group, or 0 for no groups.",
            )

    @property
    def tiling(self) -> tuple[int, int, int]:
        """See `WindowConfig.tiling`: a window's future belongs to it, and the first starts in its work memory."""
        return self.work_length + self.anticipation, self.work_length, self.anticipation


class MAT(Foresight):
    """Grouped memory, a decoder, generated future, `config.refinements` of the work tokens, one less of the future."""

    config: MATConfig
    scoring_rule = ScoringRule("MAT", "long videos", "ignored")

    def __init__(self, config: MATConfig, n_classes: int) -> None:
        shape = config.d_model, config.n_heads, config.d_feedforward, config.dropout
        layer = BestLayer(*shape)
        super().__init__(
            config, n_classes, layer, BestEncoderLayer(*shape), fusions=config.refinements, l_stage1=config.l_stage1
        )
        n = config.refinements - 1
        self.fut_fusions: Sequence[Stack] = module_list(Stack(layer, 1, config.d_model) for _ in range(n))
        self.is_batched = config.grouping == "batch"
        # the memory's tokens, and which of them exist: as many as there are groups where it is grouped
        n = max(config.n0, config.groups)
        self.remembered = {"memory": (n, config.d_model), "counted": (n,)}
        self.memory_shapes |= self.remembered

    def outputs(self) -> Outputs:
        """Return the work slots and the chunks that follow, for each stage; then those of each generated future."""
        n = self.config.refinements
        # 0.2, 0.2 and 1 in the published code, which has two refinements
        weights = [0.2, *(round(0.8 * i - 0.6, 1) for i in range(1, 1 + n))]
        # a future begins at the second chunk after the work memory: the published code skips one
        return self.staged(weights, [FUTURE_WEIGHT] * n, slot=-1, first=2)

    def learned(self, n_windows: int = 1) -> Tensors:
        stacks = {"stage1": self.enc_modules[0], "generated": self.gen_layer, "future": self.fut_fusions[0]}
        queries = self.enc_queries[0], self.gen_query, self.final_query
        made = {}
        for (name, stack), query in zip(stacks.items(), queries, strict=True):
            tokens, layer = query.weight.expand(n_windows, -1, -1), stack.layers[0]
            made[name] = layer.after_self(tokens, attend_to_best(layer.self_attn, tokens, tokens))
        return made

    def begin(self, n_streams: int) -> Tensors:
        tensors = super().begin(n_streams)
        return tensors | {"counted": torch.ones_like(tensors["counted"], dtype=torch.bool)}

    def grouped(self, mask: Tensor, together: bool = False) -> Tensor:
        """Return which windows (B,) sum up their long memory, with this mask (B, n_long), in groups.

        together: whether hidden slots are counted over all of them if `is_batched`.
        """
        # The published code counts over a whole batch, so that the scores of a window depend on its neighbours. By
        # default each window is counted alone here.
        hidden = (~mask).sum(dim=1)
        if together and self.is_batched:
            hidden = hidden.sum().expand(len(mask))
        return hidden < self.config.groups

    def remember(self, learned: Tensors, keys: Tensor, values: Tensor, mask: Mask, together: bool = False) -> Tensors:
        n_groups, n = self.config.groups, max(self.config.n0, self.config.groups)
        # of floats, because torch.jit cannot trace a full tensor of booleans
        grouped = torch.full((len(keys),), float(n_groups), device=keys.device) > 0
        if mask is not None:
            grouped = self.grouped(mask, together)
        places = torch.arange(n, device=keys.device)
        counted = places < torch.where(grouped, n_groups, self.config.n0)[:, None]  # (B, n)
        tokens: Any = None
        # Both, because choosing one by the values of the mask would wait for a GPU, and could not be captured.
        if mask is not None or not n_groups:
            tokens = F.pad(self._sum_up(learned, keys, values, mask), (0, 0, 0, n - self.config.n0))  # (B, n, D)
        if n_groups:  # each run is a window of its own for stage 1
            keys, values = (tensor.unflatten(1, (n_groups, -1)).flatten(0, 1) for tensor in (keys, values))
            # A run of hidden slots alone would be NaN, and so would its gradient, even where it is not chosen.
            if mask is not None:
                mask = (mask | ~grouped[:, None]).unflatten(1, (n_groups, -1)).flatten(0, 1)
            runs = self._sum_up(learned, keys, values, mask).mean(dim=1).unflatten(0, (-1, n_groups))  # (B, groups, D)
            runs = F.pad(runs, (0, 0, 0, n - n_groups))
            tokens = runs if tokens is None else torch.where(grouped[:, None, None], runs, tokens)
        for layer in self.enc_modules[1].layers:
            tokens = layer.feed_forward(tokens, attend_to_best(layer.self_attn, tokens, tokens, None, counted))
        return {"memory": self.enc_modules[1].norm(tokens), "counted": counted}

    def _sum_up(self, learned: Tensors, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        """Return stage 1 (R, n0, D) of runs of slots: keys and values (R, n, l_stage1 * D), mask (R, n) or None."""
        stack, x = self.enc_modules[0], learned["stage1"]
        if 1 < len(x) < len(keys):  # queries of each window, for each of its runs
            x = x.repeat_interleave(len(keys) // len(x), dim=0)
        seen = None if mask is None else mask[:, None, None, :]
        parts = (tensor.chunk(self.config.l_stage1, dim=-1) for tensor in (keys, values))
        for i, (layer, own, theirs) in enumerate(zip(stack.layers, *parts, strict=True)):
            if i:  # the first is learned
                x = layer.after_self(x, attend_to_best(layer.self_attn, x, x))
            cross = layer.multihead_attn
            attended = attend_to_best_of(cross, cross.queries(x), cross.split(own), cross.split(theirs), seen, None)
            x = layer.feed_forward(x, attended)
        return stack.norm(x)

    def decide(self, learned: Tensors, work: Tensor, present: Mask, past: Tensors, whole: bool = False) -> Tensor:
        W, ahead = self.config.work_length, self.config.anticipation
        x = self.with_coming(self.pos_encoding(work, torch.arange(W, device=work.device)), W)  # (B, N, d_model)
        B, N, _ = x.shape
        memory, m_counted = past["memory"], past["counted"]
        counted = m_counted.new_ones(B, N) if present is None else F.pad(present, (0, ahead), value=True)  # (B, N)
        causal = torch.ones(N, N, dtype=torch.bool, device=x.device).tril()

        def with_memory(tokens: Tensor, *future: Tensor) -> tuple[Tensor, Tensor]:
            """Return the memory, work tokens and the future's as one memory, and which of them exist."""
            exist = [m_counted, counted, *(m_counted.new_ones(f.shape[:2]) for f in future)]
            return torch.cat([memory, tokens, *future], dim=1), torch.cat(exist, dim=1)

        for layer in self.dec_modules.layers:
            x = layer.after_self(x, attend_to_best(layer.self_attn, x, x, causal, counted))
            x = layer.look(x, memory, None, m_counted)
        stages = [self.dec_modules.norm(x)]
        futures = [_foresee(self.gen_layer, learned["generated"], *with_memory(stages[0]))]
        for i, stack in enumerate(self.work_fusions):
            x, future, last = stages[-1], futures[-1], i + 1 == len(self.work_fusions)
            asking, own = x, causal
            if last and not whole:
                asking = newest(x, present, W)
                own = newest(causal.expand(B, 1, -1, -1).transpose(1, 2), present, W).transpose(1, 2)
            seen = F.pad(F.pad(own, (memory.shape[1], 0), value=True), (0, future.shape[1]), value=True)
            layer = stack.layers[0]
            y = layer.after_self(asking, attend_to_best(layer.self_attn, asking, x, own, counted))
            tokens, exist = with_memory(x, future)
            stages.append(stack.norm(layer.look(y, tokens, seen, exist)))
            if not last:
                tokens, exist = with_memory(stages[-1], future)
                stack = self.fut_fusions[i]
                if i == 0:
                    futures.append(_foresee(stack, learned["future"], tokens, exist))
                else:  # from the previous future, at the end of the memory; both causal (published)
                    n, layer = future.shape[1], stack.layers[0]
                    own = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
                    y = layer.after_self(future, attend_to_best(layer.self_attn, future, future, own))
                    seen = F.pad(own, (tokens.shape[1] - n, 0), value=True)
                    futures.append(stack.norm(layer.look(y, tokens, seen, exist)))
        if not whole:
            return self.classifier(stages[-1])
        return self.classifier(torch.cat([*stages, self.stretched(futures[0]), *futures[1:]], dim=1))

    def batches(self, length: int, batch_size: int) -> list[Indices]:
        """See `Foresight.batches`; grouping "batch" takes full windows in batches of 16, as published."""
        if not self.is_batched:
            return super().batches(length, batch_size)
        W = self.config.work_length
        # Windows that are not full are computed one by one.
        starts = [*range(min(W - 1, length)), *range(W - 1, length, PUBLISHED_BATCH)]
        return [np.arange(start, end) for start, end in zip(starts, [*starts[1:], length], strict=True)]


def _foresee(stack: Stack, learned: Tensor, memory: Tensor, counted: Tensor) -> Tensor:
    """Return the output (B, n, D) of a stack for queries after its first self-attention (1 or B, n, D) and a memory."""
    x = stack.layers[0].look(learned.expand(len(memory), -1, -1), memory, None, counted)
    for layer in stack.layers[1:]:
        x = layer.look(layer.after_self(x, attend_to_best(layer.self_attn, x, x)), memory, None, counted)
    return stack.norm(x)


PUBLISHED = MATConfig(grid="sliding", n_heads=4, dropout=0.0, long_length=1024, groups=8, anticipation=8)
TRAINING = {**PUBLISHED_TRAINING, "average": 0.999, "seed": 123456}


class PublishedMAT(PublishedForesight):
    """The published code of MAT."""

    config = PUBLISHED
    marks = ("gen_query.weight",)
    absent = ("enc_queries.1.weight",)  # a CMeRT has two tables of queries
    unknown = (*PublishedForesight.unknown, "groups")
    layers = {**PublishedForesight.layers, "refinements": "work_fusions.", "l_stage1": "enc_modules.0.layers."}


PRESETS = {
    "mat-thumos14": Preset(PUBLISHED, TRAINING),
    "mat-tvseries": Preset(PUBLISHED, {**TRAINING, "epochs": 20, "warmup_epochs": 8, "metric": "mcAP"}),
}
KIND = Kind(MAT, MATConfig, read_publication("mat"), PRESETS, PublishedMAT())
