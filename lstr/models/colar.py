"""Colar (Yang et al., CVPR 2022): compares a chunk with exemplars of every class, and with the chunks before it.

The static branch weighs the exemplars of each class by their cosine similarity to the newest chunk and the classes by a
layer, and classifies the chunk next to the result. The dynamic branch adds the chunks of the window to the newest one
by their cosine similarity, twice, the second time after convolutions over three chunks. The score is the softmax of 0.3
static plus 0.7 dynamic logits; a class without exemplars, such as the ambiguous one, scores 0.

The exemplars are features of training chunks: those nearest to the k-means centres of their class. They are part of our
checkpoints, and of no published file, because its code reads them from another; `PublishedColar` says how to add them.
The published code scores no chunk before its window is full, nor the last of a video; here every chunk is scored.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Size, Uses, WindowConfig
from lstr.errors import CheckpointError
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import FixedWindow, Kind, Preset
from lstr.models.layers import Head, Step, Tensors, put, take
from lstr.models.oadtr import TRAINING
from lstr.models.published import Published, Tables, read_publication
from lstr.windows.plans import Ring
from lstr.windows.windows import Supervision, Windows, loss_mask, masked_mean

STATIC, DYNAMIC = 0.3, 0.7  # shares of the branches' logits in the score
BRANCHES = ("model_static", "model_dynamic")  # what the published code saves its two tables of tensors as


class ColarConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(long_memory=False, heads=False)

    kind = "colar"
    exemplars: Size = 10
    """Training chunks of each class that it compares with."""


class Colar(FixedWindow):
    """Both branches, as wide as `config.d_model`; `config.exemplars` of each class."""

    config: ColarConfig
    exemplars: Tensor
    scoring_rule = ScoringRule("Colar", "whole windows", "exclude alone")

    def __init__(self, config: ColarConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.feature_head_work = Head(nn.Linear(config.input_dim, 4 * d_model))
        self.feature_head_long = Head(nn.Linear(config.input_dim, 2 * d_model))
        # drawn like weights until training chooses them; zeros for a class that has none
        self.register_buffer("exemplars", torch.randn(n_classes, config.exemplars, config.input_dim))
        self.class_weight = nn.Linear(d_model, 1)
        self.static_classifier = nn.Linear(2 * d_model, n_classes)
        self.keys = nn.Conv1d(d_model, d_model, 3, padding=1)
        self.values = nn.Conv1d(d_model, d_model, 3, padding=1)
        self.classifier = nn.Linear(d_model, n_classes)
        self.keeps_convolved = config.work_length > 4
        """Whether streams keep the convolutions: in a shorter window all of them change with every chunk."""
        self.memory_shapes = {"window": (config.work_length, 4 * d_model)}
        if self.keeps_convolved:
            self.memory_shapes["around"] = config.work_length, 2 * d_model

    @torch.no_grad()
    def absorb(self, mean: Tensor, std: Tensor) -> None:
        """See `Model.absorb`; the exemplars become raw features too, but a class without exemplars keeps its zeros."""
        super().absorb(mean, std)
        known = self.exemplars.any(dim=2, keepdim=True).any(dim=1, keepdim=True)
        self.exemplars.copy_(torch.where(known, self.exemplars * std + mean, 0))

    def prepare(self, features_of: Callable[[int], Tensor], seed: int) -> None:
        """Choose the exemplars of each class from its training chunks."""
        for label in range(self.n_classes):
            self.exemplars[label] = choose_exemplars(features_of(label), self.config.exemplars, seed).to(self.exemplars)

    def forward(self, windows: Windows) -> tuple[Tensor, Tensor]:
        """Return logits (B, C) of the static and of the dynamic branch."""
        kept = self.feature_head_work(windows.newest_last())
        return self.static(kept[:, -1], self.of_exemplars()), self.dynamic(kept)

    def score(self, kept: Tensor, constants: Tensors | None = None) -> Tensor:
        """Return logits (B, 1, C) of the newest chunk, from keys and values (B, W, 4 * d_model) of a window."""
        static = self.static(kept[:, -1], constants or self.of_exemplars())
        return (STATIC * static + DYNAMIC * self.dynamic(kept))[:, None]

    @torch.no_grad()
    def constants(self, packed: bool = True) -> Tensors:
        weight = torch.cat([self.keys.weight, self.values.weight])  # (2 * d_model, d_model, 3)
        bias = torch.cat([self.keys.bias, self.values.bias])  # type: ignore[list-item]
        return {**self.of_exemplars(), "weight": weight.transpose(1, 2).flatten(1), "bias": bias}

    def of_exemplars(self) -> Tensors:
        """Return keys, of length 1, and values (C, K, d_model) of the exemplars, and which classes (C,) have any."""
        keys, values = self.feature_head_long(self.exemplars).chunk(2, dim=-1)
        return {"keys": F.normalize(keys, dim=-1), "values": values, "known": self.exemplars.any(dim=2).any(dim=1)}

    def static(self, kept: Tensor, exemplars: Tensors) -> Tensor:
        """Return logits (B, C) of chunks by the exemplars, -inf for a class without any; kept (B, 4 * d_model)."""
        key, value, _, _ = kept.chunk(4, dim=-1)  # (B, d_model) each
        likeness = torch.einsum("bd,cnd->bcn", F.normalize(key, dim=-1), exemplars["keys"])
        found = torch.einsum("bcn,cnd->bcd", likeness.softmax(dim=-1), exemplars["values"])  # (B, C, d_model)
        unknown = ~exemplars["known"]
        weights = self.class_weight(found).masked_fill(unknown[:, None], -torch.inf).softmax(dim=1)  # (B, C, 1)
        seen = torch.cat([value, (weights * found).sum(dim=1)], dim=-1)  # (B, 2 * d_model)
        return self.static_classifier(seen.relu()).masked_fill(unknown, -torch.inf)

    def dynamic(self, kept: Tensor) -> Tensor:
        """Return logits (B, C) of the newest chunk by the others of its window, kept (B, W, 4 * d_model)."""
        _, _, keys, values = kept.chunk(4, dim=-1)  # (B, W, d_model) each
        seen = attend_newest(keys, values).relu().transpose(1, 2)  # (B, d_model, W)
        keys, values = self.keys(seen).transpose(1, 2), self.values(seen).transpose(1, 2)
        return self.classifier(attend_newest(keys, values)[:, -1].relu())

    def video_logits(self, features: Tensor, batch_size: int, constants: Tensors | None = None) -> Tensor:
        """See `Model.video_logits`; every chunk is convolved with its neighbours once."""
        if not self.keeps_convolved:
            return super().video_logits(features, batch_size, constants)
        constants = constants or self.constants()
        W = self.config.work_length
        kept = self.feature_head_work(F.pad(features, (0, 0, W - 1, 0)))  # (W - 1 + L, 4 * d_model)
        seen = F.pad(kept[:, 3 * self.config.d_model :].relu(), (0, 0, 1, 1))
        around = convolved(seen[None], constants)[0]
        windows, around_each = (rows.unfold(0, W, 1).transpose(1, 2) for rows in (kept, around))
        between = around_each[:, 1:-3]
        pairs = zip(windows.split(batch_size), between.split(batch_size), strict=True)
        return torch.cat([self._newest(constants, kept, between)[0] for kept, between in pairs])

    @property
    def planner(self) -> Ring:
        return Ring(self.config.work_length, convolved=self.keeps_convolved)

    def step(self, constants: Tensors, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        if not self.keeps_convolved:
            return super().step(constants, tensors, plan, features, donate)
        ring, window = self.take_in(tensors["window"], plan, features, donate)
        around = tensors["around"]
        if "fresh" in plan:
            zeros = self.feature_head_work(features.new_zeros(1, 3, features.shape[1])).chunk(4, dim=-1)[3].relu()
            around = torch.where(plan["fresh"][:, None, None], convolved(zeros, constants)[0], around)
        between = take(around, plan["between"], self.config.work_length - 4)
        logits, settled = self._newest(constants, window, between)
        return logits, {"window": ring, "around": put(around, plan["settled"], settled, donate)}

    def _newest(self, constants: Tensors, kept: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, 1, C) of the newest chunk, and the final convolution (B, 2 * d_model) two chunks before.

        kept (B, W, 4 * d_model) of the window; between (B, W - 4, 2 * d_model), the convolved keys and values of its
        chunks without the first and the last three.
        """
        _, _, keys, values = kept.chunk(4, dim=-1)  # (B, W, d_model) each
        seen = attend_newest(keys, values).relu()
        # A convolution changes only for the first chunk of the window, which loses a neighbour, and for the last three:
        # the newest chunk is another after it has added the window.
        first = convolved(F.pad(seen[:, :2], (0, 0, 1, 0)), constants)
        last = convolved(F.pad(seen[:, -4:], (0, 0, 0, 1)), constants)
        around = torch.cat([first, between, last], dim=1)  # (B, W, 2 * d_model)
        newest = attend_newest(*around.chunk(2, dim=-1))[:, -1].relu()  # (B, d_model)
        logits = STATIC * self.static(kept[:, -1], constants) + DYNAMIC * self.classifier(newest)
        return logits[:, None], last[:, 0]

    def loss(self, forwarded: tuple[Tensor, Tensor], windows: Windows, supervision: Supervision) -> Tensor:
        """Return the cross entropy of both branches against the first of a chunk's classes, and a divergence.

        Windows whose newest chunk is ambiguous have no loss.
        """
        targets, counts = supervision.targets[:, 0], supervision.counts[:, 0]
        keep = loss_mask(targets, supervision.ignore, counts)  # (B,)
        label = targets.argmax(dim=-1, keepdim=True)
        unknown = ~self.exemplars.any(dim=2).any(dim=1)  # (C,)
        losses, logs = torch.zeros_like(targets[:, 0]), []
        for logits in forwarded:
            losses = losses - logits.log_softmax(dim=-1).gather(1, label)[:, 0]
            logs.append(logits.masked_fill(unknown, -torch.inf).log_softmax(dim=-1))
        # The published code calls this a KL divergence, in both directions, but has probabilities where logarithms
        # belong, so that it can be below 0.
        for log, other in (logs, logs[::-1]):
            terms = other.exp() * (other.masked_fill(unknown, 0) - log.exp())  # (B, C)
            losses = losses + terms.sum(dim=-1) / (~unknown).sum()
        return masked_mean(losses, keep, supervision.totals)


def convolved(rows: Tensor, constants: Tensors) -> Tensor:
    """Return keys and values (B, N, 2 * d_model) of rows (B, N + 2, d_model) convolved with their neighbours."""
    around = torch.cat([rows[:, :-2], rows[:, 1:-1], rows[:, 2:]], dim=-1)
    return F.linear(around, constants["weight"], constants["bias"])


def attend_newest(keys: Tensor, values: Tensor) -> Tensor:
    """Return values (B, W, D); the newest has added all of the window by the cosine of their keys to its key."""
    likeness = F.cosine_similarity(keys, keys[:, -1:], dim=-1).softmax(dim=1)  # (B, W)
    newest = values[:, -1] + (likeness[:, None] @ values)[:, 0]  # (B, D)
    return torch.cat([values[:, :-1], newest[:, None]], dim=1)


def choose_exemplars(features: Tensor, n: int, seed: int = 0) -> Tensor:
    """Return the exemplars (n, D) of a class: of its chunks with features (N, D), those nearest to n k-means centres.

    Where the class has fewer chunks they are repeated, and where it has none the exemplars are zeros.
    """
    if len(features) == 0:
        return features.new_zeros(n, features.shape[1])
    if len(features) <= n:
        return features[torch.arange(n) % len(features)]
    from sklearn.cluster import KMeans  # here, because it takes a second to import

    # If chunks are alike there are fewer centres than asked for, and some exemplars are the same.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        centres = KMeans(n, n_init=1, random_state=seed).fit(features.numpy()).cluster_centers_
    apart = torch.cdist(torch.from_numpy(centres).to(features), features)  # (n, N)
    return features[apart.argmin(dim=1)]


PUBLISHED = ColarConfig(work_length=64)


class PublishedColar(Published):
    """The published code of Colar, with its exemplars and as wide as its dynamic branch."""

    config = PUBLISHED
    marks = ("model_static.conv1_3_k.weight", "exemplars")
    sizes = {"exemplars": ("exemplars", 1)}
    unknown = ("work_length",)

    def tables(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """See `Published.tables`: the tables of the two branches, and the `exemplars` that a user added."""
        if not all(isinstance(content.get(part), dict) for part in BRANCHES):
            return None
        found = {f"{part}.{name}": tensor for part in BRANCHES for name, tensor in content[part].items()}
        return found | {name: content[name] for name in ("exemplars",) if name in content}

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        """See `Published.renamed`.

        Raises CheckpointError where there are no exemplars, (classes of the static branch, any, D).
        """
        static, dynamic = "model_static.", "model_dynamic."
        if "exemplars" not in tensors:
            raise CheckpointError(
                "The file of a published Colar model does not contain its exemplars.",
                "add them: torch.save({**torch.load(FILE), 'exemplars': tensor}, NEW), with shape (classes, exemplars, "
                "D). The authors publish them as a separate file; `lstr.models.colar.choose_exemplars` computes them "
                "from training chunks.",
            )
        heads = {
            "feature_head_work": [f"{branch}conv1_3_{part}" for branch in (static, dynamic) for part in ("k", "v")],
            "feature_head_long": [f"{static}conv1_3_Ek", f"{static}conv1_3_Ev"],
        }
        found = {}
        for what in ("weight", "bias"):
            for head, parts in heads.items():
                tensor = torch.cat([tensors[f"{part}.{what}"] for part in parts])
                found[f"{head}.input_linear.0.{what}"] = tensor[..., 0] if what == "weight" else tensor
            for ours, theirs in (("keys", "conv2_3_k"), ("values", "conv2_3_v")):
                found[f"{ours}.{what}"] = tensors[f"{dynamic}{theirs}.{what}"]
            linear = {"class_weight": f"{static}conv2_1_W", "static_classifier": f"{static}conv2_1"}
            for ours, theirs in (linear | {"classifier": f"{dynamic}conv3_1"}).items():
                tensor = tensors[f"{theirs}.{what}"]
                found[f"{ours}.{what}"] = tensor[..., 0] if what == "weight" else tensor
        unscored = len(found["classifier.bias"]) - len(found["static_classifier.bias"])
        found["exemplars"] = tensors["exemplars"]
        for name in ("static_classifier.weight", "static_classifier.bias", "exemplars"):
            tensor = found[name]
            found[name] = torch.cat([tensor, tensor.new_zeros(unscored, *tensor.shape[1:])])
        return found


PRESETS = {"colar-thumos14": Preset(PUBLISHED, {**TRAINING, "lr": 3e-4})}
KIND = Kind(Colar, ColarConfig, read_publication("colar"), PRESETS, PublishedColar())
