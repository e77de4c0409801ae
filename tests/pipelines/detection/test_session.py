"""A session: sinks that stop no camera, sources that come and go, and three days in bounded memory."""

import errno
import gc
import json
import os
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from lstr import checkpoint
from lstr.errors import OutputError, VideoError
from lstr.extractors.run import FeatureRow
from lstr.extractors.video.inputs import Input, LiveOptions
from lstr.kinds import configure, make_model
from lstr.pipelines.detection import outputs
from lstr.pipelines.detection.decision import Decision, End, Ended, Opened, Sink, Status, Undecided
from lstr.pipelines.detection.options import Limits, OutputOptions
from lstr.pipelines.detection.outputs import JsonLines, TimelineFiles
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.source import FrameSource, Source
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed, Notice
from lstr.timeline import Thresholds
from tests.support.detections import dated_file, opened, until
from tests.support.feature_set import TINY
from tests.support.means import Means, tiny_checkpoint
from tests.support.served import piped

CLASSES = ("Background", "kick", "wave", "dive")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("session") / "c.pt", CLASSES)


@pytest.fixture
def networks(loaded):
    return opened(loaded, (Means(), None))


def camera(name: str = "camera") -> Input:
    """FFmpeg's test pictures, which come as fast as they are taken."""
    return Input(name, "testsrc=size=96x64:rate=30", demuxer="lavfi")


def rows_of(n: int):
    """So many chunks of stored features, which come again and again."""
    stored = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    return (FeatureRow(k, (k + 1) / 4, {"rgb": stored[k % 1000, :6], "flow": stored[k % 1000, 6:]}) for k in range(n))


def stored(name: str, n: int) -> Source:
    return Source(name, rows=rows_of(n), duration=n / 4, n_chunks=n)


def chunks_of(events, name: str) -> list[int]:
    return [event.chunk for event in events if isinstance(event, Decision) and event.source == name]


class Kept(Sink):
    """A sink is this class, and nothing else in the program."""

    def __init__(self, into: dict):
        self._into = into

    def open(self, source):
        self._taken = self._into[source.id] = [source.classes]

    def take(self, decision):
        self._taken.append(decision.chunk)

    def close(self, end):
        self._taken.append(end)


def test_a_sink_is_one_class(loaded, networks):
    """Of a camera and of stored features beside it: in order, from open to close."""
    into = {}
    with Session(loaded, networks, 2, sinks=[partial(Kept, into)], limits=Limits(max_chunks=5)) as session:
        assert [session.add(camera()), session.add(stored("a", 5)), session.add(stored("a", 3))] == [
            "camera",
            "a",
            "a~2",
        ]
        events = list(session.events())
    for name in ("camera", "a", "a~2"):
        classes, *chunks, end = into[name]
        assert classes == CLASSES and chunks == chunks_of(events, name) == sorted(chunks) and isinstance(end, End)
    assert into["a"][1:-1] == [0, 1, 2, 3, 4] and len(into["camera"]) == 7
    assert sorted(event.id for event in events if isinstance(event, Ended)) == ["a", "a~2", "camera"]


class Sleeping(Sink):
    """It takes its first decision for ever."""

    waiting, name = 20, "the sleeper"
    freed = threading.Event()

    def take(self, decision):
        self.freed.wait()


class Lines(JsonLines):
    """What is soon full."""

    waiting = 20


class Full(Sink):
    """A disk that is full, now and in open."""

    needs_all, name = True, "the disk"

    def take(self, decision):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def stopped():
    """A terminal that shows nothing more: a pipe that nobody reads."""
    nobody, written = os.pipe()
    os.write(written, bytes(65536))  # what a pipe holds
    stream = os.fdopen(written, "w")
    yield stream
    os.close(nobody)
    with suppress(BrokenPipeError):
        stream.close()


@pytest.mark.parametrize("kind", ["asleep", "full", "stopped"])
def test_no_sink_stops_the_decisions(loaded, networks, tmp_path, stopped, monkeypatch, kind):
    """Nor do its sinks reach another camera."""
    monkeypatch.setattr("lstr.pipelines.detection.track.SINK_TIMEOUT_S", 0.1)
    into: dict = {}
    bad = {"asleep": Sleeping, "full": Full, "stopped": partial(Lines, stopped)}[kind]
    log, limits = FailureLog(tmp_path), Limits(max_chunks=60)
    options = {"sinks": [bad, partial(Kept, into)], "limits": limits, "log": log}
    with Session(loaded, networks, 2, output=OutputOptions(tmp_path, ("json", "npy")), **options) as session:
        for name in ("a", "b"):
            session.add(camera(name))
        events = list(session.events())
    Sleeping.freed.set()
    for name in ("a", "b"):
        assert into[name][1:-1] == chunks_of(events, name) and len(into[name]) == 62
        assert len(np.load(dated_file(tmp_path, name, ".scores.npy"))) == into[name][-2] + 1
    assert Counter(e.id for e in events if isinstance(e, Ended)) == {"a": 1, "b": 1}
    texts = " ".join(event.text for event in events if isinstance(event, Notice))
    failed = [event for event in events if isinstance(event, Failed)]
    if kind == "full":
        assert "No space left on device" in texts and "without the disk" in texts
        assert {event.id for event in failed} == {"a", "b"} and all(isinstance(e.error, OutputError) for e in failed)
    else:
        assert texts.count("too slow") == 2 and not failed


def test_a_full_disk_under_the_lines_of_a_camera(loaded, networks, tmp_path, monkeypatch):
    """The real one: the kernel's device that takes no byte."""
    (tmp_path / "camera.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr(outputs, "open_lines", lambda folder, source: (folder / "camera.jsonl").open("w"))
    log = FailureLog(None)
    output = OutputOptions(tmp_path, ("json", "jsonl"))
    with Session(loaded, networks, output=output, limits=Limits(max_chunks=9), log=log) as session:
        session.add(camera())
        events = list(session.events())
    assert len(chunks_of(events, "camera")) == 9 and isinstance(events[-1], Failed)
    assert json.loads(dated_file(tmp_path, "camera", ".json").read_text())["decided"] == 9
    with Session(loaded, output=output) as session, pytest.raises(OutputError, match="No space left"):
        session.add(stored("camera", 5))  # a file has time, and stops
        list(session.events())


def test_a_file_waits_for_a_sink_and_a_broken_one_is_left_behind(loaded):
    class Broken(Sink):
        name = "the broker"

        def take(self, decision):
            raise ConnectionResetError("gone")

    with Session(loaded, sinks=[Broken]) as session:
        session.add(stored("a", 4))
        events = list(session.events())
    assert chunks_of(events, "a") == [0, 1, 2, 3] and isinstance(events[-1], Ended)
    (notice,) = [event.text for event in events if isinstance(event, Notice)]
    assert "gone" in notice and "without the broker" in notice


@pytest.mark.parametrize("pause", [0, 60])
def test_a_duration_of_frames_is_time(loaded, pause):
    """What comes after a pause of a minute was decided, chunk by chunk, until there were as many as in ten seconds."""
    given = []

    def frames():
        for n in count():
            given.append(n)
            yield np.full((48, 64, 3), n % 256, np.uint8), n / 24 + (pause if n >= 120 else 0)

    with Session(loaded, opened(loaded, (Means(), None)), limits=Limits(duration=10)) as session:
        session.add(FrameSource("door", frames()))
        chunks = chunks_of(session.events(), "door")
    assert chunks[:20] == list(range(20)) and chunks[-1] < 40 and (pause or len(chunks) == 40)
    assert len(given) <= 241, "no more than it takes to know that the time is over"


def test_a_file_that_ends_before_its_first_decision_has_failed(loaded, tmp_path):
    """It was silence with exit code 0, and it emptied the lines of an earlier run."""
    output = OutputOptions(tmp_path, ("json", "jsonl"))
    with Session(loaded, output=output) as session:
        session.add(stored("a", 4))
        events = session.events()
        next(event for event in events if isinstance(event, Decision))
        assert [line["chunk"] for line in lines_of(tmp_path, "a") if "chunk" in line] == [0], "they are there at once"
        list(events)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    log = FailureLog(None)
    with Session(loaded, output=output, log=log) as session:
        session.add(Source("a", "a.mp4", rows=(), video=Path("a.mp4"), duration=1.0, n_chunks=4))
        *_, failed = session.events()
    assert isinstance(failed, Failed) and type(failed.error) is VideoError and failed.error.exit_code == 3
    assert "a.mp4 ended before the first decision" in failed.reason and "record it again" in failed.hint
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before and len(before) == 2


WAITS = LiveOptions(on_lag="wait")
ALWAYS = Thresholds(on=0.0, off=0.0)
"""With which every action is on from the first chunk to the end."""


def lines_of(folder: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in dated_file(folder, name, ".jsonl").read_text().splitlines()]


def test_a_live_source_has_the_time_of_the_wall_beside_seconds(loaded, networks, tmp_path):
    """With its zone, in every line, in the timeline, and in events; a file has none."""
    began, output = datetime.now().astimezone(), OutputOptions(tmp_path, ("json", "jsonl"))
    options = {"output": output, "limits": Limits(start=1, max_chunks=5), "thresholds": ALWAYS, "live": WAITS}
    with Session(loaded, networks, **options) as session:
        session.add(camera())
        events = list(session.events())
    ended = datetime.now().astimezone()
    decisions = [event for event in events if isinstance(event, Decision)]
    walls = [decision.at for decision in decisions]
    assert walls == sorted(walls) and all(began <= wall <= ended and wall.utcoffset() is not None for wall in walls)
    started = decisions[0].events
    assert {event.at for event in started} == {walls[0]} and len(started) == 3
    assert all(event.start_at == event.at - timedelta(seconds=event.time - event.start) for event in started)
    lines = lines_of(tmp_path, "camera")
    assert len(lines) >= 5 + 6 and all(
        line[name] == datetime.fromisoformat(line[name]).isoformat(timespec="milliseconds")
        for line in lines
        for name in (("start_at", "end_at") if "gap" in line else ("at",))
    )
    assert all({"start_at"} <= line.keys() for line in lines if "event" in line)
    document = json.loads(dated_file(tmp_path, "camera", ".json").read_text())
    first = document["segments"][0]
    assert first["start_at"] == next(line["start_at"] for line in lines if "event" in line), "an action has one start"
    assert first["start_at"] < first["end_at"] == lines[-1]["at"]
    assert document["live"]["began"] <= first["start_at"] and document["best"]["at"]
    with Session(loaded, output=output, thresholds=ALWAYS) as session:
        session.add(stored("a", 3))
        assert [event.at for event in session.events() if isinstance(event, Decision)] == [None] * 3
    text = "".join(path.read_text() for path in tmp_path.glob("a.*"))
    assert '"still_on": true' in text and "_at" not in text and '"at"' not in text


@pytest.mark.parametrize("make", [camera, partial(stored, n=4)], ids=["live", "recorded"])
def test_what_is_on_at_the_end_is_told_as_such(loaded, networks, tmp_path, make):
    """In the lines, in the timeline and in the event that says that the source is over."""
    options = {"output": OutputOptions(tmp_path, ("json", "jsonl")), "limits": Limits(max_chunks=4), "live": WAITS}
    with Session(loaded, networks, thresholds=ALWAYS, **options) as session:
        session.add(make("source"))
        *_, ended = session.events()
    assert [(event.event, event.label, event.still_on) for event in ended.events] == [
        ("ended", label, True) for label in CLASSES[1:]
    ]
    assert [line["still_on"] for line in lines_of(tmp_path, "source") if line.get("event") == "ended"] == [True] * 3
    document = json.loads(dated_file(tmp_path, "source", ".json").read_text())
    assert [segment["still_on"] for segment in document["segments"]] == [True] * 3


def test_lines_of_events_only(loaded, networks, tmp_path):
    """A quiet camera leaves an empty file, and one that has decided nothing leaves none."""
    for name, rules in (("busy", None), ("quiet", Thresholds(on=1.0, off=1.0))):
        output = OutputOptions(tmp_path, ("json", "jsonl"), events_only=True)
        with Session(loaded, networks, output=output, limits=Limits(max_chunks=60), thresholds=rules) as session:
            session.add(camera(name))
            events = list(session.events())
        lines = lines_of(tmp_path, name)
        decided = [e for event in events if isinstance(event, Decision) for e in event.events]
        assert lines == [event.to_dict() for event in (*decided, *events[-1].events)]
        assert bool(lines) == (name == "busy")


def held() -> tuple[int, int, float]:
    """Open files, threads, and MB of memory that no file stands behind."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    anonymous = int(status.partition("RssAnon:")[2].split()[0]) / 1024
    return len(os.listdir("/proc/self/fd")), threading.active_count(), anonymous


@pytest.mark.long
def test_sources_come_and_go_while_others_run(loaded, networks, tmp_path):
    """Twenty cameras and twenty files, one after the other, beside a camera that stays."""
    output = OutputOptions(tmp_path, ("json", "npy"))
    with Session(loaded, networks, 3, output=output) as session, closing(session.events()) as events:
        session.add(camera("stays"))
        until(events, Decision, "stays")
        for round_ in range(20):
            passing = session.add(camera("passes"))
            until(events, Decision, passing)
            status = session.status()  # a file that Ended may still be in it while its thread goes on to the next
            assert status.keys() - {"file"} == {"stays", "passes"} and status["passes"].decided > 0
            endless = session.add(stored("file", 1_000_000))
            until(events, Decision, endless)
            for name in (passing, endless):
                session.remove(name)
                until(events, Ended, name)
            if round_ == 4:
                before = held()
        with pytest.raises(KeyError):
            session.remove("passes")

        def grown() -> bool:
            files, threads, memory = held()
            return files > before[0] or threads > before[1] or memory > before[2] + 20

        ends = time.monotonic() + 60
        while grown() and time.monotonic() < ends:  # the thread of a camera that Ended may still close its input
            next(events)
        assert not grown(), (before, held())
        session.remove("stays")
        until(events, Ended, "stays")
        assert next(events, None) is None
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("sink", "live", "networks"))]
    assert json.loads((tmp_path / "file.json").read_text())["decided"] >= 1


def test_a_source_that_waits_can_be_removed(loaded):
    with Session(loaded) as session:
        for name in ("a", "b"):
            session.add(stored(name, 2))
        assert session.remove("b") is False, "no event tells its end"
        assert {event.id for event in session.events() if isinstance(event, Opened)} == {"a"}


def test_a_camera_that_is_removed_before_its_first_decision_is_over_all_the_same(loaded, networks, tmp_path):
    """Nothing told that, and whoever waited for its end before it was added again waited for ever."""
    output = OutputOptions(tmp_path, ("json",))
    with piped(None) as nothing, Session(loaded, networks, 2, output=output) as session:
        session.add(camera("stays"))
        session.add(Input("silent", nothing))
        with closing(session.events()) as events:
            for kind, name in ((Opened, "silent"), (Decision, "stays")):
                until(events, kind, name)
            assert session.remove("silent") is True
            session.remove("stays")
            over = [event for event in events if not isinstance(event, Notice | Decision)]
    assert len(over) == 2 and Undecided("silent") in over and {type(event) for event in over} == {Ended, Undecided}


def test_scores_stay_on_disk(loaded, tmp_path):
    """Also those of a stretch in which nothing came."""
    files = TimelineFiles(loaded, OutputOptions(tmp_path, ("npy",)), {}, lambda: (1.0, 1.0))
    files.open(Opened("a", Status("a"), CLASSES))
    for chunk in (0, 1, 9000):
        scores = np.full(len(CLASSES), chunk, np.float32)
        files.take(Decision(chunk, (chunk + 1) / 4, "kick", 1.0, [], 1.0, [], scores))
    files.close(End())
    scores = np.load(tmp_path / "a.scores.npy")
    assert scores.shape == (9001, 4) and scores[9000, 2] == 9000
    assert np.flatnonzero(~np.isnan(scores[:, 0])).tolist() == [0, 1, 9000]
    assert [path.name for path in tmp_path.iterdir()] == ["a.scores.npy"]


@pytest.mark.slow
def test_three_days(tmp_path):
    """At its end, with its files written, a source holds little more than after its first hour."""
    hour = 3600 * 4
    model = make_model(configure("rnn", rgb_dim=6, flow_dim=2, **TINY), 4).eval()
    checkpoint.save(tmp_path / "c.pt", model, CLASSES, None, {})
    output = OutputOptions(tmp_path)
    with Session(checkpoint.load(tmp_path / "c.pt"), output=output) as session:
        session.add(stored("camera", 72 * hour))
        for event in session.events():
            if isinstance(event, Decision) and event.chunk == hour:
                first = held()
    assert held()[2] < first[2] + 50
    assert (tmp_path / "camera.html").stat().st_size > 72 * hour * 4 * 2
    assert np.load(tmp_path / "camera.scores.npy", mmap_mode="r").shape == (72 * hour, 4)
