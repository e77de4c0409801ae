"""Detection on live sources: the scores of a file, several at once as each alone, and whole outputs after any end."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from unittest.mock import Mock

import numpy as np
import pytest

from lstr.errors import StalledError
from lstr.extractors.video.inputs import Input, LiveOptions, parse_live
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.detection import outputs
from lstr.pipelines.detection.decision import Decision, Opened
from lstr.pipelines.detection.detector import detect
from lstr.pipelines.detection.model import load_checkpoint, open_networks
from lstr.pipelines.detection.options import Limits, NetworkOptions, OutputOptions
from lstr.pipelines.detection.session import Streams
from lstr.pipelines.failures import FailureLog
from lstr.timeline import Thresholds
from tests.support.annotated import segments
from tests.support.clips import stdin
from tests.support.detections import dated_file, decisions_of, run_live, run_recorded, sources_of
from tests.support.errors import assert_error
from tests.support.processes import restore_signals
from tests.support.served import TS_HEAD, piped, served
from tests.support.videos import remux

FEW = Limits(max_chunks=4)
ONE_THREAD = NetworkOptions(flow_threads=1)


@pytest.fixture(scope="module")
def loaded(small_set):
    return load_checkpoint(small_set.checkpoint)


@pytest.fixture(scope="module")
def networks(loaded):
    with open_networks(loaded, ONE_THREAD) as (twostream, workers, _):
        yield twostream, workers


@pytest.fixture(scope="module")
def streams(small_set, tmp_path_factory) -> list[bytes]:
    """Two of the videos as MPEG-TS."""
    folder = tmp_path_factory.mktemp("streams")
    names = ("scene_00", "scene_03")
    return [remux(small_set.videos / f"{name}.mp4", folder / f"{name}.ts").read_bytes() for name in names]


def watched(given, loaded, networks, limits=FEW, on_gap="keep", **options):
    """Sources and their decisions by id, of live sources until they are over."""
    chosen = {"limits": limits, "on_gap": on_gap, "live": LiveOptions(**options), "log": FailureLog(None)}
    events = list(run_live(given, loaded, networks, **chosen))
    sources = [event for event in events if isinstance(event, Opened)]
    made = [event for event in events if isinstance(event, Decision)]
    return sources, {source.id: [e for e in made if e.source == source.id] for source in sources}, events


def scores_of(decisions) -> np.ndarray:
    return np.stack([decision.scores for decision in decisions])


def lines_of(folder, name: str) -> list[dict]:
    text = dated_file(folder, name, ".jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.long
def test_scores_are_the_same_however_the_bytes_come(small_set, loaded, networks, streams, tmp_path):
    """A file, a pipe and a TCP stream; then both of the latter at once, which share networks and model steps."""
    (tmp_path / "a.ts").write_bytes(streams[0])
    (source,) = sources_of(tmp_path / "a.ts", loaded=loaded)
    from_file = scores_of(decisions_of(run_recorded(source, loaded, networks=ONE_THREAD, limits=FEW)))
    with piped(streams[0]) as file:
        _, alone, _ = watched([stdin(file)], loaded, networks)
    assert np.abs(scores_of(alone["stdin"]) - from_file).max() <= 1e-5
    with piped(streams[0]) as file, served([streams[1]]) as port:
        given = [stdin(file), parse_live(f"tcp://127.0.0.1:{port}")]
        sources, both, _ = watched(given, loaded, networks)
    other = f"127.0.0.1-{port}"
    assert np.abs(scores_of(both["stdin"]) - from_file).max() <= 1e-5
    assert [d.chunk for d in both[other]] == [0, 1, 2, 3] and not np.allclose(scores_of(both[other]), from_file)
    assert [(s.status.decided, s.status.link) for s in sources] == [(4, "ended")] * 2
    with served([streams[1]]) as port:
        address, always = f"tcp://127.0.0.1:{port}", Thresholds(on=0.0, off=0.0)
        through_api = list(detect(address, small_set.checkpoint, limits=FEW, thresholds=always))
    assert [d.chunk for d in through_api] == [0, 1, 2, 3, 3], "the last one again, as something is active at the end"
    assert np.abs(scores_of(through_api[:4]) - scores_of(both[other])).max() <= 1e-5
    assert through_api[3].events == [] and through_api[4].events
    assert all(event.event == "ended" and event.still_on and event.at for event in through_api[4].events)


def test_chunks_that_are_dropped_are_in_every_output(loaded, networks, tmp_path):
    """FFmpeg's test pictures come much faster than networks decide."""
    camera = Input("camera", "testsrc=size=96x64:rate=30", demuxer="lavfi")
    output = OutputOptions(tmp_path, ("json", "jsonl", "npy", "html", "png", "vtt"))
    chosen = {"live": LiveOptions(on_lag="drop", waiting=2), "limits": Limits(start=0.5, max_chunks=5)}
    decisions = decisions_of(run_live([camera], loaded, networks, output=output, **chosen))
    chunks, lines = [decision.chunk for decision in decisions], lines_of(tmp_path, "camera")

    def chunks_in(parts) -> list[int]:
        return [k for part in parts for k in range(round(part["start"] * 4), round(part["end"] * 4))]

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
    assert set(chunks_in(timeline["segments"])) <= set(chunks), "an action where nothing was seen"


@pytest.mark.long
def test_a_gap_can_reset_what_is_remembered(loaded, networks, streams, monkeypatch):
    resets, reset = [], Streams.reset
    monkeypatch.setattr(Streams, "reset", lambda self, places: [resets.append(places), reset(self, places)])
    part = streams[0][: len(streams[0]) * 2 // 5 // 188 * 188]
    for on_gap, forgets in (("keep", False), ("reset", True)):
        with served([part], [part], head=TS_HEAD) as port:
            given = [parse_live(f"http://127.0.0.1:{port}/a.ts")]
            (source,), found, events = watched(given, loaded, networks, Limits(), on_gap, timeout=1.5, on_lag="wait")
        (decisions,) = found.values()
        away = next(i for i, decision in enumerate(decisions) if decision.gaps)
        assert 0 < away < len(decisions) - 1 and isinstance(events[-1].error, StalledError)
        assert resets == [[0]] * (1 + forgets), "and at its end"
        resets.clear()
        assert (source.status.gaps, source.status.reconnects) == (1, 1)


def whole(folder, name: str) -> dict:
    """The timeline of a source whose files all parse and agree."""
    timeline = json.loads(dated_file(folder, name, ".json").read_text())
    assert len(np.load(dated_file(folder, name, ".scores.npy"))) == timeline["chunks"]
    by_lines, by_timeline = (
        read_annotations(dated_file(folder, name, suffix)).first[1] for suffix in (".jsonl", ".json")
    )
    assert segments(by_lines) == segments(by_timeline) and lines_of(folder, name)
    return timeline


@pytest.mark.long
def test_a_source_that_stalls_leaves_whole_outputs(lstr, small_set, streams, tmp_path, monkeypatch):
    half = streams[0][: len(streams[0]) // 376 * 188]
    given = ("-c", small_set.checkpoint, "-o", tmp_path, "-f", "json,jsonl,npy", "--set", "timeout=1.5s")
    with piped(half, None) as file:
        monkeypatch.setattr("sys.stdin", open(os.dup(file.fileno())))  # noqa: SIM115
        code, out, err = lstr("detect", "-", *given)
    sys.stdin.close()
    assert code == 1 and "1.5 s" in err and err.count("hint: ") == 1 and out, "what it had seen has its table"
    timeline = whole(tmp_path, "stdin")
    assert timeline["chunks"] > 2 and timeline["live"]["error"]


def test_a_camera_never_overwrites_what_is_there(loaded, networks, tmp_path, monkeypatch):
    """Not even where two starts fall into one second."""
    monkeypatch.setattr(outputs, "datetime", Mock(now=lambda: datetime(2026, 11, 22, 21, 5)))
    kept: dict = {}
    for suffix in ("", "~2", "~3"):
        camera = Input("camera", "testsrc=size=96x64:rate=30", demuxer="lavfi")
        output = OutputOptions(tmp_path, ("json", "jsonl", "html"))
        list(run_live([camera], loaded, networks, output=output, limits=Limits(max_chunks=1)))
        found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        new = {f"camera_2026-11-22_21-05-00{suffix}.{ending}" for ending in ("json", "jsonl", "html")}
        assert found.keys() == kept.keys() | new and found.items() >= kept.items()
        kept = found


@pytest.mark.long
@pytest.mark.parametrize(
    "sent, code",
    [
        (signal.SIGKILL, -9),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 0, marks=pytest.mark.slow),
    ],
)
def test_a_killed_process_loses_no_line(small_set, streams, tmp_path, sent, code):
    """kill -9: all lines are whole, but perhaps the last; `docker stop` and Ctrl-C, as a camera is left: all files."""
    command = [sys.executable, "-m", "lstr_cli.main", "detect", "-", "-c", small_set.checkpoint, "-o", tmp_path]
    process = subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=restore_signals
    )
    try:
        process.stdin.write(streams[0])
        process.stdin.flush()  # and it stays open
        while sum(path.read_text().count('"chunk"') for path in tmp_path.glob("*.jsonl")) < 3:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
    finally:
        process.send_signal(sent)
        _, err = process.communicate()
    assert process.returncode == code and b"Traceback" not in err, err
    path = dated_file(tmp_path, "stdin", ".jsonl")
    *lines, _ = path.read_text().split("\n")
    chunks = [json.loads(line)["chunk"] for line in lines if '"chunk"' in line]
    assert chunks == list(range(len(chunks))) and len(chunks) >= 3
    if sent == signal.SIGKILL:
        assert [*tmp_path.iterdir()] == [path]
        return
    page = dated_file(tmp_path, "stdin", ".html")
    assert str(page) in err.decode() and page.read_text().rstrip().endswith("</html>")
    assert whole(tmp_path, "stdin")["decided"] == len(chunks) and (b"error: " in err) == (sent == signal.SIGTERM)


@pytest.mark.long
def test_several_at_once_on_standard_output(lstr, small_set, streams):
    """Each line says its source; one where nothing is does not stop the other."""
    with served([streams[0]]) as port:
        addresses = (f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:1")
        code, out, err = lstr("detect", *addresses, "-c", small_set.checkpoint, "--duration", "0.5")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 3 and {line["source"] for line in lines} == {f"127.0.0.1-{port}"}
    assert [line["chunk"] for line in lines if "chunk" in line] == [0, 1]
    assert err.count("failed: tcp://127.0.0.1:1 ") == 1


@pytest.mark.long
def test_a_source_has_the_name_that_it_is_given(lstr, small_set, streams, tmp_path):
    """In its files, and in its lines, though it is the only one."""
    with served([streams[0]], [streams[0]]) as port:
        given = ("--name", f"door=tcp://127.0.0.1:{port}", "-c", small_set.checkpoint, "--duration", 0.5, "--on", 0)
        code, _, err = lstr("detect", *given, "-o", tmp_path, "-f", "json,jsonl", "--events-only")
        assert code == 0, err
        code, out, err = lstr("detect", *given)
    assert code == 0 and {json.loads(line)["source"] for line in out.splitlines()} == {"door"}
    assert json.loads(dated_file(tmp_path, "door", ".json").read_text())["name"] == "door"
    assert len(list(tmp_path.iterdir())) == 2
    lines = lines_of(tmp_path, "door")
    assert lines and all("event" in line and "at" in line for line in lines)


@pytest.mark.parametrize(
    "given, code, named",
    [
        (["--start", "soon", "camera:0"], 2, "'soon'"),
        (["--name", "a/b=camera:0"], 2, "'a/b'"),
        (["--name", "..=camera:0"], 2, "'..'"),
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
def test_mistakes_about_live_sources(lstr, small_set, given, code, named):
    _, _, err = result = lstr("detect", *given, "-c", small_set.checkpoint, "--set", "timeout=1s")
    assert_error(result, code, named)
    assert "secret" not in err
