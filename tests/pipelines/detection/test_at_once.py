"""Several videos at once: the same results as one by one, in their order, and no failure reaches another one."""

import json
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from lstr.errors import VideoError
from lstr.extractors.video.frames import Chunk
from lstr.pipelines.detection.decision import Decision, Ended, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.model import load_checkpoint
from lstr.pipelines.detection.options import Limits, NetworkOptions, OutputOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.source import Source
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed
from tests.support.detections import opened, until
from tests.support.means import Means, tiny_checkpoint


@pytest.fixture(scope="module")
def loaded(small_set):
    return load_checkpoint(small_set.checkpoint)


def seen(events) -> list[tuple]:
    """What was reported, without what differs from run to run."""
    kinds = {Opened: "opened", Decision: "decided", Ended: "ended", Failed: "failed"}
    found = [event for event in events if type(event) in kinds]
    return [
        (kinds[type(e)], *((e.source, e.scores.tobytes()) if isinstance(e, Decision) else (e.id, None))) for e in found
    ]


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


class Drawn(Source):
    """A video that is never opened: how many chunks of it were read, and whether reading was closed."""

    batch = 1

    def __init__(self, name: str, n: int, fails: bool = False):
        super().__init__(name, video=Path(f"{name}.mp4"))
        self.n, self.fails, self.read = n, fails, 0
        self.begun, self.closed = threading.Event(), threading.Event()

    def open(self, networks, limits, changed):
        networks.open()
        self._read(self._chunks(), 1, changed)

    def _chunks(self):
        try:
            for k in range(self.n):
                self.read += 1
                self.begun.set()
                yield Chunk(k, (k + 1) / 4, np.full((6, 8, 8, 3), k, np.uint8))
            if self.fails:
                raise VideoError("It is damaged.", "record it again.")
        finally:
            self.closed.set()


def test_the_next_ones_run_ahead_and_no_farther(tmp_path, monkeypatch):
    monkeypatch.setattr("lstr.pipelines.detection.track.DECIDED_AHEAD", 2)
    monkeypatch.setattr("lstr.pipelines.detection.source.QUEUED", 1)
    loaded = tiny_checkpoint(tmp_path / "c.pt", ("Background", "kick"))
    first, second, third, fourth = [Drawn("0", 5), Drawn("1", 90, fails=True), Drawn("2", 90), Drawn("3", 4)]
    networks = opened(loaded, (Means(), None))
    with Session(loaded, networks, 2, log=FailureLog(None)) as session, closing(session.events()) as events:
        for source in (first, second, third, fourth):
            session.add(source)
        until(events, Opened, "0")
        assert second.begun.wait(60), "no chunk of the first one was asked for"
        until(events, Ended, "0")
        assert not second.closed.is_set(), "without a bound it is at its end by now"
        assert first.read == 5 and second.read <= 9 and third.read == fourth.read == 0
        assert "is damaged" in until(events, Failed, "1").reason
        assert second.read == 90 and third.read <= 9
        until(events, Opened, "2")
    assert third.closed.is_set() and fourth.read <= 4, "who leaves in the middle leaves no thread behind"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reader of")]
