"""Information Discrimination Network (Eun et al., CVPR 2020): a GRU that knows the newest chunk at every step.

The embedding of the newest chunk enters the gates at every chunk of the window, to keep unrelated chunks out. So the
earlier positions of a window know its future: only the newest is a score, the others serve training.

The network, including its dropout masks, is the published one; its training code was withheld, so the losses are those
of the paper as two reimplementations have them.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig, define_config
from lstr.models.kind import Kind, Preset, Windowed
from lstr.models.layers import FeatureHead, at_slots
from lstr.models.published import Published, Tables, read_publication
from lstr.windows.windows import Supervision, Windows, loss_mask, loss_of, masked_mean

AUXILIARY = 0.3  # weight of the early and the contrastive loss (published code)

KERNEL = "IDU/idu/kernel_512_512"
# The cell's maps, in the order of the published kernel (in, out, 6).
MAPS = ("reset_hidden", "reset_newest", "update_token", "update_newest", "candidate_token", "candidate_hidden")
# Published layers to ours.
DENSE = {
    "Concatenater/dense": "feature_head_work.input_linear.0",
    "Concatenater/dense_1": "early_classifier",
    "Output/dense": "hidden_layer.0",
    "Output/dense_1": "classifier",
}


def hard_sigmoid(x: Tensor) -> Tensor:
    """Return Keras' piecewise linear approximation of a sigmoid."""
    return (0.2 * x + 0.5).clamp(0, 1)


IDNConfig = define_config(__name__, "IDNConfig", "idn", Uses(long_memory=False, heads=False))


class IDN(Windowed):
    """An information discrimination unit of `config.d_model` over the embeddings of `config.work_length` chunks."""

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.memory_shapes = {"tokens": (config.work_length, 3 * d_model)}
        self.feature_head_work = FeatureHead(config.input_dim, d_model)
        self.early_classifier = nn.Linear(d_model, n_classes)
        maps = [nn.Linear(d_model, d_model, bias=False) for _ in MAPS]  # in their order
        self.reset_hidden, self.reset_newest, self.update_token = maps[:3]
        self.update_newest, self.candidate_token, self.candidate_hidden = maps[3:]
        self.hidden_layer = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU())
        self.classifier = nn.Linear(d_model, n_classes)

    def embed(self, features: Tensor) -> Tensor:
        """Return embedding, part of the update gate and of the candidate (..., 3 * d_model) of features (..., D)."""
        embedded = self.feature_head_work(features)
        return torch.cat([embedded, self.update_token(embedded), self.candidate_token(embedded)], dim=-1)

    def decide(self, tokens: Tensor, newest: Tensor, constants: None) -> Tensor:
        """Return logits (B, 1, C) of the newest slot of windows of tokens (B, W, 3 * d_model)."""
        # No state goes from chunk to chunk, because the newest chunk enters every step: all of them are taken again.
        embedded, update, candidate = tokens.chunk(3, dim=-1)  # (B, W, d_model) each
        now = at_slots(embedded, newest[:, None])[:, 0]  # (B, d_model)
        states = self.unit(update, candidate, self.reset_newest(now), self.update_newest(now))
        return self.classifier(self.hidden_layer(at_slots(states, newest[:, None])))

    def unit(self, update: Tensor, candidate: Tensor, reset_now: Tensor, update_now: Tensor) -> Tensor:
        """Return states (B, W, d_model) of a window from the gate parts of its chunks and of the newest one."""
        hidden, states = torch.zeros_like(reset_now), []
        for at_gate, proposed in zip(update.unbind(1), candidate.unbind(1), strict=True):
            reset = hard_sigmoid(self.reset_hidden(hidden) + reset_now)
            gate = hard_sigmoid(at_gate + update_now)
            new = torch.tanh(proposed + self.candidate_hidden(reset * hidden))
            # the gate weighs the new state, where that of torch.nn.GRU weighs the old one
            hidden = (1 - gate) * hidden + gate * new
            states.append(hidden)
        return torch.stack(states, dim=1)

    def forward(self, windows: Windows) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits and early logits (B, W, C), and the squared distance (B, W) of each embedding to the newest."""
        embedded = self.feature_head_work(windows.work)  # (B, W, d_model)
        newest = windows.work_mask.sum(1) - 1  # (B,)
        now = at_slots(embedded, newest[:, None])[:, 0]
        update, candidate = (self.masked(embedded) for _ in range(2))
        reset_now, update_now = (self.masked(now[:, None])[:, 0] for _ in range(2))
        states = self.unit(
            self.update_token(update),
            self.candidate_token(candidate),
            self.reset_newest(reset_now),
            self.update_newest(update_now),
        )
        squared = (embedded - now[:, None]).square().sum(-1)
        return self.classifier(self.hidden_layer(states)), self.early_classifier(embedded), squared

    def masked(self, tokens: Tensor) -> Tensor:
        """Return tokens (B, W, d_model) after dropout with one mask for all chunks of a window, as in Keras' cells."""
        mask = F.dropout(torch.ones_like(tokens[:, :1]), self.config.dropout, self.training)
        return tokens * mask

    def loss(self, forwarded: tuple[Tensor, Tensor, Tensor], windows: Windows, supervision: Supervision) -> Tensor:
        """Return the cross entropy at every chunk, and 0.3 times the early and the contrastive loss."""
        logits, early, squared = forwarded
        outputs, targets = self.outputs(), supervision.targets
        newest = windows.work_mask.sum(1) - 1
        now = at_slots(targets, newest[:, None])[:, 0]  # (B, C)
        same = (targets * now[:, None]).sum(-1) > 0  # (B, W)
        keep = loss_mask(targets, supervision.ignore, supervision.counts)
        known = now.any(-1)  # whether the newest chunk has a label, which others can share
        if supervision.ignore is not None:
            known = known & (now[:, supervision.ignore] == 0)
        keep = keep & known[:, None]
        apart = torch.where(same, squared, (1 - squared).clamp(min=0))
        contrastive = masked_mean(apart, keep, supervision.totals)
        auxiliary = loss_of(early, outputs, supervision) + contrastive
        return loss_of(logits, outputs, supervision) + AUXILIARY * auxiliary


PUBLISHED = IDNConfig(flow_dim=2048, d_model=512, dropout=0.5, work_length=16)
TRAINING = {"lr": 1e-4, "weight_decay": 0.0, "batch_size": 128, "schedule": "constant", "windows": "every", "stride": 1}


class PublishedIDN(Published):
    """The published code of IDN."""

    config = PUBLISHED
    marks = (KERNEL, "reset_newest.weight")
    unknown = ("work_length",)

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        """See `Published.renamed`; a TensorFlow checkpoint has other names, and matrices (in, out)."""
        found = {f"{name}.weight": tensors[KERNEL][..., i].T.float() for i, name in enumerate(MAPS)}
        for theirs, ours in DENSE.items():
            found[f"{ours}.weight"] = tensors[f"{theirs}/kernel"].T.float()
            found[f"{ours}.bias"] = tensors[f"{theirs}/bias"].float()
        return found


KIND = Kind(IDN, IDNConfig, read_publication("idn"), {"idn-thumos14": Preset(PUBLISHED, TRAINING)}, PublishedIDN())
