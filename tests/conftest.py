"""Fixtures that several test files share."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from tests.support.browser import CHROMIUM, FLAGS, report_on, until, write_greys
from tests.support.feature_set import FeatureSet, write_features
from tests.support.finetuned import FinetunedSet, write_finetuned
from tests.support.oldest import installed_versions

with suppress(ImportError):  # the tests of a GPU need none of the test extras
    from hypothesis import HealthCheck, settings

    # A test never fails because the machine was slow.
    settings.register_profile(
        "lstr",
        deadline=None,
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which versions the run was with; a header is not shown with `-q`."""
    terminalreporter.write_line(", ".join(installed_versions()))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data, which is not part of the repository."""
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("LSTR_SHARED", default))
    if not (folder / "data").is_dir():
        pytest.skip(f"no reference data in {folder}; set LSTR_SHARED to the folder that holds data/golden")
    return folder


@dataclass(frozen=True)
class SmallSet:
    """Four tiny videos, their labels, features and a checkpoint, made once by the real jobs."""

    videos: Path
    labels: Path
    features: Path
    checkpoint: Path


@pytest.fixture(scope="session")
def small_set(tmp_path_factory) -> SmallSet:
    """Rendered, extracted and trained: everything but the size is as a user has it. The same for all processes."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    root = base / "small set"  # a space, because users' folders have them
    made = SmallSet(root / "videos", root / "labels.json", root / "features", root / "run" / "checkpoint.pt")
    with (base / "small set.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            write_small_set(root)
    return made


def write_small_set(root: Path) -> None:
    """What `small_set` holds."""
    from lstr.extractors.presets import PRESETS
    from lstr.extractors.video.inputs import find_videos
    from lstr.pipelines.datasets.dataset import read_split
    from lstr.pipelines.demo.scenes import SceneConfig, render_scenes
    from lstr.pipelines.extraction.job import extract
    from lstr.pipelines.extraction.options import ExtractOptions
    from lstr.pipelines.extraction.resume import Outcome
    from lstr.pipelines.progress import Failed
    from lstr.pipelines.training.config import resolve
    from lstr.pipelines.training.run import Task, train_model

    labels = render_scenes(root, SceneConfig(n_videos=4, n_testing=1, seconds=5.0, width=96, height=64))
    features = root / "features"
    options = ExtractOptions(features, device="cpu", threads=2, workers=1, recipe=PRESETS["fast"], calibrate=labels)
    events = list(extract(find_videos([root / "videos"]), options))
    assert {e.state for e in events if isinstance(e, Outcome)} == {"done"}
    assert not [e for e in events if isinstance(e, Failed)]
    split = read_split(features, labels, "training")
    model, config = resolve("lstr-small", {"train.epochs": "80", "model.d_model": "64"}, split.dims)
    for _ in train_model(Task(split, model, config), root / "run"):
        pass


@pytest.fixture(scope="session")
def finetuned(tmp_path_factory) -> FinetunedSet:
    """Videos, and networks in two folds that have seen some of them."""
    return write_finetuned(tmp_path_factory.mktemp("finetuned"))


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
def own_home(monkeypatch, tmp_path_factory):
    """No test reads or leaves a default checkpoint outside its own folder; converted networks are made once for all."""
    home, base = tmp_path_factory.mktemp("lstr home "), tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runtimes"
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
    """Open a report: show(path, width) -> page. Words on the console and requests beyond files fail the test."""
    complaints, pages = [], []

    def open_page(path, width: int = 1280, missing: str = "", **settings):
        page = chromium.new_page(viewport={"width": width, "height": 900}, **settings)
        pages.append(page)
        page.on("console", lambda message: (missing and missing in message.text) or complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: request.url.startswith(("file:", "data:", "blob:")) or complaints.append(request.url),
        )
        page.goto(path.as_uri())
        until(page, "typeof frameAsked === 'undefined' || !frameAsked")
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not complaints


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of a real file of ten seconds, with labels and events, opened from disk."""
    folder = tmp_path_factory.mktemp("a report #1")
    write_greys(folder / "greys.mp4")
    return report_on(folder / "greys.mp4", folder / "report.html")
