"""Windows, targets and steps of a training."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lstr.errors import ConfigError
from lstr.kinds import change, configure
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training import model_run, ranks
from lstr.pipelines.training import window_samples as samples
from lstr.pipelines.training.config import TrainConfig, resolve
from lstr.pipelines.training.model_run import Learner
from lstr.windows.windows import Outputs, Part, Supervision, gather
from tests.support.tiny_models import TINY, perturb, tiny

MODEL, CPU, CLASSES = configure(**TINY, long_stride=2), torch.device("cpu"), tuple("abcd")


def videos(dtype=np.float16) -> list[LabelledVideo]:
    """Make a video longer than all memories, one shorter than the work memory, and one between."""
    random, result = np.random.default_rng(0), []
    for n, length in enumerate((700, 3, 20)):
        rgb, flow = (random.normal(1, 2, (length, width)).astype(dtype) for width in (5, 3))
        targets = (random.random((length, 4)) < 0.3).astype(np.uint8)
        result.append(LabelledVideo(f"video {n}", TwoStreamArray(rgb, flow), targets))
    return result


@pytest.mark.parametrize(
    "changes",
    [{}, {"gru": True, "anticipation": 2}, {"positions": "distance", "grid": "fixed"}]
    + [{"long_length": 0}, {"kind": "cmert", "context": 2}],
    ids=str,
)
@pytest.mark.parametrize(("sampling", "dtype"), [("consistent", np.float16), ("stretched", np.float32)])
def test_windows_of_features_in_memory_equal_those_read_from_files(changes, sampling, dtype, monkeypatch):
    model, train = change(MODEL, changes), TrainConfig(batch_size=7, accumulate=2, long_sampling=sampling)
    data = videos(dtype)
    from_files, in_memory = (Learner(data, CLASSES, model, train) for _ in range(2))
    in_memory.kept = samples.InMemoryFeatures(data, CPU)
    assert in_memory.kept.rows.dtype == torch.from_numpy(np.zeros(1, dtype)).dtype
    drawn = samples.draw_windows(data, model, train, 0)
    for rank, size in ((0, 1), (1, 2)):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(ranks, "world_size", lambda size=size: size)
        for at in range(0, len(drawn), 7):
            batch, expected = (learner.make_batch(drawn[at : at + 7]) for learner in (in_memory, from_files))
            assert batch.videos == expected.videos and len(batch.pieces) == len(expected.pieces) > 0
            for a, b in zip(batch.pieces, expected.pieces, strict=True):
                for ours, theirs in zip(in_memory.move(a), from_files.move(b), strict=True):
                    for name, tensor in vars(theirs).items():
                        assert tensor is None or torch.equal(getattr(ours, name), tensor), name
    batch = from_files.make_batch([(0, 30)])  # the second of two processes has no window of it
    assert batch.n_windows == 1 and batch.videos == [] and not batch.pieces[0][1].counts.any()


@pytest.mark.parametrize(
    "changes",
    [{}, {"kind": "rnn"}, {"kind": "lfb"}, {"grid": "fixed"}]
    + [{"kind": "cmert", "context": 2}, {"kind": "mat", "groups": 2}],
    ids=str,
)
def test_a_step_never_reads_values_of_tensors(changes):
    """Reading a value waits for the GPU. Meta tensors have no values, so that reading one raises."""
    data = videos()
    learner = Learner(data, CLASSES, change(MODEL, changes), TrainConfig())
    learner.kept = samples.InMemoryFeatures(data, CPU)
    model, outputs = learner.model, learner.outputs
    (piece,) = learner.make_batch([(0, 40), (2, 5)]).pieces
    windows, supervision = learner.move(piece)
    meta = torch.device("meta")
    windows = replace(windows, long_mask=samples.hide_slots(windows, 0.5).long_mask).map(lambda tensor: tensor.to(meta))
    logits = model.to(meta)(windows)
    targets, counts = supervision.targets.to(meta), supervision.counts.to(meta)
    known = Supervision(targets, counts, 2, [5.0 for _ in outputs.parts], 2.0)
    loss = model.loss(logits, windows, known)
    loss.backward()
    assert loss.device == meta and loss.shape == ()


@pytest.mark.gpu
def test_a_gpu_trains_alike_on_features_in_its_memory():
    """Steps with features on the GPU and with features that are read are equal up to rounding."""
    data, losses = videos(), []
    drawn = samples.draw_windows(data, MODEL, TrainConfig(), 0)
    for features in (None, samples.InMemoryFeatures(data, torch.device("cuda"))):
        learner = Learner(data, CLASSES, MODEL, TrainConfig(lr=1e-3), device="cuda")
        learner.kept = features
        losses.append([learner.step(learner.make_batch(drawn[:16]), number, 1e-3)[0] for number in range(5)])
    np.testing.assert_allclose(*losses, rtol=1e-3)


def numbered(length):
    """Make a video whose chunk k has the features k and the class k % 4."""
    rows = np.arange(length, dtype=np.float32)[:, None]
    return LabelledVideo("v", TwoStreamArray(rows, rows), np.eye(4, dtype=np.uint8)[np.arange(length) % 4])


def test_windows_cover_the_videos_and_differ_by_epoch():
    videos = [numbered(200), numbered(10)]
    model, config = resolve("lstr-small", {"model.work_length": "32"}, (1, 1))
    first = samples.draw_windows(videos, model, config, 0)
    assert first == samples.draw_windows(videos, model, config, 0) != samples.draw_windows(videos, model, config, 1)
    assert sorted(v for v, _ in first) == [0] * 7 + [1]
    assert all(31 <= end < 200 for v, end in first if v == 0) and (1, 9) in first
    _, tiled = resolve("lstr-small", {"train.windows": "tiled"}, (1, 1))
    ends = sorted(end for v, end in samples.draw_windows(videos, model, tiled, 0) if v == 0)
    assert set(np.diff(ends[:-1])) == {32} and ends[-1] == 199


def test_published_presets_draw_as_many_windows_as_the_published_loader(shared):
    """6,155 on THUMOS'14 (measured); with the ends of videos there is one more per video."""
    lengths = [len(np.load(path)) for path in sorted(shared.glob("data/thumos14/target_perframe/*validation*.npy"))]
    if not lengths:
        pytest.skip("no target_perframe of THUMOS'14 in the shared data")
    videos = [SimpleNamespace(features=range(length)) for length in lengths]
    model, config = resolve("thumos14-published", {}, (2048, 1024))
    drawn = [len(samples.draw_windows(videos, model, config, epoch)) for epoch in range(8)]
    assert np.mean(drawn) == pytest.approx(6155, abs=15)
    _, tails = resolve("thumos14-published", {"train.tails": "true"}, (2048, 1024))
    assert len(samples.draw_windows(videos, model, tails, 0)) == pytest.approx(6355, abs=30)
    with pytest.raises(ConfigError, match="32"):  # otherwise the run would never end
        samples.count_steps([numbered(20)], model, config)


def test_targets_of_the_future_and_of_starts():
    """An output about chunk T + h has its target, or none past the end; an action starts with one half, if asked."""
    model, _ = resolve("lstr-small", {"model.work_length": "4", "model.anticipation": "3"}, (1, 1))
    outputs = Outputs(np.array([0, 1, 2, 3, -1, -1, -1]), np.array([0, 0, 0, 0, 1, 2, 3]))
    drawn = [numbered(20)], [(0, 10), (0, 18), (0, 1)]
    assert samples.read_windows(*drawn, model, False).work[0, :, 0].tolist() == [7, 8, 9, 10]
    targets, counts = samples.make_targets(*drawn, model, outputs)
    assert targets.argmax(-1)[0].tolist() == [3, 0, 1, 2, 3, 0, 1] and counts[0].all()
    assert counts[1].tolist() == [True] * 5 + [False] * 2
    assert counts[2].tolist() == [True, True, False, False, True, True, True]
    assert targets.argmax(-1)[2, 4:].tolist() == [2, 3, 0], "the latest chunk is 1, in any slot"
    parts = Part(np.array([0, 2])), Part(np.array([1, 3]), 0.5, repeats_last=True)
    outputs = Outputs(np.array([1, -1, -1, 0]), np.array([0, 3, 4, 9]), parts)
    model, _ = resolve("lstr-small", {"model.work_length": "2"}, (1, 1))
    targets, counts = samples.make_targets([numbered(10)], [(0, 8)], model, outputs)
    assert targets.argmax(-1)[0, [0, 1, 3]].tolist() == [0, 1, 1]
    assert counts.tolist() == [[True, True, False, True]]
    truth = np.array([[0, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1], [0, 0, 1]], np.uint8)
    assert samples.with_soft_starts(truth).tolist() == [[0, 1, 0], [0, 1, 0.5], [1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]]


def prepared(model, data, mean=0.0, std=1.0):
    """Prepare the model as before the first step of a training in which the last class is ambiguous."""
    mean, std = torch.as_tensor(mean).reshape(-1), torch.as_tensor(std).reshape(-1)
    Learner.prepare(SimpleNamespace(videos=data, model=model, config=TrainConfig(), ignore=3, mean=mean, std=std))
    return model


@pytest.mark.parametrize("max_rows", [model_run.MAX_CLASS_ROWS, 12])
def test_exemplars_are_unambiguous_chunks_of_their_class(monkeypatch, max_rows):
    monkeypatch.setattr(model_run, "MAX_CLASS_ROWS", max_rows)
    data = videos(np.float32)
    for video in data:
        video.targets[:, 2] = 0
    model = prepared(tiny(n_classes=4, kind="colar", exemplars=4), data)
    rows = torch.from_numpy(np.concatenate([video.features[:] for video in data]))
    truth = torch.from_numpy(np.concatenate([video.targets for video in data]))
    for label in range(2):
        fit = rows[(truth[:, label] == 1) & (truth[:, 3] == 0)]
        assert all((fit == row).all(dim=1).any() for row in model.exemplars[label])
        assert len(model.exemplars[label].unique(dim=0)) == 4
    assert not model.exemplars[2].any() and not model.exemplars[3].any()
    repeated = prepared(tiny(seed=1, n_classes=4, kind="colar", exemplars=4), data)
    assert torch.equal(repeated.exemplars, model.exemplars)


@pytest.mark.parametrize("kind", ["gatehub", "oadtr", "colar"])
def test_a_model_trained_on_standardised_features_gives_equal_scores_for_raw_features(kind):
    """Also for windows at the start of a video, whose missing chunks are zeros on both scales."""
    data = videos(np.float32)
    mean, std = samples.feature_statistics(data)
    model = prepared(perturb(tiny(n_classes=4, kind=kind)), data, mean, std)
    windows = gather(data[0].features, [0, 3, 5, 6, 20, 59], model.config)
    with torch.no_grad():
        trained = model(samples.standardise(windows, mean, std))
        model.absorb(mean, std)
        torch.testing.assert_close(model(windows), trained, atol=2e-5, rtol=1e-4)
