"""What the machine does not give: room on the disk, a place to print to, memory, the working folder."""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch

from lstr.errors import OutputError
from lstr.files.atomic import replacing, write_tensors
from tests.support.errors import assert_error
from tests.support.feature_set import TINY_SETTINGS
from tests.support.processes import limit_file_size

SETTINGS = [f"--set={name}={value}" for name, value in {**TINY_SETTINGS, "train.epochs": "1"}.items()]


def test_tensors_without_room_are_an_error_of_the_disk(tmp_path):
    """Torch's own writer hides what the system said in a RuntimeError, which no job takes for a full disk."""
    with limit_file_size(10_000), pytest.raises(OutputError), replacing(tmp_path / "t.pt") as temporary:
        write_tensors(temporary, {"w": torch.zeros(10**5)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("size", "code"), [(20_000, 4), (0, 2)], ids=["checkpoint", "state"])
def test_train_without_room(feature_set, tmp_path, lstr, size, code):
    """Whichever file of a run is the first that does not fit; what killed runs left is removed."""
    train = ["train", feature_set.features, "--labels", feature_set.labels, *SETTINGS, "-o"]
    if not size:
        (tmp_path / "whole").mkdir()
        for name in ("resume.pt", "checkpoint.pt"):
            (tmp_path / "whole" / f".{name}.tmp-12345678").touch()
        assert lstr(*train, tmp_path / "whole")[0] == 0
        assert not list((tmp_path / "whole").glob(".*"))
        sizes = [(tmp_path / "whole" / name).stat().st_size for name in ("checkpoint.pt", "resume.pt")]
        assert sizes[0] + 1000 < sizes[1]
        size = sum(sizes) // 2
    with limit_file_size(size):
        result = lstr(*train, tmp_path / "run")
    assert "File too large" in result[2] and "Traceback" not in result[2] and "RuntimeError" not in result[2]
    assert result[0] == code and result[2].count("error: ") == result[2].count("hint: ") == 1, result[2]
    assert not list((tmp_path / "run").glob(".*.tmp-*"))


def shell(line: str, within: Sequence[str] = (), **more) -> tuple[int, str, str]:
    """The result of a command line whose `lstr` is this one; `within` are words of a command that runs it."""
    command = line.replace("lstr ", f"{sys.executable} -m lstr_cli ")
    ran = subprocess.run([*within, "bash", "-c", command], capture_output=True, text=True, check=False, **more)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.long
def test_locks_of_processes_cannot_be_made(feature_set, tmp_path):
    """As in a container whose /dev/shm is read-only: a private one here, in a name space of the command alone."""
    own = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*own, "mount", "-t", "tmpfs", "-o", "ro", "tmpfs", "/dev/shm"], capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    train = f"lstr train {feature_set.features} --labels {feature_set.labels} {' '.join(SETTINGS)} -o {tmp_path}/run"
    code, _, err = shell(f"mount -t tmpfs -o ro tmpfs /dev/shm && {train}", own)
    assert code == 2 and err.count("hint: ") == 1 and "/dev/shm" in err and "Traceback" not in err


def test_standard_output_that_is_full_or_closed():
    """What it was to print is lost, which the code says; nothing else is."""
    for buffered in ({}, {"PYTHONUNBUFFERED": "1"}):
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | buffered
        assert_error(shell("lstr --version > /dev/full", env=env), 1)
    _, out, err = shell(
        "lstr info nowhere 2>&-; echo $?; lstr info nowhere 2>/dev/full; echo $?; lstr --help | head -1"
    )
    assert out.split()[:2] == ["2", "2"] and err == "" and "Usage" in out


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("models rnn --json", "/dev/full"),
        ("detect FEATURES -m RUN", "&-"),
        ("detect FEATURES -m RUN --json", "/dev/full"),
    ],
)
def test_results_that_nobody_gets(small_set, command, where):
    """Closed output lost them with 0, and full output was a failure of the program, or of an output folder."""
    command = command.replace("RUN", f"'{small_set.checkpoint}'").replace("FEATURES", f"'{small_set.features}'")
    code, _, err = shell(f"lstr {command} >{where}")
    assert code == 1 and err.count("error: ") == err.count("hint: ") == 1 and "LSTR_DEBUG" not in err, err


@pytest.mark.long
def test_a_detection_needs_few_open_files_and_no_standard_error(small_set, tmp_path):
    """No more than a shell's smallest limits allow; what was to be said is lost, and nothing else."""
    detect = f"lstr detect '{small_set.features}' -m '{small_set.checkpoint}' -o {tmp_path}/t"
    code, out, _ = shell(f"ulimit -n 64; {detect} 2>&- >/dev/null; echo $?")
    assert out == "0\n" and len(list((tmp_path / "t").glob("*.jsonl"))) == 4
    assert len(list((tmp_path / "t").glob("*.html"))) == 5


def test_memory_that_does_not_even_hold_the_libraries(small_set, tmp_path):
    """A shared machine allows no more (`ulimit -v`): the class of an error and words of the loader were shown."""
    # below 1 GB OpenCV's own loader dies of a signal, before anything of this program can say so
    train = f"lstr train '{small_set.features}' --labels '{small_set.labels}' -o {tmp_path}/r"
    assert_error(shell(f"ulimit -v 1000000; {train}"), 1, "ulimit -v")


def test_a_working_folder_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    assert_error(shell(f"cd {gone}; rmdir {gone}; lstr models", env={**os.environ, "PYTHONPATH": os.getcwd()}), 2)
