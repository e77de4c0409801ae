"""Several processes, started by torchrun, train as one would."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lstr.checkpoint import load
from lstr.errors import LstrError
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.ranks import join_ranks
from lstr.pipelines.training.train import Task, train_model
from tests.support.feature_set import TINY_SETTINGS

SETTINGS = {**TINY_SETTINGS, "model.dropout": "0", "train.hide_long": "0", "train.log_every": "1"}
SETTINGS |= {"train.batch_size": "5", "train.epochs": "2", "train.eval_every": "2"}


def torchrun(
    feature_set, run: Path, settings: dict, *more, program=("-m", "lstr_cli.main")
) -> subprocess.CompletedProcess:
    """`lstr train` in two processes on the CPU."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]
    command += ["train", feature_set.features, "--labels", feature_set.labels, "-o", run, "--preset", "lstr-small"]
    command += [*more]
    command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=400, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_two_processes_train_as_one(feature_set, tmp_path):
    """24 windows in batches of 5: shares of 3 and 2, and at the end of an epoch 2 and 2; chunks count unequally."""
    done = torchrun(feature_set, tmp_path / "two", SETTINGS)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("3 videos, 192 chunks, 3 classes") == 1, "one process speaks"
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
    assert {path.name for path in (tmp_path / "two").iterdir()} == {path.name for path in (tmp_path / "one").iterdir()}


DIES = """
import os, signal, threading, time
from pathlib import Path

def kill(run):
    while not (run / "resume.pt").exists():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

if os.environ["RANK"] == "1":
    threading.Thread(target=kill, args=(Path(os.environ["RUN"]),), daemon=True).start()
from lstr_cli.main import main
main()
"""


@pytest.mark.slow
def test_the_death_of_one_process_ends_the_job(feature_set, tmp_path, monkeypatch):
    """Rank 1 is killed after the first save; rank 0 would wait for its gradients for ever."""
    (tmp_path / "dies.py").write_text(DIES)
    run = tmp_path / "run"
    monkeypatch.setenv("RUN", str(run))
    settings = {**SETTINGS, "train.epochs": "2000", "train.eval_every": "0", "train.save_seconds": "0"}
    died = torchrun(feature_set, run, settings, program=(tmp_path / "dies.py",))
    assert died.returncode != 0 and f"Signal {int(signal.SIGKILL)}" in died.stderr
    assert 0 < lines(run)[-1]["step"] < 10_000
    assert load(run / "checkpoint.pt").metrics["step"] > 0, "what was saved stays whole"


def test_more_processes_than_gpus(monkeypatch):
    for name, value in (("WORLD_SIZE", "99"), ("RANK", "98"), ("LOCAL_RANK", "98")):
        monkeypatch.setenv(name, value)
    with pytest.raises(LstrError, match="Process 98 "), join_ranks("cuda"):
        pass
