"""Every long command, stopped at random moments or by a full disk: nothing is half written, it resumes to the bit.

Three ways in turn: `kill -9`, SIGTERM (docker stop, systemd) and SIGHUP (a closed terminal), each to the command's own
process alone. $LSTR_MOMENTS is how many times each command is stopped.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from lstr.checkpoint import load
from lstr.extractors.networks.weights_file import read_state_dict
from lstr.pipelines.features.folder import open_features, verify
from lstr.pipelines.training.run_folder import CONFIG
from tests.support.errors import assert_error

MOMENTS = int(os.environ.get("LSTR_MOMENTS", "20"))
HOWS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGHUP: 129}
SECONDS = 5.0  # within which all is over, on a machine that has nothing else to do
IMPORTED = [
    "lstr_cli.extract",
    "lstr.pipelines.features.extract",
    "lstr.pipelines.learning.learn",
    "rich.progress",
]
DIS = ("--set", "recipe.flow_algorithm=dis")


@pytest.fixture(scope="module")
def launcher():
    """Starts processes that have imported everything already: the moments fall into the work."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


@dataclass
class Job:
    """A command, and what is compared of the folder that it writes to."""

    words: list
    results: Callable[[Path], dict[str, bytes]]
    begun: str | None = None
    """The file of a stopped run that resumes only with --resume."""


def files_of(*patterns: str) -> Callable[[Path], dict[str, bytes]]:
    return lambda folder: {str(p.relative_to(folder)): p.read_bytes() for x in patterns for p in folder.rglob(x)}


def checkpoint_of(folder: Path) -> dict[str, bytes]:
    """Its tensors; a checkpoint says of itself when it was made."""
    return bytes_of(load(folder / "run" / "checkpoint.pt").model.state_dict())


def network_of(folder: Path) -> dict[str, bytes]:
    return bytes_of(read_state_dict(folder / "run" / "flow.pth"))


def bytes_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def with_settings(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def job_of(name: str, small_set) -> Job:
    """The command `name` on the small set; FOLDER stands for where it writes."""
    videos, labels, features = small_set.videos, small_set.labels, small_set.features
    if name.startswith("extract"):
        words = ["extract", videos, "-o", "FOLDER/features", "--recipe", small_set.recipe, *DIS, "--workers", name[-1]]
        return Job(words, files_of("rgb_*/*.npy", "flow_*/*.npy"))
    if name == "train":
        words = ["train", features, "--labels", labels, "-o", "FOLDER/run", "--preset", "lstr-small"]
        settings = with_settings("model.d_model=32", "train.epochs=12", "train.save_seconds=0")
        return Job([*words, *settings], checkpoint_of, begun="resume.pt")
    if name == "finetune":
        words = ["finetune", videos, "--labels", labels, "-o", "FOLDER/run", "--stream", "flow", *DIS, "--workers", "1"]
        return Job([*words, *with_settings("flow_threads=1", "epochs=4", "draws=24")], network_of, begun=CONFIG)
    if name == "learn":
        settings = ("cache=FOLDER/chunks", "epochs=2", "draws=24", "model.d_model=32", "train.epochs=4")
        words = ["learn", videos, labels, "-o", "FOLDER/drawn.lstr", *DIS, *with_settings(*settings)]
        return Job(words, files_of("drawn.lstr"))
    words = ["detect", videos, "-c", small_set.checkpoint, "-o", "FOLDER", "-f", "json,jsonl,npy,html"]
    return Job(words, files_of("*.npy"))


def work(words: list[str], log: str, home: str) -> None:
    """In the new process: a session of its own, in which those that it leaves are found."""
    from lstr_cli.main import main

    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests run under nohup
    os.environ["LSTR_HOME"], os.environ["OMP_NUM_THREADS"] = home, "1"
    torch.set_num_threads(1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.argv = ["lstr", *words]
    main()


class Runs:
    """Starts a job's command, writing to `folder`."""

    def __init__(self, launcher, job: Job, folder: Path, home: Path):
        self.launcher, self.job, self.folder, self.home = launcher, job, folder, home
        self.log = folder.with_suffix(".log")

    def begin(self):
        resumed = self.job.begun and (self.folder / "run" / self.job.begun).exists()
        words = [*self.job.words, "--resume"] if resumed else self.job.words
        filled = [str(word).replace("FOLDER", str(self.folder)) for word in words]
        process = self.launcher.Process(target=work, args=(filled, str(self.log), str(self.home)))
        process.start()
        while process.is_alive() and not hears(process.pid):
            time.sleep(0.005)
        return process

    def finish(self) -> float:
        """Run it to its end; the seconds it took."""
        start = time.monotonic()
        process = self.begin()
        process.join()
        assert process.exitcode == 0, self.log.read_text()
        return time.monotonic() - start

    def stop(self, how: signal.Signals, after: float) -> bool:
        """Send it a signal after so many seconds; False where it had ended before."""
        process = self.begin()
        process.join(after)
        if not process.is_alive():
            assert process.exitcode == 0, self.log.read_text()
            return False
        os.kill(process.pid, how)
        start, patience = time.monotonic(), SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        process.join()
        while (left := of_session(process.pid)) and time.monotonic() - start < patience:
            time.sleep(0.05)
        took = time.monotonic() - start
        assert not left, f"{left} after {took:.1f} s"
        if process.exitcode == 0:  # it was about to end
            return False
        errors = self.log.read_text()
        assert process.exitcode == CODES[how] and "Traceback" not in errors, (process.exitcode, errors)
        assert took < patience, f"{took:.1f} s of {patience:.1f} s"
        return True


def hears(pid: int) -> bool:
    """Whether a process catches SIGTERM by now."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def of_session(session: int) -> list[str]:
    """The command lines of a session's processes, but for those that are dead and not yet buried."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of, *_ = path.read_text().rpartition(")")[2].split()
            if int(of) == session and state != "Z":
                found.append((path.parent / "cmdline").read_text().replace("\0", " ")[:200])
    return found


def read_all(folder: Path, killed: bool) -> None:
    """Fail where a file cannot be read: only kill -9 leaves temporary ones, and a last line cut short."""
    for path in folder.rglob("*"):
        if ".tmp-" in path.name:
            assert killed, path
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".npy":
            np.load(path)
        elif path.suffix in (".pt", ".pth"):
            torch.load(path, weights_only=True)
        elif path.suffix == ".lstr":
            assert zipfile.ZipFile(path).testzip() is None
        elif path.suffix == ".jsonl":
            *lines, last = path.read_text().split("\n")
            [json.loads(line) for line in lines]
            assert last == "" or killed, path
    for path in folder.glob("features/recipe.json"):
        faults = verify(open_features(path.parent))[1]
        assert not [f for f in faults if f["what"] != "is missing" and "no record" not in f["what"]]


@pytest.mark.parametrize(
    ("name", "moments"),
    [
        pytest.param("extract 1", 1, marks=pytest.mark.long),
        *(
            pytest.param(name, MOMENTS, marks=pytest.mark.slow)
            for name in ("extract 1", "extract 2", "train", "finetune", "learn", "detect")
        ),
    ],
)
def test_stopped_at_random_moments_it_resumes_to_the_bit(launcher, small_set, tmp_path, name, moments):
    job, home = job_of(name, small_set), Path(os.environ["LSTR_HOME"])
    longest = Runs(launcher, job, tmp_path / "whole", home).finish()
    expected = job.results(tmp_path / "whole")
    assert expected
    draw = random.Random(name)
    stops, k, anew, killed = 0, 0, True, False
    runs = Runs(launcher, job, tmp_path / "0", home)
    while stops < moments:
        how = HOWS[stops % len(HOWS)]
        if runs.stop(how, draw.uniform(0, 0.9 * longest)):
            stops, anew, killed = stops + 1, False, killed or how == signal.SIGKILL
            read_all(runs.folder, killed)  # what kill -9 left may be there until the run is done
            continue
        assert job.results(runs.folder) == expected
        if anew:  # the first run converted networks too, or the machine was busier
            longest *= 0.8
        k, anew, killed = k + 1, True, False
        runs = Runs(launcher, job, tmp_path / str(k), home)
    runs.finish()
    assert job.results(runs.folder) == expected
    assert not list(runs.folder.rglob(".*.tmp-*"))


def mount(disk: Path, options: str) -> int:
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True).returncode


@pytest.mark.long
def test_a_disk_that_fills_up_and_one_that_is_read_only(small_set, tmp_path, lstr):
    """A disk of its own, on which the features of two videos fit."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if mount(disk, "size=400k"):
        pytest.skip("a disk can be mounted by root alone")
    try:
        extract = ("extract", small_set.videos, "-o", disk / "f", "--recipe", small_set.recipe, *DIS, "--workers", 1)
        assert_error(lstr(*extract), 2, "No space left on device")
        done = open_features(disk / "f").ids()
        assert 0 < len(done) < 4 and not list(disk.rglob(".*.tmp-*"))
        read_all(disk, killed=False)
        mount(disk, "remount,size=4m,ro")
        assert_error(lstr(*extract), 2, "Read-only file system")
        mount(disk, "remount,rw")
        code, _, err = lstr(*extract)
        assert code == 0 and f"{4 - len(done)} done, {len(done)} kept" in err, err
        mount(disk, "remount,ro")
        code, _, err = lstr(*extract)
        assert code == 0 and "4 kept" in err, "nothing to write"
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
