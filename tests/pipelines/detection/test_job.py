"""The detection job: what it reports of any mix of sources, and what its result says."""

import json
from collections import Counter
from fractions import Fraction
from shutil import copyfile, rmtree
from time import sleep

import pytest

from lstr.errors import MissingPathError, OutputError, VideoError
from lstr.extractors.video import live
from lstr.extractors.video.inputs import LiveOptions
from lstr.labels.label_set import read_labels
from lstr.pipelines.detection.decision import Decision, Ended, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.model import load_checkpoint
from lstr.pipelines.detection.options import Limits, NetworkOptions, OutputOptions
from lstr.pipelines.progress import Failed, Finished, Notice, result_of
from tests.support.detections import dated_file
from tests.support.pages import Page
from tests.support.patience import patiently
from tests.support.served import TS_HEAD, served
from tests.support.videos import remux

ONE_THREAD = NetworkOptions(flow_threads=1)


@pytest.fixture(scope="module")
def loaded(small_set):
    return load_checkpoint(small_set.checkpoint)


@pytest.fixture(scope="module")
def stream(small_set, tmp_path_factory) -> bytes:
    """A video as MPEG-TS."""
    return remux(small_set.videos / "scene_00.mp4", tmp_path_factory.mktemp("streams") / "v.ts").read_bytes()


def test_stored_and_raw_and_live_sources_in_one_job(small_set, loaded, stream, tmp_path):
    (tmp_path / "empty.mp4").touch()
    output = OutputOptions(tmp_path / "out", ("json", "jsonl", "html"), labels=read_labels(small_set.labels))
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=2), output=output)
    with served([stream]) as port:
        sources = [f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:1", tmp_path / "empty.mp4", small_set.features]
        events = list(detect_sources(sources, options))
    live, gone, stored = f"127.0.0.1-{port}", "127.0.0.1-1", [f"scene_0{k}" for k in range(4)]
    assert Counter(event.source for event in events if isinstance(event, Decision)) == dict.fromkeys([*stored, live], 2)
    for source in (*stored, live):
        kinds = [type(e) for e in events if getattr(e, "id", getattr(e, "source", None)) == source]
        assert kinds == [Opened, Decision, Decision, Ended]
    opened = {event.id: event for event in events if isinstance(event, Opened)}
    assert list(opened) == [*stored, live, gone] and opened[live].refresh and not opened["scene_00"].refresh
    assert opened[live].status.decided == 2 and opened["scene_00"].status.total == 2
    failures = [event for event in events if isinstance(event, Failed)]
    assert [failure.id for failure in failures] == ["empty", gone] and all(failure.hint for failure in failures)
    texts = [event.text for event in events if isinstance(event, Notice)]
    assert len(texts) == len(set(texts)) and any("random weights" in text for text in texts)
    result = events[-1].result
    assert isinstance(events[-1], Finished) and list(result.timelines) == [*stored, live]
    assert result.failures == tuple(failures) and not result.stalled
    assert result.index == dated_file(tmp_path / "out", "index", ".html")
    index = Page(result.index).data
    assert len(index["failed"]) == 2 and "empty.mp4 is empty" in index["failed"][0]
    pages = [video["page"] for video in index["videos"]]
    assert pages == [f"./{event.page.name}" for event in events if isinstance(event, Ended)]
    for event in (event for event in events if isinstance(event, Ended)):
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


@pytest.mark.long
def test_files_that_are_deleted_while_they_are_written_are_an_error(small_set, loaded, stream, tmp_path):
    """What was decided went nowhere, and the job ended as if all were well."""
    output = OutputOptions(tmp_path / "out", ("jsonl",))
    job = detect_sources([small_set.features], DetectOptions(loaded, output=output))
    next(event for event in job if isinstance(event, Decision))
    rmtree(tmp_path / "out")
    with pytest.raises(OutputError, match=r"scene_00\.jsonl cannot be written .it was deleted"):
        list(job)
    with served([stream]) as port:
        options = DetectOptions(loaded, networks=ONE_THREAD, output=output)
        job = detect_sources([f"tcp://127.0.0.1:{port}"], options)
        next(event for event in job if isinstance(event, Opened))
        while not list((tmp_path / "out").glob("*.jsonl")):  # a thread opens it
            sleep(0.01)
        rmtree(tmp_path / "out")
        with pytest.raises(OutputError, match="it was deleted while in use"):
            list(job)


def test_each_file_of_a_folder_is_accounted_for(small_set, loaded, tmp_path):
    for name in ("a.mp4", "a.m4v", "b.gif"):
        copyfile(small_set.videos / "scene_03.mp4", tmp_path / name)
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=1))
    events = list(detect_sources([tmp_path], options))
    assert list(events[-1].result.timelines) == ["a.m4v", "a.mp4"]
    told = [event for event in events if isinstance(event, Notice) and "1 .gif" in event.text]
    assert len(told) == 1 and not told[0].warning


def test_an_interrupt_between_recorded_sources_leaves_the_index_of_the_pages(small_set, loaded, tmp_path):
    """The pages that are there link it."""
    job = detect_sources([small_set.features], DetectOptions(loaded, output=OutputOptions(tmp_path, ("html",))))
    next(event for event in job if isinstance(event, Opened) and event.id == "scene_02")
    with pytest.raises(KeyboardInterrupt):
        job.throw(KeyboardInterrupt())
    assert [video["id"] for video in Page(tmp_path / "index.html").data["videos"]] == ["scene_00", "scene_01"]
    assert Page(tmp_path / "scene_01.html").data["index"] == "./index.html"


def test_failures_can_end_the_job(small_set, loaded, tmp_path):
    (tmp_path / "empty.mp4").touch()
    sources = [tmp_path / "empty.mp4", small_set.features]
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=1))
    assert len(result_of(detect_sources(sources, options)).timelines) == 4
    with pytest.raises(VideoError, match="is empty"):
        list(detect_sources(sources[:1], DetectOptions(loaded, networks=ONE_THREAD, keep_going=False)))


@pytest.mark.long
def test_one_stalled_source_of_two(loaded, stream):
    """The exit code of the command follows from it."""
    half = stream[: len(stream) // 376 * 188]

    def check(timeout: float) -> None:
        options = DetectOptions(loaded, networks=ONE_THREAD, live=LiveOptions(timeout=timeout))
        with served([half, None]) as silent, served([stream]) as port:
            result = result_of(detect_sources([f"tcp://127.0.0.1:{silent}", f"tcp://127.0.0.1:{port}"], options))
        assert result.stalled and [failure.id for failure in result.failures] == [f"127.0.0.1-{silent}"]
        assert len(result.timelines) == 2

    patiently(check, 1.5)


@pytest.mark.slow
def test_each_return_of_each_camera_is_told(loaded, stream, monkeypatch):
    """The second one after as many seconds was left out, and of two cameras nobody could tell which one was meant."""
    monkeypatch.setattr(live, "GAP_SECONDS", Fraction(1, 5))
    parts = [[stream], [], [stream], [], [stream]]
    options = DetectOptions(loaded, networks=ONE_THREAD, live=LiveOptions(timeout=6))
    with served(*parts, head=TS_HEAD) as one, served(*parts, head=TS_HEAD) as other:
        addresses = [f"http://127.0.0.1:{port}/{name}" for name, port in (("a", one), ("b", other))]
        events = list(detect_sources(addresses, options))
    ids = [event.id for event in events if isinstance(event, Opened)]
    texts = [event.text for event in events if isinstance(event, Notice)]
    for kind, times in (("connection lost: ", 3), ("connected again, ", 2)):
        assert Counter(text.split(kind)[0] for text in texts if kind in text) == {f"{name}: ": times for name in ids}
    assert len(ids) == 2 and sum("random weights" in text for text in texts) == 1, "a warning is told once"


def test_standard_input_once(loaded):
    with pytest.raises(MissingPathError, match="can be read once"):
        list(detect_sources(["-", "-"], DetectOptions(loaded)))
