"""Worker processes: the same bits as one process, and what becomes of one that dies or fails."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lstr.errors import ExtractorError, WeightsError
from lstr.extractors.video.inputs import find_videos
from lstr.files.atomic import leftovers, write_text
from lstr.files.content import read_jsonl
from lstr.pipelines.features import engines
from lstr.pipelines.features.engines import WorkerProcess, over_processes
from lstr.pipelines.features.extraction import ExtractOptions, Outcome, resume
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import open_output
from lstr.pipelines.progress import Progress
from tests.support.extraction import features_in
from tests.support.injected import write_bad


@pytest.fixture
def begun(small_set, tmp_path):
    """A folder of the same recipe and calibration as the small set's, without videos."""
    (tmp_path / "features").mkdir()
    for name in ("recipe.json", "calibration.pt"):
        shutil.copy(small_set.features / name, tmp_path / "features")
    return tmp_path / "features"


def on_cpu(begun) -> ExtractOptions:
    return ExtractOptions(begun, device="cpu", threads=1)


@pytest.fixture
def started(monkeypatch) -> list[WorkerProcess]:
    """Every worker process that is started, as it starts."""
    made = []
    start = WorkerProcess.__init__
    monkeypatch.setattr(WorkerProcess, "__init__", lambda self, *given: (made.append(self), start(self, *given))[1])
    return made


@pytest.mark.slow
def test_processes_that_are_killed_cost_their_video_alone(small_set, begun, started):
    """scene_00 loses its process each time and fails, scene_01 once and is done by another; the bits are the same."""
    killed, outcomes = [], {}
    videos = {f"scene_0{i}": small_set.videos / f"scene_0{i}.mp4" for i in range(3)}
    for event in resume(videos, open_output(begun), lambda to_do: over_processes(to_do, on_cpu(begun), 2)):
        if isinstance(event, Outcome):
            outcomes[event.id] = event
        if isinstance(event, Progress) and killed.count(event.what) < {"scene_00": 2, "scene_01": 1}.get(event.what, 0):
            killed.append(event.what)
            (at,) = (w for w in started if w.at[0] == event.what and w.process.poll() is None)
            at.process.kill()
    assert sorted(killed) == ["scene_00", "scene_00", "scene_01"]
    assert {i: o.state for i, o in outcomes.items()} == {"scene_00": "failed", "scene_01": "done", "scene_02": "done"}
    assert "SIGKILL" in outcomes["scene_00"].reason and outcomes["scene_00"].hint
    assert [f["id"] for f in read_jsonl(begun / "failed.jsonl")] == ["scene_00"]
    folder, whole = open_features(begun), open_features(small_set.features)
    assert folder.ids() == ["scene_01", "scene_02"]
    for video_id in folder.ids():
        for mine, theirs in zip(features_in(folder, video_id), features_in(whole, video_id), strict=True):
            assert mine.tobytes() == theirs.tobytes()
    assert all(worker.process.poll() is not None for worker in started) and not leftovers(begun)


@pytest.mark.slow
def test_an_error_in_a_worker_has_its_traceback_in_the_log(begun, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins\nfrom tests.support.injected import inject\n"
        "inject(builtins.setattr, 'network', ZeroDivisionError('in a worker'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    videos = find_videos([write_bad(tmp_path / "bad.mp4")])
    events = list(resume(videos, open_output(begun), lambda to_do: over_processes(to_do, on_cpu(begun), 1)))
    (failure,) = (event for event in events if isinstance(event, Outcome))
    assert failure.state == "failed" and "ZeroDivisionError: in a worker" in failure.reason
    assert "in raising" in (begun / "logs" / "bad.log").read_text()


@pytest.mark.long
def test_a_worker_that_cannot_begin_ends_the_job(small_set, begun, started):
    recipe = open_features(begun).recipe.to_json()
    write_text(begun / "recipe.json", recipe.replace('"weights":"random"', '"weights":"kinetics"'))
    with pytest.raises(WeightsError) as caught:
        list(over_processes({"scene_00": small_set.videos / "scene_00.mp4"}, on_cpu(begun), 2))
    assert caught.value.hint and started[0].process.poll() is not None


def test_processes_that_die_while_they_start(begun, monkeypatch):
    """Five on two of three GPUs, of which each sees one; the third is hidden from all of this."""
    told = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    monkeypatch.setattr(engines, "STARTS", 5)
    popen = subprocess.Popen
    monkeypatch.setattr(
        "subprocess.Popen", lambda *a, env, **k: (told.append(env["CUDA_VISIBLE_DEVICES"]), popen(*a, env=env, **k))[1]
    )
    videos = {str(i): Path(f"{i}.mp4") for i in range(5)}
    with pytest.raises(ExtractorError, match="exit code 1") as caught:
        list(over_processes(videos, ExtractOptions(begun, device="cuda", threads=1), 5, gpus=2))
    assert caught.value.hint and told[:5] == ["GPU-b", "GPU-a", "GPU-b", "GPU-a", "GPU-b"]
