"""Two processes, started by torchrun, train a model and the feature networks as one process would."""

import json
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
from lstr.pipelines.progress import result_of
from lstr.pipelines.training import network_run, ranks
from lstr.pipelines.training.network_run import NetworkFiles, train_network
from lstr.pipelines.training.networks import train_networks
from lstr.pipelines.training.ranks import join_ranks
from lstr.pipelines.training.recogniser import batch_norms
from tests.support.documents import ROOT
from tests.support.feature_set import TINY_SETTINGS
from tests.support.planted import SMALL, planted_training
from tests.support.processes import run_process
from tests.support.served import free_port
from tests.support.training import read_log, train_tiny

SETTINGS = {"model.dropout": "0", "train.hide_long": "0", "train.log_every": "1", "train.batch_size": "5"}
SETTINGS |= {"train.epochs": "2", "train.eval_every": "2"}


def set_options(settings) -> list[str]:
    return [word for name, value in dict(settings).items() for word in ("--set", f"{name}={value}")]


def torchrun(*words, settings=()) -> tuple[str, str]:
    """Run a module in two processes on the CPU; return standard output and standard error."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", *words]
    command += set_options(settings)
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    code, out, err = run_process(*command, env=environment, timeout=500)
    assert code == 0, err
    return out, err


def compare_runs(run: Path, expected: Path, **tolerances: float) -> list[dict]:
    """Check that two runs have the same files, and logs within the tolerances; return the log of the first."""
    assert {path.name for path in run.iterdir()} == {path.name for path in expected.iterdir()}
    logs = [read_log(folder) for folder in (run, expected)]
    for ours, theirs in zip(*logs, strict=True):
        for name, tolerance in tolerances.items():
            assert ours[name] == pytest.approx(theirs[name], abs=tolerance), name
    assert logs[0][-1]["evaluation"]["mAP"] == pytest.approx(logs[1][-1]["evaluation"]["mAP"], abs=1e-3)
    return logs[0]


@pytest.mark.long
def test_two_processes_train_an_equal_model(launch, feature_set, split, validation, tmp_path):
    """24 windows in batches of 5: shares of 3 and 2, and at the end of an epoch 2 and 2; chunks count unequally.

    Started as torchrun would, whose start takes seconds.
    """
    words = ["train", feature_set.features, "--labels", feature_set.labels, "-o", tmp_path / "two"]
    words += ["--preset", "lstr-small", *set_options({**TINY_SETTINGS, **SETTINGS})]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    logs = {n: tmp_path / f"{n}.log" for n in ("0", "1")}
    processes = [launch(*words, log=logs[n], RANK=n, LOCAL_RANK=n, **environment) for n in ("0", "1")]
    for process in processes:
        process.join()
    texts = [log.read_text() for log in logs.values()]
    assert [process.exitcode for process in processes] == [0, 0], texts
    assert "".join(texts).count("192 chunks") == 1, "only one process reports"
    list(train_tiny(split, tmp_path / "one", SETTINGS, validation))
    log = compare_runs(tmp_path / "two", tmp_path / "one", loss=1e-5, grad_norm=1e-4, epoch=0, step=0, lr=0)
    assert len(log) == 10
    assert load(tmp_path / "two" / "best.pt").extra["made_by"]["processes"] == 2


def test_a_process_without_a_gpu_is_refused(monkeypatch):
    for name, value in (("WORLD_SIZE", "99"), ("RANK", "98"), ("LOCAL_RANK", "98")):
        monkeypatch.setenv(name, value)
    with pytest.raises(LstrError, match="98"), join_ranks("cuda"):
        pass


def train_planted(folder: Path) -> None:
    """Train a network on planted videos, with ten samples per epoch in batches of five."""
    settings = {"epochs": 3, "batch_size": 5, "draws": 10, "dropout": 0, "optimiser": "sgd", "lr": 1e-3}
    job = planted_training(("flow",), 3, partial_bn=True, **settings)
    preset = job.networks.preset.having({"flow": StreamPreset("bninception")})  # with the small one mAPs differ more
    job = replace(job, networks=replace(job.networks, preset=preset))
    # the first batch norm is frozen too: statistics of a share are not those of the batch
    norms = [torch.nn.BatchNorm2d(1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_run, "EVALUATION_EPOCHS", 1)
        patch.setattr(network_run, "batch_norms", lambda model: norms + batch_norms(model))
        result_of(train_networks(job, folder, "cpu", False))


@pytest.mark.slow
def test_two_processes_train_an_equal_network(tmp_path):
    """With shares of three and two samples, the gradients and losses are those of the whole batch."""
    torchrun(train_planted.__module__, tmp_path / "two")
    train_planted(tmp_path / "one")
    assert len(compare_runs(tmp_path / "two", tmp_path / "one", loss=1e-4, epoch=0, lr=0)) == 3
    two, one = (read_state_dict(open_weights(tmp_path / name).file("flow")) for name in ("two", "one"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.slow
def test_finetune_under_torchrun(small_set, tmp_path, monkeypatch):
    """One process reports and fills the cache; the other one waits and finds the chunks."""
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    settings = {**SMALL, "epochs": 1, "recipe.flow_algorithm": "dis"}
    words = ["lstr_cli", "finetune", small_set.videos, "--labels", small_set.labels, "-o", tmp_path / "weights"]
    out, err = torchrun(*words, "--stream=flow", "--json", settings=settings)
    assert err.count("flow: epoch 1/1") == err.count("3 computed now") == 1, err
    assert json.loads(out)["streams"] == ["flow"]
    assert open_weights(tmp_path / "weights").recipe.streams == ("flow",)


def test_fewer_samples_than_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    job = planted_training(("flow",), 1, batch_size=1)
    with pytest.raises(ConfigError, match="1 samples.* 2 processes"):
        next(train_network(job, NetworkFiles(tmp_path, "flow", None)))


if __name__ == "__main__":
    with join_ranks("cpu"):
        train_planted(Path(sys.argv[1]))
