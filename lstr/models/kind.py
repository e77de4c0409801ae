"""What a kind of model is, and what every model answers: to training, for a whole video's scores, and in a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.errors import ConfigError
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.publication import Publication
from lstr.models.published import Published
from lstr.models.stream import Tensors, as_tensors, keep
from lstr.settings import defaults
from lstr.windows.loss import Supervision, loss_of
from lstr.windows.plan import Plan, Planner, needed
from lstr.windows.windows import Outputs, Windows, every_slot

# The layers of a feature head that has one for each feature, in their order.
BRANCHES = ("visual_linear", "motion_linear")


@dataclass(frozen=True)
class Preset:
    """Settings that have a name: what a model is made of, and how it is trained."""

    model: WindowConfig
    train: Mapping[str, Any] = field(default_factory=dict)
    """What is set otherwise than by default in `lstr.pipelines.training.config.TrainConfig`"""
    for_little_video: bool = False
    """Whether it is for minutes of video; no kind was published at such sizes"""


@dataclass(frozen=True)
class Kind:
    """A kind of model: all that is known of it. `lstr.kinds.KINDS` has them by name."""

    model: type[Model]
    config: type[WindowConfig]
    """Its settings, with its name as the default of `kind`"""
    publication: Publication
    presets: Mapping[str, Preset] = field(default_factory=dict)
    """By name, the published size first"""
    published: Published | None = None
    """How checkpoints of its published code are read; None where there are none"""

    @property
    def name(self) -> str:
        """Like `--set model.kind=NAME` has it."""
        return defaults(self.config)["kind"]

    @property
    def uses(self) -> Uses:
        """What it uses of a configuration."""
        return self.config.uses

    @property
    def published_preset(self) -> str | None:
        """The preset that has the settings it was published with; None without one."""
        return next((name for name, preset in self.presets.items() if not preset.for_little_video), None)

    @property
    def published_size(self) -> WindowConfig:
        """The configuration that it was published with, the defaults where no preset has it."""
        name = self.published_preset
        return self.config() if name is None else self.presets[name].model


class Model(nn.Module, ABC):
    """A model of one kind. A new kind is a subclass, and what `Kind` states of it, in a module that `lstr.kinds` names.

    Features enter through layers named `feature_head_work` and `feature_head_long` (`lstr.models.heads.FeatureHead`):
    training folds the mean and variance of the features into them.
    """

    config: WindowConfig
    classifier: nn.Linear
    """The last layer; the model's device and dtype are those of its weight."""
    scoring_rule: ClassVar[ScoringRule | None] = None
    """Which chunks its published code scores; None where no code says so."""
    plans: ClassVar[type[Planner] | None] = None
    """The form of its plans, whose numbers are settings; None of a kind with a `planner` or a `plan` of its own."""

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__()
        self.config = config
        self.n_classes = n_classes

    def outputs(self) -> Outputs:
        """Which chunks the N outputs of a window are about: every work slot, then for each the n_ahead that follow it.

        A kind whose outputs are others overrides this. After those may come some that no part of the loss has and
        `forward` has no logits of: a kind's loss finds the labels of those chunks in its supervision.
        """
        return every_slot(self.config.work_length, np.arange(1, self.config.n_ahead + 1))

    @abstractmethod
    def forward(self, windows: Windows) -> Any:
        """Logits (B, N, C) of B windows, for training; a tuple of tensors where `loss` takes more than those."""

    def loss(self, forwarded: Any, windows: Windows, supervision: Supervision) -> Tensor:
        """The loss, a scalar, of what `forward` gave of windows, in float32: each part's cross entropy, weighted.

        A kind whose loss is another overrides this, with terms that are sums over these windows divided by what the
        whole batch has (`Supervision`).
        """
        return loss_of(forwarded, self.outputs(), supervision)

    def logits_of(self, forwarded: Any) -> Tensor:
        """The logits (B, N, C) in what `forward` gave, which a teacher's scores are compared with."""
        return forwarded if isinstance(forwarded, Tensor) else forwarded[0]

    @torch.no_grad()
    def absorb(self, mean: Tensor, std: Tensor) -> None:
        """Take raw features from now on, after training on features less mean (D,) over std (D,): W/σ and b − (W/σ)·μ.

        A kind that keeps features overrides this, so that those become raw too.
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
        """Take from the training videos what the model is to know before its first step; of most kinds nothing.

        `features_of` gives features (N, D) of chunks of a class, as the model is trained on them. It is asked once a
        class, in order, so that every process of a run takes the same.
        """

    @abstractmethod
    def video_logits(self, features: Tensor, batch_size: int) -> Tensor:
        """Logits (L, 1 + n_ahead, C) of a video's features (L, D): the definition of the scores.

        batch_size windows are computed together.
        """

    def dense_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        """Like `video_logits`, as fast as this kind can; `constants` are of `constants()`, None to compute them."""
        return self.video_logits(features, batch_size)

    def constants(self) -> Any:
        """What follows from the weights alone, for streams and videos to share; None where nothing does."""
        return None

    def plain_constants(self) -> Any:
        """Like `constants`, with weights and operators that any runtime knows: what a step is exported with."""
        return self.constants()

    @abstractmethod
    def begin(self, n_streams: int) -> Tensors:
        """Tensors of B streams before their first chunk, by name, each (B, ...), of a size that never changes."""

    @property
    def planner(self) -> Planner:
        """What makes its plans, as a value that a file can hold.

        Raises ConfigError for a kind with a `plan` of its own: its streams run, and it cannot be exported.
        """
        if self.plans:
            return self.plans.of(self.config)
        raise ConfigError(
            f"A model of kind {self.config.kind} makes its plans by code of its own, which no file can hold.",
            "Let the kind have a planner of lstr.windows.plan.",
        )

    def plan(self, chunks: NDArray[np.int64]) -> Plan:
        """What a step needs to know of streams that have seen `chunks` (B,); one at 0 begins anew.

        Arrays of shapes that follow from B alone. `lstr.windows.plan` says what their names mean.
        """
        return self.planner(chunks)

    @abstractmethod
    def step(
        self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """Logits (B, 1 + n_ahead, C) of the next chunk of B streams, features (B, D), and their tensors after it.

        It changes nothing that it is given, and looks at no number to choose what to do. `plan` is that of `plan`, as
        tensors, or what `lstr.windows.plan` leaves of it, which gives the same. donate: whether it may write in the
        memory of `tensors`, to copy less; those that come back as the same objects were changed, by nothing that the
        same step would not write again.
        """

    def advance(self, constants: Any, tensors: Tensors, chunks: NDArray[np.int64], features: Tensor) -> Tensor:
        """`step` of streams that have seen `chunks` (B,), whose `tensors` are changed in place: the logits alone."""
        plan = as_tensors(needed(self.plan(chunks)), features.device)
        logits, after = self.step(constants, tensors, plan, features, donate=True)
        keep(tensors, after)
        return logits
