"""Several videos at once: the same results as one by one, in their order, and no failure reaches another one."""

import json
import threading
from contextlib import closing

import numpy as np
import pytest

from lstr.errors import VideoError
from lstr.extractors.run import FeatureRow
from lstr.pipelines.detection.checkpoint import load_checkpoint
from lstr.pipelines.detection.events import Decided, Ended, Opened
from lstr.pipelines.detection.files import OutputOptions
from lstr.pipelines.detection.job import DetectOptions, detect_sources
from lstr.pipelines.detection.networks import NetworkOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.sources import Limits, Source
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed


@pytest.fixture(scope="module")
def loaded(small_set):
    return load_checkpoint(small_set.checkpoint)


def seen(events) -> list[tuple]:
    """What was reported, without what differs from run to run."""
    kinds = {Opened: "opened", Decided: "decided", Ended: "ended", Failed: "failed"}
    found = [event for event in events if type(event) in kinds]
    return [(kinds[type(e)], e.id, e.decision.scores.tobytes() if isinstance(e, Decided) else None) for e in found]


def written(folder) -> dict:
    """Files by name: scores to the byte, and JSON without times that it took."""

    def timeless(line: dict) -> dict:
        return {key: value for key, value in line.items() if key not in ("latency_ms", "speed")}

    files = {path.name: path.read_bytes() for path in folder.glob("*.npy")}
    for path in folder.glob("*.json*"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        files[path.name] = [timeless(json.loads(line)) for line in lines]
    return files


@pytest.mark.long
def test_videos_at_once_are_as_each_alone(small_set, loaded, tmp_path):
    """To the byte, also beside two that cannot be read."""
    data = (small_set.videos / "scene_02.mp4").read_bytes()
    (tmp_path / "a_empty.mp4").touch()
    (tmp_path / "b_cut.mp4").write_bytes(data[: len(data) // 2])
    names = ("scene_00", "scene_03")
    sources = [small_set.videos / "scene_00.mp4", tmp_path / "a_empty.mp4", tmp_path / "b_cut.mp4"]
    sources += [small_set.videos / "scene_03.mp4"]
    events, files = {}, {}
    for at_once in (1, 3):
        output = OutputOptions(tmp_path / str(at_once), ("json", "jsonl", "npy"))
        networks, limits = NetworkOptions(flow_threads=1), Limits(max_chunks=3)
        options = DetectOptions(loaded, networks=networks, limits=limits, output=output, at_once=at_once)
        events[at_once] = list(detect_sources(sources, options))
        files[at_once] = written(output.folder)
    assert seen(events[3]) == seen(events[1]) and files[3] == files[1]
    assert [event.id for event in events[3] if isinstance(event, Ended)] == list(names)
    result = events[3][-1].result
    assert [failure.id for failure in result.failures] == ["a_empty", "b_cut"]
    assert all(timeline["speed"]["processor_seconds_per_video_second"] > 0 for timeline in result.timelines.values())


class Rows:
    """Features of a video that is never opened: how many were taken, and whether they were closed."""

    def __init__(self, n: int, fails: bool = False):
        self.n, self.fails, self.taken = n, fails, 0
        self.begun, self.closed = threading.Event(), threading.Event()

    def __iter__(self):
        random = np.random.default_rng(0)
        try:
            for k in range(self.n):
                self.taken += 1
                self.begun.set()
                rgb, flow = random.normal(size=576), random.normal(size=1024)
                yield FeatureRow(k, (k + 1) / 4, {"rgb": rgb.astype(np.float32), "flow": flow.astype(np.float32)})
            if self.fails:
                raise VideoError("It is damaged.", "record it again.")
        finally:
            self.closed.set()


def source_of(rows: Rows, tmp_path, name: str) -> Source:
    return Source(name, name, tmp_path / f"{name}.mp4", rows.n / 4, rows.n, rows)


def until(events, kind, source_id: str):
    """Run a session up to such an event of a source."""
    return next(event for event in events if isinstance(event, kind) and event.id == source_id)


def test_the_next_ones_run_ahead_and_no_farther(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr("lstr.pipelines.detection.recorded.AHEAD", 2)
    rows = [Rows(5), Rows(9, fails=True), Rows(4), Rows(4)]
    with Session(loaded, places=2, log=FailureLog(None)) as session, closing(session.events()) as events:
        for i, one in enumerate(rows):
            session.add(source_of(one, tmp_path, str(i)))
        until(events, Opened, "0")
        assert rows[1].begun.wait(60), "nobody has taken anything of the first one"
        until(events, Ended, "0")
        assert not rows[1].closed.wait(0.5), "without a bound it is at its end by now"
        assert rows[0].taken == 5 and rows[1].taken <= 3 and rows[2].taken == rows[3].taken == 0
        assert "is damaged" in until(events, Failed, "1").reason
        assert rows[1].taken == 9 and rows[2].taken <= 3
        until(events, Opened, "2")
    assert rows[2].closed.is_set() and rows[3].taken <= 3, "who leaves in the middle leaves no thread behind"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("detection ")]
