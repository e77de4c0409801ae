"""The optimiser of training."""

import torch

from lstr.pipelines.training.learner import Adam, Average


def weights_after(optimiser_of, **decay: float) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))
    optimiser = optimiser_of(model.parameters(), lr=0.01, fused=True, **decay)
    for _ in range(5):
        optimiser.zero_grad()
        model(torch.randn(4, 5)).square().sum().backward()
        optimiser.step()
    return [*model.parameters()]


def test_it_steps_as_the_one_of_pytorch_to_the_bit():
    theirs = weights_after(torch.optim.Adam, weight_decay=0.1)
    for ours, weight in zip(weights_after(Adam, weight_decay=0.1), theirs, strict=True):
        assert torch.equal(ours, weight)


def test_decay_apart_from_the_gradient_is_adamw():
    theirs, plain = weights_after(torch.optim.AdamW, weight_decay=0.5), weights_after(Adam, weight_decay=0.5)
    for ours, weight, other in zip(weights_after(Adam, apart=0.5), theirs, plain, strict=True):
        assert torch.allclose(ours, weight, rtol=1e-5, atol=1e-7) and not torch.allclose(ours, other, rtol=1e-2)


def test_an_average_is_what_it_was_and_a_little_of_what_is_new():
    model = torch.nn.Linear(3, 2)
    average = Average(model, 0.9)
    expected = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for number in range(4):
        with torch.no_grad():
            model.weight.fill_(number)
        average.update(model)
        for name, parameter in model.named_parameters():
            expected[name] = 0.9 * expected[name] + 0.1 * parameter.detach()
    for name, tensor in average.tensors.items():
        torch.testing.assert_close(tensor, expected[name])
