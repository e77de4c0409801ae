"""The detection job: the events of any mix of sources, and sources that fail."""

import json
from collections import Counter
from contextlib import contextmanager, nullcontext

import pytest

from lstr import streaming
from lstr.errors import ExhaustedError, MissingPathError, UnforeseenError, VideoError
from lstr.extractors.video.live import LiveReader
from lstr.labels.label_set import read_labels
from lstr.pipelines.detection import model
from lstr.pipelines.detection.decision import Decision, Ended, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.options import Limits, OutputOptions
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed, Finished, Notice, result_of
from tests.support.detections import ONE_THREAD, dated_file, pattern_camera, run_live
from tests.support.injected import inject, write_bad
from tests.support.pages import Page
from tests.support.served import served
from tests.support.videos import write_video

ERROR = AttributeError("'NoneType' object has no attribute 'width'")
CAMERAS = [pattern_camera("bad", "80x48"), pattern_camera("good")]


def of_kind(kind: type, events) -> list:
    return [event for event in events if isinstance(event, kind)]


def test_stored_raw_and_live_sources_together(small_set, loaded, streams, tmp_path):
    (tmp_path / "empty.mp4").touch()
    output = OutputOptions(tmp_path / "out", ("json", "jsonl", "html"), labels=read_labels(small_set.labels))
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=2), output=output)
    with served([streams[0]]) as port:
        sources = [f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:1", tmp_path / "empty.mp4", small_set.features]
        events = list(detect_sources(sources, options))
    live, unreachable, stored = f"127.0.0.1-{port}", "127.0.0.1-1", [f"scene_0{k}" for k in range(4)]
    assert Counter(event.source for event in of_kind(Decision, events)) == dict.fromkeys([*stored, live], 2)
    for source in (*stored, live):
        kinds = [type(e) for e in events if getattr(e, "id", getattr(e, "source", None)) == source]
        assert kinds == [Opened, Decision, Decision, Ended]
    opened = {event.id: event for event in of_kind(Opened, events)}
    assert list(opened) == [*stored, live, unreachable] and opened[live].refresh and not opened["scene_00"].refresh
    assert opened[live].status.decided == 2 and opened["scene_00"].status.total == 2
    failures = of_kind(Failed, events)
    assert [failure.id for failure in failures] == ["empty", unreachable] and all(failure.hint for failure in failures)
    texts = [event.text for event in of_kind(Notice, events)]
    assert len(texts) == len(set(texts)) and texts
    result = events[-1].result
    assert isinstance(events[-1], Finished) and list(result.timelines) == [*stored, live]
    assert result.failures == tuple(failures) and not result.stalled
    assert result.index == dated_file(tmp_path / "out", "index", ".html")
    index, ended = Page(result.index).data, of_kind(Ended, events)
    assert len(index["failed"]) == 2 and "empty.mp4" in index["failed"][0]
    assert [video["page"] for video in index["videos"]] == [f"./{event.page.name}" for event in ended]
    for event in ended:
        assert event.timeline == result.timelines[event.id] and event.page.is_file()
        assert json.loads(event.page.with_suffix(".json").read_text()) == event.timeline
    assert not list((tmp_path / "out").glob(f"{unreachable}*"))


@pytest.mark.long
def test_an_interrupt_of_live_sources_completes_their_pages(loaded, streams, tmp_path):
    options = DetectOptions(loaded, networks=ONE_THREAD, output=OutputOptions(tmp_path, ("html",)))
    with served([streams[0], None]) as first, served([streams[0], None]) as second:
        ids = {f"127.0.0.1-{port}" for port in (first, second)}
        job, decided = detect_sources([f"tcp://127.0.0.1:{port}" for port in (first, second)], options), set()
        while decided != ids:
            decided |= {event.source for event in [next(job)] if isinstance(event, Decision)}
        *ended, finished = [job.throw(KeyboardInterrupt()), next(job), next(job)]
        with pytest.raises(KeyboardInterrupt):
            next(job)
    assert {event.id for event in ended} == ids and all(event.page.is_file() for event in ended)
    assert finished.result.left and finished.result.index.is_file()


def test_an_interrupt_of_recorded_sources_writes_the_index(small_set, loaded, tmp_path):
    job = detect_sources([small_set.features], DetectOptions(loaded, output=OutputOptions(tmp_path, ("html",))))
    next(event for event in job if isinstance(event, Opened) and event.id == "scene_02")
    with pytest.raises(KeyboardInterrupt):
        job.throw(KeyboardInterrupt())
    assert [video["id"] for video in Page(tmp_path / "index.html").data["videos"]] == ["scene_00", "scene_01"]
    assert Page(tmp_path / "scene_01.html").data["index"] == "./index.html"


def test_a_failure_ends_the_job_without_keep_going(small_set, loaded, tmp_path):
    (tmp_path / "empty.mp4").touch()
    sources = [tmp_path / "empty.mp4", small_set.features]
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=1))
    assert len(result_of(detect_sources(sources, options)).timelines) == 4
    with pytest.raises(VideoError, match="empty.mp4"):
        list(detect_sources(sources[:1], DetectOptions(loaded, networks=ONE_THREAD, keep_going=False)))
    with pytest.raises(MissingPathError):  # standard input can be read once
        list(detect_sources(["-", "-"], DetectOptions(loaded)))


@contextmanager
def raise_in(stage: str, error: Exception):
    """Raise an error in a stage of the work on the source `bad`."""
    read_frames, step = LiveReader._timed, streaming.step_streams

    def cut(self, frames):
        for frame in read_frames(self, frames):
            if self.input.id == "bad":
                raise error
            yield frame

    def fail(model, state, indices, rgb, flow):
        if 0 in indices:  # the stream of `bad`
            raise error
        return step(model, state, indices, rgb, flow)

    with pytest.MonkeyPatch.context() as patch:
        if stage == "camera":
            patch.setattr(LiveReader, "_timed", cut)
        elif stage == "model":
            patch.setattr(streaming, "step_streams", fail)
        else:
            inject(patch.setattr, stage, error)
        yield


@pytest.fixture
def detect(loaded, networks, tmp_path, monkeypatch):
    """Detect on the videos or the cameras `bad` and `good`, with networks that stay open; return the events."""
    monkeypatch.setattr(model, "open_networks", lambda *_: nullcontext(networks))
    write_bad(tmp_path / "bad.mp4")
    write_video(tmp_path / "good.mp4", range(0, 600, 20))

    def run(kind: str = "videos", **options) -> list:
        chosen = {"limits": Limits(max_chunks=2), "output": OutputOptions(tmp_path / "out", ("json", "jsonl"))}
        if kind == "cameras":
            return list(run_live(CAMERAS, loaded, networks, **chosen, log=FailureLog(tmp_path / "out")))
        sources = [tmp_path / "bad.mp4", tmp_path / "good.mp4"]
        return list(detect_sources(sources, DetectOptions(loaded, **chosen, **options)))

    return run


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        ("videos", "probe"),
        ("videos", "network"),
        pytest.param("cameras", "camera", marks=pytest.mark.long),
        pytest.param("cameras", "model", marks=pytest.mark.long),
    ],
)
def test_an_unforeseen_error_fails_only_its_source(detect, tmp_path, kind, stage):
    with raise_in(stage, ERROR):
        events = detect(kind)
    (failure,) = of_kind(Failed, events)
    log = tmp_path / "out" / "logs" / "bad.log"
    assert failure.id == "bad" and str(ERROR) in failure.reason and str(log) in failure.hint
    assert log.read_text().startswith("Traceback")
    (line,) = map(json.loads, (tmp_path / "out" / "failed.jsonl").read_text().splitlines())
    assert line["id"] == "bad" and line["reason"] == failure.reason
    (good,) = of_kind(Ended, events)
    assert good.id == "good" and good.timeline["decided"] == 2 and "error" not in good.timeline.get("live", {})
    if stage == "probe":  # the next run, without the error, removes its log
        assert not of_kind(Failed, detect())
        assert not log.exists() and (tmp_path / "out" / "failed.jsonl").read_text() == ""


@pytest.mark.long
def test_missing_memory_ends_the_job_and_so_does_any_error_without_keep_going(detect):
    for kind in ("videos", "cameras"):
        with raise_in("network", MemoryError()), pytest.raises(ExhaustedError):
            detect(kind)
    with raise_in("network", ERROR), pytest.raises(AttributeError):
        detect(keep_going=False)


def test_the_error_of_the_only_camera_is_raised(detect, monkeypatch):
    monkeypatch.setattr("lstr.pipelines.detection.detect.by_kind", lambda sources, names: ([], CAMERAS[:1]))
    with raise_in("network", ERROR), pytest.raises(UnforeseenError) as raised:
        detect()
    assert raised.value.exit_code == 3 and "bad.log" in raised.value.hint and raised.value.__cause__ is ERROR
