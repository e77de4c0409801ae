"""EFC, ED and RED (Gao et al., BMVC 2017) and TTPP: they predict features of chunks to come, and classify them.

No code was published, so each of them is a reading of its paper. All have one layer of features, a decoder that gives a
token for each of `config.n_ahead` chunks ahead, and one classifier of two layers for the newest chunk's own token and
for those. The score of the newest chunk depends on its features alone: the papers call anticipation at one chunk
detection.

- efc: two linear layers from the newest chunk's token to all tokens ahead
- ed: an LSTM reads `config.work_length` chunks from a state of zeros; another starts from its state, and each step
  reads the result of the step before
- red: ed, whose loss also rewards early detection, by REINFORCE
- ttm: TTPP (Wang et al., Neurocomputing 2021). The newest chunk attends to its window in one Transformer layer; a small
  network, the same at every step, takes the result, the last predicted token and its probabilities to the next token

In training every slot looks ahead, with the chunks before it in its window.
"""

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig, define_config
from lstr.models.kind import Kind, Preset, Windowed
from lstr.models.layers import FeatureHead, at_slots, sinusoid
from lstr.models.published import read_publication
from lstr.windows.windows import Supervision, Windows, in_order, loss_of

REWARD = 0.1  # the weight of RED's reward in the loss; the paper trains with it after the other losses, at a lower rate
FORGETTING = 0.99  # the share that a step keeps of the running mean with which a reward is compared

LOOKS_AHEAD = Uses(long_memory=False, anticipation=True, ahead=8, heads=False)
EDConfig = define_config(__name__, "EDConfig", "ed", LOOKS_AHEAD)
EFCConfig = define_config(__name__, "EFCConfig", "efc", LOOKS_AHEAD)
REDConfig = define_config(__name__, "REDConfig", "red", LOOKS_AHEAD)


class Looking(Windowed):
    """What the kinds that imagine features share: outputs, the two layers of the classifier, and the loss."""

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.feature_head_work = FeatureHead(config.input_dim, d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier_hidden = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU())
        self.classifier = nn.Linear(d_model, n_classes)
        self.to_features = nn.Linear(d_model, config.input_dim)

    @abstractmethod
    def imagine(self, tokens: Tensor, slots: Tensor, constants: Any) -> tuple[Tensor, Tensor]:
        """Return logits (B, N, 1 + n_ahead, C) and tokens ahead (B, N, n_ahead, d) at slots of tokens (B, W, E)."""

    def decide(self, tokens: Tensor, newest: Tensor, constants: Any) -> Tensor:
        return self.imagine(tokens, newest[:, None], constants)[0][:, 0]

    def classify(self, tokens: Tensor) -> Tensor:
        """Return logits (..., C) of tokens (..., d_model) of chunks or of imagined ones."""
        return self.classifier(self.dropout(self.classifier_hidden(tokens)))

    def forward(self, windows: Windows) -> tuple[Tensor, Tensor]:
        """Return logits (B, W * (1 + n_ahead), C) as `outputs` has them, and imagined features (B, W, n_ahead, D)."""
        tokens = self.embed(windows.work)
        slots = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
        logits, ahead = self.imagine(tokens, slots, self.constants())
        return in_order(logits), self.to_features(ahead)

    def loss(self, forwarded: tuple[Tensor, Tensor], windows: Windows, supervision: Supervision) -> Tensor:
        """Return the cross entropy now and ahead, plus the mean squared error of the features that the window has.

        In a batch of several pieces that mean is each piece's, which weighs as much as its share of the windows.
        """
        logits, features = forwarded
        W, A = features.shape[1:3]
        chunks = torch.arange(W, device=features.device)[:, None] + torch.arange(1, A + 1, device=features.device)
        inside = chunks.clamp(max=W - 1)  # (W, A)
        seen = windows.work_mask & supervision.counts.any(dim=1, keepdim=True)
        # the features ahead are known only inside the window, the classes ahead always
        known = seen[:, inside] & (chunks < W)  # (B, W, A)
        errors = (features - windows.work[:, inside]).square().mean(-1)
        regression = torch.where(known, errors, 0).sum() / known.sum().clamp(min=1)
        return loss_of(logits, self.outputs(), supervision) + supervision.share * regression


class EncoderDecoder(Looking):
    """Kinds efc, ed and red, by `config.kind`."""

    mean_reward: Tensor

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.reads = config.kind != "efc"
        self.memory_shapes = {"tokens": (config.work_length, (5 if self.reads else 1) * d_model)}
        if self.reads:
            self.encoder = nn.LSTMCell(d_model, d_model)
            self.decoder = nn.LSTMCell(d_model, d_model)
            self.decoded = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU())
        else:
            between = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU())
            self.direct = nn.Sequential(*between, nn.Linear(d_model, config.n_ahead * d_model), nn.ReLU())
        if config.kind == "red":
            self.register_buffer("mean_reward", torch.zeros(()))

    def embed(self, features: Tensor) -> Tensor:
        """Return the token of features (..., D) and, if the kind reads a history, its part (..., 4 d) of the gates."""
        token = self.feature_head_work(features)
        if not self.reads:
            return token
        return torch.cat([token, F.linear(token, self.encoder.weight_ih, self.encoder.bias_ih)], dim=-1)

    def imagine(self, tokens: Tensor, slots: Tensor, constants: None) -> tuple[Tensor, Tensor]:
        own = at_slots(tokens[..., : self.config.d_model], slots)  # (B, N, d_model)
        if not self.reads:
            ahead = self.direct(own.flatten(0, 1)).unflatten(-1, (self.config.n_ahead, -1))  # (B * N, n_ahead, d_model)
        else:
            hidden = cell = tokens.new_zeros(len(tokens), self.config.d_model)
            hiddens, cells = [], []
            # the steps of an LSTM cell, without the part of the gates that depends on the chunk alone
            for gates in tokens[..., self.config.d_model :].unbind(1):
                gates = gates + F.linear(hidden, self.encoder.weight_hh, self.encoder.bias_hh)
                into, forget, new, out = gates.chunk(4, dim=-1)
                cell = forget.sigmoid() * cell + into.sigmoid() * new.tanh()
                hidden = out.sigmoid() * cell.tanh()
                hiddens.append(hidden)
                cells.append(cell)
            hidden, cell = (at_slots(torch.stack(states, dim=1), slots).flatten(0, 1) for states in (hiddens, cells))
            imagined = [own.flatten(0, 1)]
            for _ in range(self.config.n_ahead):
                hidden, cell = self.decoder(imagined[-1], (hidden, cell))
                imagined.append(self.decoded(hidden))
            ahead = torch.stack(imagined[1:], dim=1)
        ahead = ahead.unflatten(0, own.shape[:2])
        return self.classify(torch.cat([own[:, :, None], ahead], dim=2)), ahead

    def loss(self, forwarded: tuple[Tensor, Tensor], windows: Windows, supervision: Supervision) -> Tensor:
        """Return the loss of `Looking`; of kind red also its reward, for labels drawn from the scores ahead."""
        loss = super().loss(forwarded, windows, supervision)
        if self.config.kind != "red":
            return loss
        W, A = self.config.work_length, self.config.n_ahead
        targets = _by_slot(supervision.targets, W, A)  # (B, W, 1 + A, C)
        counts = _by_slot(supervision.counts[..., None], W, A)[..., 0].all(-1)  # (B, W) the whole future is known
        if supervision.ignore is not None:
            counts = counts & (targets[..., supervision.ignore] == 0).all(-1)
        logits = _by_slot(forwarded[0], W, A)[:, :, 1:]
        drawn = torch.distributions.Categorical(logits=logits.detach()).sample()  # (B, W, A)
        total = rewards(targets, drawn).sum(-1)  # (B, W)
        chosen = logits.log_softmax(-1).gather(-1, drawn[..., None])[..., 0].sum(-1)  # (B, W)
        each = torch.where(counts, chosen * (total - self.mean_reward), 0)
        number = counts.sum().clamp(min=1)
        if self.training and counts.any():
            now = torch.where(counts, total, 0).sum() / number
            self.mean_reward.lerp_(now, 1 - FORGETTING)
        return loss - REWARD * supervision.share * each.sum() / number


def _by_slot(tensor: Tensor, W: int, A: int) -> Tensor:
    """Return a tensor (B, W * (1 + A), ...) in the order of `Looking.outputs` as (B, W, 1 + A, ...)."""
    return torch.cat([tensor[:, :W, None], tensor[:, W:].unflatten(1, (W, A))], dim=2)


def rewards(targets: Tensor, drawn: Tensor) -> Tensor:
    """Return the rewards of labels drawn for the chunks ahead (..., A), with targets (..., 1 + A, C) from now on.

    Where an action begins ahead, a right label earns 1 at that step, 1 / (1 + n) n steps after it, and nothing before;
    elsewhere a right label earns 1 / A.
    """
    # the constants of the paper are unknown
    right = targets[..., 1:, :].gather(-1, drawn[..., None])[..., 0] > 0  # (..., A)
    acts = targets[..., 1:].amax(-1) > 0  # (..., 1 + A)
    begins = acts[..., 1:] & ~acts[..., :-1]  # (..., A)
    since = begins.cumsum(-1).clamp(max=1).cumsum(-1)  # 1 at the first beginning, then 2, 3 …
    early = torch.where(since > 0, 1 / since.clamp(min=1), 0)
    even = torch.full_like(early, 1 / drawn.shape[-1])
    return right * torch.where(begins.any(-1, keepdim=True), early, even)


TTPPConfig = define_config(__name__, "TTPPConfig", "ttm", Uses(long_memory=False, anticipation=True, ahead=8))


class TTPP(Looking):
    """A Transformer layer over `config.work_length` chunks, then `config.n_ahead` steps of progressive prediction.

    Positions are distances to the chunk that looks, so a stream keeps keys and values of its chunks.
    """

    table: Tensor

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.memory_shapes = {"tokens": (config.work_length, 3 * d_model)}
        self.query, self.key, self.value = (nn.Linear(d_model, d_model) for _ in range(3))
        self.attended = nn.Linear(d_model, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.feedforward = nn.Sequential(
            nn.Linear(d_model, config.d_feedforward), nn.ReLU(), nn.Linear(config.d_feedforward, d_model)
        )
        self.progress = nn.Sequential(
            nn.Linear(2 * d_model + n_classes, d_model), nn.LayerNorm(d_model), nn.ReLU(), nn.Linear(d_model, d_model)
        )
        self.register_buffer("table", sinusoid(config.work_length, d_model), persistent=False)  # (W, d_model)

    def constants(self, packed: bool = True) -> tuple[Tensor, Tensor]:
        """Return what distances add to keys and to values, (W, d_model) each."""
        return F.linear(self.table, self.key.weight), F.linear(self.table, self.value.weight)

    def embed(self, features: Tensor) -> Tensor:
        """Return token, key and value (..., 3 * d_model) of features (..., D), all without a position."""
        token = self.feature_head_work(features)
        return torch.cat([token, self.key(token), self.value(token)], dim=-1)

    def imagine(self, tokens: Tensor, slots: Tensor, constants: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        own = at_slots(tokens[..., : self.config.d_model], slots)  # (B, N, d_model)
        # each chunk attends to the chunks of its window up to itself
        H, (_, keys, values) = self.config.n_heads, tokens.chunk(3, dim=-1)
        back = slots[:, :, None] - torch.arange(tokens.shape[1], device=slots.device)  # (B, N, W) chunks
        keys, values = (
            part[:, None] + table[back.clamp(min=0)] for part, table in zip((keys, values), constants, strict=True)
        )  # (B, N, W, d_model)
        query = self.query(own + self.table[0]).unflatten(-1, (H, -1))  # (B, N, H, d)
        scores = torch.einsum("bnhd,bnwhd->bnhw", query, keys.unflatten(-1, (H, -1))) * query.shape[-1] ** -0.5
        weights = scores.masked_fill((back < 0)[:, :, None], float("-inf")).softmax(dim=-1)
        found = torch.einsum("bnhw,bnwhd->bnhd", weights, values.unflatten(-1, (H, -1))).flatten(-2)
        seen = self.norm1(own + self.dropout(self.attended(found)))
        seen = self.norm2(seen + self.dropout(self.feedforward(seen)))
        # each step takes the result, the last token and its probabilities to the next token
        logits, ahead = [self.classify(own)], [own]
        for _ in range(self.config.n_ahead):
            ahead.append(self.progress(torch.cat([seen, ahead[-1], logits[-1].softmax(dim=-1)], dim=-1)))
            seen = seen + ahead[-1]
            logits.append(self.classify(ahead[-1]))
        return torch.stack(logits, dim=-2), torch.stack(ahead[1:], dim=-2)


# The published training of EFC, ED, RED and TTPP is not known.
TRAINING = {"lr": 1e-4, "weight_decay": 0.0, "schedule": "constant"}
SIZE: dict[str, Any] = {"d_model": 4096, "dropout": 0.0, "work_length": 16}
EFC_KIND, ED_KIND, RED_KIND = (
    Kind(EncoderDecoder, config, read_publication(kind), {f"{kind}-thumos14": Preset(config(**SIZE), TRAINING)})
    for kind, config in (("efc", EFCConfig), ("ed", EDConfig), ("red", REDConfig))
)
TTPP_SIZE = TTPPConfig(n_heads=4, dropout=0.1, work_length=16)
TTPP_KIND = Kind(TTPP, TTPPConfig, read_publication("ttm"), {"ttm-thumos14": Preset(TTPP_SIZE, TRAINING)})
