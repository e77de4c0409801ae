"""The Long Short-Term Transformer (Xu et al., NeurIPS 2021), with published names of weights.

What a stream keeps of it is in `lstr.models.lstr_step`, whole videos are in `lstr.models.dense`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.errors import ConfigError
from lstr.metrics.scoring_rule import LSTR_RULE
from lstr.models import lstr_step
from lstr.models.kind import PUBLISHED_TRAINING, SMALL_TRAINING, Kind, Model, Preset
from lstr.models.layers import (
    DecoderLayer,
    EncoderLayer,
    FeatureHead,
    Mask,
    PositionalEncoding,
    Stack,
    causal_mask,
    mean_token,
    module_list,
    pack,
)
from lstr.models.published import Published, Tables, read_publication
from lstr.windows.plans import Compressed
from lstr.windows.windows import Outputs, Windows

Encoder = Literal["two-stage", "one-stage", "stage2-self-attention", "self-attention", "projection", "none", "joined"]
Integration = Literal["cross-attention", "average", "concatenation", "mlp"]
ENCODERS: tuple[str, ...] = get_args(Encoder)
INTEGRATIONS: tuple[str, ...] = get_args(Integration)


class LSTRConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(anticipation=True)

    kind = "lstr"
    positions: Literal["slot", "distance"] = "slot"
    """slot: a token's place in the window (published code). distance: chunks before the newest (paper)."""
    encoder: Encoder = "two-stage"
    """How the long memory is compressed; see `LSTR` in models/lstr.py."""
    integration: Integration = "cross-attention"
    """How the compressed long memory and the work memory meet; see `LSTR` in models/lstr.py."""
    gru: bool = False
    """Let a GRU sum up everything older than the memories, as one more token for the decoder (paper, figure 3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder == "joined" and self.integration != "cross-attention":
            message = f"Encoder joined does not support integration {self.integration!r}."
            raise ConfigError(message, "set integration to cross-attention.")
        if self.anticipation and self.integration == "mlp":
            message = f"Integration mlp does not support anticipation {self.anticipation}."
            raise ConfigError(message, "set anticipation to 0, or use another integration.")

    @property
    def has_sizes_in_tensors(self) -> bool:
        """Only the proposed design has all tensors that show its sizes."""
        return (self.encoder, self.integration) == ("two-stage", "cross-attention")


class LSTR(Model):
    """Two-stage memory encoder and causal decoder (paper, sections 3.2 to 3.4), and the designs it is compared with.

    `config.encoder`, the rows of the paper's table of encoder designs; the long memory has n_long slots:
    - "two-stage": n0 queries attend to it in one layer, then n1 queries to those in l_enc layers (the proposed).
    - "one-stage": n1 queries attend to it in l_enc + 1 layers.
    - "stage2-self-attention": the first stage, then l_enc self-attention layers on its n0 tokens.
    - "self-attention": l_enc self-attention layers on the n_long tokens, without a bottleneck.
    - "projection": one linear layer over time, from n_long tokens to n1.
    - "none": the decoder attends to the n_long tokens themselves.
    - "joined": no encoder and no decoder, l_enc + l_dec self-attention layers over both memories as one sequence.

    `config.integration`, the rows of the table of decoder designs:
    - "cross-attention": each decoder layer attends to the encoder's tokens (the proposed).
    - "average": decoder layers of self-attention alone, their output averaged with the mean encoder token.
    - "concatenation": the same, their output side by side with the mean encoder token.
    - "mlp": no decoder; an MLP on a chunk's own token and the mean encoder token.

    `config.gru` adds the state of a GRU over everything older as one more encoder token; `config.anticipation` adds
    learned tokens after the work memory, under the same causal mask, for the chunks to come.

    `config.positions`: with "slot", long tokens take 0 .. n_long - 1, oldest first, and work tokens n_long and up,
    whatever the stride (published code). With "distance", a token takes its distance in chunks to the newest work
    slot, 0 being the newest (paper, section 3.3); see `lstr.windows.indices.long_distances`.
    """

    config: LSTRConfig
    scoring_rule = LSTR_RULE
    plans = Compressed
    sees_work = False
    """Whether every decoder layer attends to the work tokens too, as they enter the first, after the encoder's."""
    slot_scores: Tensor | None
    """What stage 1 adds to the scores of the long slots (n_long,); None where they have positions instead."""

    def __init__(self, config: LSTRConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        shape = (d_model, config.n_heads, config.d_feedforward, config.dropout)
        self.has_memory = config.n_long > 0 or config.gru  # whether there is anything beyond the work memory
        self.integration = "joined" if config.encoder == "joined" else str(config.integration)
        """How the work memory meets the rest: `config.integration`, "joined", or "alone" without a rest."""
        if not self.has_memory:
            self.integration = "alone"
        self.sees_work = self.sees_work and self.integration == "cross-attention"
        self.has_stage1 = config.n_long > 0 and config.encoder in ("two-stage", "stage2-self-attention")
        """Whether queries of a first stage attend to the long memory."""
        self.first_position = config.n_long  # the position of the first work slot, where positions are slots
        self.register_buffer("slot_scores", None, persistent=False)
        # In the published order, which is also that of the parameters in a published optimizer state.
        if self.has_memory:
            self.feature_head_long = FeatureHead(config.input_dim, d_model)
        self.feature_head_work = FeatureHead(config.input_dim, d_model)
        reach = config.n_long if config.positions == "slot" else config.long_length
        self.pos_encoding = PositionalEncoding(config, reach)
        self.enc_queries: Sequence[nn.Embedding] = module_list(nn.Embedding(n, d_model) for n, _ in stages(config) if n)
        self.enc_modules: Sequence[Stack] = module_list(
            Stack(DecoderLayer(*shape) if n else EncoderLayer(*shape), n_layers, d_model)
            for n, n_layers in stages(config)
        )
        if config.encoder == "projection" and config.n_long:
            self.enc_projection = nn.Linear(config.n_long, config.n1)
        if config.gru:
            self.gru = nn.GRU(d_model, d_model, batch_first=True)
        if config.anticipation:
            self.future_tokens = nn.Embedding(config.anticipation, d_model)
        if self.integration == "mlp":
            self.mlp = nn.Sequential(nn.Linear(2 * d_model, d_model), nn.ReLU(), nn.Dropout(config.dropout))
        elif self.integration == "cross-attention":
            self.dec_modules = Stack(DecoderLayer(*shape), config.l_dec, d_model)
        else:
            n_layers = config.l_dec + (config.l_enc if self.integration == "joined" else 0)
            self.dec_modules = Stack(EncoderLayer(*shape), n_layers, d_model)
        self.classifier = nn.Linear(2 * d_model if self.integration == "concatenation" else d_model, n_classes)

    def outputs(self) -> Outputs:
        """Return every work slot, then the chunks that follow the newest."""
        W, ahead = self.config.work_length, self.config.anticipation
        slots = np.concatenate([np.arange(W), np.full(ahead, -1)])
        return Outputs(slots, np.concatenate([np.zeros(W, dtype=np.int64), np.arange(1, ahead + 1)]))

    def forward(self, windows: Windows) -> Tensor:
        """Return logits (B, W + anticipation, C): each work chunk sees those up to itself; then the future."""
        memory, memory_mask = None, None
        if self.has_memory:
            long = self.feature_head_long(windows.long)  # (B, n_long, d_model)
            history = None
            if self.config.gru:  # its state after the chunks that exist, zeros after none
                states = long.new_zeros(len(long), 1, self.config.d_model)
                if windows.older.shape[1]:
                    after, _ = self.gru(self.feature_head_long(windows.older))  # (B, K, d_model)
                    states = torch.cat([states, after], dim=1)  # (B, 1 + K, d_model)
                history = states[torch.arange(len(states), device=states.device), windows.older_count]
            memory, memory_mask = self.encode(long, windows.long_mask, windows.distances, history)
        work = self.feature_head_work(windows.work)  # (B, W, d_model)
        return self.classifier(self.decode(work, windows.work_mask, memory, memory_mask))

    def encode(
        self, long: Tensor, mask: Tensor, distances: Tensor | None, history: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the memory (B, M, d_model) of the decoder from long tokens (B, n_long, d_model), and its mask (B, M).

        mask (B, n_long) bool, True = visible; distances (B, n_long) int, None where positions are slots; history (B,
        d_model), the GRU's state. The returned mask may be None: all M are visible (paper, section 3.3).
        """
        B = len(long)
        n_long, kernel = self.config.n_long, self.slot_scores
        tokens = long
        if kernel is None:
            if distances is None or self.config.positions == "slot":
                distances = torch.arange(n_long, device=long.device)
            tokens = self.pos_encoding(long, distances)
        seen: Tensor | None = mask
        if self.config.encoder == "projection" and n_long:
            tokens = self.enc_projection((tokens * mask[..., None]).transpose(1, 2)).transpose(1, 2)  # (B, n1, d_model)
            seen = None
        queries = iter(self.enc_queries)
        for (n, _), stack in zip(stages(self.config), self.enc_modules, strict=True):
            allowed = None if seen is None else seen[:, None, None, :]
            if allowed is not None and kernel is not None:
                allowed = torch.where(allowed, kernel, -torch.inf)
            if n is None:
                tokens = stack(tokens, mask=allowed)
            else:
                tokens = stack(next(queries).weight.expand(B, -1, -1), tokens, memory_mask=allowed)  # (B, n, d_model)
                seen = None
        if history is not None:
            tokens = torch.cat([tokens, history[:, None]], dim=1)  # (B, M, d_model)
            seen = None if seen is None else torch.cat([seen, seen.new_ones(B, 1)], dim=1)
        return tokens, seen

    def decode(self, work: Tensor, work_mask: Mask, memory: Tensor | None, memory_mask: Mask) -> Tensor:
        """Return work tokens (B, W, d_model) after each met its past and the memory (B, M, d_model), ready to classify.

        The result is (B, W + anticipation, d_model), twice as wide with integration "concatenation". work_mask (B, W)
        and memory_mask (B, M) are bool, True = present; or None if all are (paper, section 3.4).
        """
        if self.integration == "mlp":
            assert memory is not None  # by `integration`
            mean = mean_token(memory, memory_mask)[:, None].expand_as(work)
            return self.mlp(torch.cat([work, mean], dim=-1))
        B, W, _ = work.shape
        work = self.pos_encoding(work, self.work_positions()[:W])
        if self.config.anticipation:
            future = self.pos_encoding.dropout(self.future())
            work = torch.cat([work, future.expand(B, -1, -1)], dim=1)  # (B, W + anticipation, d_model)
        N = work.shape[1]
        present = None if work_mask is None else nn.functional.pad(work_mask, (0, N - W), value=True)  # (B, N)
        mask = causal_mask(N, present, work.device)
        if self.integration == "joined":
            assert memory is not None
            M = memory.shape[1]
            if memory_mask is None:
                memory_mask = torch.ones(B, M, dtype=torch.bool, device=memory.device)
            pad = nn.functional.pad  # who sees whom if the memory comes before the work: (B, 1, M + N, M + N)
            both = pad(mask.expand(B, 1, N, N), (M, 0, M, 0)) | pad(memory_mask, (0, N))[:, None, None, :]
            return self.dec_modules(torch.cat([memory, work], dim=1), mask=both)[:, -N:]
        allowed = None if memory_mask is None else memory_mask[:, None, None, :]
        if self.integration == "cross-attention":
            assert memory is not None
            if self.sees_work:
                allowed = nn.functional.pad(mask, (memory.shape[1], 0), value=True)
                memory = torch.cat([memory, work], dim=1)  # (B, M + N, d_model)
            return self.dec_modules(work, memory, mask, allowed)
        work = self.dec_modules(work, mask=mask)
        return work if memory is None else self.integrate(work, mean_token(memory, memory_mask))

    def integrate(self, work: Tensor, mean: Tensor) -> Tensor:
        """Return decoder output (B, N, d_model) joined with the mean encoder token (B, d_model), without attention."""
        mean = mean[:, None].expand_as(work)
        return (work + mean) / 2 if self.integration == "average" else torch.cat([work, mean], dim=-1)

    def work_positions(self) -> Tensor:
        """Return positions (work_length,) of the work slots."""
        slots = torch.arange(self.config.work_length, device=self.pos_encoding.pe.device)
        if self.config.positions == "slot":
            return self.first_position + slots
        return self.config.work_length - 1 - slots

    def future(self) -> Tensor:
        """Return tokens (anticipation, d_model) of the chunks to come, whose positions follow a full work memory."""
        ahead = torch.arange(1, self.config.anticipation + 1, device=self.pos_encoding.pe.device)
        if self.config.positions == "slot":
            rows = self.pos_encoding.rows(self.first_position + self.config.work_length - 1 + ahead)
        else:
            rows = self.pos_encoding.rows(ahead).clone()
            rows[:, 0::2] *= -1  # the distance is negative, and so is its sine
        return self.future_tokens.weight + rows

    def video_logits(self, features: Tensor, batch_size: int, constants: lstr_step.Constants | None = None) -> Tensor:
        """See `Model.video_logits`; what windows have in common is computed once."""
        from lstr.models import dense  # not needed by a stream

        return dense.video_logits(constants or self.constants(), features, batch_size)

    def constants(self, packed: bool = True) -> lstr_step.Constants:
        return lstr_step.constants(self, pack(self) if packed else self)

    # functions of that module, so that a step enters no other file
    begin = lstr_step.begin
    step = staticmethod(lstr_step.step)


def stages(config: LSTRConfig) -> list[tuple[int | None, int]]:
    """Return (queries, layers) of each stack of the encoder; None for one of self-attention."""
    if not config.n_long:
        return []
    designs: dict[str, list[tuple[int | None, int]]] = {
        "two-stage": [(config.n0, 1), (config.n1, config.l_enc)],
        "one-stage": [(config.n1, config.l_enc + 1)],
        "stage2-self-attention": [(config.n0, 1), (None, config.l_enc)],
        "self-attention": [(None, config.l_enc)],
    }
    return designs.get(config.encoder, [])


PUBLISHED = LSTRConfig(grid="sliding")
SMALL = LSTRConfig(
    d_model=128, n_heads=4, d_feedforward=128, dropout=0.3, work_length=8, long_length=0, n0=8, n1=8, l_enc=1
)
PRESETS = {
    "thumos14": Preset(LSTRConfig()),
    "tvseries": Preset(LSTRConfig(), {"metric": "mcAP"}),
    "hacs": Preset(LSTRConfig()),
    "thumos14-published": Preset(PUBLISHED, PUBLISHED_TRAINING),
    "tvseries-published": Preset(PUBLISHED, {**PUBLISHED_TRAINING, "metric": "mcAP"}),
    # hides the long memory from most windows, because a model overfits on that first
    "lstr-small": Preset(SMALL, {**SMALL_TRAINING, "hide_long": 0.8}, for_little_video=True),
}


class PublishedLSTR(Published):
    """Checkpoints of the published code of LSTR, from which others started."""

    config: WindowConfig = PUBLISHED
    marks = ("dec_modules.layers.0.linear1.weight",)  # a file of TeSTra's code fits too, unless it anticipates
    absent: tuple[str, ...] = ("gen_query.weight", "dec_query.weight")
    sizes = {
        "d_feedforward": ("dec_modules.layers.0.linear1.weight", 0),
        "n0": ("enc_queries.0.weight", 0),
        "n1": ("enc_queries.1.weight", 0),
        "anticipation": ("future_tokens.weight", 0),
    }
    layers = {"l_enc": "enc_modules.1.layers.", "l_dec": "dec_modules.layers."}
    optional = ("n0", "n1", "anticipation", "l_enc")
    unknown: tuple[str, ...] = ("n_heads", "work_length", "long_length", "long_stride")

    def settings(self, tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        known = super().settings(tensors, changes)
        return known if "enc_queries.0.weight" in tensors else {**known, "long_length": 0}


KIND = Kind(LSTR, LSTRConfig, read_publication("lstr"), PRESETS, PublishedLSTR())
