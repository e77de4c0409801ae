"""Every long command, stopped at random moments or by a full disk: no file is truncated, and it resumes to the bit.

It is stopped in turn by `kill -9`, SIGTERM (docker stop, systemd) and SIGHUP (a closed terminal), each to the main
process only. $LSTR_MOMENTS is how many times each command is stopped.
"""

import json
import os
import random
import signal
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
from lstr.pipelines.training.run import CONFIG
from tests.support.errors import assert_error
from tests.support.processes import run_process
from tests.support.waiting import TIMEOUT_S, wait_until

MOMENTS = int(os.environ.get("LSTR_MOMENTS", "20"))
EXIT_CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGHUP: 129}
DIS = ("--set", "recipe.flow_algorithm=dis")
Results = Callable[[Path], dict[str, bytes]]


@dataclass
class Job:
    """A command, and the results in its folder that are compared."""

    words: list
    results: Results
    resumed_if: str | None = None
    """A file of the run folder; where it exists, the command needs --resume."""


def read_files(*patterns: str) -> Results:
    return lambda folder: {str(p.relative_to(folder)): p.read_bytes() for x in patterns for p in folder.rglob(x)}


def tensor_bytes(tensors: Mapping[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def set_options(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def make_job(name: str, small_set) -> Job:
    """The command `name` on the small set; FOLDER is replaced by its folder."""
    videos, labels, features = small_set.videos, small_set.labels, small_set.features
    if name.startswith("extract"):
        sources = [videos] if "two" not in name else sorted(videos.iterdir())[:2]
        options = ("--recipe", small_set.recipe, *DIS, "--workers", name[-1])
        words = ["extract", *sources, "-o", "FOLDER/features", *options]
        return Job(words, read_files("rgb_*/*.npy", "flow_*/*.npy"))
    if name == "train":
        words = ["train", features, "--labels", labels, "-o", "FOLDER/run", "--preset", "lstr-small"]
        words += set_options("model.d_model=32", "train.epochs=12", "train.save_seconds=0")
        # tensors only, because a checkpoint has the time of its creation
        read = lambda folder: tensor_bytes(load(folder / "run" / "checkpoint.pt").model.state_dict())  # noqa: E731
        return Job(words, read, "resume.pt")
    if name == "finetune":
        words = ["finetune", videos, "--labels", labels, "-o", "FOLDER/run", "--stream", "flow", *DIS]
        words += set_options("epochs=4", "draws=24")
        return Job(words, lambda folder: tensor_bytes(read_state_dict(folder / "run" / "flow.pth")), CONFIG)
    if name == "learn":
        settings = ("cache=FOLDER/chunks", "epochs=2", "draws=24", "model.d_model=32", "train.epochs=4")
        words = ["learn", videos, labels, "-o", "FOLDER/drawn.lstr", *DIS, *set_options(*settings)]
        return Job(words, read_files("drawn.lstr"))
    words = ["detect", videos, "-c", small_set.checkpoint, "-o", "FOLDER", "-f", "json,jsonl,npy,html"]
    return Job(words, read_files("*.npy"))


class Runs:
    """Starts a job's command, which writes to `folder`."""

    def __init__(self, launch, job: Job, folder: Path):
        self.launch, self.job, self.folder = launch, job, folder
        self.log = folder.with_suffix(".log")

    def start(self):
        resumed = self.job.resumed_if and (self.folder / "run" / self.job.resumed_if).exists()
        words = [str(word).replace("FOLDER", str(self.folder)) for word in self.job.words]
        process = self.launch(*words, *["--resume"] * bool(resumed), log=self.log)
        wait_until(lambda: not process.is_alive() or catches_sigterm(process.pid))
        return process

    def finish(self) -> float:
        """Run the command to its end; return the seconds."""
        start = time.monotonic()
        process = self.start()
        process.join()
        assert process.exitcode == 0, self.log.read_text()
        return time.monotonic() - start

    def stop(self, signal_number: signal.Signals, after_s: float) -> bool:
        """Send a signal after some time; return False if the command had ended before."""
        process = self.start()
        process.join(after_s)
        if not process.is_alive():
            assert process.exitcode == 0, self.log.read_text()
            return False
        os.kill(process.pid, signal_number)
        process.join(TIMEOUT_S)
        wait_until(lambda: not session_commands(process.pid))
        if process.exitcode == 0:  # the signal came at the very end
            return False
        errors = self.log.read_text()
        assert process.exitcode == EXIT_CODES[signal_number] and "Traceback" not in errors, (process.exitcode, errors)
        return True


def catches_sigterm(pid: int) -> bool:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def session_commands(session: int) -> list[str]:
    """Return the command lines of a session's processes, except zombies."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session_id, *_ = path.read_text().rpartition(")")[2].split()
            if int(session_id) == session and state != "Z":
                commands.append((path.parent / "cmdline").read_text().replace("\0", " ")[:200])
    return commands


def read_all(folder: Path, killed: bool) -> None:
    """Fail if a file is unreadable; only kill -9 may leave temporary files and a truncated last line."""
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
    # rows of zeros, of frames without movement, are in the features of the whole run too
    known = [fault for path in folder.parent.glob("whole/features") for fault in verify(open_features(path))[1]]
    for path in folder.glob("features/recipe.json"):
        faults = [fault for fault in verify(open_features(path.parent))[1] if fault not in known]
        assert not [f for f in faults if f["what"] != "is missing" and "no record" not in f["what"]]


SLOW = ("extract 1", "extract 2", "train", "finetune", "learn", "detect")


@pytest.mark.parametrize(
    ("name", "moments"),
    [
        pytest.param("extract two videos 1", 1, marks=pytest.mark.long),
        *(pytest.param(name, MOMENTS, marks=pytest.mark.slow) for name in SLOW),
    ],
)
def test_stopped_commands_resume_to_the_same_bits(launch, small_set, tmp_path, name, moments):
    job = make_job(name, small_set)
    duration = Runs(launch, job, tmp_path / "whole").finish()
    expected = job.results(tmp_path / "whole")
    assert expected
    random_moments = random.Random(name)
    stops, folders, is_new, killed = 0, 0, True, False
    runs = Runs(launch, job, tmp_path / "0")
    while stops < moments:
        signal_number = [*EXIT_CODES][stops % len(EXIT_CODES)]
        if runs.stop(signal_number, random_moments.uniform(0, 0.9 * duration)):
            stops, is_new, killed = stops + 1, False, killed or signal_number == signal.SIGKILL
            read_all(runs.folder, killed)  # temporary files of kill -9 may stay until the run is complete
            continue
        assert job.results(runs.folder) == expected
        if is_new:  # the first run converted networks too, or the machine was busier
            duration *= 0.8
        folders, is_new, killed = folders + 1, True, False
        runs = Runs(launch, job, tmp_path / str(folders))
    runs.finish()
    assert job.results(runs.folder) == expected
    assert not list(runs.folder.rglob(".*.tmp-*"))


@pytest.mark.long
def test_extraction_to_a_disk_for_two_videos_and_to_a_read_only_one(small_set, tmp_path, lstr, run):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = lambda options: run_process("mount", "-t", "tmpfs", "-o", options, "tmpfs", disk)[0]  # noqa: E731
    if mount("size=400k"):
        pytest.skip("only root can mount a file system")
    try:
        extract = ("extract", small_set.videos, "-o", disk / "f", "--recipe", small_set.recipe, *DIS, "--workers", 1)
        assert_error(lstr(*extract), 2, "No space left on device")
        done = open_features(disk / "f").ids()
        assert 0 < len(done) < 4 and not list(disk.rglob(".*.tmp-*"))
        read_all(disk, killed=False)
        mount("remount,size=4m,ro")
        assert_error(lstr(*extract), 2, "Read-only file system")
        mount("remount,rw")
        assert f"{4 - len(done)} done, {len(done)} kept" in run(*extract)[1]
        mount("remount,ro")
        assert "4 kept" in run(*extract)[1], "there is nothing to write"
    finally:
        run_process("umount", "-l", disk)
