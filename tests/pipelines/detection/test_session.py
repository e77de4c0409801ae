"""A session: sinks that stop no camera, sources that come and go, and twelve hours in bounded memory."""

import gc
import json
import os
import tempfile
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lstr import checkpoint
from lstr.errors import OutputError, VideoError
from lstr.extractors.run import FeatureRow
from lstr.extractors.video.inputs import Input, LiveOptions
from lstr.kinds import configure, make_model
from lstr.pipelines.detection import decision
from lstr.pipelines.detection.decision import Decision, End, Ended, Opened, Sink
from lstr.pipelines.detection.options import Limits, OutputOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.source import FrameSource, Source
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed, Notice
from lstr.timeline import Thresholds
from tests.support.detections import (
    dated_file,
    decisions_of,
    lines_of,
    open_networks,
    pattern_camera,
    run_session,
    scores_of,
    tiny_checkpoint,
)
from tests.support.feature_set import TINY
from tests.support.served import piped
from tests.support.waiting import wait_until


def take_until(events, kind: type, source_id: str) -> None:
    """Take events until the next one of a kind of a source."""
    name = "source" if kind is Decision else "id"
    next(event for event in events if isinstance(event, kind) and getattr(event, name) == source_id)


class Means:
    """Networks that compute the means of a chunk's frames and of their differences."""

    device, batch, recipe, frames_seen = "cpu", 4, SimpleNamespace(long_side=64), range(6)

    def prepare(self, *batches):
        pass

    def open_pool(self, workers):
        return ThreadPoolExecutor(2, "networks"), 2

    def submit(self, pool, chunks, workers) -> Future:
        return pool.submit(lambda: [self.row_of(chunk) for chunk in chunks])

    def row_of(self, chunk) -> FeatureRow:
        frames = chunk.frames.astype(np.float32) / 255  # (6, H, W, 3)
        rgb, flow = frames[3].mean((0, 1)), np.abs(np.diff(frames, axis=0)).mean((0, 1, 2))
        return FeatureRow(chunk.index, chunk.end_time, {"rgb": np.concatenate([rgb, rgb**2]), "flow": flow[:2]})


CLASSES = ("Background", "kick", "wave", "dive")
ALWAYS = Thresholds(on=0.0, off=0.0)  # every action is active from the first chunk to the end
JSON = ("json", "jsonl")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("session") / "c.pt", CLASSES)


@pytest.fixture
def networks(loaded):
    return open_networks(loaded, (Means(), None))


@pytest.fixture
def detect(loaded, networks):
    """Detect on sources to their end: detect(*sources, places=1, **options) -> events."""
    return lambda *sources, **options: list(run_session(sources, loaded, networks, **options))


def stored(name: str, n: int) -> Source:
    """Return a source of n chunks of stored features, which repeat."""
    features = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    parts = (features[k % 1000] for k in range(n))
    rows = (FeatureRow(k, (k + 1) / 4, {"rgb": row[:6], "flow": row[6:]}) for k, row in enumerate(parts))
    return Source(name, rows=rows, duration=n / 4, n_chunks=n)


def chunks_of(events, name: str) -> list[int]:
    return [decision.chunk for decision in decisions_of(events) if decision.source == name]


class ListSink(Sink):
    """Keeps classes, chunks and the end of a source in a list."""

    def __init__(self, lists: dict):
        self.lists = lists

    def open(self, source):
        self.list = self.lists[source.id] = [source.classes]

    def take(self, decision):
        self.list.append(decision.chunk)

    def close(self, end):
        self.list.append(end)


def test_a_sink_receives_the_decisions_in_order(detect):
    lists: dict = {}
    options = {"sinks": [partial(ListSink, lists)], "limits": Limits(max_chunks=5)}
    events = detect(pattern_camera(), stored("a", 5), stored("a", 3), places=2, **options)
    assert lists.keys() == {event.id for event in events if isinstance(event, Ended)} == {"camera", "a", "a~2"}
    for name, (classes, *chunks, end) in lists.items():
        assert classes == CLASSES and chunks == chunks_of(events, name) == sorted(chunks) and isinstance(end, End)
    assert lists["a"][1:-1] == [0, 1, 2, 3, 4] and len(lists["camera"]) == 7


class HangingSink(Sink):
    waiting, name = 20, "the hanging sink"
    released = threading.Event()

    def take(self, decision):
        self.released.wait()


def test_a_hanging_sink_stops_no_decision(detect, tmp_path, monkeypatch):
    monkeypatch.setattr("lstr.pipelines.detection.loop.SINK_TIMEOUT_S", 0.1)
    lists: dict = {}
    options = {"sinks": [HangingSink, partial(ListSink, lists)], "limits": Limits(max_chunks=60)}
    options |= {"log": FailureLog(tmp_path), "output": OutputOptions(tmp_path, ("npy",))}
    events = detect(pattern_camera("a"), pattern_camera("b"), places=2, **options)
    HangingSink.released.set()
    for name in ("a", "b"):
        assert lists[name][1:-1] == chunks_of(events, name) and len(lists[name]) == 62
        assert len(np.load(dated_file(tmp_path, name, ".scores.npy"))) == lists[name][-2] + 1
    kinds = Counter(type(event) for event in events)
    assert kinds[Ended] == 2 and kinds[Notice] >= 2 and not kinds[Failed]


def test_a_failing_sink_stops_no_decision(detect):
    class FailingSink(Sink):
        name = "the broker"

        def take(self, decision):
            raise ConnectionResetError("gone")

    events = detect(stored("a", 4), sinks=[FailingSink])
    assert chunks_of(events, "a") == [0, 1, 2, 3] and isinstance(events[-1], Ended)
    (notice,) = [event.text for event in events if isinstance(event, Notice)]
    assert "gone" in notice and "the broker" in notice


def test_a_full_disk_ends_files_but_not_cameras(detect, tmp_path, monkeypatch):
    (tmp_path / "camera.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr(decision, "open_lines", lambda folder, source: (folder / "camera.jsonl").open("w"))
    output = OutputOptions(tmp_path, JSON)
    events = detect(pattern_camera(), output=output, limits=Limits(max_chunks=9), log=FailureLog(None))
    assert len(chunks_of(events, "camera")) == 9 and isinstance(events[-1], Failed)
    assert json.loads(dated_file(tmp_path, "camera", ".json").read_text())["decided"] == 9
    with pytest.raises(OutputError, match="No space left"):
        detect(stored("camera", 5), output=output)


@pytest.mark.parametrize("pause", [0, 60])
def test_a_duration_is_in_seconds_of_the_frames(detect, pause):
    read = []

    def frames():
        for n in count():
            read.append(n)
            yield np.full((48, 64, 3), n % 256, np.uint8), n / 24 + (pause if n >= 120 else 0)

    chunks = chunks_of(detect(FrameSource("door", frames()), limits=Limits(duration=10)), "door")
    assert chunks[:20] == list(range(20)) and chunks[-1] < 40 and (pause or len(chunks) == 40)
    assert len(read) <= 241, "no frame is read after the end"


def test_the_model_remembers_what_was_before_a_gap(detect):
    images = np.random.default_rng(0).integers(0, 256, (96, 48, 64, 3), np.uint8)
    frames = [(image, n / 24 + (20 if n >= 48 else 0)) for n, image in enumerate(images)]
    after_gap = decisions_of(detect(FrameSource("a", frames)))[8:]
    fresh = decisions_of(detect(FrameSource("a", frames[48:])))
    assert after_gap[0].gaps and len(after_gap) == len(fresh) == 8
    assert not np.allclose(scores_of(after_gap), scores_of(fresh), atol=1e-6)


def test_a_file_that_ends_before_its_first_decision_fails_and_keeps_earlier_files(detect, tmp_path):
    output = OutputOptions(tmp_path, JSON)
    detect(stored("a", 4), output=output)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    short = Source("a", "a.mp4", rows=(), video=Path("a.mp4"), duration=1.0, n_chunks=4)
    *_, failed = detect(short, output=output, log=FailureLog(None))
    assert isinstance(failed, Failed) and type(failed.error) is VideoError and failed.error.exit_code == 3
    assert "a.mp4" in failed.reason and failed.hint
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before and len(before) == 2


def test_live_sources_have_wall_clock_times(detect, tmp_path):
    """All lines, events and the timeline have them, with their time zone; recorded sources have none."""
    before, output = datetime.now().astimezone(), OutputOptions(tmp_path, JSON)
    thresholds = Thresholds(on=0.0, off=0.0, min_length=0.5)
    options = {"limits": Limits(start=1, max_chunks=5), "live": LiveOptions(on_lag="wait"), "thresholds": thresholds}
    decisions = decisions_of(detect(pattern_camera(), output=output, **options))
    after = datetime.now().astimezone()
    times = [decision.at for decision in decisions]
    assert times == sorted(times) and all(before <= time <= after and time.utcoffset() is not None for time in times)
    started = decisions[1].events
    assert {event.at for event in started} == {times[1]} and len(started) == 3
    (start,) = {event.start_at for event in started}
    assert max(before, times[0] - timedelta(seconds=0.25)) <= start <= times[0]  # the source is faster than real time
    lines = lines_of(tmp_path, "camera")
    values = [line[name] for line in lines for name in (("start_at", "end_at") if "gap" in line else ("at",))]
    assert len(lines) >= 5 + 6
    assert all(datetime.fromisoformat(at).isoformat(timespec="milliseconds") == at for at in values)
    document = json.loads(dated_file(tmp_path, "camera", ".json").read_text())
    first, line = document["segments"][0], next(line for line in lines if "event" in line)
    assert first["start_at"] == line["start_at"] < first["end_at"] == lines[-1]["at"]
    assert document["live"]["began"] <= first["start_at"] and document["best"]["at"]
    decisions = decisions_of(detect(stored("a", 3), output=output, thresholds=ALWAYS))
    assert [decision.at for decision in decisions] == [None] * 3
    text = "".join(path.read_text() for path in tmp_path.glob("a.*"))
    assert text.count('"still_active": true') == 6 and "_at" not in text and '"at"' not in text


def test_no_timeline_needs_no_disk(detect, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    lists: dict = {}
    options = {"places": 2, "sinks": [partial(ListSink, lists)], "limits": Limits(max_chunks=20)}
    events = detect(pattern_camera(), stored("a", 20), output=None, **options)
    ends = [event for event in events if isinstance(event, Ended)]
    assert len(ends) == 2 and any(decision.events for decision in decisions_of(events))
    for end in ends:
        assert not end.timeline and end.page is None
        assert len(lists[end.id]) == 22 and tuple(lists[end.id][-1].events) == end.events


def resources() -> tuple[int, int, float]:
    """Return open files, threads, and MB of anonymous memory."""
    gc.collect()
    anonymous_kb = Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), int(anonymous_kb) / 1024


@pytest.mark.long
def test_sources_are_added_and_removed_while_another_runs(loaded, networks, tmp_path):
    output = OutputOptions(tmp_path, ("json", "npy"))
    with Session(loaded, networks, 3, output=output) as session, closing(session.events()) as events:
        session.add(pattern_camera("stays"))
        take_until(events, Decision, "stays")
        for number in range(20):
            camera = session.add(pattern_camera("passes"))
            take_until(events, Decision, camera)
            status = session.status()  # the file of the last round may still be in it
            assert status.keys() - {"file"} == {"stays", "passes"} and status["passes"].decided > 0
            endless = session.add(stored("file", 1_000_000))
            take_until(events, Decision, endless)
            for name in (camera, endless):
                session.remove(name)
                take_until(events, Ended, name)
            if number == 4:
                before = resources()
        with pytest.raises(KeyError):
            session.remove("passes")

        def is_bounded() -> bool:
            next(events)  # the thread of a camera that ended may still close its input
            return all(now <= then + more for now, then, more in zip(resources(), before, (0, 0, 20), strict=True))

        wait_until(is_bounded)
        session.remove("stays")
        take_until(events, Ended, "stays")
        assert next(events, None) is None
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("sink", "live", "networks"))]
    assert json.loads((tmp_path / "file.json").read_text())["decided"] >= 1


def test_a_camera_may_be_removed_before_its_first_decision(loaded, networks, tmp_path):
    output = OutputOptions(tmp_path, ("json",))
    with piped(None) as silent, Session(loaded, networks, 2, output=output) as session:
        session.add(pattern_camera("stays"))
        session.add(Input("silent", silent))
        with closing(session.events()) as events:
            take_until(events, Opened, "silent")
            take_until(events, Decision, "stays")
            assert session.remove("silent") is True
            session.remove("stays")
            ends = [event for event in events if not isinstance(event, Notice | Decision)]
    assert Ended("silent", {}) in ends and Counter(map(type, ends)) == {Ended: 2}


@pytest.mark.slow
def test_twelve_hours(tmp_path):
    """The memory after twelve hours, with the files written, is little more than after two."""
    hour = 3600 * 4
    model = make_model(configure("rnn", rgb_dim=6, flow_dim=2, **TINY), 4).eval()
    checkpoint.save(tmp_path / "c.pt", model, CLASSES, None, {})
    loaded, output = checkpoint.load(tmp_path / "c.pt"), OutputOptions(tmp_path)
    for event in run_session([stored("camera", 12 * hour)], loaded, output=output):
        if isinstance(event, Decision) and event.chunk == 2 * hour:
            memory = resources()[2]
    assert resources()[2] < memory + 10
    assert (tmp_path / "camera.html").stat().st_size > 12 * hour * 4 * 2
    assert np.load(tmp_path / "camera.scores.npy", mmap_mode="r").shape == (12 * hour, 4)
