"""Training: what it learns, what it writes, and that a stopped run goes on to the bit."""

import json
import signal
import subprocess
import sys
import time
from itertools import islice

import numpy as np
import pytest
import torch
from conftest import heed_interrupts

from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import CheckpointError, ConfigError, LstrError
from lstr.windows import gather
from pipelines.dataset import LabelledVideo, Split, TwoStreamArray, read_split
from pipelines.sampling import draw_windows, feature_statistics, fold_statistics, hide_slots
from pipelines.train import train
from pipelines.train_config import PRESETS, TrainConfig, learning_rate, resolve

SETTINGS = {"model.d_model": "16", "model.n_heads": "2", "model.d_feedforward": "16", "model.work_length": "32"}
SETTINGS |= {"train.epochs": "4"}


@pytest.fixture
def split(small_set):
    return read_split(small_set.features, small_set.labels, "training")


def finish(steps):
    return list(steps)[-1]


def test_presets_and_changes():
    model, config = resolve("thumos14", {}, (2048, 1024))
    assert (model.long_length, model.long_stride, model.work_length, model.n0, model.n1) == (2048, 4, 32, 16, 32)
    assert (model.l_enc, model.l_dec, model.n_heads, model.d_model) == (2, 2, 16, 1024)
    assert (config.lr, config.weight_decay, config.epochs, config.batch_size) == (5e-5, 5e-5, 25, 16)
    model, config = resolve("small", {"model.n0": "4", "train.lr": "0.1"}, (8, 4))
    assert (model.n0, config.lr, model.rgb_dim, model.flow_dim) == (4, 0.1, 8, 4)
    assert set(PRESETS) == {"thumos14", "tvseries", "hacs", "small", "thumos14-published", "tvseries-published"}
    for bad in ({"model.n_head": "4"}, {"train.lr": "much"}, {"lr": "1"}, {"train.windows": "odd"}, {"train.lr": "-1"}):
        with pytest.raises(ConfigError) as caught:
            resolve("small", bad, (8, 4))
        assert caught.value.hint


def test_schedule_is_the_papers():
    config = TrainConfig(lr=1.0)
    rates = [learning_rate(step, 100, config) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 40) and rates[39] == pytest.approx(1.0) and max(rates) == pytest.approx(1.0)
    assert np.allclose(np.diff(rates[:40]), 1 / 40)
    assert rates[70] == pytest.approx(0.5) and rates[-1] < 0.001 and (np.diff(rates[40:]) < 0).all()


def video(length, id="v", dims=(3, 2), classes=3, seed=0):
    random = np.random.default_rng(seed)
    truth = np.eye(classes, dtype=np.uint8)[random.integers(0, classes, length)]
    rgb, flow = (random.normal(5, 3, (length, d)).astype(np.float32) for d in dims)
    return LabelledVideo(id, TwoStreamArray(rgb, flow), truth)


def test_windows_cover_and_differ_by_epoch():
    videos = [video(200), video(10)]
    model, config = resolve("small", {"model.work_length": "32"}, (3, 2))
    first = draw_windows(videos, model, config, 0)
    assert first == draw_windows(videos, model, config, 0) != draw_windows(videos, model, config, 1)
    assert sorted(v for v, _ in first) == [0] * 7 + [1]
    assert all(31 <= end < 200 for v, end in first if v == 0) and (1, 9) in first
    _, tiled = resolve("small", {"train.windows": "tiled"}, (3, 2))
    ends = sorted(end for v, end in draw_windows(videos, model, tiled, 0) if v == 0)
    assert set(np.diff(ends[:-1])) == {32} and ends[-1] == 199


def test_hidden_slots():
    model, _ = resolve("small", {"model.long_length": "64"}, (3, 2))
    windows = gather(video(200).features, [20, 199, 150, 120], model)
    torch.manual_seed(0)
    hidden = hide_slots(windows, 0.7)
    assert not (hidden.long_mask & ~windows.long_mask).any(), "what was not there stays hidden"
    assert hidden.long_mask[:, -1].all(), "no softmax is empty"
    assert 0.15 < hidden.long_mask[1:, :-1].float().mean() < 0.45
    assert hide_slots(windows, 0.0) is windows


def test_folded_statistics_change_nothing():
    from lstr.model import LSTR

    videos = [video(60), video(50, seed=1)]
    mean, std = feature_statistics(videos)
    rows = np.concatenate([v.features[:] for v in videos])
    assert np.allclose(mean, rows.mean(0), atol=1e-4) and np.allclose(std, rows.std(0), atol=1e-4)
    model, _ = resolve("small", {}, (3, 2))
    trained, exported = LSTR(model, 3).eval(), LSTR(model, 3).eval()
    exported.load_state_dict(fold_statistics(trained.state_dict(), mean, std))
    raw = gather(videos[0].features, [40], model)
    scaled = gather((videos[0].features[:] - mean.numpy()) / std.numpy(), [40], model)
    with torch.no_grad():
        assert torch.allclose(exported(raw), trained(scaled), atol=1e-4)


def test_it_learns(small_set):
    """The small set's checkpoint has fitted its three training videos."""
    split = read_split(small_set.features, small_set.labels, "training")
    loaded = load(small_set.checkpoint)
    right = [
        (predict(loaded.model, v.features[:]).numpy().argmax(1) == v.targets.argmax(1)).mean() for v in split.videos
    ]
    assert np.mean(right) > 0.9
    assert loaded.classes == split.labels.classes
    assert loaded.recipe["rgb"]["weights"] == "random" and set(loaded.calibration) == {"rgb", "flow"}


def test_the_log(small_set, split, tmp_path):
    model, config = resolve("small", SETTINGS, split.dims)
    reported = [vars(step) for step in train(split, model, config, tmp_path)]
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == reported
    assert [r["epoch"] for r in reported] == [1, 2, 3, 4] and reported[-1]["step"] == reported[-1]["steps"]
    assert json.loads((tmp_path / "config.json").read_text())["model"]["d_model"] == 16
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint.pt", "config.json", "metrics.jsonl", "resume.pt"]


@pytest.mark.parametrize("stop_after", [1, 3])
def test_resume_is_exact(split, tmp_path, stop_after):
    """Dropout is on, so the random state must travel too."""
    model, config = resolve("small", {**SETTINGS, "train.batch_size": "2", "train.log_every": "1"}, split.dims)
    finish(train(split, model, config, tmp_path / "whole"))
    stopped = train(split, model, config, tmp_path / "parts")
    list(islice(stopped, 2 * stop_after + 1))  # two steps an epoch: stops in the middle of one
    stopped.close()
    torch.rand(7)  # whatever else the process did meanwhile
    finish(train(split, model, config, tmp_path / "parts", resume=True))
    whole, parts = (load(tmp_path / name / "checkpoint.pt").model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    drop = {"rate"}
    logs = [
        [{k: v for k, v in json.loads(line).items() if k not in drop} for line in path.read_text().splitlines()]
        for path in (tmp_path / "whole" / "metrics.jsonl", tmp_path / "parts" / "metrics.jsonl")
    ]
    assert logs[0] == logs[1]


def test_ctrl_c_and_resume(small_set, tmp_path):
    """A real SIGINT in the middle: exit 130, whole files, and --resume ends as a run that was never stopped."""
    command = [sys.executable, "-m", "lstr_cli.main", "train", str(small_set.features), "--preset", "small"]
    command += ["--labels", str(small_set.labels), "--set", "model.d_model=16", "--set", "train.log_every=1"]
    stopped, whole = ([*command, "--set", "train.epochs=400", "-o", str(tmp_path / n)] for n in ("stopped", "whole"))
    process = subprocess.Popen(stopped, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
    deadline = time.monotonic() + 120
    while not (tmp_path / "stopped" / "resume.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Interrupted" in err and "Traceback" not in err
    assert not [p for p in (tmp_path / "stopped").iterdir() if "tmp" in p.name]
    load(tmp_path / "stopped" / "checkpoint.pt")
    for again in ([*stopped, "--resume"], whole):
        subprocess.run(again, check=True, capture_output=True, timeout=300)
    a, b = (load(tmp_path / name / "checkpoint.pt").model.state_dict() for name in ("stopped", "whole"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_runs_do_not_overwrite_each_other(split, tmp_path):
    model, config = resolve("small", {**SETTINGS, "train.epochs": "1"}, split.dims)
    with pytest.raises(CheckpointError, match="no run to resume"):
        finish(train(split, model, config, tmp_path, resume=True))
    finish(train(split, model, config, tmp_path))
    with pytest.raises(CheckpointError, match="already holds a run"):
        finish(train(split, model, config, tmp_path))
    _, other = resolve("small", {**SETTINGS, "train.epochs": "1", "train.seed": "5"}, split.dims)
    with pytest.raises(CheckpointError, match=r"other settings than these \(train\)"):
        finish(train(split, model, other, tmp_path, resume=True))
    fewer = Split(split.folder, split.labels, split.videos[:2])
    with pytest.raises(CheckpointError, match=r"other settings than these \(videos\)"):
        finish(train(fewer, model, config, tmp_path, resume=True))


def test_a_log_line_cut_by_a_kill_is_dropped(split, tmp_path):
    model, config = resolve("small", SETTINGS, split.dims)
    running = train(split, model, config, tmp_path)
    next(running)
    running.close()
    with (tmp_path / "metrics.jsonl").open("a") as log:
        log.write('{"epoch": 2, "st')
    finish(train(split, model, config, tmp_path, resume=True))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]


def test_a_loss_that_is_no_number_names_the_videos(split, tmp_path):
    broken = video(40, "broken", split.dims, len(split.labels.classes))
    broken.features.rgb[:] = np.nan
    model, config = resolve("small", {**SETTINGS, "train.standardise": "false"}, split.dims)
    with pytest.raises(LstrError, match="windows of broken"):
        finish(train(Split(split.folder, split.labels, [broken]), model, config, tmp_path))
    assert not (tmp_path / "checkpoint.pt").exists()
