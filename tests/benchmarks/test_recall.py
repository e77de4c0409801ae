"""The cue task: what its videos are, and which models use what they remember."""

import importlib
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from lstr.batch import predict
from lstr.kinds import KINDS, configure, make_model
from lstr.pipelines.training.config import TrainConfig
from lstr.windows.windows import window_indices

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SIZE = {"rgb_dim": 8, "flow_dim": 8, "d_model": 32, "n_heads": 4, "d_feedforward": 32}
BRIEF = {"gaps": (4.0, 8.0), "lead": 5.0, "cue": 3.0, "action": 1.0}


@pytest.fixture
def task(monkeypatch):
    """The module of the task."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("recall_task")


@pytest.fixture
def study(task):
    """The module of the study."""
    return importlib.import_module("recall")


def projected(task, videos):
    """Mean length of each direction (cue A, cue B, action) in the chunks of a part, by (class, part)."""
    directions = np.linalg.qr(np.random.default_rng(0).standard_normal((16, 16)))[0][:3]
    found = {}
    for video in videos:
        on = video.targets[:, 0] == 0
        right = int(video.targets[-1, 1:].argmax())
        for part, rows in (("action", video.features[:][on]), ("past", video.features[:][~on])):
            found.setdefault((right, part), []).append((rows @ directions.T).sum(0) / (8 if part == "action" else 24))
    return {key: np.mean(rows, axis=0) for key, rows in found.items()}


def test_the_class_is_in_the_cue_alone(task):
    random = np.random.default_rng(1)
    found = projected(task, [task.CueTask().video(random, 16.0) for _ in range(100)])
    for right in (0, 1):
        assert np.abs(found[right, "action"] - [0, 0, 3]).max() < 0.35, "of its class the action says nothing"
        assert found[right, "past"][right] == pytest.approx(3, abs=0.5)
        assert abs(found[right, "past"][1 - right]) < 0.5
    both = projected(task, [task.CueTask(cues=2, conflicting=True).video(random, 16.0) for _ in range(100)])
    for right in (0, 1):
        assert both[right, "past"][:2] == pytest.approx([3, 3], abs=0.5), (
            "both cues are there, in one order or the other"
        )


def test_what_is_in_memory_is_what_windows_hold(task):
    config = configure(long_length=32, long_stride=1, work_length=8)
    made = task.CueTask(lead=0.0)
    for gap, expected in ((2.0, True), (2.25, None), (7.75, None), (8.0, False), (500.0, False)):
        length = len(made.video(np.random.default_rng(0), gap).features)
        indices = window_indices(np.array([length - 1]), config)
        held = {*indices.long[0][indices.long_mask[0]].tolist(), *indices.work[0].tolist()}
        share = len(held & set(range(24))) / 24
        assert made.sees(config, gap) is expected
        assert share == {True: 1, False: 0}.get(expected, pytest.approx(share)) and (
            expected is not None or 0 < share < 1
        )
    assert made.sees(configure(kind="rnn"), 500.0) is True
    windowed = configure(kind="colar", work_length=40)  # its long memory's length is not used
    assert (made.sees(windowed, 2.0), made.sees(windowed, 8.0)) == (True, False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_video_is_scored_as_predict_scores_it(task, kind):
    config = configure(**{**vars(KINDS[kind].published_size), **SIZE, "long_length": 256, "work_length": 8})
    torch.manual_seed(0)
    model = make_model(config, 3).eval()
    random = np.random.default_rng(0)
    videos = [task.CueTask(lead=5.0).video(random, gap) for gap in (4.0, 70.0)]
    expected = torch.stack([predict(model, video.features[:])[-1] for video in videos])
    torch.testing.assert_close(task.last_scores(model, videos), expected, atol=1e-5, rtol=0)


def trained(task, steps, lr=3e-3, **model):
    config = configure(**{**SIZE, "work_length": 8, "long_length": 0, "dropout": 0.0, **model})
    return task.train_on(task.CueTask(**BRIEF), config, TrainConfig(lr=lr, warmup=0.1, max_steps=steps))[0]


def recalled(task, model, gap):
    return task.accuracy(model, task.CueTask(**BRIEF), gap, videos=200)


CHANCE = pytest.approx(0.5, abs=0.15)  # four standard deviations of 200 videos


@pytest.mark.long
def test_lstr_finds_a_cue_in_its_long_memory_and_none_beyond(task):
    model = trained(task, 160, long_length=48)
    assert recalled(task, model, 8.0) > 0.95
    assert recalled(task, model, 16.0) == CHANCE


@pytest.mark.long
def test_without_long_memory_lstr_is_at_chance(task):
    assert recalled(task, trained(task, 160), 8.0) == CHANCE


@pytest.mark.long
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_an_rnn_trained_as_the_paper_trains_it_forgets_the_cue(task, cell):
    """It carries its state on without end, and was never taught to keep anything for longer than a window."""
    assert recalled(task, trained(task, 160, kind="rnn", cell=cell), 8.0) == CHANCE


@pytest.mark.slow
def test_an_rnn_trained_on_windows_that_hold_the_cue_keeps_it(task):
    model = trained(task, 400, lr=1e-2, kind="rnn", cell="gru", work_length=52)
    assert recalled(task, model, 8.0) > 0.9


@pytest.mark.long
def test_a_state_carried_from_window_to_window_is_not_taught_to_hold_the_cue(task):
    config = configure(**SIZE, kind="rnn", work_length=8, dropout=0.0)
    model, _ = task.train_carrying(task.CueTask(**BRIEF), config, TrainConfig(lr=1e-2, warmup=0.1, max_steps=1600))
    assert recalled(task, model, 8.0) == CHANCE


@torch.no_grad()
def losses_of(model, pieces):
    """The loss of each window (rows, targets, begins) of one stream, every video read whole."""
    found = []
    begins = [at for at, (_, _, begin) in enumerate(pieces) if begin]
    for start, end in pairwise([*begins, len(pieces)]):
        rows, targets = (np.concatenate([piece[i] for piece in pieces[start:end]]) for i in (0, 1))
        assert end == len(pieces) or targets[:, 1:].any(1).sum() == 4, "a video that has ended had its whole action"
        logits = model.video_logits(torch.from_numpy(rows), 8)[:, 0]
        each = torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets).argmax(1), reduction="none")
        found += each.view(end - start, -1).mean(1).tolist()
    return found, begins


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_training_with_a_carried_state_goes_through_each_video_once(task, cell):
    """With a rate of nearly 0 its losses are those of whole videos, each from a state of zeros."""
    config = configure(**SIZE, kind="rnn", cell=cell, work_length=8, dropout=0.0)
    training = TrainConfig(lr=1e-12, batch_size=2, max_steps=40)
    brief = task.CueTask(**BRIEF)
    model, losses = task.train_carrying(brief, config, training)
    random = np.random.default_rng([brief.seed, training.seed, 0])
    streams = [task.windows_in_order(brief, random, 8) for _ in range(2)]
    steps = [[next(stream) for stream in streams] for _ in range(40)]
    expected, begins = zip(*(losses_of(model, pieces) for pieces in zip(*steps, strict=True)), strict=True)
    assert all(starts[0] == 0 and len(starts) > 2 for starts in begins)
    assert losses == pytest.approx(np.mean(expected, axis=0), rel=1e-5)


def test_the_study_goes_on_where_it_was(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "GAPS", (4.0, 16.0))
    words = ["--rows", "memory-8", "rnn", "--steps", "2", "--videos", "3", "-o", str(tmp_path / "recall.json")]
    words += ["--figure", str(tmp_path / "recall.png")]
    study.main(words)
    assert torch.tensor([1e-310], dtype=torch.float64).mul(0.5) > 0, "denormal numbers are again what they are"
    record = json.loads((tmp_path / "recall.json").read_text())
    assert [*record["rows"]] == ["memory-8", "rnn"] and capsys.readouterr().out.count("seed 0") == 2
    beyond = record["rows"]["memory-8"]["0"]["gaps"][1]
    assert (
        beyond["in_memory"] is False and 0 <= beyond["interval"][0] <= beyond["accuracy"] <= beyond["interval"][1] <= 1
    )
    assert (tmp_path / "recall.png").read_bytes().startswith(b"\x89PNG")
    study.main(words)
    assert capsys.readouterr().out == "" and json.loads((tmp_path / "recall.json").read_text()) == record
    record["task"]["cue"] = 5.0
    (tmp_path / "recall.json").write_text(json.dumps(record))
    with pytest.raises(SystemExit, match="another task"):
        study.main(words)
