"""Windows that a model is trained on: which are drawn, their targets, and the exemplars and scale of features."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lstr.batch import predict
from lstr.errors import ConfigError
from lstr.kinds import configure, make_model
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training import model_run
from lstr.pipelines.training.config import TrainConfig, resolve
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.window_samples import (
    count_steps,
    draw_windows,
    feature_statistics,
    make_targets,
    read_windows,
    standardise,
)
from lstr.windows.windows import Outputs, Part, gather
from tests.support.tiny_models import perturb, tiny


def numbered(length):
    """A video whose chunk k has the features k and the class k % 4."""
    rows = np.arange(length, dtype=np.float32)[:, None]
    return LabelledVideo("v", TwoStreamArray(rows, rows), np.eye(4, dtype=np.uint8)[np.arange(length) % 4])


def test_windows_cover_and_differ_by_epoch():
    videos = [numbered(200), numbered(10)]
    model, config = resolve("lstr-small", {"model.work_length": "32"}, (1, 1))
    first = draw_windows(videos, model, config, 0)
    assert first == draw_windows(videos, model, config, 0) != draw_windows(videos, model, config, 1)
    assert sorted(v for v, _ in first) == [0] * 7 + [1]
    assert all(31 <= end < 200 for v, end in first if v == 0) and (1, 9) in first
    _, tiled = resolve("lstr-small", {"train.windows": "tiled"}, (1, 1))
    ends = sorted(end for v, end in draw_windows(videos, model, tiled, 0) if v == 0)
    assert set(np.diff(ends[:-1])) == {32} and ends[-1] == 199


def test_published_presets_draw_the_windows_of_the_published_loader(shared):
    """6,155 on THUMOS'14, where whole tiles and their ends would be a window a video more (measured)."""
    lengths = [len(np.load(path)) for path in sorted(shared.glob("data/thumos14/target_perframe/*validation*.npy"))]
    if not lengths:
        pytest.skip("no target_perframe of THUMOS'14 in the shared data")
    videos = [SimpleNamespace(features=range(length)) for length in lengths]
    model, config = resolve("thumos14-published", {}, (2048, 1024))
    drawn = [len(draw_windows(videos, model, config, epoch)) for epoch in range(8)]
    assert np.mean(drawn) == pytest.approx(6155, abs=15)
    _, tails = resolve("thumos14-published", {"train.tails": "true"}, (2048, 1024))
    assert len(draw_windows(videos, model, tails, 0)) == pytest.approx(6355, abs=30)
    with pytest.raises(ConfigError, match="32") as caught:  # else a run without an end
        count_steps([numbered(20)], model, config)
    assert "train.tails" in caught.value.hint


def test_stretched_sampling_reaches_the_batch():
    model, _ = resolve("thumos14-published", {}, (1, 1))
    batches = [read_windows([numbered(100)], [(0, 36)], model, stretched) for stretched in (True, False)]
    assert [int(windows.long_mask.sum()) for windows in batches] == [385, 2]


def test_targets_of_the_future():
    """An output about chunk T + h has the target of chunk T + h, or none past the end of the video."""
    model, _ = resolve("lstr-small", {"model.work_length": "4", "model.anticipation": "3"}, (1, 1))
    outputs = Outputs(np.array([0, 1, 2, 3, -1, -1, -1]), np.array([0, 0, 0, 0, 1, 2, 3]))
    drawn = [numbered(20)], [(0, 10), (0, 18), (0, 1)]
    windows, (targets, counts) = read_windows(*drawn, model, False), make_targets(*drawn, model, outputs)
    assert windows.work[0, :, 0].tolist() == [7, 8, 9, 10]
    assert targets.argmax(-1)[0].tolist() == [3, 0, 1, 2, 3, 0, 1] and counts[0].all()
    assert counts[1].tolist() == [True] * 5 + [False] * 2
    assert counts[2].tolist() == [True, True, False, False, True, True, True]
    assert targets.argmax(-1)[2, 4:].tolist() == [2, 3, 0], "the newest is chunk 1, wherever its slot"
    parts = Part(np.array([0, 2])), Part(np.array([1, 3]), 0.5, repeats_last=True)
    outputs = Outputs(np.array([1, -1, -1, 0]), np.array([0, 3, 4, 9]), parts)
    model, _ = resolve("lstr-small", {"model.work_length": "2"}, (1, 1))
    targets, counts = make_targets([numbered(10)], [(0, 8)], model, outputs)
    assert targets.argmax(-1)[0, [0, 1, 3]].tolist() == [0, 1, 1]
    assert counts.tolist() == [[True, True, False, True]]


def test_the_targets_of_a_late_teacher():
    """Its outputs are about what was so many chunks before, as far as its window reaches."""
    model, _ = resolve("lstr-small", {"model.work_length": "6"}, (1, 1))
    outputs = Outputs(np.array([0, 1, 2, 3, 4, 5, -1, -1]), np.array([0] * 6 + [1, -9]))
    targets, counts = make_targets([numbered(20)], [(0, 12), (0, 3)], model, outputs, delay=2)
    assert counts[0].tolist() == [False] * 2 + [True] * 6, "chunks 5 and 6 are before the window"
    assert targets.argmax(-1)[0, 2:].tolist() == [k % 4 for k in (7, 8, 9, 10, 11, 1)]
    assert counts[1].tolist() == [False] * 2 + [True] * 2 + [False] * 2 + [True, False]


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


def prepared(model, videos, mean=0.0, std=1.0):
    """The model after what a training does before its first step."""
    mean, std = torch.as_tensor(mean).reshape(-1), torch.as_tensor(std).reshape(-1)
    Learner.prepare(SimpleNamespace(videos=videos, model=model, config=TrainConfig(), ignore=4, mean=mean, std=std))
    return model


@pytest.mark.parametrize("most", [model_run.MAX_CLASS_ROWS, 12])
def test_exemplars_are_chunks_of_their_class_that_are_not_ambiguous(monkeypatch, most):
    monkeypatch.setattr(model_run, "MAX_CLASS_ROWS", most)
    videos = videos_of()
    model = prepared(tiny(kind="colar", exemplars=4), videos)
    rows = torch.from_numpy(np.concatenate([video.features[:] for video in videos]))
    truth = torch.from_numpy(np.concatenate([video.targets for video in videos]))
    for label in range(3):
        fit = rows[(truth[:, label] == 1) & (truth[:, 4] == 0)]
        assert all((fit == row).all(dim=1).any() for row in model.exemplars[label])
        assert len(model.exemplars[label].unique(dim=0)) == 4
    assert not model.exemplars[3].any() and not model.exemplars[4].any()
    again = prepared(tiny(seed=1, kind="colar", exemplars=4), videos)
    assert torch.equal(again.exemplars, model.exemplars)


@pytest.mark.parametrize("kind", ["gatehub", "oadtr", "colar"])
def test_what_was_trained_on_one_scale_says_the_same_of_raw_features(kind):
    """Young windows too, whose absent chunks are rows of zeros on either scale."""
    videos = videos_of()
    mean, std = feature_statistics(videos)
    model = prepared(perturb(tiny(kind=kind)), videos, mean, std)
    windows = gather(videos[0].features, [0, 3, 5, 6, 20, 59], model.config)
    with torch.no_grad():
        trained = model(standardise(windows, mean, std))
        model.absorb(mean, std)
        torch.testing.assert_close(model(windows), trained, atol=2e-5, rtol=1e-4)


def test_a_scale_of_features_is_absorbed_by_a_kind_without_a_first_layer():
    """FATS takes features as they come; those it was trained on had been brought to one scale."""
    torch.manual_seed(0)
    model = make_model(configure(kind="fats", rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, generated=2), 4).eval()
    mean, std = torch.randn(8), torch.rand(8) + 0.5
    features = torch.randn(40, 8)
    expected = predict(model, (features - mean) / std)
    model.absorb(mean, std)
    np.testing.assert_allclose(predict(model, features), expected, atol=1e-5)
