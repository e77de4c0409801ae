"""Training windows: draws, targets, exemplars and scale of features."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lstr.errors import ConfigError
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
    """Make a video whose chunk k has the features k and the class k % 4."""
    rows = np.arange(length, dtype=np.float32)[:, None]
    return LabelledVideo("v", TwoStreamArray(rows, rows), np.eye(4, dtype=np.uint8)[np.arange(length) % 4])


def test_windows_cover_the_videos_and_differ_by_epoch():
    videos = [numbered(200), numbered(10)]
    model, config = resolve("lstr-small", {"model.work_length": "32"}, (1, 1))
    first = draw_windows(videos, model, config, 0)
    assert first == draw_windows(videos, model, config, 0) != draw_windows(videos, model, config, 1)
    assert sorted(v for v, _ in first) == [0] * 7 + [1]
    assert all(31 <= end < 200 for v, end in first if v == 0) and (1, 9) in first
    _, tiled = resolve("lstr-small", {"train.windows": "tiled"}, (1, 1))
    ends = sorted(end for v, end in draw_windows(videos, model, tiled, 0) if v == 0)
    assert set(np.diff(ends[:-1])) == {32} and ends[-1] == 199


def test_published_presets_draw_as_many_windows_as_the_published_loader(shared):
    """6,155 on THUMOS'14 (measured); with the ends of videos there is one more per video."""
    lengths = [len(np.load(path)) for path in sorted(shared.glob("data/thumos14/target_perframe/*validation*.npy"))]
    if not lengths:
        pytest.skip("no target_perframe of THUMOS'14 in the shared data")
    videos = [SimpleNamespace(features=range(length)) for length in lengths]
    model, config = resolve("thumos14-published", {}, (2048, 1024))
    drawn = [len(draw_windows(videos, model, config, epoch)) for epoch in range(8)]
    assert np.mean(drawn) == pytest.approx(6155, abs=15)
    _, tails = resolve("thumos14-published", {"train.tails": "true"}, (2048, 1024))
    assert len(draw_windows(videos, model, tails, 0)) == pytest.approx(6355, abs=30)
    with pytest.raises(ConfigError, match="32") as caught:  # otherwise the run would never end
        count_steps([numbered(20)], model, config)
    assert "train.tails" in caught.value.hint


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
    assert targets.argmax(-1)[2, 4:].tolist() == [2, 3, 0], "the latest chunk is 1, in any slot"
    parts = Part(np.array([0, 2])), Part(np.array([1, 3]), 0.5, repeats_last=True)
    outputs = Outputs(np.array([1, -1, -1, 0]), np.array([0, 3, 4, 9]), parts)
    model, _ = resolve("lstr-small", {"model.work_length": "2"}, (1, 1))
    targets, counts = make_targets([numbered(10)], [(0, 8)], model, outputs)
    assert targets.argmax(-1)[0, [0, 1, 3]].tolist() == [0, 1, 1]
    assert counts.tolist() == [[True, True, False, True]]


def test_targets_of_a_teacher_are_earlier_chunks_in_its_window():
    model, _ = resolve("lstr-small", {"model.work_length": "6"}, (1, 1))
    outputs = Outputs(np.array([0, 1, 2, 3, 4, 5, -1, -1]), np.array([0] * 6 + [1, -9]))
    targets, counts = make_targets([numbered(20)], [(0, 12), (0, 3)], model, outputs, delay=2)
    assert counts[0].tolist() == [False] * 2 + [True] * 6, "chunks 5 and 6 are before the window"
    assert targets.argmax(-1)[0, 2:].tolist() == [k % 4 for k in (7, 8, 9, 10, 11, 1)]
    assert counts[1].tolist() == [False] * 2 + [True] * 2 + [False] * 2 + [True, False]


def videos_of_classes(n_classes=5, lengths=(60, 40)):
    """Make videos whose chunks have one class each, and each seventh is ambiguous too (the last class)."""
    random, videos = np.random.default_rng(0), []
    for i, length in enumerate(lengths):
        labels = random.integers(0, n_classes - 2, length)  # the last but one never occurs
        truth = np.eye(n_classes, dtype=np.uint8)[labels]
        truth[::7, n_classes - 1] = 1
        rgb, flow = (random.normal(3 * labels[:, None], 2, (length, width)).astype(np.float32) for width in (5, 3))
        videos.append(LabelledVideo(str(i), TwoStreamArray(rgb, flow), truth))
    return videos


def prepared(model, videos, mean=0.0, std=1.0):
    """Prepare the model as before the first step of a training."""
    mean, std = torch.as_tensor(mean).reshape(-1), torch.as_tensor(std).reshape(-1)
    Learner.prepare(SimpleNamespace(videos=videos, model=model, config=TrainConfig(), ignore=4, mean=mean, std=std))
    return model


@pytest.mark.parametrize("max_rows", [model_run.MAX_CLASS_ROWS, 12])
def test_exemplars_are_unambiguous_chunks_of_their_class(monkeypatch, max_rows):
    monkeypatch.setattr(model_run, "MAX_CLASS_ROWS", max_rows)
    videos = videos_of_classes()
    model = prepared(tiny(kind="colar", exemplars=4), videos)
    rows = torch.from_numpy(np.concatenate([video.features[:] for video in videos]))
    truth = torch.from_numpy(np.concatenate([video.targets for video in videos]))
    for label in range(3):
        fit = rows[(truth[:, label] == 1) & (truth[:, 4] == 0)]
        assert all((fit == row).all(dim=1).any() for row in model.exemplars[label])
        assert len(model.exemplars[label].unique(dim=0)) == 4
    assert not model.exemplars[3].any() and not model.exemplars[4].any()
    repeated = prepared(tiny(seed=1, kind="colar", exemplars=4), videos)
    assert torch.equal(repeated.exemplars, model.exemplars)


@pytest.mark.parametrize("kind", ["gatehub", "oadtr", "colar"])
def test_a_model_trained_on_standardised_features_gives_equal_scores_for_raw_features(kind):
    """Also for windows at the start of a video, whose missing chunks are zeros on both scales."""
    videos = videos_of_classes()
    mean, std = feature_statistics(videos)
    model = prepared(perturb(tiny(kind=kind)), videos, mean, std)
    windows = gather(videos[0].features, [0, 3, 5, 6, 20, 59], model.config)
    with torch.no_grad():
        trained = model(standardise(windows, mean, std))
        model.absorb(mean, std)
        torch.testing.assert_close(model(windows), trained, atol=2e-5, rtol=1e-4)
