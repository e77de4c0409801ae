"""Fixtures that several test files share."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import av
import numpy as np
import pytest
import torch

from tests.support.browser import CHROMIUM, FLAGS, report_on, wait_for, write_greys
from tests.support.feature_set import FeatureSet, write_features
from tests.support.finetuned import FinetunedSet, write_finetuned
from tests.support.small_set import SmallSet, write_small_set

T = TypeVar("T")

with suppress(ImportError):  # the tests of a GPU need none of the test extras
    from hypothesis import HealthCheck, settings

    # A test never fails because the machine was slow.
    settings.register_profile(
        "lstr",
        deadline=None,
        max_examples=50,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize="CI" in os.environ,
    )
    settings.load_profile("lstr")

# The models of the tests are so small that a second thread only waits for the first.
torch.set_num_threads(1)


def pytest_sessionstart(session: pytest.Session) -> None:
    """`make test-gpu` is no success where every test would be skipped."""
    if os.environ.get("LSTR_NEEDS_GPU") and not torch.cuda.is_available():
        raise pytest.UsageError("torch finds no GPU here, so that no test of one can run; see `lstr doctor`.")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data, which is not part of the repository."""
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("LSTR_SHARED", default))
    if not (folder / "data").is_dir():
        pytest.skip(f"no reference data in {folder}; set LSTR_SHARED to the folder that holds data/golden")
    return folder


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Path:
    """A folder of this run, the same for all its processes."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def small_set(base) -> SmallSet:
    """Four tiny videos, their labels, features and a checkpoint, made once for all processes by the real jobs."""
    return write_once(base / "small set", write_small_set)  # a space, because users' folders have them


@pytest.fixture(scope="session")
def finetuned(base) -> FinetunedSet:
    """Videos, and networks in two folds that have seen some of them, made once for all processes."""
    return write_once(base / "finetuned", write_finetuned)


def write_once(root: Path, write: Callable[[Path], T]) -> T:
    """What `write` makes in a folder and returns; the other processes wait for it."""
    kept = root.with_name(f"{root.name}.pickle")
    with root.with_name(f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_bytes(pickle.dumps(write(root)))
        return pickle.loads(kept.read_bytes())


@pytest.fixture
def feature_set(tmp_path) -> FeatureSet:
    """Five videos of 16 seconds: three to train on, two for validation."""
    return write_features(tmp_path / "features")


@pytest.fixture
def sound_only(tmp_path) -> Path:
    """An MP4 with a second of silence and no pictures: `sound.mp4` in the test's folder."""
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 44100), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.fixture
def lstr(monkeypatch, capsys):
    """Run a command in this process as a user would: lstr(*arguments) -> (exit code, stdout, stderr)."""
    from lstr_cli.main import main

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["lstr", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def isolated_home(monkeypatch, tmp_path_factory, base):
    """No test reads or leaves a default checkpoint outside its own folder; converted networks are made once for all."""
    home, shared = tmp_path_factory.mktemp("lstr home "), base / "runtimes"
    shared.mkdir(exist_ok=True)
    (home / "runtimes").symlink_to(shared)
    monkeypatch.setenv("LSTR_HOME", str(home))
    monkeypatch.delenv("LSTR_CHECKPOINT", raising=False)
    monkeypatch.delenv("LSTR_DEBUG", raising=False)


@pytest.fixture(scope="module")
def chromium():
    """A headless browser; skips, with the reason, where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install -e .[test]"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: `apt-get install chromium`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium):
    """Open a report file or the address of a server: show(target, width) -> page.

    Messages on the console, except those with an `expected` text, dialogs, and requests to other hosts fail the test.
    """
    complaints, contexts = [], []

    def open_page(target: Path | str, width: int = 1280, expected: tuple[str, ...] = (), **settings):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        own = ("data:", "blob:", "file:" if isinstance(target, Path) else target.partition("?")[0])
        page.on("console", lambda m: any(text in m.text for text in expected) or complaints.append(m.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: request.url.startswith(own) or complaints.append(request.url))
        page.goto(target.as_uri() if isinstance(target, Path) else target)
        wait_for(page, "typeof frameAsked === 'undefined' || !frameAsked")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of a real file of ten seconds, with labels and events, opened from disk."""
    folder = tmp_path_factory.mktemp("a report #1")
    write_greys(folder / "greys.mp4")
    return report_on(folder / "greys.mp4", folder / "report.html")
