"""Detection jobs: any mix of sources, sources that fail, and live sources with complete outputs after any end."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import datetime
from unittest.mock import Mock

import numpy as np
import pytest

from lstr.errors import ExhaustedError, MissingPathError, OutputError, UnforeseenError, VideoError
from lstr.extractors.video.inputs import Input, LiveOptions, parse_live
from lstr.pipelines.annotations.label_files import read_annotations, read_label_file
from lstr.pipelines.detection import model, outputs
from lstr.pipelines.detection.decision import Decision, Ended, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.detector import detect
from lstr.pipelines.detection.options import Limits, OutputOptions
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed, Finished, Notice
from lstr.timeline import Thresholds
from tests.support.annotated import segments
from tests.support.detections import (
    ONE_THREAD,
    dated_file,
    decisions_of,
    lines_of,
    pattern_camera,
    run_session,
    scores_of,
    sources_of,
)
from tests.support.errors import assert_error
from tests.support.injected import inject, write_bad
from tests.support.pages import Page
from tests.support.processes import restore_signals
from tests.support.served import piped, served
from tests.support.videos import write_video
from tests.support.waiting import wait_until


def of_kind(kind: type, events) -> list:
    return [event for event in events if isinstance(event, kind)]


ERROR = AttributeError("'NoneType' object has no attribute 'width'")
CAMERAS = [pattern_camera("bad", "80x48"), pattern_camera("good")]


def test_stored_raw_and_live_sources_together(small_set, loaded, streams, tmp_path):
    (tmp_path / "empty.mp4").touch()
    output = OutputOptions(tmp_path / "out", ("json", "jsonl", "html"), labels=read_label_file(small_set.labels))
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
    with pytest.raises(VideoError, match="empty.mp4"):
        list(detect_sources([tmp_path / "empty.mp4", small_set.features], DetectOptions(loaded, keep_going=False)))
    with pytest.raises(MissingPathError):  # standard input can be read once
        list(detect_sources(["-", "-"], DetectOptions(loaded)))
    (tmp_path / "empty.activitynet.mp4").touch()
    output = OutputOptions(tmp_path / "o", ("json", "activitynet"))
    with pytest.raises(OutputError, match="empty.activitynet.json"):
        list(detect_sources([tmp_path], DetectOptions(loaded, output=output)))


@contextmanager
def raise_in(stage: str, error: Exception):
    with pytest.MonkeyPatch.context() as patch:
        inject(patch.setattr, stage, error)
        yield


@pytest.fixture
def detect_pair(loaded, networks, tmp_path, monkeypatch):
    """Detect on the videos or the cameras `bad` and `good`, with networks that stay open; return the events."""
    monkeypatch.setattr(model.Networks, "open", lambda _: networks.made)
    write_bad(tmp_path / "bad.mp4")
    write_video(tmp_path / "good.mp4", range(0, 600, 20))

    def run(kind: str = "videos", **options) -> list:
        chosen = {"limits": Limits(max_chunks=2), "output": OutputOptions(tmp_path / "out", ("json", "jsonl"))}
        if kind == "cameras":
            return list(run_session(CAMERAS, loaded, networks, 2, **chosen, log=FailureLog(tmp_path / "out")))
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
def test_an_unforeseen_error_fails_only_its_source(detect_pair, tmp_path, kind, stage):
    with raise_in(stage, ERROR):
        events = detect_pair(kind)
    (failure,) = of_kind(Failed, events)
    log = tmp_path / "out" / "logs" / "bad.log"
    assert failure.id == "bad" and str(ERROR) in failure.reason and str(log) in failure.hint
    assert log.read_text().startswith("Traceback")
    (line,) = map(json.loads, (tmp_path / "out" / "failed.jsonl").read_text().splitlines())
    assert line["id"] == "bad" and line["reason"] == failure.reason
    (good,) = of_kind(Ended, events)
    assert good.id == "good" and good.timeline["decided"] == 2 and "error" not in good.timeline.get("live", {})
    if stage == "probe":  # the next run, without the error, removes its log
        assert not of_kind(Failed, detect_pair())
        assert not log.exists() and (tmp_path / "out" / "failed.jsonl").read_text() == ""


@pytest.mark.long
def test_missing_memory_ends_the_job_and_so_does_any_error_without_keep_going(detect_pair):
    for kind in ("videos", "cameras"):
        with raise_in("network", MemoryError()), pytest.raises(ExhaustedError):
            detect_pair(kind)
    with raise_in("network", ERROR), pytest.raises(AttributeError):
        detect_pair(keep_going=False)


def test_the_error_of_the_only_camera_is_raised(detect_pair, monkeypatch):
    monkeypatch.setattr("lstr.pipelines.detection.detect.by_kind", lambda _: ([], CAMERAS[:1]))
    with raise_in("network", ERROR), pytest.raises(UnforeseenError) as raised:
        detect_pair()
    assert raised.value.exit_code == 3 and "bad.log" in raised.value.hint and raised.value.__cause__ is ERROR


FOUR_CHUNKS = Limits(max_chunks=4)


@pytest.mark.long
def test_a_file_a_pipe_and_a_tcp_stream_have_equal_scores(small_set, loaded, networks, streams, tmp_path):
    """The pipe and the stream run alone, and then together, where they share networks and model steps."""

    def run(*inputs) -> tuple[list, dict]:
        events = list(run_session(inputs, loaded, networks, 2, limits=FOUR_CHUNKS, log=FailureLog(None)))
        decisions = decisions_of(events)
        by_source = {given.id: [d for d in decisions if d.source == given.id] for given in inputs}
        return [event.status for event in events if isinstance(event, Opened)], by_source

    (tmp_path / "a.ts").write_bytes(streams[0])
    source = sources_of(tmp_path / "a.ts", loaded=loaded)
    from_file = scores_of(decisions_of(run_session(source, loaded, networks, limits=FOUR_CHUNKS)))
    with piped(streams[0]) as file:
        _, decisions = run(Input("stdin", file, lasting=False))
    assert np.abs(scores_of(decisions["stdin"]) - from_file).max() <= 1e-5
    with piped(streams[0]) as file, served([streams[1]]) as port:
        statuses, decisions = run(Input("stdin", file, lasting=False), parse_live(f"tcp://127.0.0.1:{port}"))
    tcp = decisions[f"127.0.0.1-{port}"]
    assert np.abs(scores_of(decisions["stdin"]) - from_file).max() <= 1e-5
    assert [d.chunk for d in tcp] == [0, 1, 2, 3] and not np.allclose(scores_of(tcp), from_file)
    assert [(status.decided, status.link) for status in statuses] == [(4, "ended")] * 2
    with served([streams[1]]) as port:
        always = Thresholds(on=0.0, off=0.0)
        single = list(detect(f"tcp://127.0.0.1:{port}", small_set.checkpoint, limits=FOUR_CHUNKS, thresholds=always))
    assert [d.chunk for d in single] == [0, 1, 2, 3, 3], "the last one again, as something is active at the end"
    assert np.abs(scores_of(single[:4]) - scores_of(tcp)).max() <= 1e-5
    assert single[3].events == [] and single[4].events
    assert all(event.event == "ended" and event.still_active and event.at for event in single[4].events)


def test_chunks_that_come_faster_than_decisions_are_dropped_in_every_output(loaded, networks, tmp_path):
    output = OutputOptions(tmp_path, ("json", "jsonl", "npy", "html", "png", "vtt"))
    options = {"live": LiveOptions(on_lag="drop"), "limits": Limits(start=0.5, max_chunks=5)}
    decisions = decisions_of(run_session([pattern_camera()], loaded, networks, output=output, **options))
    chunks, lines = [decision.chunk for decision in decisions], lines_of(tmp_path, "camera")

    def chunks_in(spans) -> list[int]:
        return [k for span in spans for k in range(round(span["start"] * 4), round(span["end"] * 4))]

    assert [line["chunk"] for line in lines if "chunk" in line] == chunks and len(chunks) == 5
    gaps = chunks_in(line for line in lines if "gap" in line)
    assert sorted(chunks + gaps) == list(range(2, chunks[-1] + 1)) and gaps
    timeline = json.loads(dated_file(tmp_path, "camera", ".json").read_text())
    assert timeline["chunks"] == chunks[-1] + 1 and timeline["decided"] == 5
    missing = chunks_in(timeline["gaps"])
    assert sorted(missing) == [0, 1, *gaps] and timeline["gaps"][0] == {"start": 0, "end": 0.5, "reason": "skipped"}
    assert all(gap["start_at"] < gap["end_at"] for gap in timeline["gaps"][1:])
    assert timeline["live"]["dropped"] >= len(gaps) and timeline["speed"]["latency_ms"]["p50"] > 0
    scores = np.load(dated_file(tmp_path, "camera", ".scores.npy"))
    assert np.flatnonzero(np.isnan(scores[:, 0])).tolist() == sorted(missing)
    assert np.allclose(scores[chunks], scores_of(decisions))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".jsonl", ".npy", ".html", ".png", ".vtt"}
    assert set(chunks_in(timeline["segments"])) <= set(chunks), "an action without frames"


def check_outputs(folder, name: str) -> dict:
    """Check that the files of a source can be read and agree; return its timeline."""
    timeline = json.loads(dated_file(folder, name, ".json").read_text())
    assert len(np.load(dated_file(folder, name, ".scores.npy"))) == timeline["chunks"]
    files = [read_annotations(dated_file(folder, name, suffix)).first[1] for suffix in (".jsonl", ".json")]
    assert segments(files[0]) == segments(files[1]) and lines_of(folder, name)
    return timeline


@pytest.mark.long
def test_a_source_that_stalls_leaves_complete_outputs(lstr, small_set, streams, tmp_path, monkeypatch):
    half = streams[0][: len(streams[0]) // 376 * 188]
    options = ("-c", small_set.checkpoint, "-o", tmp_path, "-f", "json,jsonl,npy", "--set", "timeout=1.5s")
    with piped(half, None) as file:
        monkeypatch.setattr("sys.stdin", open(os.dup(file.fileno())))  # noqa: SIM115
        code, out, err = lstr("detect", "-", *options)
    sys.stdin.close()
    assert code == 1 and "1.5 s" in err and err.count("hint: ") == 1 and out
    timeline = check_outputs(tmp_path, "stdin")
    assert timeline["chunks"] > 2 and timeline["live"]["error"]


def test_three_runs_of_a_camera_in_one_second_overwrite_no_file(loaded, networks, tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "datetime", Mock(now=lambda: datetime(2026, 11, 22, 21, 5)))
    before: dict = {}
    for suffix in ("", "~2", "~3"):
        output = OutputOptions(tmp_path, ("json", "jsonl", "html"))
        list(run_session([pattern_camera()], loaded, networks, output=output, limits=Limits(max_chunks=1)))
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        new = {f"camera_2026-11-22_21-05-00{suffix}.{ending}" for ending in ("json", "jsonl", "html")}
        assert files.keys() == before.keys() | new and files.items() >= before.items()
        before = files


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGKILL, -9),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 0, marks=pytest.mark.slow),
    ],
)
def test_a_killed_process_loses_no_line(small_set, streams, tmp_path, number, code):
    """After SIGKILL all lines are complete, except perhaps the last; the other signals complete all files."""
    command = [sys.executable, "-m", "lstr_cli", "detect", "-", "-c", small_set.checkpoint, "-o", tmp_path]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*map(str, command)], **pipes, preexec_fn=restore_signals) as process:
        process.stdin.write(streams[0])
        process.stdin.flush()
        lines = lambda: sum(path.read_text().count('"chunk"') for path in tmp_path.glob("*.jsonl"))  # noqa: E731
        wait_until(lambda: lines() >= 3 or process.poll() is not None)
        process.send_signal(number)
        err = process.communicate()[1].decode()
    assert process.returncode == code and "Traceback" not in err, err
    path = dated_file(tmp_path, "stdin", ".jsonl")
    *lines, _ = path.read_text().split("\n")
    chunks = [json.loads(line)["chunk"] for line in lines if '"chunk"' in line]
    assert chunks == list(range(len(chunks))) and len(chunks) >= 3
    if number != signal.SIGKILL:
        page = dated_file(tmp_path, "stdin", ".html")
        assert str(page) in err and page.read_text().rstrip().endswith("</html>")
        assert check_outputs(tmp_path, "stdin")["decided"] == len(chunks)
        assert ("error: " in err) == (number == signal.SIGTERM)


@pytest.mark.long
def test_lines_name_their_source(lstr, run, small_set, streams, tmp_path):
    """They do so if there are several sources, also if some fail, and if the source has a name."""
    options = ("-c", small_set.checkpoint, "--duration", "0.5")
    with served([streams[0]], [streams[0]], [streams[0]]) as port:
        address = f"tcp://127.0.0.1:{port}"
        code, out, err = lstr("detect", address, "tcp://127.0.0.1:1", *options)
        lines = [json.loads(line) for line in out.splitlines()]
        assert code == 3 and {line["source"] for line in lines} == {f"127.0.0.1-{port}"}
        assert [line["chunk"] for line in lines if "chunk" in line] == [0, 1]
        assert err.count("failed: tcp://127.0.0.1:1 ") == 1
        options = ("--name", f"door={address}", *options, "--on", 0)
        assert "live, so no mp4" in run("detect", *options, "-o", tmp_path, "-f", "json,jsonl,mp4", "--events-only")[1]
        code, out, err = lstr("detect", *options)
    assert code == 0 and {json.loads(line)["source"] for line in out.splitlines()} == {"door"}
    assert json.loads(dated_file(tmp_path, "door", ".json").read_text())["name"] == "door"
    assert len(list(tmp_path.iterdir())) == 2
    lines = lines_of(tmp_path, "door")
    assert lines and all("event" in line and "at" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "code", "value"),
    [
        (["--start", "soon", "camera:0"], 2, "'soon'"),
        (["--name", "a/b=camera:0"], 2, "'a/b'"),
        (["--name", "door"], 2, "NAME=SOURCE"),
        (["--name", "door=game.mp4"], 2, "game.mp4"),
        (["--name", "a=tcp://h:1", "--name", "a=tcp://h:2"], 2, "a=tcp://h:2"),
        ([], 2, "SOURCE"),
        (["tcp://h:1", "-o", "x", "-f", "json", "--events-only"], 2, "jsonl"),
        (["camera:7777"], 2, "7777"),
        (["gopher://host/x"], 2, "gopher"),
        (["http://me:secret@127.0.0.1:1/x"], 3, "127.0.0.1"),
    ],
)
def test_invalid_live_sources(lstr, small_set, words, code, value):
    result = lstr("detect", *words, "-c", small_set.checkpoint, "--set", "timeout=1s")
    assert_error(result, code, value)
    assert "secret" not in result[2]
