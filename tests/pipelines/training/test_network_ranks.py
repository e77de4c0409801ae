"""Several processes, started by torchrun, train the feature networks as one would."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lstr.errors import ConfigError
from lstr.extractors.networks.weights_file import read_state_dict
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.presets import StreamPreset
from lstr.pipelines.progress import Progress
from lstr.pipelines.scenes import SceneConfig, render_scenes
from lstr.pipelines.training import network_run, ranks
from lstr.pipelines.training.network_run import NetworkFiles, train_network
from lstr.pipelines.training.networks import train_networks
from lstr.pipelines.training.recogniser import batch_norms
from tests.support.planted import planted_training

ROOT = Path(__file__).resolve().parents[3]
PLANTED = """
import sys
from pathlib import Path

import tests.pipelines.training.test_network_ranks as planted
from lstr.pipelines.training.ranks import join_ranks

folder, resume, frozen, stop = Path(sys.argv[1]), sys.argv[2] == "resume", sys.argv[3] == "frozen", int(sys.argv[4])
with join_ranks("cpu"):
    planted.train(folder, resume, frozen, stop)
"""


def train(folder: Path, resume: bool, frozen: bool, stop: int) -> None:
    """Train on planted videos, ten samples an epoch in batches of five; `stop` is a step to end after."""
    settings = {
        "epochs": 3,
        "batch_size": 5,
        "draws": 10,
        "dropout": 0,
        "optimiser": "sgd",
        "lr": 1e-3,
    }
    job = planted_training(("flow",), 3, partial_bn=frozen, **settings)
    preset = job.networks.preset.having({"flow": StreamPreset("bninception")})  # with the small one mAPs differ more
    job = replace(job, networks=replace(job.networks, preset=preset))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_run, "EVALUATION_EPOCHS", 1)
        if frozen:  # the first too: statistics of a share are not those of the batch, and all else must be the same
            others = [torch.nn.BatchNorm2d(1)]
            patch.setattr(network_run, "batch_norms", lambda model: others + batch_norms(model))
        for event in train_networks(job, folder, "cpu", resume):
            if isinstance(event, Progress) and event.done == stop:
                return


def torchrun(*words) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}  # for the planted videos
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=500, env=environment)


@pytest.fixture
def two(tmp_path):
    """two(folder, …): `train` in two processes."""
    (tmp_path / "planted.py").write_text(PLANTED)

    def run(folder: Path, resume="", frozen="", stop=99) -> None:
        done = torchrun(tmp_path / "planted.py", folder, resume, frozen, stop)
        assert done.returncode == 0, done.stderr

    return run


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return read_state_dict(open_weights(folder).file("flow"))


@pytest.mark.slow
def test_two_processes_train_as_one(two, tmp_path):
    """Shares of three and two samples, with all batch norms frozen; gradients and losses are those of the batch."""
    two(tmp_path / "two", frozen="frozen")
    train(tmp_path / "one", False, True, 99)
    a, b = (lines(tmp_path / name) for name in ("one", "two"))
    assert len(a) == len(b) == 3
    for ours, theirs in zip(a, b, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours["evaluation"]["mAP"] == pytest.approx(theirs["evaluation"]["mAP"], abs=1e-3)
        assert [ours[name] for name in ("epoch", "lr")] == [theirs[name] for name in ("epoch", "lr")]
    one, other = (weights_of(tmp_path / name) for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-3, atol=1e-5, msg=name)
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == sorted(p.name for p in (tmp_path / "two").iterdir())


@pytest.mark.slow
def test_the_command_under_torchrun(tmp_path, monkeypatch):
    """One process speaks, and fills the cache; the other waits, and finds the chunks."""
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    labels = render_scenes(tmp_path, SceneConfig(n_videos=4, n_testing=1, seconds=5.0, width=96, height=64))
    settings = {"short_side": 32, "crop": 32, "batch_size": 8, "draws": 8, "epochs": 1, "precision": "float32"}
    words = ["-m", "lstr_cli.main", "finetune", tmp_path / "videos", "--labels", labels, "-o", tmp_path / "weights"]
    settings |= {"recipe.flow_algorithm": "dis"}
    words += ["--stream", "flow", "--json"]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    done = torchrun(*words)
    assert done.returncode == 0, done.stderr
    for line in ("looking at 3 videos", "3 made now", "flow: epoch 1/1 loss", "weights: "):
        assert done.stderr.count(line) == 1, done.stderr
    assert json.loads(done.stdout)["streams"] == ["flow"]
    assert open_weights(tmp_path / "weights").recipe.streams == ("flow",)


def test_fewer_samples_than_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    job = planted_training(("flow",), 1, batch_size=1)
    with pytest.raises(ConfigError, match="has 1 samples, and there are 2 processes"):
        next(train_network(job, NetworkFiles(tmp_path, "flow", None)))
