"""The moving average of a network's weights while it trains, which is less noisy than those of any one step."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """The average of a model's weights and statistics. `tensors` are its state, for files."""

    def __init__(self, model: nn.Module, decay: float):
        self.model, self.decay = model, decay
        self.tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def add(self, step: int) -> None:
        """Count the weights after a step (from 0), the first ones more: of few steps an average is of few."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, tensor in self.model.state_dict().items():
            kept = self.tensors[name]
            if kept.is_floating_point():
                kept.lerp_(tensor, 1 - decay)
            else:
                kept.copy_(tensor)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from a state of before."""
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The average in the model, for a while."""
        last = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(self.tensors)
        try:
            yield
        finally:
            self.model.load_state_dict(last)
