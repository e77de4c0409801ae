"""Every kind and design is trained, evaluated and run on a stream by the same commands."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lstr.checkpoint import load
from lstr.errors import CheckpointError, ConfigError
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray, read_split
from lstr.pipelines.progress import result_of
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.loop import rates
from lstr.pipelines.training.train import Task, train_model
from lstr.pipelines.training.window_samples import count_steps, draw_windows, make_targets, read_windows
from lstr.windows.windows import Outputs, Part
from tests.support.detections import decisions_of, run_recorded, sources_of

TINY = {"model.d_model": "16", "model.n_heads": "2", "model.d_feedforward": "16", "model.long_length": "16"}
TINY |= {"train.epochs": "2"}
DESIGNS = [
    {"kind": "miniroad"},
    {"kind": "testra", "grid": "anchored", "decay": "0.9", "anticipation": "2"},
    {"kind": "cmert", "grid": "anchored", "context": "2", "anticipation": "2"},
    {"kind": "mat", "grid": "sliding", "anticipation": "2"},
    {"kind": "rnn", "cell": "gru"},
    {"kind": "trn", "shared_classifier": "true", "decoder_from": "0", "d_token": "8"},
    {"kind": "gatehub", "work_length": "4"},
    {"kind": "oadtr", "anticipation": "2", "decoder_heads": "4", "decoder_feedforward": "8"},
    {"kind": "colar", "exemplars": "3"},
    {"kind": "lfb"},
    {"kind": "woad", "supervision": "video"},
    *({"kind": kind} for kind in ("idn", "fats", "efc", "ed", "red", "ttm", "lap-like", "tfn-like", "conv-deconv")),
    {"encoder": "joined"},
    {"integration": "average"},
    {"long_length": "0", "gru": "true"},
    {"anticipation": "8"},
    {"flow_dim": "0"},
]


@pytest.fixture
def split(small_set):
    return read_split(small_set.features, small_set.labels, "training")


@pytest.mark.long
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: " ".join(f"{k}={v}" for k, v in design.items()))
def test_by_the_same_commands(small_set, split, tmp_path, design):
    """Trained, saved, read back, scored in batch and as a stream alike, and detected with."""
    settings = TINY | {f"model.{name}": value for name, value in design.items()}
    model, config = resolve("lstr-small", settings, split.dims)
    losses = [step.loss for step in train_model(Task(split, model, config), tmp_path)]
    assert np.isfinite(losses).all()
    loaded = load(tmp_path / "checkpoint.pt")
    assert loaded.config == model and all(str(getattr(model, k)).lower() == v for k, v in design.items())
    results = [result_of(score_split(loaded, split, Scoring(mode))).document for mode in ("batch", "stream")]
    assert results[0]["lstr"]["mAP"] == pytest.approx(results[1]["lstr"]["mAP"], abs=1e-3)
    assert [r.get("anticipation") is not None for r in results] == [model.n_ahead > 0] * 2
    decisions = decisions_of(run_recorded(sources_of(small_set.features, loaded=loaded)[0], loaded))
    assert len(decisions) == 20 and all(np.isclose(d.scores.sum(), 1, atol=1e-4) for d in decisions)
    ahead = [seconds for seconds, _, _ in decisions[0].ahead]
    assert (
        ahead
        == [0.25 * h for h in range(1, model.n_ahead + 1)]
        == [row[0] for row in decisions[0].to_dict().get("ahead", [])]
    )


def test_widths_that_do_not_fit(split, tmp_path):
    model, config = resolve("lstr-small", TINY | {"model.rgb_dim": "7"}, split.dims)
    with pytest.raises(CheckpointError, match=r"takes features of width \(7, 1024\), .* holds \(576, 1024\)"):
        list(train_model(Task(split, model, config), tmp_path))


def numbered(length):
    """A video whose chunk k has the features k and the class k % 4."""
    rows = np.arange(length, dtype=np.float32)[:, None]
    return LabelledVideo("v", TwoStreamArray(rows, rows), np.eye(4, dtype=np.uint8)[np.arange(length) % 4])


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


def test_targets_past_the_end_may_repeat_the_last():
    model, _ = resolve("lstr-small", {"model.work_length": "2"}, (1, 1))
    parts = Part(np.array([0, 2])), Part(np.array([1, 3]), 0.5, repeats_last=True)
    outputs = Outputs(np.array([1, -1, -1, 0]), np.array([0, 3, 4, 9]), parts)
    targets, counts = make_targets([numbered(10)], [(0, 8)], model, outputs)
    assert targets.argmax(-1)[0, [0, 1, 3]].tolist() == [0, 1, 1]
    assert counts.tolist() == [[True, True, False, True]]


def test_anticipation_is_scored_against_what_came(small_set, split, tmp_path, monkeypatch):
    """Scores that copy the future's labels are perfect ahead, and only there."""
    model, config = resolve("lstr-small", TINY | {"model.anticipation": "2"}, split.dims)
    list(train_model(Task(split, model, config), tmp_path))
    loaded = load(tmp_path / "checkpoint.pt")
    truths = iter([video.targets for video in split.videos])

    def oracle(_, features, constants):
        truth = next(truths).astype(np.float32)
        later = [np.roll(truth, -h, axis=0) for h in (1, 2)]
        return torch.from_numpy(np.stack([np.full_like(truth, 0.5), *later], axis=1))

    monkeypatch.setattr("lstr.pipelines.evaluation.scoring.predict_ahead", oracle)
    result = result_of(score_split(loaded, split)).document
    assert [row["chunks"] for row in result["anticipation"]] == [1, 2]
    assert [row["mAP"] for row in result["anticipation"]] == [1.0, 1.0] and result["lstr"]["mAP"] < 0.5
    assert json.dumps(result)


def published_rate(step, epochs, epoch_steps):
    """The published scheduler steps once when it is made, so the first step of training has its second rate."""
    at, warm = step + 1, 10 * epoch_steps
    rise = min(1, 0.3 * (1 - at / warm) + at / warm)
    return 7e-5 * rise * 0.5 * (1 + math.cos(math.pi * at / (epochs * epoch_steps)))


@pytest.mark.parametrize("epochs", [25, 4])
def test_published_schedule_is_that_of_the_published_code(epochs):
    """Peak 4.64e-5 at epoch 8.7, 4.58e-5 at epoch 10 of 25 (measured); the rise takes ten epochs of any number."""
    _, config = resolve("thumos14-published", {"train.epochs": str(epochs)}, (2048, 1024))
    rate = rates(config, 100 * epochs + 3, epoch_steps=100)
    found = [rate(step) for step in range(100 * epochs)]
    np.testing.assert_allclose(found, [published_rate(k, epochs, 100) for k in range(100 * epochs)], rtol=1e-9)
    assert found[0] > 2.1e-5 and found[-1] == 0
    if epochs == 25:
        assert found[999] == pytest.approx(4.58e-5, rel=1e-2) and max(found) == pytest.approx(4.64e-5, rel=1e-3)
        assert np.argmax(found) / 100 == pytest.approx(8.7, abs=0.1)


def test_published_presets_draw_the_windows_of_the_published_loader(shared):
    """6,155 on THUMOS'14, where whole tiles and their ends would be a window a video more (measured)."""
    lengths = [len(np.load(path)) for path in sorted(shared.glob("data/thumos14/target_perframe/*validation*.npy"))]
    if not lengths:
        pytest.skip("no target_perframe of THUMOS'14 in the shared data")
    videos = [SimpleNamespace(features=range(length)) for length in lengths]
    model, config = resolve("thumos14-published", {}, (2048, 1024))
    drawn = [len(draw_windows(videos, model, config, epoch)) for epoch in range(8)]
    assert np.mean(drawn) == pytest.approx(6155, abs=15)
    _, config = resolve("thumos14-published", {"train.tails": "true"}, (2048, 1024))
    assert len(draw_windows(videos, model, config, 0)) == pytest.approx(6355, abs=30)


def test_videos_too_short_for_a_published_window_are_no_endless_run():
    model, config = resolve("thumos14-published", {}, (3, 2))
    with pytest.raises(ConfigError, match="No window of 32 chunks") as caught:
        count_steps([numbered(20)], model, config)
    assert "train.tails" in caught.value.hint


def test_stretched_sampling_reaches_the_batch(split):
    model, _ = resolve("thumos14-published", {}, split.dims)
    batches = [read_windows([numbered(100)], [(0, 36)], model, stretched) for stretched in (True, False)]
    assert [int(windows.long_mask.sum()) for windows in batches] == [385, 2]
