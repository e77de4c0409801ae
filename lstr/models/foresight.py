"""The common part of CMeRT and MAT: a memory generates tokens of the future, which refine the work tokens.

A stream keeps the keys and values of stage 1 in rings, and compresses the long memory of a window only if it has
changed. Later layers depend on the place of each work token, and are computed for each window.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lstr.config import Size, Uses, WindowConfig
from lstr.errors import ConfigError
from lstr.models.kind import Model
from lstr.models.layers import (
    DecoderLayer,
    EncoderLayer,
    Mask,
    PositionalEncoding,
    Stack,
    Tensors,
    module_list,
    pack,
    put,
    replace,
    take,
)
from lstr.models.published import Published
from lstr.windows import indices as index
from lstr.windows.plans import Generated, short_memory
from lstr.windows.windows import Outputs, Part, Windows

KEYS, VALUES = "long_keys", "long_values"
# A model, packed if it is for streams, and its `learned`. Streams of one model may share it.
Constants = tuple["Foresight", Tensors]


class ForesightConfig(WindowConfig, frozen=True):
    """What the settings of CMeRT and MAT share."""

    uses: ClassVar[Uses] = Uses(anticipation=True)

    future: Size = 48
    """Chunks that the generated tokens predict in training; at least `anticipation`."""
    n_generated: Size = 32
    """Queries of the tokens of the future that are generated."""
    l_gen: Size = 2
    """Layers that generate those."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.long_length:
            hint = "set a memory, for example --set model.long_length=64."
            raise ConfigError(f"Kind {self.kind} does not support long_length 0.", hint)
        if self.anticipation > self.future:
            message = f"future {self.future} is less than anticipation {self.anticipation}."
            raise ConfigError(message, f"set future to at least {self.anticipation}.")


class BranchHead(nn.Module):
    """Linear, layer norm and ReLU for each feature, then one more for both: (..., D) to (..., d_model).

    A model of one feature has that branch alone.
    """

    def __init__(self, config: ForesightConfig) -> None:
        super().__init__()
        self.widths = [config.rgb_dim, config.flow_dim]
        if config.flow_dim:
            self.motion_linear = _normalised(config.flow_dim, config.d_model)
        if config.rgb_dim:
            self.visual_linear = _normalised(config.rgb_dim, config.d_model)
        if all(self.widths):
            self.input_linear = _normalised(2 * config.d_model, config.d_model)

    def forward(self, features: Tensor) -> Tensor:
        """Return tokens (..., d_model) of features (..., D), appearance first."""
        rgb, flow = features.split(self.widths, dim=-1)
        if not all(self.widths):
            return self.visual_linear(rgb) if self.widths[0] else self.motion_linear(flow)
        return self.input_linear(torch.cat([self.visual_linear(rgb), self.motion_linear(flow)], dim=-1))


def _normalised(width: int, d_model: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, d_model), nn.LayerNorm(d_model), nn.ReLU())


class Foresight(Model):
    """A memory, work tokens that see it, tokens of the future generated from them, and work tokens that see those too.

    The names of the weights are the published ones. `remember` and `decide` are what a kind adds; `forward`, whole
    videos and streams are made of these two, so that they agree.
    """

    config: ForesightConfig
    plans = Generated
    is_batched = False  # whether the scores of a window depend on the other windows of its batch
    # shapes, without the B, of the results of `remember` that `decide` needs; a kind adds them to `memory_shapes`
    remembered: dict[str, tuple[int, ...]]

    def __init__(
        self,
        config: ForesightConfig,
        n_classes: int,
        layer: DecoderLayer,
        stage2: DecoderLayer | EncoderLayer,
        fusions: int,
        l_stage1: int = 1,
    ) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        queries = [config.n0, config.n1] if isinstance(stage2, DecoderLayer) else [config.n0]
        self.feature_head_long = BranchHead(config)
        self.feature_head_work = BranchHead(config)
        self.pos_encoding = PositionalEncoding(config, config.n_long)
        self.enc_queries: Sequence[nn.Embedding] = module_list(nn.Embedding(n, d_model) for n in queries)
        stacks = [Stack(layer, l_stage1, d_model), Stack(stage2, config.l_enc, d_model)]
        self.enc_modules: Sequence[Stack] = module_list(stacks)
        self.dec_modules = Stack(layer, config.l_dec, d_model)
        self.gen_query = nn.Embedding(config.n_generated, d_model)
        self.gen_layer = Stack(layer, config.l_gen, d_model)
        self.final_query = nn.Embedding(config.future, d_model)
        self.work_fusions: Sequence[Stack] = module_list(Stack(layer, 1, d_model) for _ in range(fusions))
        self.classifier = nn.Linear(d_model, n_classes)
        # rings of work tokens, and of keys and values of the long memory
        rings = dict.fromkeys((KEYS, VALUES), (index.long_rows(config), l_stage1 * d_model))
        self.memory_shapes = {"work": (config.context + config.work_length, d_model), **rings}

    @abstractmethod
    def learned(self, n_windows: int = 1) -> Tensors:
        """Learned queries after the first self-attention of the stack that they enter, each (n_windows, n, d_model)."""

    @abstractmethod
    def remember(self, learned: Tensors, keys: Tensor, values: Tensor, mask: Mask, together: bool = False) -> Tensors:
        """Return compressed long memories, from keys and values (B, n_long, d_model) of stage 1.

        mask (B, n_long) bool, True = visible, None where all are.

        The names that `remembered` has are kept by a stream. together: whether they are a batch, if `is_batched`.
        """

    @abstractmethod
    def decide(self, learned: Tensors, work: Tensor, present: Mask, past: Tensors, whole: bool = False) -> Tensor:
        """Return logits (B, 1 + anticipation, C) of the newest chunk and the chunks ahead, or of all outputs (B, N, C).

        work (B, context + work_length, d_model), present (B, work_length) bool or None for all; whole: all outputs.
        """

    def forward(self, windows: Windows) -> Tensor:
        """Return logits (B, N, C) of all outputs of windows."""
        # with dropout each window draws its own masks for the queries
        learned = self.learned(len(windows) if self.config.dropout else 1)
        stored = self.stored(self.feature_head_long(windows.long))
        past = self.remember(learned, *stored, windows.long_mask, together=True)
        work = self.feature_head_work(torch.cat([windows.context, windows.work], dim=1))  # (B, K + W, d_model)
        return self.decide(learned, work, windows.work_mask, past, whole=True)

    def staged(self, works: Sequence[float], futures: Sequence[float], slot: int, first: int) -> Outputs:
        """Return work slots and the chunks that follow for each stage of weight `works`, then generated futures.

        Those begin `first` chunks after the one of work slot `slot`.
        """
        W, ahead, n_future = self.config.work_length, self.config.anticipation, self.config.future
        slots = np.concatenate([np.arange(W), np.full(ahead, -1)])
        later = np.concatenate([np.zeros(W, dtype=np.int64), np.arange(1, ahead + 1)])
        at_work = np.arange(len(works) * len(slots)).reshape(len(works), -1)
        generated = at_work.size + np.arange(len(futures) * n_future).reshape(-1, n_future)
        parts = [Part(rows, weight) for rows, weight in zip(at_work, works, strict=True)]
        parts += [Part(rows, weight, repeats_last=True) for rows, weight in zip(generated, futures, strict=True)]
        return Outputs(
            np.concatenate([np.tile(slots, len(works)), np.full(generated.size, slot)]),
            np.concatenate([np.tile(later, len(works)), np.tile(first + np.arange(n_future), len(futures))]),
            tuple(parts),
        )

    def stored(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of all layers of stage 1, each (..., layers * d_model), of tokens (..., d_model)."""
        layers = (layer.multihead_attn.project(tokens, 1, 3).chunk(2, dim=-1) for layer in self.enc_modules[0].layers)
        keys, values = (torch.cat(parts, dim=-1) for parts in zip(*layers, strict=True))
        return keys, values

    def with_coming(self, work: Tensor, first: int) -> Tensor:
        """Return work tokens (B, N, d_model), then tokens of the chunks to come, with positions from `first` on."""
        ahead = self.config.anticipation
        if not ahead:
            return work
        tokens = self.final_query.weight[:ahead].expand(len(work), -1, -1)
        positions = first + torch.arange(ahead, device=work.device)
        return torch.cat([work, self.pos_encoding(tokens, positions)], dim=1)  # (B, N + anticipation, d_model)

    def stretched(self, future: Tensor) -> Tensor:
        """Return generated tokens (B, n_generated, d_model) as (B, future, d_model): each is repeated in turn."""
        places = torch.arange(self.config.future, device=future.device)
        return future[:, places * self.config.n_generated // self.config.future]

    def batches(self, length: int, batch_size: int) -> list[index.Indices]:
        """Return the chunks of a video whose windows are computed together."""
        return index.in_pieces(length, batch_size)

    def video_logits(self, features: Tensor, batch_size: int, constants: Constants | None = None) -> Tensor:
        (model, learned), config, made = constants or self.constants(), self.config, []
        work = model.feature_head_work(features)  # (L, d_model)
        # The long memory has no positions, so keys and values of a chunk never change: once for all windows.
        keys, values = model.stored(model.feature_head_long(features))  # (L, d_model)
        for ends in self.batches(len(features), batch_size):
            long, visible = index.long_indices(ends, config)  # (B, n_long)
            seen = np.where(visible, long, -1)
            # windows with the same long memory share it
            new = np.append(True, (seen[1:] != seen[:-1]).any(axis=1) | self.is_batched)  # (B,)
            mask = None if visible[new].all() else torch.from_numpy(visible[new]).to(work.device)
            past = model.remember(learned, keys[long[new]], values[long[new]], mask, self.is_batched)
            which = torch.from_numpy(np.cumsum(new) - 1).to(work.device)
            past = {name: past[name][which] for name in model.remembered}
            slots, present = short_memory(ends, config)
            shown = None if present.all() else torch.from_numpy(present).to(work.device)
            made.append(model.decide(learned, work[slots], shown, past))
        return torch.cat(made)

    def constants(self, packed: bool = True) -> Constants:
        """Return the model, with packed weights or itself, and `learned`."""
        return pack(self) if packed else self, self.learned()

    def step(
        self, constants: Constants, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        (model, learned), config, after = constants, self.config, dict(tensors)
        after["work"] = put(tensors["work"], plan["work_row"], model.feature_head_work(features), donate)
        if "stores.row" in plan:
            row = plan["stores.row"]
            stored = model.stored(model.feature_head_long(features.index_select(0, plan["stores.streams"])))
            for name, kept in zip((KEYS, VALUES), stored, strict=True):
                if "stores" in plan:  # there is no spare row: streams that store nothing write what the row holds
                    kept = torch.where(plan["stores"][:, None], kept, take(tensors[name], row, 1)[:, 0])
                after[name] = put(tensors[name], row, kept, donate)
        if "changes.rows" in plan:
            rows, hidden = plan["changes.rows"], plan.get("changes.hidden")
            keys, values = (take(after[name], rows.flatten(), rows.shape[1]) for name in (KEYS, VALUES))
            past = model.remember(learned, keys, values, None if hidden is None else ~hidden)
            for name in model.remembered:
                after[name] = replace(tensors[name], plan["changes.streams"], past[name], donate)
        work = take(after["work"], plan["work_rows"], config.context + config.work_length)  # (B, K + W, d_model)
        present = None if "absent" not in plan else ~plan["absent"]
        past = {name: after[name] for name in model.remembered}
        return model.decide(learned, work, present, past), after


class PublishedForesight(Published):
    """What the published code of CMeRT and of MAT share."""

    sizes: Mapping[str, tuple[str, int]] = {
        "rgb_dim": ("feature_head_work.visual_linear.0.weight", 1),
        "flow_dim": ("feature_head_work.motion_linear.0.weight", 1),
        "d_feedforward": ("dec_modules.layers.0.linear1.weight", 0),
        "n0": ("enc_queries.0.weight", 0),
        "future": ("final_query.weight", 0),
        "n_generated": ("gen_query.weight", 0),
    }
    layers: Mapping[str, str] = {
        "l_enc": "enc_modules.1.layers.",
        "l_dec": "dec_modules.layers.",
        "l_gen": "gen_layer.layers.",
    }
    optional = ("input_dim", "rgb_dim", "flow_dim")
    unknown: tuple[str, ...] = ("n_heads", "work_length", "long_length", "long_stride", "anticipation")
