"""What the machine does not give: room on the disk, a place to print to, the folder that one stands in."""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch

from lstr.errors import OutputError
from lstr.files.atomic import replacing, write_tensors
from tests.support.feature_set import TINY_SETTINGS
from tests.support.mistakes import mistake
from tests.support.processes import room


def test_tensors_without_room_are_an_error_of_the_disk(tmp_path):
    """Torch's own writer hides what the system said in a RuntimeError, which no job takes for a full disk."""
    with room(10_000), pytest.raises(OutputError, match="File too large"), replacing(tmp_path / "t.pt") as temporary:
        write_tensors(temporary, {"w": torch.zeros(10**5)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("size", "code"), [(20_000, 4), (0, 2)], ids=["checkpoint", "state"])
def test_train_without_room(feature_set, tmp_path, lstr, size, code):
    """Whichever file of a run is the first that does not fit."""
    settings = [f"--set={name}={value}" for name, value in {**TINY_SETTINGS, "train.epochs": "1"}.items()]
    train = ["train", feature_set.features, "--labels", feature_set.labels, *settings, "-o"]
    if not size:
        assert lstr(*train, tmp_path / "whole")[0] == 0
        sizes = [(tmp_path / "whole" / name).stat().st_size for name in ("checkpoint.pt", "resume.pt")]
        assert sizes[0] + 1000 < sizes[1]
        size = sum(sizes) // 2
    with room(size):
        result = lstr(*train, tmp_path / "run")
    assert "File too large" in result[2] and "Traceback" not in result[2] and "RuntimeError" not in result[2]
    assert result[0] == code and result[2].count("error: ") == result[2].count("hint: ") == 1, result[2]
    assert not list((tmp_path / "run").glob(".*.tmp-*"))


def test_what_a_killed_training_left_is_removed(feature_set, tmp_path, lstr):
    """Each kill while a state was saved left a file of the state's size, for good."""
    settings = [f"--set={name}={value}" for name, value in {**TINY_SETTINGS, "train.epochs": "1"}.items()]
    for name in (".resume.pt.tmp-12345678", ".checkpoint.pt.tmp-12345678"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).touch()
    assert (
        lstr("train", feature_set.features, "--labels", feature_set.labels, *settings, "-o", tmp_path / "run")[0] == 0
    )
    assert not list((tmp_path / "run").glob(".*"))


def shell(line: str, within: Sequence[str] = (), **more) -> subprocess.CompletedProcess:
    """A command line whose `lstr` is this one; `within` are words of a command that runs it."""
    command = line.replace("lstr ", f"{sys.executable} -m lstr_cli ")
    return subprocess.run([*within, "bash", "-c", command], capture_output=True, text=True, check=False, **more)


@pytest.mark.long
def test_locks_of_processes_cannot_be_made(feature_set, tmp_path):
    """As in a container whose /dev/shm is read-only: a private one here, in a name space of the command alone."""
    own = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*own, "mount", "-t", "tmpfs", "-o", "ro", "tmpfs", "/dev/shm"], capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    settings = " ".join(f"--set {name}={value}" for name, value in TINY_SETTINGS.items())
    train = f"lstr train {feature_set.features} --labels {feature_set.labels} {settings} -o {tmp_path}/run"
    left = shell(f"mount -t tmpfs -o ro tmpfs /dev/shm && {train}", own)
    assert left.returncode == 2 and "log for TensorBoard cannot be opened (Read-only file system)" in left.stderr
    assert left.stderr.count("hint: ") == 1 and "/dev/shm" in left.stderr


def test_standard_output_that_is_full_or_closed():
    """What it was to print is lost, which the code says; nothing else is."""
    for buffered in ({}, {"PYTHONUNBUFFERED": "1"}):
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | buffered
        full = shell("lstr --version > /dev/full", env=env)
        assert full.returncode == 1 and full.stderr.count("error: Standard output cannot be written") == 1
        assert full.stderr.count("hint: ") == 1 and "Traceback" not in full.stderr and "Exception" not in full.stderr
    left = shell("lstr info nowhere 2>&-; echo $?; lstr info nowhere 2>/dev/full; echo $?; lstr --help | head -1")
    assert left.stdout.split()[:2] == ["2", "2"] and left.stderr == "" and "Usage" in left.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "where"),
    [("models rnn --json", "/dev/full"), ("info RUN", "&-"), ("detect FEATURES -m RUN", "&-")]
    + [("detect FEATURES -m RUN --json", "/dev/full")],
)
def test_results_that_nobody_gets(small_set, command, where):
    """Closed output lost them with 0, and full output was a failure of the program, or of an output folder."""
    command = command.replace("RUN", f"'{small_set.checkpoint}'").replace("FEATURES", f"'{small_set.features}'")
    left = shell(f"lstr {command} >{where}")
    assert left.returncode == 1 and left.stderr.count("error: Standard output cannot be written") == 1, left.stderr
    assert left.stderr.count("hint: ") == 1 and "LSTR_DEBUG" not in left.stderr


def test_memory_that_does_not_even_hold_the_libraries(small_set, tmp_path):
    """A shared machine allows no more (`ulimit -v`): the class of an error and words of the loader were shown."""
    # below 1 GB OpenCV's own loader dies of a signal, before anything of this program can say so
    left = shell(f"ulimit -v 1000000; lstr train '{small_set.features}' --labels '{small_set.labels}' -o {tmp_path}/r")
    mistake((left.returncode, left.stdout, left.stderr), 1, "Memory ran out", "ulimit -v")


@pytest.mark.long
def test_few_open_files(small_set, tmp_path):
    """A detection needs no more than a shell's smallest limits allow."""
    left = shell(f"ulimit -n 64; lstr detect '{small_set.features}' -m '{small_set.checkpoint}' -o {tmp_path}/t")
    assert left.returncode == 0 and len(list((tmp_path / "t").glob("*.jsonl"))) == 4, left.stderr


@pytest.mark.long
def test_standard_error_that_is_closed_during_work(small_set, tmp_path):
    """What was to be said is lost, and nothing else."""
    detect = f"lstr detect '{small_set.features}' -m '{small_set.checkpoint}' -o {tmp_path}/t"
    left = shell(f"{detect} 2>&- >/dev/null; echo $?")
    assert left.stdout == "0\n" and len(list((tmp_path / "t").glob("*.html"))) == 5


def test_a_working_folder_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    left = shell(f"cd {gone}; rmdir {gone}; lstr models", env={**os.environ, "PYTHONPATH": os.getcwd()})
    mistake((left.returncode, left.stdout, left.stderr), 2, "has been deleted")
