"""The exemplars of a Colar, and windows with rows of zeros, on the scale that a model is trained on."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lstr.batch import predict
from lstr.kinds import configure, make_model
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training import model_run
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.loop import learning_rate, rates
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.window_samples import feature_statistics, standardise
from lstr.windows.windows import gather
from tests.support.tiny_models import tiny, unsettled


def videos_of(classes=5, lengths=(60, 40)):
    """Videos whose chunks have one class each, the last of them ambiguous too where it is even."""
    random = np.random.default_rng(0)
    made = []
    for i, length in enumerate(lengths):
        labels = random.integers(0, classes - 2, length)  # the last but one never occurs
        truth = np.eye(classes, dtype=np.uint8)[labels]
        truth[::7, classes - 1] = 1
        rgb, flow = (random.normal(3 * labels[:, None], 2, (length, width)).astype(np.float32) for width in (5, 3))
        made.append(LabelledVideo(str(i), TwoStreamArray(rgb, flow), truth))
    return made


def learner_of(model, videos, standardised):
    statistics = feature_statistics(videos) if standardised else (torch.zeros(1), torch.ones(1))
    mean, std = statistics
    return SimpleNamespace(videos=videos, model=model, config=TrainConfig(), ignore=4, mean=mean, std=std)


@pytest.mark.parametrize("most", [model_run.MAX_CLASS_ROWS, 12])
def test_exemplars_are_chunks_of_their_class_that_are_not_ambiguous(monkeypatch, most):
    monkeypatch.setattr(model_run, "MAX_CLASS_ROWS", most)
    videos, model = videos_of(), tiny(kind="colar", exemplars=4)
    Learner.prepare(learner_of(model, videos, False))
    rows = torch.from_numpy(np.concatenate([video.features[:] for video in videos]))
    truth = torch.from_numpy(np.concatenate([video.targets for video in videos]))
    for label in range(3):
        fit = rows[(truth[:, label] == 1) & (truth[:, 4] == 0)]
        assert all((fit == row).all(dim=1).any() for row in model.exemplars[label])
        assert len(model.exemplars[label].unique(dim=0)) == 4
    assert not model.exemplars[3].any() and not model.exemplars[4].any()
    again = tiny(seed=1, kind="colar", exemplars=4)
    Learner.prepare(learner_of(again, videos, False))
    assert torch.equal(again.exemplars, model.exemplars)
    plain = tiny()
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    Learner.prepare(learner_of(plain, videos, False))  # of no concern to others
    assert all(torch.equal(tensor, before[name]) for name, tensor in plain.state_dict().items())


@pytest.mark.parametrize("kind", ["gatehub", "oadtr", "colar"])
def test_what_was_trained_on_one_scale_says_the_same_of_raw_features(kind):
    """Young windows too, whose absent chunks are rows of zeros on either scale."""
    videos, model = videos_of(), unsettled(tiny(kind=kind))
    learner = learner_of(model, videos, True)
    Learner.prepare(learner)
    windows = gather(videos[0].features, [0, 3, 5, 6, 20, 59], model.config)
    with torch.no_grad():
        trained = model(standardise(windows, learner.mean, learner.std))
        model.absorb(learner.mean, learner.std)
        torch.testing.assert_close(model(windows), trained, atol=2e-5, rtol=1e-4)


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


def test_a_scale_of_features_is_absorbed_by_a_kind_without_a_first_layer():
    """FATS takes features as they come; those it was trained on had been brought to one scale."""
    torch.manual_seed(0)
    model = make_model(configure(kind="fats", rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, generated=2), 4).eval()
    mean, std = torch.randn(8), torch.rand(8) + 0.5
    features = torch.randn(40, 8)
    expected = predict(model, (features - mean) / std)
    model.absorb(mean, std)
    np.testing.assert_allclose(predict(model, features), expected, atol=1e-5)
