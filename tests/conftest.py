"""Fixtures of several test files."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

import av
import pytest
import torch

from tests.support.browser import report_on, wait_for, write_greys
from tests.support.feature_set import FeatureSet, write_features
from tests.support.finetuned import FinetunedSet, write_finetuned
from tests.support.processes import run_command
from tests.support.small_set import SmallSet, write_small_set
from tests.support.videos import mux_silence

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --autoplay-policy=no-user-gesture-required"
).split()


T = TypeVar("T")

with suppress(ImportError):  # the tests of a GPU need none of the test extras
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "lstr",
        deadline=None,
        max_examples=50,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize="CI" in os.environ,
    )
    settings.load_profile("lstr")

# A second thread does not help with models this small.
torch.set_num_threads(1)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Fail `make test-gpu` on a machine where every test would be skipped."""
    if os.environ.get("LSTR_NEEDS_GPU") and not torch.cuda.is_available():
        raise pytest.UsageError("torch finds no GPU; see `lstr doctor`.")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of a GPU on a machine without one."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no GPU")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data, which is not part of the repository."""
    folder = Path(os.environ.get("LSTR_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"no reference data in {folder}; set LSTR_SHARED to the folder that holds data/golden")
    return folder


@pytest.fixture(scope="session", autouse=True)
def base(tmp_path_factory) -> Path:
    """A folder that all processes of this test run share, with the home folder of fixtures of the session."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ["LSTR_HOME"] = str(folder / "home")
    return folder


@pytest.fixture(scope="session")
def small_set(base) -> SmallSet:
    """Four tiny videos, their labels, features and a checkpoint, written by the real jobs."""
    return write_once(base / "small set", write_small_set)  # with a space, as in folders of users


@pytest.fixture(scope="session")
def finetuned(base) -> FinetunedSet:
    """Videos, and networks in two folds that were trained on some of them."""
    return write_once(base / "finetuned", write_finetuned)


def write_once(root: Path, write: Callable[[Path], T]) -> T:
    """Return the result of `write`, which one process of the test run calls."""
    result = root.with_name(f"{root.name}.pickle")
    with root.with_name(f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            result.write_bytes(pickle.dumps(write(root)))
        return pickle.loads(result.read_bytes())


@pytest.fixture
def feature_set(tmp_path) -> FeatureSet:
    """Five videos of 16 seconds: three to train on, two for validation."""
    return write_features(tmp_path / "features")


@pytest.fixture
def sound_only(tmp_path) -> Path:
    """An MP4 with a second of silence and no video: `sound.mp4` in the test's folder."""
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        mux_silence(container, container.add_stream("aac", rate=8000, layout="mono"), 1)
    return path


@pytest.fixture
def lstr(monkeypatch, capsys):
    """Run a command in this process: lstr(*arguments) -> (exit code, stdout, stderr)."""
    from lstr_cli.main import main

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["lstr", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def run(lstr):
    """Run a command that succeeds; return its standard output and standard error."""

    def run(*words) -> tuple[str, str]:
        code, out, err = lstr(*words)
        assert code == 0, err
        return out, err

    return run


@pytest.fixture(scope="session")
def launcher():
    """A context of multiprocessing whose processes have imported `lstr`, which takes seconds."""
    context = multiprocessing.get_context("forkserver")
    names = "features.extract learning.learn detection.detect watching.service training.train"
    context.set_forkserver_preload(["torch._dynamo", "rich.progress", *(f"lstr.pipelines.{n}" for n in names.split())])
    process = context.Process()
    process.start()
    process.join()
    return context


@pytest.fixture
def launch(launcher):
    """Start a command in a process that has imported everything: launch(*words, log, **environment) -> the process."""
    processes = []

    def start(*words, log: Path | str = os.devnull, **environment: str):
        arguments = ([*map(str, words)], str(log), {"LSTR_HOME": os.environ["LSTR_HOME"], **environment})
        processes.append(launcher.Process(target=run_command, args=arguments))
        processes[-1].start()
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


@pytest.fixture(autouse=True)
def isolated_home(monkeypatch, tmp_path_factory, base):
    """Give each test an empty home folder; converted networks are shared."""
    homes, shared = tmp_path_factory.getbasetemp() / "homes", base / "home" / "runtimes"
    homes.mkdir(exist_ok=True)
    shared.mkdir(parents=True, exist_ok=True)
    home = Path(mkdtemp(prefix="lstr home ", dir=homes))  # tmp_path_factory looks at all folders of earlier tests
    (home / "runtimes").symlink_to(shared)
    monkeypatch.setenv("LSTR_HOME", str(home))
    for name in ("LSTR_CHECKPOINT", "LSTR_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def chromium():
    """A headless browser; skips if it is not installed."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: `apt-get install chromium`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium):
    """Open a report file or the address of a server: show(target, width) -> page.

    The test fails on dialogs, requests to other hosts, and console messages without an `expected` text.
    """
    errors, contexts = [], []

    def open_page(target: Path | str, width: int = 1280, expected: tuple[str, ...] = (), **settings):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        own = ("data:", "blob:", "file:" if isinstance(target, Path) else target.partition("?")[0])
        page.on("console", lambda m: any(text in m.text for text in expected) or errors.append(m.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: request.url.startswith(own) or errors.append(request.url))
        page.goto(target.as_uri() if isinstance(target, Path) else target)
        wait_for(page, "typeof frameAsked === 'undefined' || !frameAsked")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a video of ten seconds with labels and events."""
    folder = tmp_path_factory.mktemp("a report #1")
    write_greys(folder / "greys.mp4")
    return report_on(folder / "greys.mp4", folder / "report.html")
