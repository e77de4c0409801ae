"""CMeRT (Pang et al., CVPR 2025): a memory generates the near future, which refines the work tokens.

A few context chunks before the work memory enter the decoder with it, so that the first work tokens have a past too;
the outputs of the context are dropped. Tokens of the near future, from the first work chunk on, are generated from the
long memory alone, and work tokens then attend to them. The rest is TeSTra with the box kernel.

No score depends on a later chunk: the generated future follows from the chunks before the work memory. In training
every work slot is an output that sees the work chunks up to its own.
"""

import torch
from torch import Tensor, nn

from lstr.config import Size, SizeOrZero
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.foresight import Foresight, ForesightConfig, PublishedForesight
from lstr.models.kind import PUBLISHED_TRAINING, Kind, Preset
from lstr.models.layers import DecoderLayer, Mask, Stack, Tensors, causal_mask, newest
from lstr.models.published import read_publication
from lstr.windows.windows import Outputs

# Weights of the losses of the decoder's work tokens (published s1), of each refinement of them (s2), and of the
# generated future.
WEIGHTS = (0.1, 1.0, 0.5)


class CMeRTConfig(ForesightConfig, frozen=True):
    kind = "cmert"
    context: SizeOrZero = 0
    """Chunks before the work memory that the decoder sees too."""
    refine_times: Size = 1
    """How often the work tokens are refined by the generated future (`REFINE_TIMES` of the published code)."""

    @property
    def tiling(self) -> tuple[int, int, int]:
        """See `WindowConfig.tiling`: twice the tokens to come must follow (published code)."""
        return self.work_length, self.work_length, 2 * self.anticipation


class CMeRT(Foresight):
    """Two-stage memory, a decoder with context, generated future and `config.refine_times` of the work tokens."""

    config: CMeRTConfig
    scoring_rule = ScoringRule("CMeRT", "long videos", "ignored")

    def __init__(self, config: CMeRTConfig, n_classes: int) -> None:
        layer = DecoderLayer(config.d_model, config.n_heads, config.d_feedforward, config.dropout)
        super().__init__(config, n_classes, layer, layer, fusions=config.refine_times)
        # keys and values of the memory for each decoder layer, then for each refinement, of the future too
        lengths = [config.n1] * config.l_dec + [config.n1 + config.n_generated] * config.refine_times
        self.remembered = {
            f"{name}.{i}": (config.n_heads, length, config.d_model // config.n_heads)
            for i, length in enumerate(lengths)
            for name in ("keys", "values")
        }
        self.memory_shapes |= self.remembered

    def outputs(self) -> Outputs:
        """Return the work slots and the chunks that follow, for each stage; then the chunks of the generated future.

        The future begins at the first work slot.
        """
        decoded, refined, generated = WEIGHTS
        return self.staged([decoded] + [refined] * self.config.refine_times, [generated], slot=0, first=0)

    def learned(self, n_windows: int = 1) -> Tensors:
        stacks = {"stage1": self.enc_modules[0], "stage2": self.enc_modules[1], "future": self.gen_layer}
        made = {}
        for (name, stack), query in zip(stacks.items(), (*self.enc_queries, self.gen_query), strict=True):
            tokens, layer = query.weight.expand(n_windows, -1, -1), stack.layers[0]
            made[name] = layer.after_self(tokens, layer.self_attn(tokens, tokens))
        return made

    def remember(self, learned: Tensors, keys: Tensor, values: Tensor, mask: Mask, together: bool = False) -> Tensors:
        """See `Foresight.remember`; `future` are the generated tokens (B, n_generated, d_model)."""
        stack = self.enc_modules[0]
        layer = stack.layers[0]
        cross = layer.multihead_attn
        queries = cross.queries(learned["stage1"]).expand(len(keys), -1, -1, -1)
        mask = keys.new_ones(keys.shape[:2], dtype=torch.bool) if mask is None else mask
        attended = cross.attend(queries, cross.split(keys), cross.split(values), mask[:, None, None, :])
        tokens = stack.norm(layer.feed_forward(learned["stage1"], attended))  # (B, n0, d_model)
        memory = _answer(self.enc_modules[1], learned["stage2"], tokens)  # (B, n1, d_model)
        future = _answer(self.gen_layer, learned["future"], memory)  # (B, n_generated, d_model)
        kept, both = {"future": future}, torch.cat([memory, future], dim=1)
        for i, layer in enumerate((*self.dec_modules.layers, *(stack.layers[0] for stack in self.work_fusions))):
            seen = memory if i < self.config.l_dec else both
            kept[f"keys.{i}"], kept[f"values.{i}"] = layer.multihead_attn.keys_values(seen)
        return kept

    def decide(self, learned: Tensors, work: Tensor, present: Mask, past: Tensors, whole: bool = False) -> Tensor:
        K, W = self.config.context, self.config.work_length
        x = self.pos_encoding(work, torch.arange(K + W, device=work.device))
        # Published positions: those of the tokens to come follow the work memory without its context, so they coincide
        # with those of the last work tokens.
        x = self.with_coming(x, W)  # (B, K + W + A, d_model)
        # who sees whom among context, work and coming chunks: (N, N), or (B, 1, N, N) with slots that are absent
        visible = None
        if present is not None:
            visible = nn.functional.pad(present, (K, self.config.anticipation), value=True)  # (B, N)
        mask = causal_mask(x.shape[1], visible, work.device)
        coming = torch.arange(x.shape[1], device=work.device) >= K + W
        mask, entered = mask | (coming[:, None] & coming), x  # the tokens to come all see each other
        for i, layer in enumerate(self.dec_modules.layers):
            x = layer.after_self(x, layer.self_attn(x, x, mask))
            x = _look(layer, x, entered, past, i, mask)
        stages, mask = [self.dec_modules.norm(x)[:, K:]], mask[..., K:, K:]  # (B, W + A, d_model)
        for i, stack in enumerate(self.work_fusions, self.config.l_dec):
            x, layer = stages[-1], stack.layers[0]
            asking, seen = x, mask
            if stack is self.work_fusions[-1] and not whole:
                asking = newest(x, present, W)  # (B, 1 + A, d_model)
                seen = newest(mask.expand(len(x), 1, -1, -1).transpose(1, 2), present, W).transpose(1, 2)
            attention = layer.self_attn
            attended = attention.attend(attention.queries(asking), *attention.keys_values(x), seen)
            stages.append(stack.norm(_look(layer, layer.after_self(asking, attended), x, past, i, seen)))
        if not whole:
            return self.classifier(stages[-1])
        return self.classifier(torch.cat([*stages, self.stretched(past["future"])], dim=1))


def _answer(stack: Stack, learned: Tensor, memory: Tensor) -> Tensor:
    """Return the output (B, n, D) of a stack for queries after its first self-attention (1 or B, n, D) and a memory."""
    layer = stack.layers[0]
    cross = layer.multihead_attn
    queries = cross.queries(learned).expand(len(memory), -1, -1, -1)
    x = layer.feed_forward(learned, cross.attend(queries, *cross.keys_values(memory)))
    for layer in stack.layers[1:]:
        x = layer(x, memory)
    return stack.norm(x)


def _look(layer: DecoderLayer, x: Tensor, tokens: Tensor, past: Tensors, i: int, mask: Tensor) -> Tensor:
    """Return the rest of layer i for x (B, n, D) after its self-attention: it sees past, and tokens under a mask."""
    cross, before = layer.multihead_attn, (past[f"keys.{i}"], past[f"values.{i}"])
    keys, values = (torch.cat(pair, dim=2) for pair in zip(before, cross.keys_values(tokens), strict=True))
    allowed = nn.functional.pad(mask, (before[0].shape[2], 0), value=True)
    return layer.feed_forward(x, cross.attend(cross.queries(x), keys, values, allowed))


PUBLISHED = CMeRTConfig(
    grid="anchored", n_heads=8, dropout=0.0, work_length=16, long_length=1024, context=2, anticipation=8
)
TRAINING = {**PUBLISHED_TRAINING, "lr": 2e-4, "batch_size": 32, "epochs": 16, "average": 0.999}


class PublishedCMeRT(PublishedForesight):
    """The published code of CMeRT."""

    config = PUBLISHED
    marks = ("gen_query.weight enc_queries.1.weight",)  # a MAT has one table of queries
    sizes = {**PublishedForesight.sizes, "n1": ("enc_queries.1.weight", 0)}
    unknown = (*PublishedForesight.unknown, "context")
    layers = {**PublishedForesight.layers, "refine_times": "work_fusions."}


PRESETS = {"cmert-thumos14": Preset(PUBLISHED, TRAINING)}
KIND = Kind(CMeRT, CMeRTConfig, read_publication("cmert"), PRESETS, PublishedCMeRT())
