"""A stopped run goes on to the bit, however and wherever it was stopped."""

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

from lstr.checkpoint import load
from lstr.errors import CheckpointError, ConfigError
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.training.config import read_config, resolve
from lstr.pipelines.training.model_run import ModelRun
from lstr.pipelines.training.train import Task, train_model
from tests.support.feature_set import TINY_SETTINGS

MEASURED = ("rate", "waiting", "memory_mb")
SETTINGS = {**TINY_SETTINGS, "train.batch_size": "2", "train.log_every": "1", "train.save_seconds": "0"}


@pytest.fixture
def split(feature_set):
    return read_split(feature_set.features, feature_set.labels, "training")


def log(run: Path) -> list[dict]:
    """The lines of a run's log without what a clock or the system measured."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in MEASURED} for line in lines]


def same(one: Path, other: Path, name: str = "checkpoint.pt") -> bool:
    """Whether two runs ended with the same bits and the same log."""
    a, b = (load(run / name).model.state_dict() for run in (one, other))
    return all(torch.equal(a[key], b[key]) for key in a) and log(one) == log(other)


@pytest.mark.long
def test_closed_within_and_between_epochs(split, feature_set, tmp_path, monkeypatch):
    """12 steps an epoch; dropout is on, there are evaluations, and only each fifth log line is followed by a save."""
    validation = read_split(feature_set.features, feature_set.labels, "validation")
    model, config = resolve("lstr-small", {**SETTINGS, "train.epochs": "3", "train.eval_every": "1"}, split.dims)
    for _ in train_model(Task(split, model, config, validation), tmp_path / "whole"):
        pass
    asked, save = iter(range(10_000)), ModelRun.save

    def save_seldom(run, step):
        if next(asked) % 5 == 0 or step.step == step.steps:
            save(run, step)

    monkeypatch.setattr(ModelRun, "save", save_seldom)
    for resume, more in ((False, 7), (True, 6), (True, 9), (True, 99)):
        stopped = train_model(Task(split, model, config, validation), tmp_path / "parts", resume=resume)
        list(islice(stopped, more))
        stopped.close()
        torch.rand(7)  # whatever else the process did meanwhile
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert same(tmp_path / "whole", tmp_path / "parts", "best.pt")


KILLER = """
import os, signal, sys, threading, time
from pathlib import Path

def kill(run):
    while not (run / "resume.pt").exists() or (run / "metrics.jsonl").read_text().count("\\n") <= 20:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill, args=(Path(sys.argv.pop(1)),), daemon=True).start()
from lstr_cli.main import main
main()
"""  # from inside, because a watcher outside may be kept waiting until the run is over


@pytest.mark.long
def test_a_real_kill(split, feature_set, tmp_path):
    """Wherever it falls in the second epoch or later of six."""
    run = tmp_path / "stopped"
    settings = {**SETTINGS, "train.epochs": "6"}
    command = [sys.executable, "-c", KILLER, run, "train", feature_set.features, "--preset", "lstr-small"]
    command += ["--labels", feature_set.labels, "-o", run]
    command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = subprocess.run(command, capture_output=True, text=True, timeout=300, env=one_thread)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    load(run / "checkpoint.pt")

    model, config = resolve("lstr-small", settings, split.dims)
    for resumed, folder in ((True, run), (False, tmp_path / "whole")):
        steps = list(train_model(Task(split, model, config), folder, resume=resumed))
        assert (len(steps) < 72) == resumed
    assert same(run, tmp_path / "whole") and len(log(run)) == 72


@pytest.mark.long
def test_an_average_of_the_weights_goes_on_to_the_bit(split, tmp_path):
    """It is what the checkpoint has; the weights beside it go on as if there were none."""
    plain = {**SETTINGS, "train.epochs": "1", "model.dropout": "0"}
    model, config = resolve("lstr-small", {**plain, "train.average": "0.9"}, split.dims)
    list(train_model(Task(split, model, config), tmp_path / "whole"))
    stopped = train_model(Task(split, model, config), tmp_path / "parts")
    list(islice(stopped, 5))
    stopped.close()
    list(train_model(Task(split, model, config), tmp_path / "parts", resume=True))
    assert same(tmp_path / "whole", tmp_path / "parts")

    list(train_model(Task(split, model, config.replace(average=0.0)), tmp_path / "none"))
    states = [torch.load(tmp_path / name / "resume.pt", weights_only=True) for name in ("whole", "none")]
    assert all(torch.equal(tensor, states[1]["model"][name]) for name, tensor in states[0]["model"].items())
    saved = load(tmp_path / "whole" / "checkpoint.pt").model.state_dict()
    own = load(tmp_path / "none" / "checkpoint.pt").model.state_dict()
    assert not torch.equal(saved["classifier.weight"], own["classifier.weight"])
    assert torch.equal(saved["classifier.weight"], states[0]["average"]["classifier.weight"])


def test_a_run_from_before_there_was_a_setting_goes_on(split, tmp_path):
    model, config = resolve("lstr-small", {**SETTINGS, "train.epochs": "1"}, split.dims)
    running = train_model(Task(split, model, config), tmp_path)
    list(islice(running, 3))
    running.close()
    config_file = tmp_path / "config.json"
    settings = json.loads(config_file.read_text())
    del settings["train"]["average"], settings["model"]["gru"]
    settings["train"] |= {"background": "all", "shots": 0, "temperature": 2.0}  # settings that earlier versions had
    config_file.write_text(json.dumps(settings))
    state = torch.load(tmp_path / "resume.pt", weights_only=True)
    position = {n: v for n, v in json.loads(state["position"]).items() if n not in ("best_epoch", "seconds")}
    torch.save(state | {"position": json.dumps(position), "settings": "{}"}, tmp_path / "resume.pt")
    averaged = config.replace(average=0.5)
    with pytest.raises(CheckpointError, match=r"train\.average was 0\.0, is 0\.5"):
        list(train_model(Task(split, model, averaged), tmp_path, resume=True))
    written = json.loads(config_file.read_text())
    config_file.write_text(json.dumps({**written, "train": {**written["train"], "shots": 0}}))
    assert "shots" not in read_config(config_file)["train"]
    config_file.write_text(json.dumps({**written, "train": {**written["train"], "shots": 4}}))
    with pytest.raises(ConfigError, match=r"train\.shots is 4"):
        read_config(config_file)
    config_file.write_text(json.dumps(written))
    seldom = config.replace(save_seconds=99.0)  # which has no part in the result
    assert list(train_model(Task(split, model, seldom), tmp_path, resume=True))[-1].step == 12
