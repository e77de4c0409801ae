"""Several models as one: the geometric mean of their probabilities, each model with its own part of the features.

By the geometric mean a class is likely where no model rules it out; it had a higher mAP than the arithmetic one in all
of 11 averages of models of UT-Interaction and in 8 of 11 of UR Fall.

It is a kind like any other, in streams, for whole videos and in files, but it is put together and never trained.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.errors import ConfigError, brief
from lstr.kinds import from_json, make_model
from lstr.models.kind import Kind, Model
from lstr.models.layers import Step, Tensors, module_list
from lstr.models.published import Publication
from lstr.windows.plans import Joined
from lstr.windows.windows import Windows

# Stretches (first, end) of the joined features, in order; none for all of them.
Columns = tuple[tuple[int, int], ...]
PACK_AGAIN = "make it with `lstr pack` from two or more checkpoints."


@dataclass(frozen=True)
class Member:
    """One of the models, and the columns of the joined features that it takes."""

    config: WindowConfig
    columns: Columns = ()


class AverageConfig(WindowConfig, frozen=True):
    """The members of an average. Lengths and d_model are the largest of its members, `anticipation` is the smallest."""

    uses: ClassVar[Uses] = Uses(anticipation=True, heads=False)

    kind = "average"
    members: tuple[Any, ...] = ()  # each a `Member`, or its JSON object

    def __post_init__(self) -> None:
        members: list[Member] = []
        for value in self.members:
            try:
                if not isinstance(value, Member):
                    found = msgspec.convert(value, dict[str, Any])
                    columns = msgspec.convert(found.get("columns", ()), Columns)
                    value = Member(from_json(json.dumps(found["config"])), columns)
            except (ValueError, LookupError, TypeError) as error:
                raise ConfigError(f"{brief(value)} is not a member of an average.", PACK_AGAIN) from error
            members.append(value)
        if not members:
            raise ConfigError("An average has no members.", PACK_AGAIN)
        configs = [member.config for member in members]
        stride = max(config.long_stride for config in configs)
        longest = max(config.long_length if config.n_long else 0 for config in configs)
        derived = {
            "members": tuple(members),
            "d_model": max(config.d_model for config in configs),
            "work_length": max(config.work_length for config in configs),
            "long_stride": stride,
            "long_length": stride * math.ceil(longest / stride),
            "anticipation": min(config.n_ahead for config in configs),
        }
        for name, value in derived.items():
            msgspec.structs.force_setattr(self, name, value)
        super().__post_init__()
        for member in self.members:
            columns = member.columns
            width = sum(end - first for first, end in columns) if columns else self.input_dim
            edges = [0, *(edge for pair in columns for edge in pair), self.input_dim]
            in_order = edges == sorted(edges) and all(first < end for first, end in columns)
            if isinstance(member.config, AverageConfig) or width != member.config.input_dim or not in_order:
                sentence = f"A member of kind {member.config.kind} cannot take columns {columns} of {self.input_dim}."
                raise ConfigError(sentence, PACK_AGAIN)

    def to_dict(self) -> dict[str, Any]:
        members = [{"config": m.config.to_dict(), "columns": [*map(list, m.columns)]} for m in self.members]
        return {**super().to_dict(), "members": members}


class Average(Model):
    """The mean of its members' probabilities; its logits are the logarithm of the mean, up to a constant."""

    config: AverageConfig

    def __init__(self, config: AverageConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        models = (make_model(member.config, n_classes) for member in config.members)
        self.members: Sequence[Model] = module_list(models)

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]
        """The classifier of the first member; all members have the same device and dtype."""
        return self.members[0].classifier

    def forward(self, windows: Windows) -> Any:
        """Raise ConfigError: only the members can be trained."""
        raise ConfigError("An average cannot be trained.", PACK_AGAIN)

    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        each = zip(self.members, self._parts(features), constants or [None] * len(self.members), strict=True)
        return self._mean([model.video_logits(part, batch_size, own) for model, part, own in each])

    def constants(self, packed: bool = True) -> Any:
        """Return the constants of each member."""
        return [model.constants(packed) for model in self.members]

    def begin(self, n_streams: int) -> Tensors:
        """Return the tensors of each member, named NUMBER/NAME."""
        each = enumerate(model.begin(n_streams) for model in self.members)
        return {f"{at}/{name}": tensor for at, tensors in each for name, tensor in tensors.items()}

    @property
    def planner(self) -> Joined:
        # a plan that files do not know raises an error when it is written
        return Joined(tuple(model.planner for model in self.members))  # type: ignore[misc]

    def step(self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        logits, after = [], Tensors()
        for at, (model, part) in enumerate(zip(self.members, self._parts(features), strict=True)):
            prefix = f"{at}/"
            own, own_plan = (
                {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
                for values in (tensors, plan)
            )
            found, own = model.step(constants[at], own, own_plan, part, donate)
            logits.append(found)
            after |= {f"{prefix}{name}": tensor for name, tensor in own.items()}
        return self._mean(logits), after

    def _parts(self, features: Tensor) -> Iterator[Tensor]:
        """Yield each member's columns of features (N, D)."""
        for member in self.config.members:
            parts = [features[:, first:end] for first, end in member.columns]
            yield torch.cat(parts, 1) if parts else features

    def _mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Return logits of the mean, of logits (N, 1 + n_ahead or more, C) of each member."""
        ahead = 1 + self.config.n_ahead
        return torch.stack([part[:, :ahead].float().log_softmax(-1) for part in logits]).mean(0)


def mean_of(scores: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the geometric mean (L, C), of sum 1, of the probabilities (L, C) of several models."""
    logarithms = np.log(np.maximum(scores, np.finfo(np.float32).tiny))  # (M, L, C)
    mean = np.exp(logarithms.mean(0))
    shared: NDArray[np.float32] = mean / mean.sum(-1, keepdims=True)
    return shared


def average(models: Sequence[Model], columns: Sequence[Columns], rgb_dim: int, flow_dim: int) -> Average:
    """Return a model that is the geometric mean of trained ones, in eval mode; the joined features are rgb, then flow.

    columns: what each sees of them. Raises ConfigError where they do not fit together.
    """
    members = tuple(Member(model.config, seen) for model, seen in zip(models, columns, strict=True))
    if len({model.n_classes for model in models}) != 1:
        raise ConfigError("The models score different numbers of classes.", "average models of the same classes.")
    config = AverageConfig(members=members, rgb_dim=rgb_dim, flow_dim=flow_dim)
    made = Average(config, models[0].n_classes)
    for own, model in zip(made.members, models, strict=True):
        own.load_state_dict(model.state_dict())
    return made.eval()


KIND = Kind(
    Average,
    AverageConfig,
    Publication("Average", "The mean of several models' scores, no paper", "", "", "", "of models of any kinds"),
)
