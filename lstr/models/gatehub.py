"""GateHUB (Chen et al., CVPR 2022): learned queries attend to a long history through a gate, and new chunks to them.

The history holds the slots of the long memory and then the work memory, so it includes the newest chunks; both have
positions by slot, the newest last. The gate z of a slot is added to its scores as log z + z: closing it removes the
slot, opening it amplifies only up to a bound. Chunks before the start of the video are rows of zeros that are seen like
any other, as published.

As a stream: the queries never change, so score, gate and value of a slot are sums of a part of its chunk, computed
when the chunk arrives and kept in a ring, and a part of the slot. A step is then a softmax over the slots, the layers
on the queries, and the decoder, of whose last layer only the newest chunk is computed.

The published code lacks its optional future-augmented history (features of two seconds after each chunk), as does this.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import EVERY_WINDOW, Kind, Model, Preset
from lstr.models.layers import Block, CausalBlock, Head, Step, Tensors, module_list, put, reset_fresh, take
from lstr.models.published import Published, Tables, packed_blocks, read_publication
from lstr.settings import Amount, override
from lstr.windows import indices as memory
from lstr.windows.plans import History, history_chunks
from lstr.windows.windows import Supervision, Windows, loss_mask, masked_mean, without

# Windows whose history is gathered together: enough to be quick, few enough for little memory.
AT_ONCE = 8
ALPHA = 0.75
SMALL = 1e-12  # 1 - p is at least this: of an exponent below 1 the slope at 0 has no bound
# Multiply-adds of a history's projections up to which a stream computes them again with every chunk. That small, sums
# of parts gain nothing, and the whole product rounds as the published code does: with weights that make large scores,
# the sums differ from it by about 1e-5 in probability, as it does from exact arithmetic.
MAX_RECOMPUTED = 2**20


class GateHUBConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(padded=True)

    kind = "gatehub"
    gamma: Amount = 0.05
    """Exponent of the focal loss for chunks of actions, of the published code; its page says the paper has others."""
    gamma_background: Amount = 0.1
    """The same for chunks of background."""


class GateHUB(Model):
    """`config.n0` latent queries, `config.l_enc` layers among them after the gate, `config.l_dec` decoder layers."""

    config: GateHUBConfig
    plans = History
    scoring_rule = ScoringRule("GateHUB", "after the first", "exclude oldest")

    def __init__(self, config: GateHUBConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model, shape = config.d_model, (config.d_model, config.n_heads, config.d_feedforward, 0.0)
        self.feature_head_work = Head(nn.Linear(config.input_dim, d_model))
        self.history_positions = nn.Embedding(config.n_long + config.work_length, d_model)
        self.present_positions = nn.Embedding(config.work_length, d_model)
        self.gate = nn.Linear(d_model, 1)
        self.latents = nn.Parameter(torch.zeros(config.n0, d_model))
        self.gated = Block(*shape)
        self.encoder: Sequence[Block] = module_list(Block(*shape) for _ in range(config.l_enc))
        self.encoder_norm = nn.LayerNorm(d_model)
        self.decoder: Sequence[CausalBlock] = module_list(CausalBlock(*shape) for _ in range(config.l_dec))
        self.decoder_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(d_model, n_classes)
        self.keeps_parts = 2 * (config.n_long + config.work_length) * d_model**2 > MAX_RECOMPUTED
        """Whether a stream keeps the parts of scores, gates and values that a chunk adds."""
        W = config.work_length
        rows = W + config.long_length  # what any slot of the history can hold
        self.memory_shapes = {"tokens": (rows, d_model)}
        if self.keeps_parts:  # zeros in a ring of parts are the parts of a chunk of zeros
            history = rows, config.n_heads * config.n0 + 1 + d_model
            self.memory_shapes = {"history": history, "present": (W, d_model), "qkv": (W, 3 * d_model)}

    def forward(self, windows: Windows) -> Tensor:
        """Return logits (B, W, C) of every work slot."""
        work = windows.newest_last()  # (B, W, D)
        tokens = self.feature_head_work(torch.cat([windows.long, work], dim=1))  # (B, n_long + W, d_model)
        return windows.by_slot(self.score(tokens))

    def score(self, tokens: Tensor) -> Tensor:
        """Return logits (B, W, C) of the newest W chunks of a history.

        The tokens (B, n_long + W, d_model) are oldest first and without positions.
        """
        history = tokens + self.history_positions.weight
        present = tokens[:, -self.config.work_length :] + self.present_positions.weight
        attention, gate = self.gated.attention, self.gate(history).transpose(1, 2)[:, None]  # (B, 1, 1, n_long + W)
        keys, values = attention.keys_values(history)
        scores = attention.queries(self.latents) @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5
        attended = attention.merge(through(gate, scores).softmax(dim=-1) @ values)  # (B, n0, d_model)
        latents = self.encode(self.gated.feed_forward(self.latents, attended))
        for block in self.decoder:  # each of the newest chunks meets those before it, and the queries
            present = block(present, latents)
        return self.classifier(self.dropout(self.decoder_norm(present)))

    def loss(self, forwarded: Tensor, windows: Windows, supervision: Supervision) -> Tensor:
        """Return the focal loss (section 3.4): the mean over work slots of the sum of -t (1 - p)^gamma log p."""
        targets, ignore = supervision.targets, supervision.ignore
        keep = loss_mask(targets, ignore, supervision.counts)  # (B, W)
        targets = without(targets, ignore)
        log = without(forwarded, ignore).log_softmax(dim=-1)  # (B, W, C)
        # one exponent for actions and another for background, as in the paper
        gamma = torch.where(targets[..., :1] > 0, self.config.gamma_background, self.config.gamma)
        losses = -ALPHA * (targets * (1 - log.exp()).clamp(min=SMALL) ** gamma * log).sum(dim=-1)  # (B, W)
        return masked_mean(losses, keep, supervision.totals)

    def encode(self, latents: Tensor) -> Tensor:
        """Return the queries (B, n0, d_model) that have seen the history, among themselves: (B, n0, d_model)."""
        for block in self.encoder:
            latents = block(latents, latents)
        return self.dropout(self.encoder_norm(latents))

    @property
    def head(self) -> nn.Linear:
        """The linear layer of the feature head."""
        return self.feature_head_work.input_linear[0]  # type: ignore[return-value]

    def video_logits(self, features: Tensor, batch_size: int, constants: Tensors | None = None) -> Tensor:
        """See `Model.video_logits`; the gate of each chunk is computed once."""
        constants, parts, rows = constants or self.constants(), {}, []
        if self.keeps_parts:
            parts = self._parts(constants, F.linear(features, self.head.weight))  # (L, ...) each
        else:
            tokens = self.feature_head_work(features)  # (L, d_model)
        for ends in memory.in_pieces(len(features), min(batch_size, AT_ONCE)):
            chunks, exist = (torch.from_numpy(a).to(features.device) for a in history_chunks(ends, self.config))
            if not self.keeps_parts:
                history = torch.where(exist[..., None], tokens[chunks], self.head.bias)  # tokens of rows of zeros
                rows.append(self.score(history)[:, -1:])
                continue
            kept = {}
            for name, part in parts.items():
                first = 0 if name == "history" else self.config.n_long
                kept[name] = part[chunks[:, first:]].masked_fill_(~exist[:, first:, None], 0)
            rows.append(self._newest(constants, **kept))
        return torch.cat(rows)

    @torch.no_grad()
    def constants(self, packed: bool = True) -> Tensors:
        """Return what the slots of a window add, and the weight that makes the parts of a chunk.

        `weight` (n_heads * n0 + 1 + d_model, d_model) is from a chunk's token without bias to its part of scores, gate
        and value, `slots` (n_long + W, n_heads * n0 + 1 + d_model) the part of each slot; `present` (W, d_model) and
        `qkv` (W, 3 * d_model) are added to a token of the decoder, and to its query, key and value in the first layer.
        """
        attention = self.gated.attention
        d_model, n_heads = self.config.d_model, self.config.n_heads
        queries = attention.queries(self.latents) * (d_model // n_heads) ** -0.5  # (n_heads, n0, D / n_heads)
        keys = attention.in_proj_weight[d_model : 2 * d_model].unflatten(0, (n_heads, -1))
        scores = torch.einsum("hqd,hde->hqe", queries, keys).flatten(0, 1)  # (n_heads * n0, d_model)
        weight = torch.cat([scores, self.gate.weight, attention.in_proj_weight[2 * d_model :]])
        # The bias of the keys moves all scores of a query alike, so softmax drops it.
        bias = torch.cat([scores.new_zeros(len(scores)), self.gate.bias, attention.in_proj_bias[2 * d_model :]])
        of_zeros = self.head.bias
        present = of_zeros + self.present_positions.weight
        slots = F.linear(of_zeros + self.history_positions.weight, weight, bias)
        qkv = self.decoder[0].self_attn.project(present, 0, 3)
        return {"weight": weight, "slots": slots, "present": present, "qkv": qkv}

    def step(self, constants: Tensors, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        W, n_long = self.config.work_length, self.config.n_long
        if self.keeps_parts:
            parts = self._parts(constants, F.linear(features, self.head.weight))
        else:
            # with a second row, because a single row is multiplied and rounded in another order
            parts = {"tokens": self.feature_head_work(F.pad(features, (0, 0, 0, 1)))[:-1]}
        after, kept, missing = {}, {}, plan.get("missing")
        for name, ring in tensors.items():
            part, length = ("work_", W) if name in ("present", "qkv") else ("", n_long + W)
            after[name] = put(reset_fresh(ring, plan.get("fresh")), plan[f"{part}row"], parts[name], donate)
            kept[name] = take(after[name], plan[f"{part}rows"], length)
            if name != "tokens" and missing is not None:
                kept[name] = kept[name].masked_fill(missing[:, -length:, None], 0)
        if self.keeps_parts:
            return self._newest(constants, **kept), after
        history = kept["tokens"]
        if missing is not None:
            history = torch.where(missing[..., None], self.head.bias, history)  # tokens of rows of zeros
        return self.score(history)[:, -1:], after

    def _parts(self, constants: Tensors, tokens: Tensor) -> Tensors:
        """Return the parts of chunks with tokens (..., d_model) without bias, by the names of `memory_shapes`."""
        in_proj = self.decoder[0].self_attn.in_proj_weight
        return {"history": F.linear(tokens, constants["weight"]), "present": tokens, "qkv": F.linear(tokens, in_proj)}

    def _newest(self, constants: Tensors, history: Tensor, present: Tensor, qkv: Tensor) -> Tensor:
        """Return logits (B, 1, C) of the newest chunk from the parts of its window, which are overwritten."""
        config, n_scores = self.config, self.config.n_heads * self.config.n0
        history += constants["slots"]
        scores, gate, values = history.split([n_scores, 1, config.d_model], dim=-1)  # (B, n_long + W, ...)
        weights = through(gate, scores).softmax(dim=1).unflatten(-1, (config.n_heads, -1))
        heads = weights.permute(0, 2, 3, 1) @ self.gated.attention.split(values)  # (B, n_heads, n0, D / n_heads)
        latents = self.encode(self.gated.feed_forward(self.latents, self.gated.attention.merge(heads)))
        x, qkv = present + constants["present"], qkv + constants["qkv"]
        for i, block in enumerate(self.decoder):
            attention, last = block.self_attn, i + 1 == len(self.decoder)
            if i == 0:
                queries, keys, values = (attention.split(part) for part in qkv.chunk(3, dim=-1))
                queries = queries[:, :, -1:] if last else queries
                attended = attention.attend(queries, keys, values, causal=not last)
            elif last:
                attended = attention.attend_few(x[:, -1:], x)
            else:
                attended = attention.attend(attention.queries(x), *attention.keys_values(x), causal=True)
            x = block.after_self(x[:, -1:] if last else x, attended)
            if last:
                x = block.feed_forward(x, block.attention.attend_few(x, latents))
            else:
                x = block.feed_forward(x, block.attention(x, latents))
        return self.classifier(self.dropout(self.decoder_norm(x)))


def through(gate: Tensor, scores: Tensor) -> Tensor:
    """Return the scores of slots after their gates, logits (..., 1): with z their sigmoid, a gate adds log z + z."""
    z = gate.sigmoid() + 1e-8  # 1e-8, so that a closed gate gives a low score, not -inf
    return scores + z.log() + z


PUBLISHED = GateHUBConfig(dropout=0.5, work_length=8, long_length=1016, long_stride=1)
TRAINING = EVERY_WINDOW | dict(epochs=10, batch_size=50, lr=1.2e-4, warmup=0.25, schedule="onecycle", clip=1.0)


class PublishedGateHUB(Published):
    """The published code of GateHUB, today's or of the first release."""

    config = PUBLISHED
    marks = ("gate_layer.weight", "latents")
    names = {
        "linear_encoding.": "feature_head_work.input_linear.0.",
        "history_position_encoding.pe.": "history_positions.",
        "present_position_encoding.pe.": "present_positions.",
        "short_position_encoding.pe.": "present_positions.",
        "gate_layer.": "gate.",
        "history_encoder.ghu.": "gated.",
        "history_encoder.decoder.": "gated.",
        "history_encoder.layers.": "encoder.",
        "history_encoder.norm.": "encoder_norm.",
        "present_decoder.layers.": "decoder.",
        "present_decoder.norm.": "decoder_norm.",
        "mlp_head.": "classifier.",
    }
    sizes = {
        "d_feedforward": ("gated.linear1.weight", 0),
        "n0": ("latents", 0),
        "work_length": ("present_positions.weight", 0),
        "n_long": ("history_positions.weight", 0),
    }
    layers = {"l_enc": "encoder.", "l_dec": "decoder."}
    unknown = ("n_heads",)

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        found = super().renamed(tensors)
        for name in ("latent_query", "memory_decoder_cls_token_history"):
            if name in found:
                found["latents"] = found.pop(name)[0]
        return packed_blocks(found)

    def shapes(self, tensors: Tables) -> dict[str, int]:
        found = super().shapes(tensors)
        return found | ({"n_long": found["n_long"] - found.get("work_length", 0)} if "n_long" in found else {})

    def settings(self, tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        known = super().settings(tensors, changes)
        stride = override(PUBLISHED, {n: value for n, value in changes.items() if n == "long_stride"}).long_stride
        return {"long_length": known.pop("n_long") * stride, **known}


PRESETS = {"gatehub-thumos14": Preset(PUBLISHED, TRAINING)}
KIND = Kind(GateHUB, GateHUBConfig, read_publication("gatehub"), PRESETS, PublishedGateHUB())
