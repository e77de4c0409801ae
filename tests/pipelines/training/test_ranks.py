"""Several processes, started by torchrun, train a model and the feature networks as one would."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lstr.checkpoint import load
from lstr.errors import ConfigError, LstrError
from lstr.extractors.networks.weights_file import read_state_dict
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.presets import StreamPreset
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.progress import Progress
from lstr.pipelines.training import network_run, ranks
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.network_run import NetworkFiles, train_network
from lstr.pipelines.training.networks import train_networks
from lstr.pipelines.training.ranks import join_ranks
from lstr.pipelines.training.recogniser import batch_norms
from lstr.pipelines.training.train import Task, train_model
from tests.support.feature_set import TINY_SETTINGS
from tests.support.planted import planted_training

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {**TINY_SETTINGS, "model.dropout": "0", "train.hide_long": "0", "train.log_every": "1"}
SETTINGS |= {"train.batch_size": "5", "train.epochs": "2", "train.eval_every": "2"}
PLANTED = """
import sys
from pathlib import Path

import tests.pipelines.training.test_ranks as planted
from lstr.pipelines.training.ranks import join_ranks

with join_ranks("cpu"):
    planted.train_planted(Path(sys.argv[1]))
"""


def torchrun(*words) -> subprocess.CompletedProcess:
    """Two processes on the CPU."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}  # for the planted videos
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=500, env=environment)
    assert done.returncode == 0, done.stderr
    return done


def settings_of(settings) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def names_of(run: Path) -> set[str]:
    return {path.name for path in run.iterdir()}


@pytest.mark.long
def test_two_processes_train_a_model_as_one(feature_set, tmp_path):
    """24 windows in batches of 5: shares of 3 and 2, and at the end of an epoch 2 and 2; chunks count unequally."""
    words = ["-m", "lstr_cli.main", "train", feature_set.features, "--labels", feature_set.labels]
    done = torchrun(*words, "-o", tmp_path / "two", "--preset", "lstr-small", *settings_of(SETTINGS))
    assert done.stderr.count("192 chunks") == 1, "one process reports"
    train_split, validation = (
        read_split(feature_set.features, feature_set.labels, subset) for subset in ("training", "validation")
    )
    model, config = resolve("lstr-small", SETTINGS, train_split.dims)
    for _ in train_model(Task(train_split, model, config, validation), tmp_path / "one"):
        pass
    two, one = lines(tmp_path / "two"), lines(tmp_path / "one")
    assert len(two) == len(one) == 10
    for ours, theirs in zip(one, two, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], abs=1e-4)
        assert [ours[name] for name in ("epoch", "step", "lr")] == [theirs[name] for name in ("epoch", "step", "lr")]
    assert one[-1]["evaluation"]["mAP"] == pytest.approx(two[-1]["evaluation"]["mAP"], abs=1e-3)
    assert load(tmp_path / "two" / "best.pt").extra["made_by"]["processes"] == 2
    assert names_of(tmp_path / "two") == names_of(tmp_path / "one")


def test_more_processes_than_gpus(monkeypatch):
    for name, value in (("WORLD_SIZE", "99"), ("RANK", "98"), ("LOCAL_RANK", "98")):
        monkeypatch.setenv(name, value)
    with pytest.raises(LstrError, match="98"), join_ranks("cuda"):
        pass


def train_planted(folder: Path) -> None:
    """Train a network on planted videos, ten samples an epoch in batches of five."""
    settings = {"epochs": 3, "batch_size": 5, "draws": 10, "dropout": 0, "optimiser": "sgd", "lr": 1e-3}
    job = planted_training(("flow",), 3, partial_bn=True, **settings)
    preset = job.networks.preset.having({"flow": StreamPreset("bninception")})  # with the small one mAPs differ more
    job = replace(job, networks=replace(job.networks, preset=preset))
    # the first batch norm is frozen too: statistics of a share are not those of the batch
    others = [torch.nn.BatchNorm2d(1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_run, "EVALUATION_EPOCHS", 1)
        patch.setattr(network_run, "batch_norms", lambda model: others + batch_norms(model))
        for event in train_networks(job, folder, "cpu", False):
            assert not isinstance(event, Progress) or event.what == "flow"


@pytest.mark.slow
def test_two_processes_train_a_network_as_one(tmp_path):
    """Shares of three and two samples, with all batch norms frozen; gradients and losses are those of the batch."""
    (tmp_path / "planted.py").write_text(PLANTED)
    torchrun(tmp_path / "planted.py", tmp_path / "two")
    train_planted(tmp_path / "one")
    one, two = (lines(tmp_path / name) for name in ("one", "two"))
    assert len(one) == len(two) == 3
    for ours, theirs in zip(one, two, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours["evaluation"]["mAP"] == pytest.approx(theirs["evaluation"]["mAP"], abs=1e-3)
        assert [ours[name] for name in ("epoch", "lr")] == [theirs[name] for name in ("epoch", "lr")]
    a, b = (read_state_dict(open_weights(tmp_path / name).file("flow")) for name in ("one", "two"))
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-3, atol=1e-5, msg=name)
    assert names_of(tmp_path / "one") == names_of(tmp_path / "two")


@pytest.mark.slow
def test_finetune_under_torchrun(small_set, tmp_path, monkeypatch):
    """One process reports, and fills the cache; the other waits, and finds the chunks."""
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    settings = {"short_side": 32, "crop": 32, "batch_size": 8, "draws": 8, "epochs": 1, "precision": "float32"}
    words = ["-m", "lstr_cli.main", "finetune", small_set.videos, "--labels", small_set.labels]
    words += ["-o", tmp_path / "weights", "--stream", "flow", "--json"]
    done = torchrun(*words, *settings_of(settings | {"recipe.flow_algorithm": "dis"}))
    assert done.stderr.count("flow: epoch 1/1") == done.stderr.count("3 made now") == 1, done.stderr
    assert json.loads(done.stdout)["streams"] == ["flow"]
    assert open_weights(tmp_path / "weights").recipe.streams == ("flow",)


def test_fewer_samples_than_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    job = planted_training(("flow",), 1, batch_size=1)
    with pytest.raises(ConfigError, match="1 samples.* 2 processes"):
        next(train_network(job, NetworkFiles(tmp_path, "flow", None)))
