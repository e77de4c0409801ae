"""FATS (Kim et al., Pattern Recognition 2021): a GRU that predicts the features to come, and one that reads them too.

At a chunk the forward GRU continues by itself for `config.generated` chunks. The action GRU, which has read the chunks
so far, reads those as well, and a head classifies its last state. A gate made from the features of the chunk mixes that
with the scores of the chunk before. `config.runs` such pairs of GRUs, each reset every `config.work_length` chunks, one
after the other, score each chunk together: their probabilities are averaged.

In training, a second GRU reads the predicted features backwards and should arrive where the first one started, and vice
versa: the cycle that gives the method its name.
"""

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Size, Uses, WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import Kind, Model, Preset
from lstr.models.layers import Head, Scaled, Step, Tensors, reset_fresh
from lstr.models.published import Published, Tables, read_publication
from lstr.windows.plans import Runs
from lstr.windows.windows import Supervision, Windows, loss_mask, without


class FATSConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(long_memory=False, heads=False)

    kind = "fats"
    generated: Size = 12
    """Number of future chunks that it predicts the features of."""
    runs: Size = 4
    """Beginnings that it averages over."""


class FATS(Model):
    """Three GRUs of `config.d_model` on features as they come."""

    config: FATSConfig
    plans = Runs
    scoring_rule = ScoringRule("FATS", "every", "negative")

    def __init__(self, config: FATSConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        width, d_model = config.input_dim, config.d_model
        # the states of both GRUs of each run, and the probabilities of the previous chunk
        states = dict.fromkeys(("ahead", "action"), (config.runs, d_model))
        self.memory_shapes = {**states, "previous": (n_classes,)}
        # The published network has no first layer that could take the scale of features.
        self.feature_head_work = Head(Scaled(width))
        self.forward_cell = nn.GRUCell(width, d_model)
        self.backward_cell = nn.GRUCell(width, d_model)
        self.action_cell = nn.GRUCell(width, d_model)
        self.imagined = nn.Linear(d_model, width)
        self.action_head = nn.Sequential(nn.Linear(d_model, width), nn.ReLU())
        self.classifier = nn.Linear(width, n_classes)
        between = max(1, width // 4)
        self.gate = nn.Sequential(
            nn.Linear(width, between, bias=False), nn.ReLU(), nn.Linear(between, 2, bias=False), nn.Softmax(dim=-1)
        )

    def imagine(self, cell: nn.GRUCell, hidden: Tensor, count: int) -> list[Tensor]:
        """Return the `count` features (B, D) that a GRU in state (B, d_model) predicts; each is its next input."""
        features = [self.imagined(hidden)]
        while len(features) < count:
            hidden = cell(features[-1], hidden)
            features.append(self.imagined(hidden))
        return features

    def decide(self, ahead: Tensor, action: Tensor) -> Tensor:
        """Return logits (B, C) of the two GRUs' states (B, d_model) after a chunk."""
        for feature in self.imagine(self.forward_cell, ahead, self.config.generated):
            action = self.action_cell(feature.detach(), action)
        return self.classifier(self.action_head(action))

    def mixed(self, rows: Tensor, previous: Tensor, current: Tensor) -> Tensor:
        """Return logits (..., C) after the gate of rows (..., D) mixed in the previous chunk, if it has any scores."""
        weights = self.gate(rows)  # (..., 2)
        both = weights[..., :1] * previous + weights[..., 1:] * current
        return torch.where((previous != 0).any(dim=-1, keepdim=True), both, current)

    def scores(self, rows: Tensor, previous: Tensor, current: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        """Return logarithms of probabilities (B, C), and `previous` (B, C) of the next chunk.

        rows (B, D), previous (B, C), current logits (B, R, C) of the runs, active (B, R) those that have started.
        """
        each = self.mixed(rows[:, None], previous[:, None], current).softmax(dim=-1)  # (B, R, C)
        count = active.sum(1, keepdim=True)  # (B, 1)
        mean = (each * active[..., None]).sum(1) / count
        # The published code adds 1 to the sum of the background before it averages. The next chunk needs that value
        # too, or other classes would differ; the score does not have it, so that scores are probabilities.
        handed = mean.clone()
        handed[:, :1] += 1 / count
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log(), handed

    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        """See `Model.video_logits`; all runs side by side, then their mixing in order."""
        rows, length = self.feature_head_work(features), len(features)
        W, runs = self.config.work_length, Runs.of(self.config)
        starts = [list(range(first, length, W)) for first in runs.beginnings]
        each = rows.new_zeros(length, self.config.runs, self.n_classes)
        for run, firsts in enumerate(starts):
            for at in range(0, len(firsts), batch_size):
                part = torch.tensor(firsts[at : at + batch_size], device=rows.device)
                chunks = part[:, None] + torch.arange(W, device=rows.device)  # (n, W)
                inside = chunks < length
                each[chunks[inside], run] = self.run_logits(rows[chunks.clamp(max=length - 1)])[inside]
        logits, previous = [], rows.new_zeros(1, self.n_classes)
        for chunk in range(length):
            active = torch.from_numpy(runs.active(np.array([chunk]))).to(rows.device)
            previous = previous * (chunk % W != 0)
            row = slice(chunk, chunk + 1)
            score, previous = self.scores(rows[row], previous, each[row], active)
            logits.append(score)
        return torch.stack(logits)

    def run_logits(self, rows: Tensor) -> Tensor:
        """Return logits (B, T, C) at each chunk of rows (B, T, D) from states of zeros, before the gate."""
        ahead = action = rows.new_zeros(len(rows), self.config.d_model)
        logits = []
        for row in rows.unbind(1):
            ahead, action = self.forward_cell(row, ahead), self.action_cell(row, action)
            logits.append(self.decide(ahead, action))
        return torch.stack(logits, dim=1)

    def step(self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        R, before = self.config.runs, dict(tensors)
        if "fresh" in plan:
            before |= {name: tensors[name].masked_fill(plan["fresh"][..., None], 0) for name in ("ahead", "action")}
        waiting = plan["waiting"] if "waiting" in plan else features.new_zeros(len(features), R, dtype=torch.bool)
        rows = self.feature_head_work(features)  # (B, D)
        each = rows.repeat_interleave(R, dim=0)  # (B * R, D)
        ahead = self.forward_cell(each, before["ahead"].flatten(0, 1))
        action = self.action_cell(each, before["action"].flatten(0, 1))
        current = self.decide(ahead, action).unflatten(0, (-1, R))  # (B, R, C)
        previous = reset_fresh(tensors["previous"], plan.get("unmixed"))
        logits, previous = self.scores(rows, previous, current, ~waiting)
        after = {"ahead": ahead.view_as(tensors["ahead"]), "action": action.view_as(tensors["action"])}
        return logits[:, None], after | {"previous": previous}

    def forward(self, windows: Windows) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (B, C) and both cycles (B, n, D) of a prefix of windows, drawn from 1 chunk to half of them."""
        # the published code takes an optimiser step for each length of prefix; here each step draws one
        n = int(torch.randint(1, max(2, self.config.work_length // 2), ()))
        return self.prefix(self.wrapped(windows), n)

    def wrapped(self, windows: Windows) -> Tensor:
        """Return scaled work rows (B, W, D); a short video repeats from its start (published code)."""
        rows, W = self.feature_head_work(windows.work), windows.work.shape[1]
        places = torch.arange(W, device=rows.device) % windows.work_mask.sum(1, keepdim=True)  # (B, W)
        return rows.gather(1, places[..., None].expand_as(rows))

    def prefix(self, rows: Tensor, n: int, previous: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (B, C) at the last of n rows, and the two cycles (B, n, D) of the first and of the last n rows.

        rows (B, W, D); previous (B, C) are the probabilities of the previous chunk, None to compute them.
        """
        if previous is None:
            # Probabilities, as at test time. The published code passes logits from prefix to prefix in training.
            previous = rows.new_zeros(len(rows), self.n_classes)
            with torch.no_grad():
                before = self.run_logits(rows[:, : n - 1]) if n > 1 else rows[:, :0]
                for row, current in zip(rows[:, : n - 1].unbind(1), before.unbind(1), strict=True):
                    previous = self.mixed(row, previous, current).softmax(dim=-1)
        ahead = action = rows.new_zeros(len(rows), self.config.d_model)
        for row in rows[:, :n].unbind(1):
            ahead, action = self.forward_cell(row, ahead), self.action_cell(row, action)
        logits = self.mixed(rows[:, n - 1], previous, self.decide(ahead, action))
        back = self.cycle(self.forward_cell, self.backward_cell, rows[:, :n])
        forth = self.cycle(self.backward_cell, self.forward_cell, rows[:, rows.shape[1] - n :].flip(1))
        return logits, back, forth.flip(1)

    def cycle(self, out: nn.GRUCell, back: nn.GRUCell, rows: Tensor) -> Tensor:
        """Return rows (B, n, D) as `back` predicts them after it read, in reverse, what `out` predicted after them."""
        hidden = rows.new_zeros(len(rows), self.config.d_model)
        for row in rows.unbind(1):
            hidden = out(row, hidden)
        returning = torch.zeros_like(hidden)
        for feature in reversed(self.imagine(out, hidden, self.config.generated)):
            returning = back(feature, returning)
        return torch.stack(self.imagine(back, returning, rows.shape[1]), dim=1).flip(1)

    def loss(self, forwarded: tuple[Tensor, Tensor, Tensor], windows: Windows, supervision: Supervision) -> Tensor:
        """Return the binary cross entropy of the prefix's last chunk, plus the squared errors of both cycles.

        A mean over windows and classes, and over windows and features, summed over the chunks of the prefix.
        """
        logits, *cycles = forwarded
        rows, n = self.wrapped(windows), cycles[0].shape[1]
        present, ignore = windows.work_mask.sum(1), supervision.ignore
        targets = supervision.targets[torch.arange(len(rows)), (n - 1) % present]  # (B, C)
        counted = supervision.counts.any(dim=1)  # (B,)
        total = max(1.0, float(counted.sum()) if supervision.n_windows is None else supervision.n_windows)
        loss = logits.new_zeros(())
        for recalled, true in zip(cycles, (rows[:, :n], rows[:, rows.shape[1] - n :]), strict=True):
            loss = loss + ((recalled - true).square().mean(-1).sum(1) * counted).sum() / total
        keep = loss_mask(targets, ignore, counted & targets.any(-1))
        logits, targets = without(logits, ignore), without(targets, ignore)
        each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1)  # (B,)
        return loss + torch.where(keep, each, 0).sum() / total


class PublishedFATS(Published):
    """The published code of FATS."""

    config = FATSConfig(flow_dim=0, d_model=4096, dropout=0.0)
    marks = ("fc_feature.weight", "imagined.weight")
    names = {
        "fc_feature.": "imagined.",
        "fc_action1.": "action_head.0.",
        "fc_action2.": "classifier.",
        "attention1.": "gate.0.",
        "attention2.": "gate.2.",
    }
    sizes = {"d_model": ("action_cell.weight_hh", 1), "input_dim": ("action_cell.weight_ih", 1)}
    unknown = ("work_length", "generated", "runs")

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        """See `Published.renamed`, with the scale that leaves features as they are."""
        scale = Scaled(tensors["fc_feature.weight"].shape[0]).state_dict(prefix="feature_head_work.input_linear.0.")
        return {**super().renamed(tensors), **scale}


TRAINING = {"epochs": 200, "lr": 5e-5, "weight_decay": 0.0, "batch_size": 32, "schedule": "constant"}
PRESETS = {"fats-thumos14": Preset(PublishedFATS.config, TRAINING)}
KIND = Kind(FATS, FATSConfig, read_publication("fats"), PRESETS, PublishedFATS())
