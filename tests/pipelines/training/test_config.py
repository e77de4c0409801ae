"""Settings of a training: presets by name, kind and size, and the schedules and the optimiser that they choose."""

import math

import numpy as np
import pytest
import torch
from msgspec import structs

from lstr import kinds
from lstr.config import WindowConfig
from lstr.errors import ConfigError
from lstr.kinds import KINDS, make_model
from lstr.pipelines.training.config import (
    SMALL_SIZES,
    TrainConfig,
    changes_from,
    preset_for,
    preset_named,
    presets,
    resolve,
)
from lstr.pipelines.training.loop import learning_rate, rates
from lstr.pipelines.training.model_run import make_adam

OF_SIZE = {*SMALL_SIZES, "dropout", "groups", "rgb_dim", "flow_dim"}


def test_presets_and_changes():
    model, config = resolve("thumos14", {}, (2048, 1024))
    assert (model.long_length, model.long_stride, model.work_length, model.n0, model.n1) == (2048, 4, 32, 16, 32)
    assert (model.l_enc, model.l_dec, model.n_heads, model.d_model) == (2, 2, 16, 1024)
    assert (config.lr, config.weight_decay, config.epochs, config.batch_size) == (5e-5, 5e-5, 25, 16)
    model, config = resolve("lstr-small", {"model.n0": "4", "train.lr": "0.1"}, (8, 4))
    assert (model.n0, config.lr, model.rgb_dim, model.flow_dim) == (4, 0.1, 8, 4)
    named = {"thumos14", "tvseries", "hacs", "rnn-small", "thumos14-published", "tvseries-published"}
    named |= {"miniroad-thumos14", "miniroad-tvseries", "testra-thumos14", "testra-laplace-thumos14"}
    named |= {"gatehub-thumos14", "oadtr-thumos14", "colar-thumos14", "trn-thumos14"}
    named |= {"cmert-thumos14", "mat-thumos14", "mat-tvseries"}
    assert set(presets()) == set(kinds.presets()) >= named


@pytest.mark.parametrize(
    "changes",
    [{"model.n_head": "4"}, {"train.lr": "much"}, {"lr": "1"}, {"train.windows": "odd"}, {"train.lr": "-1"}]
    + [{"train.patience": "2"}],
    ids=str,
)
def test_settings_that_cannot_be(changes):
    with pytest.raises(ConfigError) as caught:
        resolve("lstr-small", changes, (8, 4))
    assert caught.value.hint


def alone(kind: str) -> tuple[str, WindowConfig, TrainConfig]:
    """Preset, model and training of `--set model.kind=KIND` with minutes of video."""
    name = preset_for(1000, {"model.kind": kind})
    return name, *resolve(name, {"model.kind": kind}, (8, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_alone_is_the_published_one_but_for_its_size(kind):
    name, model, train = alone(kind)
    published = KINDS[kind].published_preset
    plain, training = preset_named(published) if published else (KINDS[kind].config(), TrainConfig())
    own = {field.name for field in structs.fields(model)} - OF_SIZE
    assert {n: getattr(model, n) for n in own} == {n: getattr(plain, n) for n in own}
    assert (train.windows, train.targets, train.ambiguous) == (training.windows, training.targets, training.ambiguous)
    assert name.endswith("small") and changes_from(name, model, train) == {}, "it is no other preset that was changed"
    assert bool(model.n_long) == (KINDS[kind].config.uses.long_memory and kind != "lstr")
    assert sum(p.numel() for p in make_model(model, 4).parameters()) < 2e6


def test_the_default_preset():
    """`lstr-small` for minutes of video, the published size for the hours of THUMOS'14, and that of a kind."""
    assert [preset_for(n) for n in (1200, 14_400, 14_401)] == ["lstr-small", "lstr-small", "thumos14"]
    assert preset_for(1200, kind="rnn") == "rnn-small"
    for settings, small, large in (
        ({"model.kind": "rnn", "model.cell": "gru", "train.lr": "0.1"}, "rnn-small", "thumos14"),
        ({"model.kind": "svm"}, "lstr-small", "thumos14"),
        ({"model.long_length": "64"}, "lstr-small", "thumos14"),
        ({"model.kind": "woad"}, "woad-small", "woad-thumos14"),
    ):
        assert (preset_for(14_400, settings), preset_for(14_401, settings)) == (small, large), settings
    model, train = resolve("cmert-small", {"model.context": "0", "train.windows": "random"}, (8, 4))
    assert (model.context, model.grid, train.windows) == (0, "anchored", "random")
    model, train = resolve("lstr-small", {"model.kind": "cmert"}, (8, 4))
    assert (model.grid, model.context, model.long_length, train.windows) == ("fixed", 0, 64, "random")
    for name in ("svm-small", "cmert", "-small"):
        with pytest.raises(ConfigError) as caught:
            preset_named(name)
        assert caught.value.hint


def test_the_papers_schedule():
    config = TrainConfig(lr=1.0)
    found = [learning_rate(step, 100, config.lr, config.warmup, config.schedule) for step in range(100)]
    assert found[0] == pytest.approx(1 / 40) and found[39] == pytest.approx(1.0) and max(found) == pytest.approx(1.0)
    assert np.allclose(np.diff(found[:40]), 1 / 40)
    assert found[70] == pytest.approx(0.5) and found[-1] < 0.001 and (np.diff(found[40:]) < 0).all()


def published_rate(step, epochs, epoch_steps):
    """The published scheduler steps once when it is made, so the first step of training has its second rate."""
    at, warm = step + 1, 10 * epoch_steps
    rise = min(1, 0.3 * (1 - at / warm) + at / warm)
    return 7e-5 * rise * 0.5 * (1 + math.cos(math.pi * at / (epochs * epoch_steps)))


@pytest.mark.parametrize("epochs", [25, 4])
def test_the_schedule_of_the_published_code(epochs):
    """Peak 4.64e-5 at epoch 8.7, 4.58e-5 at epoch 10 of 25 (measured); the rise takes ten epochs of any number."""
    _, config = resolve("thumos14-published", {"train.epochs": str(epochs)}, (2048, 1024))
    rate = rates(config, 100 * epochs + 3, epoch_steps=100)
    found = [rate(step) for step in range(100 * epochs)]
    np.testing.assert_allclose(found, [published_rate(k, epochs, 100) for k in range(100 * epochs)], rtol=1e-9)
    assert found[0] > 2.1e-5 and found[-1] == 0
    if epochs == 25:
        assert found[999] == pytest.approx(4.58e-5, rel=1e-2) and max(found) == pytest.approx(4.64e-5, rel=1e-3)
        assert np.argmax(found) / 100 == pytest.approx(8.7, abs=0.1)


def test_one_cycle_is_pytorchs_and_tenths_fall_by_epoch():
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
    def ours(name):
        return lambda model: make_adam(model, TrainConfig(lr=0.01, weight_decay=0.5, optimiser=name))

    theirs = weights_after(lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5))
    for weight, found, other in zip(theirs, weights_after(ours("adamw")), weights_after(ours("adam")), strict=True):
        assert torch.allclose(found, weight, rtol=1e-5, atol=1e-7) and not torch.allclose(found, other, rtol=1e-2)
