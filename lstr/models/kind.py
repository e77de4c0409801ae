"""What a kind of model is, and the methods of every model: for training, for whole videos, and for streams."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.published import Published
from lstr.models.stream import Tensors, as_tensors, keep
from lstr.settings import defaults
from lstr.windows.plans import Plan, Planner, needed
from lstr.windows.windows import Outputs, Supervision, Windows, every_slot, loss_of

PUBLICATIONS = Path(__file__).with_name("publications.toml")
DESCRIPTION = "built from the description"
SAME = "same weights, same numbers"
# The layers of a feature head that has one for each feature, in their order.
BRANCHES = ("visual_linear", "motion_linear")


# Training by the published code of LSTR, from which TeSTra, MAT and CMeRT started.
PUBLISHED_TRAINING: dict[str, Any] = {
    "lr": 7e-5,
    "schedule": "published",
    "warmup_epochs": 10,
    "windows": "tiled",
    "tails": False,
    "long_sampling": "stretched",
}
# For minutes of video.
SMALL_TRAINING: dict[str, Any] = {"epochs": 40, "lr": 5e-4, "weight_decay": 1e-4, "warmup": 0.1, "standardise": True}


@dataclass(frozen=True)
class Result:
    """A published number, in percent."""

    of: str
    """Data set and metric."""
    value: float
    features: str
    seen: str
    """Where it was read."""
    presets: tuple[str, ...] = ()
    """Presets with the settings of this result, as far as known; those of the published code come first."""


@dataclass(frozen=True)
class Publication:
    """A kind of model in the literature."""

    name: str
    """The name in its paper."""
    paper: str
    """Title, authors, venue and year."""
    address: str
    """Address of the paper; empty if not looked up."""
    code: str
    """The published code that was read, with its revision; empty if none was found."""
    licence: str
    """Licence of the published code. Nothing of that code is part of this package."""
    note: str
    """How exact this implementation is."""
    golden: tuple[str, ...] = ()
    """Data made by the published code, which tests compare with."""
    results: tuple[Result, ...] = ()
    differs: tuple[str, ...] = ()
    """Differences between training with its presets and the published training, a clause each."""

    @property
    def year(self) -> int | None:
        """The year at the end of `paper`."""
        return int(self.paper[-4:]) if self.paper[-4:].isdigit() else None

    @property
    def exact(self) -> str:
        """`SAME` if there is `golden` data, else `DESCRIPTION`."""
        return SAME if self.golden else DESCRIPTION


@cache
def _publications() -> dict[str, dict[str, Any]]:
    return tomllib.loads(PUBLICATIONS.read_text(encoding="utf-8"))


def read_publication(kind: str) -> Publication:
    """Return the publication of a kind of this package, by its name."""
    return msgspec.convert({"address": "", "code": "", **_publications()[kind]}, Publication)


@dataclass(frozen=True)
class Preset:
    """Named settings of a model and of its training."""

    model: WindowConfig
    train: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the defaults of `lstr.pipelines.training.config.TrainConfig`"""
    for_little_video: bool = False
    """Whether it is for minutes of video; no kind was published at such sizes"""


@dataclass(frozen=True)
class Kind:
    """A kind of model. `lstr.kinds.KINDS` has them by name."""

    model: type[Model]
    config: type[WindowConfig]
    """Its settings, with its name as the default of `kind`"""
    publication: Publication
    presets: Mapping[str, Preset] = field(default_factory=dict)
    """By name, the published size first"""
    published: Published | None = None
    """How to read checkpoints of its published code; None if there are none"""

    @property
    def name(self) -> str:
        """The name in `--set model.kind=NAME`."""
        return defaults(self.config)["kind"]

    @property
    def uses(self) -> Uses:
        """The parts of a configuration that it uses."""
        return self.config.uses

    @property
    def published_preset(self) -> str | None:
        """The preset with the published settings, or None."""
        return next((name for name, preset in self.presets.items() if not preset.for_little_video), None)

    @property
    def published_size(self) -> WindowConfig:
        """The published configuration, or the defaults if no preset has it."""
        name = self.published_preset
        return self.config() if name is None else self.presets[name].model


class Model(nn.Module, ABC):
    """A model of one kind. A new kind is a subclass with a `Kind`, in a module that `lstr.kinds` names.

    Features enter through layers named `feature_head_work` and `feature_head_long` (`lstr.models.layers.FeatureHead`):
    training folds the mean and variance of the features into them.
    """

    config: WindowConfig
    classifier: nn.Linear
    """The last layer; device and dtype of the model are those of its weight."""
    scoring_rule: ClassVar[ScoringRule | None] = None
    """Which chunks its published code scores; None if there is no such code."""
    plans: ClassVar[type[Planner]]
    """The form of its plans, whose numbers are settings."""

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__()
        self.config = config
        self.n_classes = n_classes

    def outputs(self) -> Outputs:
        """Return the chunks that the N outputs of a window are about: every work slot, then n_ahead chunks after each.

        Override it for other outputs. A kind may add outputs at the end that no part of the loss has and `forward` has
        no logits of: its loss then finds the labels of those chunks in its supervision.
        """
        return every_slot(self.config.work_length, np.arange(1, self.config.n_ahead + 1))

    @abstractmethod
    def forward(self, windows: Windows) -> Any:
        """Return logits (B, N, C) of B windows, for training; a tuple of tensors if `loss` takes more than those."""

    def loss(self, forwarded: Any, windows: Windows, supervision: Supervision) -> Tensor:
        """Return the loss, a scalar, of what `forward` returned, in float32: the weighted cross entropy of each part.

        Override it for another loss, with terms that are sums over these windows divided by the totals of the whole
        batch (`Supervision`).
        """
        return loss_of(forwarded, self.outputs(), supervision)

    def logits_of(self, forwarded: Any) -> Tensor:
        """Return the logits (B, N, C) in what `forward` returned, to compare with the scores of a teacher."""
        return forwarded if isinstance(forwarded, Tensor) else forwarded[0]

    @torch.no_grad()
    def absorb(self, mean: Tensor, std: Tensor) -> None:
        """Accept raw features after training on features less mean (D,) over std (D,): W/σ and b − (W/σ)·μ.

        A kind that keeps features overrides this, to turn those into raw features too.
        """
        heads = (getattr(self, name, None) for name in ("feature_head_long", "feature_head_work"))
        for head in (head for head in heads if head is not None):
            branches = [getattr(head, name)[0] for name in BRANCHES if hasattr(head, name)]
            start = 0
            for layer in branches or [head.input_linear[0]]:
                part = slice(start, start := start + layer.weight.shape[-1])
                shift, scale = (numbers if len(numbers) == 1 else numbers[part] for numbers in (mean, std))
                weight = layer.weight.div_(scale)
                layer.bias.sub_(weight * shift if weight.ndim == 1 else (weight * shift).sum(1))  # FATS has one each

    def prepare(self, features_of: Callable[[int], Tensor], seed: int) -> None:
        """Learn from the training videos what the model needs before its first step; most kinds need nothing.

        `features_of` returns features (N, D) of chunks of a class, as the model is trained on them. Call it once a
        class, in order, so that every process of a run sees the same.
        """

    @abstractmethod
    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        """Return logits (L, 1 + n_ahead, C) of a video with features (L, D), with up to batch_size windows at once.

        `constants` are those of `constants()`, None to compute them.
        """

    def constants(self, packed: bool = True) -> Any:
        """Return what follows from the weights alone, shared by streams and videos; None if nothing does.

        packed: whether weights may be laid out for this processor; an exported step needs them as they are.
        """
        return None

    @abstractmethod
    def begin(self, n_streams: int) -> Tensors:
        """Return tensors of B streams before their first chunk, by name, each (B, ...), whose sizes never change."""

    @property
    def planner(self) -> Planner:
        """What makes its plans, as a value that a file can hold."""
        return self.plans.of(self.config)

    def plan(self, chunks: NDArray[np.int64]) -> Plan:
        """Return what a step needs to know of streams that have seen `chunks` (B,); a stream at 0 starts over.

        The shapes of the arrays follow from B alone. `lstr.windows.plans` explains their names.
        """
        return self.planner(chunks)

    @abstractmethod
    def step(
        self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """Return logits (B, 1 + n_ahead, C) of the next chunk of B streams, features (B, D), and the tensors after it.

        It changes none of its arguments, and no value of a tensor decides which code runs. `plan` is that of `plan` as
        tensors, or what `lstr.windows.plans.needed` leaves of it, with the same result. donate: it may write into the
        memory of `tensors`, to copy less; a tensor that comes back as the same object has then changed, only where the
        same step would write the same values again.
        """

    def advance(self, constants: Any, tensors: Tensors, chunks: NDArray[np.int64], features: Tensor) -> Tensor:
        """Run `step` for streams that have seen `chunks` (B,), change their `tensors` in place, return the logits."""
        plan = as_tensors(needed(self.plan(chunks)), features.device)
        logits, after = self.step(constants, tensors, plan, features, donate=True)
        keep(tensors, after)
        return logits
