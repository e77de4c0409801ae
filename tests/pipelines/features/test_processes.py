"""Worker processes: the same bits as one process, and what becomes of one that dies."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lstr.errors import ExtractorError, WeightsError
from lstr.files.atomic import leftovers, write_text
from lstr.files.content import read_jsonl
from lstr.pipelines.features.engines import WorkerProcess, over_processes
from lstr.pipelines.features.extraction import ExtractOptions, Outcome, resume
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.progress import Progress


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
    folder = open_features(begun)
    for event in resume(videos, folder, lambda to_do: over_processes(to_do, on_cpu(begun), 2)):
        if isinstance(event, Outcome):
            outcomes[event.id] = event
        if isinstance(event, Progress) and killed.count(event.what) < {"scene_00": 2, "scene_01": 1}.get(event.what, 0):
            killed.append(event.what)
            (at,) = (w for w in started if w.at[0] == event.what and w.process.poll() is None)
            at.process.kill()
    assert sorted(killed) == ["scene_00", "scene_00", "scene_01"]
    assert {i: o.state for i, o in outcomes.items()} == {"scene_00": "failed", "scene_01": "done", "scene_02": "done"}
    assert "twice (signal SIGKILL)" in outcomes["scene_00"].reason and outcomes["scene_00"].hint
    assert [f["id"] for f in read_jsonl(begun / "failed.jsonl")] == ["scene_00"]
    whole = open_features(small_set.features)
    assert folder.ids() == ["scene_01", "scene_02"]
    for video_id in folder.ids():
        mine, one_process = folder.load(video_id), whole.load(video_id)
        assert [array.tobytes() for array in mine] == [array.tobytes() for array in one_process]
    assert all(worker.process.poll() is not None for worker in started) and not leftovers(begun)


@pytest.mark.long
def test_what_a_worker_raises_ends_the_job(small_set, begun, started):
    recipe = open_features(begun).recipe.to_json()
    write_text(begun / "recipe.json", recipe.replace('"weights":"random"', '"weights":"kinetics"'))
    videos = {"scene_00": small_set.videos / "scene_00.mp4"}
    with pytest.raises(WeightsError, match="no file was named") as caught:
        list(over_processes(videos, on_cpu(begun), 2))
    assert caught.value.hint and started[0].process.poll() is not None


def test_processes_that_die_while_they_start(small_set, begun, started, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    videos = {f"scene_0{i}": small_set.videos / f"scene_0{i}.mp4" for i in range(4)}
    with pytest.raises(ExtractorError, match="3 worker processes in a row .*exit code 1") as caught:
        list(over_processes(videos, on_cpu(begun), 2))
    hint = "is memory short? use fewer workers (`--workers`); with 1 no other process is started."
    assert caught.value.hint == hint


def test_each_process_sees_one_gpu(begun, started, monkeypatch):
    """Five processes on two of three GPUs, by what they are told; the third is hidden from all of this."""
    told = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    monkeypatch.setattr("lstr.pipelines.features.engines.STARTS", 5)
    popen = subprocess.Popen
    monkeypatch.setattr(
        "subprocess.Popen", lambda *a, env, **k: (told.append(env["CUDA_VISIBLE_DEVICES"]), popen(*a, env=env, **k))[1]
    )
    videos = {str(i): Path(f"{i}.mp4") for i in range(5)}
    with pytest.raises(ExtractorError):
        list(over_processes(videos, ExtractOptions(begun, device="cuda", threads=1), 5, gpus=2))
    assert told[:5] == ["GPU-b", "GPU-a", "GPU-b", "GPU-a", "GPU-b"]
