"""Presets by name, kind and size, schedules of the learning rate, and optimisers."""

import numpy as np
import pytest
import torch

from lstr.errors import ConfigError
from lstr.pipelines.training.config import SMALL_SIZES, TrainConfig, learning_rate, preset_for, presets, rates, resolve
from lstr.pipelines.training.model_run import make_adam

SIZES = {*SMALL_SIZES, "dropout", "groups", "rgb_dim", "flow_dim"}
NAMES = "thumos14 tvseries hacs rnn-small thumos14-published tvseries-published miniroad-thumos14 miniroad-tvseries"
NAMES += " testra-thumos14 testra-laplace-thumos14 gatehub-thumos14 oadtr-thumos14 colar-thumos14 trn-thumos14"
NAMES += " cmert-thumos14 mat-thumos14 mat-tvseries"


def test_presets_and_changes():
    model, config = resolve("thumos14", {}, (2048, 1024))
    assert (model.long_length, model.long_stride, model.work_length, model.n0, model.n1) == (2048, 4, 32, 16, 32)
    assert (model.l_enc, model.l_dec, model.n_heads, model.d_model) == (2, 2, 16, 1024)
    assert (config.lr, config.weight_decay, config.epochs, config.batch_size) == (5e-5, 5e-5, 25, 16)
    model, config = resolve("lstr-small", {"model.n0": "4", "train.lr": "0.1"}, (8, 4))
    assert (model.n0, config.lr, model.rgb_dim, model.flow_dim) == (4, 0.1, 8, 4)
    model, train = resolve("cmert-small", {"model.context": "0", "train.windows": "random"}, (8, 4))
    assert (model.context, model.grid, train.windows) == (0, "anchored", "random")
    model, train = resolve("lstr-small", {"model.kind": "cmert"}, (8, 4))
    assert (model.grid, model.context, model.long_length, train.windows) == ("fixed", 0, 64, "random")
    assert set(presets()) >= {*NAMES.split()}


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        *(("lstr-small", {name: "-1"}) for name in ("model.n_head", "lr", "train.windows", "train.lr")),
        ("lstr-small", {"train.patience": "2"}),
        *((name, {}) for name in ("svm-small", "cmert", "-small")),
    ],
)
def test_unknown_presets_and_invalid_settings_are_refused(preset, changes):
    with pytest.raises(ConfigError):
        resolve(preset, changes, (8, 4))


@pytest.mark.parametrize(
    ("kind", "small", "large"),
    [("rnn", "rnn-small", "thumos14"), ("woad", "woad-small", "woad-thumos14"), ("svm", "lstr-small", "thumos14")],
)
def test_the_default_preset_is_small_up_to_an_hour(kind, small, large):
    assert [preset_for(n, {"model.kind": kind}) for n in (1200, 14_400, 14_401)] == [small, small, large]
    assert preset_for(1200, kind=kind) == small and preset_for(1200) == "lstr-small"


def test_the_papers_schedule():
    config = TrainConfig(lr=1.0)
    lrs = [learning_rate(step, 100, config.lr, config.warmup, config.schedule) for step in range(100)]
    assert lrs[0] == pytest.approx(1 / 40) and lrs[39] == pytest.approx(1.0) and max(lrs) == pytest.approx(1.0)
    assert np.allclose(np.diff(lrs[:40]), 1 / 40)
    assert lrs[70] == pytest.approx(0.5) and lrs[-1] < 0.001 and (np.diff(lrs[40:]) < 0).all()


@pytest.mark.parametrize("epochs", [25, 4])
def test_the_schedule_of_the_published_code(epochs):
    """Its peak is 4.64e-5 at epoch 8.7, and 4.58e-5 at epoch 10 of 25 (measured); the rise always takes ten epochs."""
    _, config = resolve("thumos14-published", {"train.epochs": str(epochs)}, (2048, 1024))
    rate = rates(config, 100 * epochs + 3, epoch_steps=100)
    lrs = [rate(step) for step in range(100 * epochs)]
    at = np.arange(1, 100 * epochs + 1) / 100  # the published scheduler skips its first value
    rise = np.minimum(1, 0.3 * (1 - at / 10) + at / 10)
    np.testing.assert_allclose(lrs, 7e-5 * rise * 0.5 * (1 + np.cos(np.pi * at / epochs)), rtol=1e-9, atol=1e-20)
    assert lrs[0] > 2.1e-5 and lrs[-1] == 0
    if epochs == 25:
        assert lrs[999] == pytest.approx(4.58e-5, rel=1e-2) and max(lrs) == pytest.approx(4.64e-5, rel=1e-3)
        assert np.argmax(lrs) / 100 == pytest.approx(8.7, abs=0.1)


def test_onecycle_equals_pytorch_and_tenths_fall_by_epoch():
    optimiser = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=1.2e-4, total_steps=41, pct_start=0.25)
    for step in range(41):
        assert learning_rate(step, 41, 1.2e-4, 0.25, "onecycle") == pytest.approx(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if step < 40:
            schedule.step()
    assert learning_rate(0, 1, 1.0, 0.25, "onecycle") > 0
    tenths = rates(TrainConfig(lr=1e-4, schedule="tenths"), 9, 3)
    assert [tenths(step) for step in range(9)] == pytest.approx([1e-4] * 3 + [1e-5] * 3 + [1e-6] * 3)


def test_adamw_equals_pytorch_and_differs_from_adam():
    def train(make_optimiser, **settings):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))
        optimiser = make_optimiser(model, **settings)
        for _ in range(5):
            optimiser.zero_grad()
            model(torch.randn(4, 5)).square().sum().backward()
            optimiser.step()
        return [*model.parameters()]

    expected = train(lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5))
    adamw, adam = (
        train(make_adam, config=TrainConfig(lr=0.01, weight_decay=0.5, optimiser=name)) for name in ("adamw", "adam")
    )
    for weight, ours, other in zip(expected, adamw, adam, strict=True):
        assert torch.allclose(ours, weight, rtol=1e-5, atol=1e-7) and not torch.allclose(ours, other, rtol=1e-2)
