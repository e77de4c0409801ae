"""The optimiser of models."""

import torch

from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.model_run import make_adam


def weights_after(optimiser_of) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))
    optimiser = optimiser_of(model)
    for _ in range(5):
        optimiser.zero_grad()
        model(torch.randn(4, 5)).square().sum().backward()
        optimiser.step()
    return [*model.parameters()]


def test_decay_that_is_not_part_of_the_gradient_is_adamw():
    """The rate is the one of each step, which a schedule changes."""

    def ours(name):
        return lambda model: make_adam(model, TrainConfig(lr=0.01, weight_decay=0.5, optimiser=name))

    theirs = weights_after(lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5))
    for weight, found, other in zip(theirs, weights_after(ours("adamw")), weights_after(ours("adam")), strict=True):
        assert torch.allclose(found, weight, rtol=1e-5, atol=1e-7) and not torch.allclose(found, other, rtol=1e-2)
