"""A full disk, closed outputs, little memory, and a working folder that was removed."""

import sys
from pathlib import Path

import pytest

from tests.support.errors import assert_error
from tests.support.feature_set import TINY_SETTINGS
from tests.support.processes import limit_file_size, run_process

SETTINGS = [f"--set={name}={value}" for name, value in {**TINY_SETTINGS, "train.epochs": "1"}.items()]


def test_train_on_a_full_disk(feature_set, tmp_path, lstr):
    """Either the checkpoint or the larger training state does not fit; temporary files of killed runs are removed."""
    train = ["train", feature_set.features, "--labels", feature_set.labels, *SETTINGS, "-o"]
    run, names = tmp_path / "complete", ("checkpoint.pt", "resume.pt")
    run.mkdir()
    for name in names:
        (run / f".{name}.tmp-12345678").touch()
    assert lstr(*train, run)[0] == 0 and not list(run.glob(".*"))
    checkpoint, state = ((run / name).stat().st_size for name in names)
    for size, code in ((20_000, 4), ((checkpoint + state) // 2, 2)):
        with limit_file_size(size):
            assert_error(lstr(*train, tmp_path / str(size)), code, "File too large")
        assert not list((tmp_path / str(size)).glob(".*.tmp-*"))
    assert 20_000 < checkpoint < state - 1000


def run_shell(line: str, **options) -> tuple[int, str, str]:
    """Run a shell line in which `lstr` is this checkout's."""
    return run_process("bash", "-c", line.replace("lstr ", f"{sys.executable} -m lstr_cli "), **options)


@pytest.mark.long
def test_a_read_only_dev_shm(feature_set, tmp_path):
    mount = "mount -t tmpfs -o ro tmpfs /dev/shm"  # in a namespace of the command alone
    if run_shell(f"unshare --mount {mount}")[0]:
        pytest.skip("this user cannot mount file systems")
    train = f"lstr train {feature_set.features} --labels {feature_set.labels} {' '.join(SETTINGS)} -o {tmp_path}/run"
    assert_error(run_shell(f"unshare --mount bash -c '{mount}; {train}'"), 2, "/dev/shm")


def test_full_or_closed_standard_output():
    for unbuffered in ("", "1"):
        assert_error(run_shell("lstr --version > /dev/full", env={"PYTHONUNBUFFERED": unbuffered}), 1)
    lines = (f"lstr info nowhere 2>{target}; echo $?" for target in ("&-", "/dev/full"))
    unread = "lstr models --json | true; echo ${PIPESTATUS[0]}"
    _, out, err = run_shell("; ".join((*lines, unread, "lstr --help | head -1")))
    assert out.split()[:3] == ["2", "2", "0"] and err == "" and "Usage" in out


@pytest.mark.long
@pytest.mark.parametrize(
    "words", ["models rnn --json >/dev/full", "detect FEATURES -m RUN >&-", "detect FEATURES -m RUN --json >/dev/full"]
)
def test_lost_results_are_an_error(small_set, words):
    words = words.replace("RUN", f"'{small_set.checkpoint}'").replace("FEATURES", f"'{small_set.features}'")
    code, _, err = run_shell(f"lstr {words}")
    assert code == 1 and err.count("error: ") == err.count("hint: ") == 1 and "LSTR_DEBUG" not in err, err


@pytest.mark.long
def test_detect_runs_with_few_open_files_and_without_standard_error(small_set, tmp_path):
    detect = f"lstr detect '{small_set.features}' -m '{small_set.checkpoint}' -o {tmp_path}/t"
    code, out, _ = run_shell(f"ulimit -n 64; {detect} 2>&- >/dev/null; echo $?")
    assert out == "0\n" and len(list((tmp_path / "t").glob("*.jsonl"))) == 4
    assert len(list((tmp_path / "t").glob("*.html"))) == 5


def test_memory_too_small_for_the_libraries(small_set, tmp_path):
    # below 1 GB OpenCV's own loader dies of a signal, before anything of this program can report it
    train = f"lstr train '{small_set.features}' --labels '{small_set.labels}' -o {tmp_path}/r"
    assert_error(run_shell(f"ulimit -v 1000000; {train}"), 1, "ulimit -v")


def test_a_removed_working_folder(tmp_path):
    folder = tmp_path / "removed"
    folder.mkdir()
    result = run_shell(f"cd {folder}; rmdir {folder}; lstr models", env={"PYTHONPATH": str(Path.cwd())})
    assert_error(result, 2)
