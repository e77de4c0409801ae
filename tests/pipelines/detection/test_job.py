"""The detection job: what it reports of any mix of sources; the failure of one source is its own."""

import json
from collections import Counter
from contextlib import nullcontext
from shutil import copyfile, copytree

import pytest

from lstr import streaming
from lstr.errors import ExhaustedError, MissingPathError, UnforeseenError, VideoError
from lstr.extractors.video.inputs import Input
from lstr.extractors.video.live import LiveReader
from lstr.labels.label_set import read_labels
from lstr.pipelines.detection import model
from lstr.pipelines.detection.decision import Decision, Ended, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.model import load_checkpoint, open_networks
from lstr.pipelines.detection.options import Limits, NetworkOptions, OutputOptions
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed, Finished, Notice, result_of
from tests.support.detections import dated_file, run_live
from tests.support.injected import inject, write_bad
from tests.support.pages import Page
from tests.support.served import served
from tests.support.videos import remux, write_video

ONE_THREAD = NetworkOptions(flow_threads=1)
ERROR = AttributeError("'NoneType' object has no attribute 'width'")
FILES = ("json", "jsonl")


@pytest.fixture(scope="module")
def loaded(small_set):
    return load_checkpoint(small_set.checkpoint)


@pytest.fixture(scope="module")
def stream(small_set, tmp_path_factory) -> bytes:
    """A video as MPEG-TS."""
    return remux(small_set.videos / "scene_00.mp4", tmp_path_factory.mktemp("streams") / "v.ts").read_bytes()


@pytest.fixture(scope="module")
def networks(loaded):
    with open_networks(loaded, ONE_THREAD) as made:
        yield made


def of_kind(kind: type, events) -> list:
    return [event for event in events if isinstance(event, kind)]


def test_stored_and_raw_and_live_sources_in_one_job(small_set, loaded, stream, tmp_path):
    (tmp_path / "empty.mp4").touch()
    output = OutputOptions(tmp_path / "out", ("json", "jsonl", "html"), labels=read_labels(small_set.labels))
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=2), output=output)
    with served([stream]) as port:
        sources = [f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:1", tmp_path / "empty.mp4", small_set.features]
        events = list(detect_sources(sources, options))
    live, gone, stored = f"127.0.0.1-{port}", "127.0.0.1-1", [f"scene_0{k}" for k in range(4)]
    assert Counter(event.source for event in of_kind(Decision, events)) == dict.fromkeys([*stored, live], 2)
    for source in (*stored, live):
        kinds = [type(e) for e in events if getattr(e, "id", getattr(e, "source", None)) == source]
        assert kinds == [Opened, Decision, Decision, Ended]
    begun = {event.id: event for event in of_kind(Opened, events)}
    assert list(begun) == [*stored, live, gone] and begun[live].refresh and not begun["scene_00"].refresh
    assert begun[live].status.decided == 2 and begun["scene_00"].status.total == 2
    failures = of_kind(Failed, events)
    assert [failure.id for failure in failures] == ["empty", gone] and all(failure.hint for failure in failures)
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
    assert not list((tmp_path / "out").glob(f"{gone}*")), "a start without a decision leaves nothing"


@pytest.mark.long
def test_an_interrupt_is_the_end_of_live_sources_with_pages_and_index(loaded, stream, tmp_path):
    options = DetectOptions(loaded, networks=ONE_THREAD, output=OutputOptions(tmp_path, ("html",)))
    with served([stream, None]) as one, served([stream, None]) as other:
        ids = {f"127.0.0.1-{port}" for port in (one, other)}
        job, seen = detect_sources([f"tcp://127.0.0.1:{port}" for port in (one, other)], options), set()
        while seen != ids:
            seen |= {event.source for event in [next(job)] if isinstance(event, Decision)}
        *ended, finished = [job.throw(KeyboardInterrupt()), next(job), next(job)]
        with pytest.raises(KeyboardInterrupt):
            next(job)
    assert {event.id for event in ended} == ids and all(event.page.is_file() for event in ended)
    assert finished.result.left and finished.result.index.is_file()


def test_an_interrupt_between_recorded_sources_leaves_the_index_of_the_pages(small_set, loaded, tmp_path):
    job = detect_sources([small_set.features], DetectOptions(loaded, output=OutputOptions(tmp_path, ("html",))))
    next(event for event in job if isinstance(event, Opened) and event.id == "scene_02")
    with pytest.raises(KeyboardInterrupt):
        job.throw(KeyboardInterrupt())
    assert [video["id"] for video in Page(tmp_path / "index.html").data["videos"]] == ["scene_00", "scene_01"]
    assert Page(tmp_path / "scene_01.html").data["index"] == "./index.html"


def test_each_file_of_a_folder_is_accounted_for(small_set, loaded, tmp_path):
    for name in ("a.mp4", "a.m4v", "b.gif"):
        copyfile(small_set.videos / "scene_03.mp4", tmp_path / name)
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=1))
    events = list(detect_sources([tmp_path], options))
    assert list(events[-1].result.timelines) == ["a.m4v", "a.mp4"]
    (notice,) = [event for event in of_kind(Notice, events) if ".gif" in event.text]
    assert not notice.warning


def test_failures_can_end_the_job(small_set, loaded, tmp_path):
    (tmp_path / "empty.mp4").touch()
    sources = [tmp_path / "empty.mp4", small_set.features]
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=1))
    assert len(result_of(detect_sources(sources, options)).timelines) == 4
    with pytest.raises(VideoError, match="empty.mp4"):
        list(detect_sources(sources[:1], DetectOptions(loaded, networks=ONE_THREAD, keep_going=False)))
    with pytest.raises(MissingPathError):  # standard input is read once
        list(detect_sources(["-", "-"], DetectOptions(loaded)))


def test_a_damaged_array_is_one_videos_failure(loaded, small_set, tmp_path):
    copytree(small_set.features, tmp_path / "features")
    for path in (tmp_path / "features").rglob("scene_01.npy"):
        path.write_bytes(path.read_bytes()[:200])
    events = list(detect_sources([tmp_path / "features"], DetectOptions(loaded, limits=Limits(max_chunks=1))))
    assert [event.id for event in of_kind(Ended, events)] == ["scene_00", "scene_02", "scene_03"]
    (failure,) = of_kind(Failed, events)
    assert failure.id == "scene_01" and "scene_01.npy" in failure.reason


def break_source(patch, stage: str, error: Exception) -> None:
    """Raise an error at a stage of the work on `bad`, a file or a camera."""
    if stage == "decode":
        timed = LiveReader._timed

        def cut(self, frames):
            for frame in timed(self, frames):
                if self.input.id == "bad":
                    raise error
                yield frame

        patch.setattr(LiveReader, "_timed", cut)
    elif stage == "model":
        step = streaming.step_streams

        def refused(model, state, streams, rgb, flow):
            if 0 in streams:  # that of `bad`
                raise error
            return step(model, state, streams, rgb, flow)

        patch.setattr(streaming, "step_streams", refused)
    else:
        inject(patch.setattr, stage, error)


@pytest.fixture
def detect(loaded, networks, tmp_path, monkeypatch):
    """Detect on the videos bad and good, with the same networks each time: the events."""
    monkeypatch.setattr(model, "open_networks", lambda *_: nullcontext(networks))
    write_bad(tmp_path / "bad.mp4")
    write_video(tmp_path / "good.mp4", range(0, 600, 20))

    def run(keep_going: bool = True) -> list:
        output = OutputOptions(tmp_path / "out", FILES)
        options = DetectOptions(loaded, limits=Limits(max_chunks=2), output=output, keep_going=keep_going)
        return list(detect_sources([tmp_path / "bad.mp4", tmp_path / "good.mp4"], options))

    return run


def check_failure(events, folder) -> None:
    """The only failure is that of `bad`, with a traceback in its log."""
    (failure,) = of_kind(Failed, events)
    log = folder / "logs" / "bad.log"
    assert failure.id == "bad" and str(ERROR) in failure.reason and str(log) in failure.hint
    assert log.read_text().startswith("Traceback")
    (line,) = map(json.loads, (folder / "failed.jsonl").read_text().splitlines())
    assert line["id"] == "bad" and line["reason"] == failure.reason
    assert "good" in [event.id for event in of_kind(Ended, events)]


@pytest.mark.parametrize("stage", ["probe", "network"])
def test_an_unforeseen_error_is_one_videos_failure(detect, tmp_path, monkeypatch, stage):
    with monkeypatch.context() as patch:
        break_source(patch, stage, ERROR)
        check_failure(detect(), tmp_path / "out")
    if stage == "probe":  # once it is well again, nothing is left of it
        assert not of_kind(Failed, detect())
        assert not (tmp_path / "out" / "logs" / "bad.log").exists()
        assert (tmp_path / "out" / "failed.jsonl").read_text() == ""


def watch(loaded, networks, tmp_path) -> list:
    """Two chunks of FFmpeg's test pictures, as if from cameras."""
    sizes = {"bad": "80x48", "good": "96x64"}
    given = [Input(name, f"testsrc=size={size}:rate=30", demuxer="lavfi") for name, size in sizes.items()]
    chosen = {"limits": Limits(max_chunks=2), "output": OutputOptions(tmp_path, FILES), "log": FailureLog(tmp_path)}
    return list(run_live(given, loaded, networks, **chosen))


@pytest.mark.long
@pytest.mark.parametrize("stage", ["decode", "model"])
def test_an_unforeseen_error_is_one_cameras_failure(loaded, networks, tmp_path, monkeypatch, stage):
    break_source(monkeypatch, stage, ERROR)
    events = watch(loaded, networks, tmp_path)
    check_failure(events, tmp_path)
    good = next(event for event in of_kind(Ended, events) if event.id == "good")
    assert good.timeline["decided"] == 2 and "error" not in good.timeline["live"]


@pytest.mark.long
def test_memory_and_a_caller_who_does_not_keep_going_end_it(detect, loaded, networks, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        break_source(patch, "network", MemoryError())
        for run in (detect, lambda: watch(loaded, networks, tmp_path)):
            with pytest.raises(ExhaustedError):
                run()
    break_source(monkeypatch, "network", ERROR)
    with pytest.raises(AttributeError):
        detect(keep_going=False)


def test_the_only_camera_raises_what_ended_it(loaded, networks, tmp_path, monkeypatch):
    break_source(monkeypatch, "network", ERROR)
    given = [Input("bad", "testsrc=size=80x48:rate=30", demuxer="lavfi")]
    monkeypatch.setattr("lstr.pipelines.detection.detect.by_kind", lambda sources, names: ([], given))
    monkeypatch.setattr(model, "open_networks", lambda *_: nullcontext(networks))
    options = DetectOptions(loaded, limits=Limits(max_chunks=2), output=OutputOptions(tmp_path, FILES))
    with pytest.raises(UnforeseenError) as raised:
        list(detect_sources(["bad"], options))
    assert raised.value.exit_code == 3 and "bad.log" in raised.value.hint and raised.value.__cause__ is ERROR
