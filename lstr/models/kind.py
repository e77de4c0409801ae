"""What a kind of model is: the methods of every model for training, whole videos and streams, and two bases of kinds.

A step of a stream needs to know its place in time, which is a plan (`lstr.windows.plans`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.layers import Step, Tensors, put, reset_fresh, take
from lstr.models.published import Publication, Published
from lstr.windows import indices as memory
from lstr.windows.plans import Planner, Ring, Slots
from lstr.windows.windows import Outputs, Supervision, Windows, every_slot, loss_of

# The layers of a feature head that has one for each feature, in their order.
BRANCHES = ("visual_linear", "motion_linear")

# Windows of published training: back to back without the rest of a video, or one that ends at each chunk.
TILED: dict[str, Any] = {"windows": "tiled", "tails": False}
EVERY_WINDOW: dict[str, Any] = {"windows": "every", "stride": 1}
# Training by the published code of LSTR, from which TeSTra, MAT and CMeRT started.
PUBLISHED_TRAINING = TILED | dict(lr=7e-5, schedule="published", warmup_epochs=10, long_sampling="stretched")
# For minutes of video.
SMALL_TRAINING: dict[str, Any] = {"epochs": 40, "lr": 5e-4, "weight_decay": 1e-4, "warmup": 0.1, "standardise": True}


@dataclass(frozen=True)
class Preset:
    """Named settings of a model and of its training."""

    model: WindowConfig
    train: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the defaults of `lstr.pipelines.training.config.TrainConfig`"""
    for_little_video: bool = False  # whether it is for minutes of video; no kind was published at such sizes


@dataclass(frozen=True)
class Kind:
    """A kind of model. `lstr.kinds.KINDS` has them by name."""

    model: "type[Model]"
    config: type[WindowConfig]  # its settings, with its name as `kind`
    publication: Publication
    presets: Mapping[str, Preset] = field(default_factory=dict)  # by name, the published size first
    published: Published | None = None  # how to read checkpoints of its published code, if there are any

    @property
    def name(self) -> str:
        """The name in `--set model.kind=NAME`."""
        return self.config.kind

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
    classifier: nn.Linear  # the last layer; its weight has the device and dtype of the model
    scoring_rule: ClassVar[ScoringRule | None] = None  # which chunks its published code scores, if it was published
    plans: ClassVar[type[Planner]]  # the form of its plans; their numbers are settings
    memory_shapes: dict[str, tuple[int, ...]]  # of the tensors that a stream keeps from chunk to chunk, by name

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
                # FATS has one weight for each feature.
                layer.bias.sub_(weight * shift if weight.ndim == 1 else (weight * shift).sum(1))

    def prepare(self, features_of: Callable[[int], Tensor], seed: int) -> None:
        """Prepare the model for its first step by the training videos; most kinds need no preparation.

        `features_of` returns features (N, D) of chunks of a class, as the model is trained on them. Call it once a
        class, in order, so that every process of a run sees the same.
        """

    @abstractmethod
    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        """Return logits (L, 1 + n_ahead, C) of a video with features (L, D), with up to batch_size windows at once.

        `constants` are those of `constants()`, None to compute them.
        """

    def constants(self, packed: bool = True) -> Any:
        """Return what depends on the weights alone, shared by streams and videos; None if the kind has no such part.

        packed: whether weights may be laid out for this processor; an exported step needs them as they are.
        """
        return None

    def begin(self, n_streams: int) -> Tensors:
        """Return tensors of B streams before their first chunk, by name: zeros of `memory_shapes`, each (B, ...)."""
        weight = self.classifier.weight
        return {name: weight.new_zeros(n_streams, *shape) for name, shape in self.memory_shapes.items()}

    @property
    def planner(self) -> Planner:
        """The planner of its streams, as a value that a file can hold."""
        return self.plans.of(self.config)

    @abstractmethod
    def step(self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        """Return logits (B, 1 + n_ahead, C) of the next chunk of B streams, features (B, D), and the tensors after it.

        It changes none of its arguments, and no value of a tensor decides which code runs. `plan` is what `planner`
        returns, as tensors, or what `lstr.windows.plans.needed` leaves of it, with the same result. donate: it may
        write into the memory of `tensors`, to copy less; a tensor that comes back as the same object has then changed,
        only where the same step would write the same values again.
        """


class Windowed(Model):
    """A model whose scores depend on the last `config.work_length` chunks alone.

    A stream keeps a token of each of these chunks: all of a chunk that does not depend on its place in the window. A
    subclass defines tokens (`embed`), the shape (W, E) of `tokens` in its `memory_shapes`, oldest first, with the first
    chunk of a video in slot 0, and the scores of a window of them (`decide`).
    """

    plans = Slots

    @abstractmethod
    def embed(self, features: Tensor) -> Tensor:
        """Return tokens (..., E) of features (..., D)."""

    @abstractmethod
    def decide(self, tokens: Tensor, newest: Tensor, constants: Any) -> Tensor:
        """Return logits (B, 1 + n_ahead, C) at the slots `newest` (B,) of windows of tokens (B, W, E), oldest first.

        Later slots have no effect; `constants` are those of `constants()`.
        """

    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        tokens, constants = self.embed(features), constants or self.constants()  # tokens (L, E)
        rows = []
        for ends in memory.in_pieces(len(features), batch_size):
            chunks, present = (torch.from_numpy(a).to(features.device) for a in memory.work_indices(ends, self.config))
            rows.append(self.decide(tokens[chunks], present.sum(dim=1) - 1, constants))
        return torch.cat(rows)

    def step(self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        kept = reset_fresh(tensors["tokens"], plan.get("fresh"))
        if "full" in plan:
            kept = torch.where(plan["full"][:, None, None], kept.roll(-1, dims=1), kept)
        here = torch.arange(kept.shape[1], device=kept.device) == plan["newest"][:, None]  # (B, W)
        kept = torch.where(here[..., None], self.embed(features)[:, None], kept)
        return self.decide(kept, plan["newest"], constants), {"tokens": kept}


class FixedWindow(Model):
    """A kind whose scores follow from a token of each of the last `config.work_length` chunks, oldest first.

    A video that is younger than the window has rows of zeros before it, as in GateHUB's code; OadTR's and Colar's
    score no such chunk. A subclass has `feature_head_work` and `score`; a stream keeps a ring of tokens.
    """

    feature_head_work: nn.Module
    plans = Ring

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        self.memory_shapes = {"window": (config.work_length, config.d_model)}

    def score(self, kept: Tensor, constants: Any = None) -> Tensor:
        """Return logits (B, 1 + n_ahead, C) of the newest chunk and those ahead from the tokens (B, W, K) of a window.

        constants are those of `constants()`, None to compute them, and then with gradients.
        """
        raise NotImplementedError

    def outputs(self) -> Outputs:
        """Return the newest chunk and the chunks after it."""
        n = 1 + self.config.n_ahead
        return Outputs(np.full(n, -1, dtype=np.int64), np.arange(n))

    def forward(self, windows: Windows) -> Any:
        """Return logits (B, 1 + n_ahead, C)."""
        return self.score(self.feature_head_work(windows.newest_last()))

    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        constants = constants or self.constants()
        W = self.config.work_length
        rows = self.feature_head_work(F.pad(features, (0, 0, W - 1, 0)))  # (W - 1 + L, K)
        windows = rows.unfold(0, W, 1).transpose(1, 2)  # (L, W, K), a view
        return torch.cat([self.score(part, constants) for part in windows.split(batch_size)])

    def step(self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        ring, window = self.take_in(tensors["window"], plan, features, donate)
        return self.score(window, constants), {"window": ring}

    def take_in(self, ring: Tensor, plan: Tensors, features: Tensor, donate: bool) -> tuple[Tensor, Tensor]:
        """Return the ring (B, W, K) with the next chunks, features (B, D), and its windows (B, W, K), oldest first."""
        kept = self.feature_head_work(torch.cat([features, torch.zeros_like(features[:1])]))  # (B + 1, K)
        if "fresh" in plan:
            ring = torch.where(plan["fresh"][:, None, None], kept[-1], ring)
        ring = put(ring, plan["row"], kept[:-1], donate)
        return ring, take(ring, plan["rows"], self.config.work_length)
