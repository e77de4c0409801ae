"""A session: sinks that stop no camera, sources that come and go, and three days in bounded memory."""

import gc
import json
import os
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
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
from lstr.pipelines.detection.decision import Decision, End, Ended, Opened, Sink, Undecided
from lstr.pipelines.detection.options import NO_TIMELINE, Limits, OutputOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.source import FrameSource, Source
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed, Notice
from lstr.timeline import Thresholds
from tests.support.detections import dated_file, open_networks, take_until
from tests.support.feature_set import TINY
from tests.support.means import Means, tiny_checkpoint
from tests.support.served import piped

CLASSES = ("Background", "kick", "wave", "dive")
WAITS = LiveOptions(on_lag="wait")
ALWAYS = Thresholds(on=0.0, off=0.0)
"""With which every action is active from the first chunk to the end."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("session") / "c.pt", CLASSES)


@pytest.fixture
def networks(loaded):
    return open_networks(loaded, (Means(), None))


def camera(name: str = "camera") -> Input:
    """FFmpeg's test pictures, which come as fast as they are taken."""
    return Input(name, "testsrc=size=96x64:rate=30", demuxer="lavfi")


def stored(name: str, n: int) -> Source:
    """So many chunks of stored features, which come again and again."""
    features = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    rows = (
        FeatureRow(k, (k + 1) / 4, {"rgb": features[k % 1000, :6], "flow": features[k % 1000, 6:]}) for k in range(n)
    )
    return Source(name, rows=rows, duration=n / 4, n_chunks=n)


def run(loaded, networks, *sources, places: int = 1, **options) -> list:
    """All events of sources."""
    with Session(loaded, networks, places, **options) as session:
        for source in sources:
            session.add(source)
        return list(session.events())


def chunks_of(events, name: str) -> list[int]:
    return [event.chunk for event in events if isinstance(event, Decision) and event.source == name]


def lines_of(folder: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in dated_file(folder, name, ".jsonl").read_text().splitlines()]


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
        names = [session.add(source) for source in (camera(), stored("a", 5), stored("a", 3))]
        events = list(session.events())
    assert names == ["camera", "a", "a~2"]
    for name in names:
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


def test_no_sink_stops_the_decisions(loaded, networks, tmp_path, monkeypatch):
    """Nor do its sinks reach another camera."""
    monkeypatch.setattr("lstr.pipelines.detection.track.SINK_TIMEOUT_S", 0.1)
    into: dict = {}
    options = {"sinks": [Sleeping, partial(Kept, into)], "limits": Limits(max_chunks=60), "log": FailureLog(tmp_path)}
    output = OutputOptions(tmp_path, ("json", "npy"))
    events = run(loaded, networks, camera("a"), camera("b"), places=2, output=output, **options)
    Sleeping.freed.set()
    for name in ("a", "b"):
        assert into[name][1:-1] == chunks_of(events, name) and len(into[name]) == 62
        assert len(np.load(dated_file(tmp_path, name, ".scores.npy"))) == into[name][-2] + 1
    assert Counter(e.id for e in events if isinstance(e, Ended)) == {"a": 1, "b": 1}
    assert len([event for event in events if isinstance(event, Notice) and event.warning]) >= 2
    assert not [event for event in events if isinstance(event, Failed)]


def test_a_full_disk_under_the_lines_of_a_camera(loaded, networks, tmp_path, monkeypatch):
    """The real one: the kernel's device that takes no byte."""
    (tmp_path / "camera.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr(outputs, "open_lines", lambda folder, source: (folder / "camera.jsonl").open("w"))
    output = OutputOptions(tmp_path, ("json", "jsonl"))
    events = run(loaded, networks, camera(), output=output, limits=Limits(max_chunks=9), log=FailureLog(None))
    assert len(chunks_of(events, "camera")) == 9 and isinstance(events[-1], Failed)
    assert json.loads(dated_file(tmp_path, "camera", ".json").read_text())["decided"] == 9
    with pytest.raises(OutputError, match="No space left"):  # a file has time, and stops
        run(loaded, networks, stored("camera", 5), output=output)


def test_a_file_waits_for_a_sink_and_a_broken_one_is_left_behind(loaded, networks):
    class Broken(Sink):
        name = "the broker"

        def take(self, decision):
            raise ConnectionResetError("gone")

    events = run(loaded, networks, stored("a", 4), sinks=[Broken])
    assert chunks_of(events, "a") == [0, 1, 2, 3] and isinstance(events[-1], Ended)
    (notice,) = [event.text for event in events if isinstance(event, Notice)]
    assert "gone" in notice and "the broker" in notice


@pytest.mark.parametrize("pause", [0, 60])
def test_a_duration_of_frames_is_time(loaded, networks, pause):
    """What comes after a pause of a minute was decided, chunk by chunk, until there were as many as in ten seconds."""
    given = []

    def frames():
        for n in count():
            given.append(n)
            yield np.full((48, 64, 3), n % 256, np.uint8), n / 24 + (pause if n >= 120 else 0)

    chunks = chunks_of(run(loaded, networks, FrameSource("door", frames()), limits=Limits(duration=10)), "door")
    assert chunks[:20] == list(range(20)) and chunks[-1] < 40 and (pause or len(chunks) == 40)
    assert len(given) <= 241, "no more than it takes to know that the time is over"


def test_a_file_that_ends_before_its_first_decision_has_failed(loaded, networks, tmp_path):
    """It was silence with exit code 0, and it emptied the lines of an earlier run."""
    output = OutputOptions(tmp_path, ("json", "jsonl"))
    run(loaded, networks, stored("a", 4), output=output)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    short = Source("a", "a.mp4", rows=(), video=Path("a.mp4"), duration=1.0, n_chunks=4)
    *_, failed = run(loaded, networks, short, output=output, log=FailureLog(None))
    assert isinstance(failed, Failed) and type(failed.error) is VideoError and failed.error.exit_code == 3
    assert "a.mp4" in failed.reason and failed.hint
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before and len(before) == 2


def test_a_live_source_has_the_time_of_the_wall_beside_seconds(loaded, networks, tmp_path):
    """With its zone, in every line, in the timeline, and in events; a file has none."""
    began, output = datetime.now().astimezone(), OutputOptions(tmp_path, ("json", "jsonl"))
    limits = Limits(start=1, max_chunks=5)
    events = run(loaded, networks, camera(), output=output, limits=limits, thresholds=ALWAYS, live=WAITS)
    ended = datetime.now().astimezone()
    decisions = [event for event in events if isinstance(event, Decision)]
    walls = [decision.at for decision in decisions]
    assert walls == sorted(walls) and all(began <= wall <= ended and wall.utcoffset() is not None for wall in walls)
    started = decisions[0].events
    assert {event.at for event in started} == {walls[0]} and len(started) == 3
    assert all(event.start_at == event.at - timedelta(seconds=event.time - event.start) for event in started)
    lines = lines_of(tmp_path, "camera")
    stated = [line[name] for line in lines for name in (("start_at", "end_at") if "gap" in line else ("at",))]
    assert len(lines) >= 5 + 6
    assert all(datetime.fromisoformat(at).isoformat(timespec="milliseconds") == at for at in stated)
    assert all("start_at" in line for line in lines if "event" in line)
    document = json.loads(dated_file(tmp_path, "camera", ".json").read_text())
    first = document["segments"][0]
    assert first["start_at"] == next(line["start_at"] for line in lines if "event" in line), "an action has one start"
    assert first["start_at"] < first["end_at"] == lines[-1]["at"]
    assert document["live"]["began"] <= first["start_at"] and document["best"]["at"]
    events = run(loaded, networks, stored("a", 3), output=output, thresholds=ALWAYS)
    assert [event.at for event in events if isinstance(event, Decision)] == [None] * 3
    text = "".join(path.read_text() for path in tmp_path.glob("a.*"))
    assert '"still_on": true' in text and "_at" not in text and '"at"' not in text


@pytest.mark.parametrize("make", [camera, partial(stored, n=4)], ids=["live", "recorded"])
def test_what_is_active_at_the_end_is_in_every_output(loaded, networks, tmp_path, make):
    output = OutputOptions(tmp_path, ("json", "jsonl"))
    chosen = {"output": output, "limits": Limits(max_chunks=4), "live": WAITS, "thresholds": ALWAYS}
    *_, ended = run(loaded, networks, make("source"), **chosen)
    assert [(e.event, e.label, e.still_on) for e in ended.events] == [("ended", label, True) for label in CLASSES[1:]]
    assert [line["still_on"] for line in lines_of(tmp_path, "source") if line.get("event") == "ended"] == [True] * 3
    document = json.loads(dated_file(tmp_path, "source", ".json").read_text())
    assert [segment["still_on"] for segment in document["segments"]] == [True] * 3


def test_nothing_is_kept_of_a_source_without_a_timeline(loaded, networks, tmp_path, monkeypatch):
    """As it runs for weeks: what is kept until the end has no place here; lines are written all the same."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    into: dict = {}
    chosen = {"places": 2, "sinks": [partial(Kept, into)], "limits": Limits(max_chunks=20)}
    events = run(loaded, networks, camera(), stored("a", 20), output=NO_TIMELINE, **chosen)
    ended = {event.id: event for event in events if isinstance(event, Ended)}
    assert ended.keys() == {"camera", "a"} and all(not one.timeline and one.page is None for one in ended.values())
    for name, one in ended.items():
        assert len(into[name]) == 22 and [e.event for e in into[name][-1].events] == [e.event for e in one.events]
    assert sum(len(event.events) for event in events if isinstance(event, Decision))
    output = OutputOptions(tmp_path / "out", ("json", "jsonl"), timeline=False)
    run(loaded, networks, camera(), output=output, limits=Limits(max_chunks=20))
    assert len(lines_of(tmp_path / "out", "camera")) >= 20 and not [*(tmp_path / "out").glob("*.json")]


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
        take_until(events, Decision, "stays")
        for round_ in range(20):
            passing = session.add(camera("passes"))
            take_until(events, Decision, passing)
            status = session.status()  # a file that Ended may still be in it while its thread goes on to the next
            assert status.keys() - {"file"} == {"stays", "passes"} and status["passes"].decided > 0
            endless = session.add(stored("file", 1_000_000))
            take_until(events, Decision, endless)
            for name in (passing, endless):
                session.remove(name)
                take_until(events, Ended, name)
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
        take_until(events, Ended, "stays")
        assert next(events, None) is None
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("sink", "live", "networks"))]
    assert json.loads((tmp_path / "file.json").read_text())["decided"] >= 1


def test_a_camera_that_is_removed_before_its_first_decision_is_over_all_the_same(loaded, networks, tmp_path):
    output = OutputOptions(tmp_path, ("json",))
    with piped(None) as nothing, Session(loaded, networks, 2, output=output) as session:
        session.add(camera("stays"))
        session.add(Input("silent", nothing))
        with closing(session.events()) as events:
            for kind, name in ((Opened, "silent"), (Decision, "stays")):
                take_until(events, kind, name)
            assert session.remove("silent") is True
            session.remove("stays")
            over = [event for event in events if not isinstance(event, Notice | Decision)]
    assert len(over) == 2 and Undecided("silent") in over and {type(event) for event in over} == {Ended, Undecided}


@pytest.mark.slow
def test_three_days(tmp_path):
    """At its end, with its files written, a source holds little more than after its first hour."""
    hour = 3600 * 4
    model = make_model(configure("rnn", rgb_dim=6, flow_dim=2, **TINY), 4).eval()
    checkpoint.save(tmp_path / "c.pt", model, CLASSES, None, {})
    with Session(checkpoint.load(tmp_path / "c.pt"), output=OutputOptions(tmp_path)) as session:
        session.add(stored("camera", 72 * hour))
        for event in session.events():
            if isinstance(event, Decision) and event.chunk == hour:
                first = held()
    assert held()[2] < first[2] + 50
    assert (tmp_path / "camera.html").stat().st_size > 72 * hour * 4 * 2
    assert np.load(tmp_path / "camera.scores.npy", mmap_mode="r").shape == (72 * hour, 4)
