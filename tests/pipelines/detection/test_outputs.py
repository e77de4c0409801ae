"""What `lstr detect` leaves: every format of a run says the same."""

import json
import os
import signal
import subprocess
import sys
from time import sleep

import av
import pytest

from lstr.checkpoint import load, save
from lstr.kinds import configure, make_model
from lstr.pipelines.annotations.format import all_formats, format_named
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.detection.options import DEFAULT_FORMATS, FORMATS, OutputOptions
from tests.support.annotated import scored, segments
from tests.support.detections import decisions_of, run_recorded, sources_of
from tests.support.processes import heed_interrupts
from tests.support.small_set import DIMS

SUFFIXES = {name: format_named(name).suffix for name in FORMATS}
TEXTS = [form.name for form in all_formats() if form.writes]


@pytest.fixture(scope="module")
def everything(small_set, tmp_path_factory):
    """One video detected with -f all."""
    folder = tmp_path_factory.mktemp("all")
    loaded = load(small_set.checkpoint)
    (source,) = sources_of(small_set.videos / "scene_00.mp4", loaded=loaded)
    decisions_of(run_recorded(source, loaded, OutputOptions(folder, FORMATS)))
    return folder


def test_every_format_is_there_and_no_other_file(everything):
    names = {path.name for path in everything.iterdir()}
    beside = {"detclasslist.txt"}
    assert names == {f"scene_00{suffix}" for suffix in SUFFIXES.values()} | beside
    assert "scene_00.mp4" not in names, "the name of the video itself"


@pytest.mark.parametrize("form", TEXTS)
def test_every_text_says_what_the_timeline_says(everything, form):
    timeline = read_annotations(everything / "scene_00.json").videos["scene_00"]
    read = read_annotations(everything / f"scene_00{SUFFIXES[form]}").videos["scene_00"]
    assert timeline.segments
    assert segments(read) == segments(timeline)
    assert scored(read) == scored(timeline)


def test_the_video_has_the_frames_of_its_source(everything, small_set):
    counts = []
    for path in (small_set.videos / "scene_00.mp4", everything / "scene_00.lanes.mp4"):
        with av.open(str(path)) as container:
            counts.append(sum(1 for _ in container.decode(video=0)))
    assert counts[0] == counts[1] == 150


def test_the_timeline_states_thresholds_and_their_delay(everything):
    timeline = json.loads((everything / "scene_00.json").read_text())
    assert timeline["thresholds"] == {
        "on": 0.5, "off": 0.35, "min_length": 0.0, "merge_gap": 0.0, "delay": {"started": 0.0, "ended": 0.0}
    }  # fmt: skip
    assert "expected" not in timeline


def test_options_of_the_command(small_set, tmp_path, lstr):
    given = ("detect", small_set.features, "-c", small_set.checkpoint)
    assert lstr(*given, "-o", tmp_path / "a")[0] == 0
    assert {p.name for p in (tmp_path / "a").iterdir()} == {
        "index.html",
        *(f"scene_0{i}{SUFFIXES[form]}" for i in range(4) for form in DEFAULT_FORMATS),
    }
    rules = ("--on", 0.4, "--off", 0.2, "--min-length", 0.5, "--merge-gap", 0.25)
    code, _, err = lstr(*given, "-o", tmp_path / "b", "-f", "json", "-f", "vtt, jsonl", *rules)
    assert code == 0 and "Starts are reported 0.25 s later, ends 0.25 s later" in err
    assert {p.suffix for p in (tmp_path / "b").iterdir()} == {".json", ".vtt", ".jsonl"}
    timeline = json.loads((tmp_path / "b" / "scene_00.json").read_text())
    assert timeline["thresholds"]["delay"] == {"started": 0.25, "ended": 0.25}
    lines = [json.loads(line) for line in (tmp_path / "b" / "scene_00.jsonl").read_text().splitlines()]
    begun = [line for line in lines if line.get("event") == "started"]
    assert begun and all(line["time"] - line["start"] >= 0.5 for line in begun)
    code, out, _ = lstr(*given, "-f", "jsonl")
    assert code == 0 and sum("chunk" in json.loads(line) for line in out.splitlines()) == 80
    code, _, err = lstr(*given, "-f", "vtt")
    assert code == 2 and "add -o DIR" in err
    code, _, err = lstr(*given, "-o", tmp_path / "c", "-f", "pdf")
    assert code == 2 and "'pdf' is not one of json" in err
    code, _, err = lstr(*given, "-o", tmp_path / "c", "--on", 0.2, "--off", 0.3)
    assert code == 2 and "above the start threshold" in err and not (tmp_path / "c").exists()
    code, _, err = lstr(*given, "-o", tmp_path / "d", "-f", "mp4")
    assert code == 0 and "no mp4" in err


def test_what_is_on_at_the_end_is_found(small_set, tmp_path, lstr):
    """Where a video ends before an action has the least length, nobody is told that there was nothing."""
    rules = ("--on", 0, "--off", 0, "--min-length", "99", "-f", "json", "-o", tmp_path)
    code, _, err = lstr("detect", small_set.features, "-c", small_set.checkpoint, *rules)
    timelines = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert code == 0 and len(timelines) == 4 and "nothing found" not in err
    assert all(segment["end"] == t["duration"] for t in timelines for segment in t["segments"])
    assert all(len(t["segments"]) == len(t["classes"]) - 1 for t in timelines)


def test_an_anticipating_model_says_what_is_expected(small_set, tmp_path):
    """Untrained, so that something of everything is said; by thresholds that its scores cross."""
    import torch

    torch.manual_seed(0)
    loaded = load(small_set.checkpoint)
    rgb, flow = DIMS
    small = {"d_model": 16, "n_heads": 2, "d_feedforward": 16, "n0": 2, "n1": 2}
    config = configure(rgb_dim=rgb, flow_dim=flow, anticipation=4, **small)
    model = make_model(config, len(loaded.classes)).eval()
    extra = {"thresholds": {label: {"on": 0.2, "off": 0.19} for label in loaded.classes}}
    save(tmp_path / "ahead.pt", model, loaded.classes, loaded.recipe, {}, extra, loaded.calibration)
    ahead = load(tmp_path / "ahead.pt")
    source = sources_of(small_set.features, loaded=ahead)[0]
    running = run_recorded(source, ahead, OutputOptions(tmp_path, ("json", "jsonl")))
    events = [event for decision in decisions_of(running) for event in decision.events]
    timeline = json.loads((tmp_path / f"{source.id}.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / f"{source.id}.jsonl").read_text().splitlines()]
    said = [line for line in lines if line.get("event") == "expected"]
    assert said and len(said) == len(timeline["expected"]) == sum(e.event == "expected" for e in events)
    for entry in timeline["expected"]:
        assert entry["time"] <= entry["start"] <= entry["time"] + 0.75 and entry["score"] >= 0.2
    assert timeline["thresholds"]["wave"]["on"] == 0.2


@pytest.mark.long
def test_ctrl_c_leaves_the_lines_alone(small_set, tmp_path):
    """Sent at the first line of a real run with every format asked for."""
    command = [sys.executable, "-m", "lstr_cli.main", "detect", small_set.videos, "-c", small_set.checkpoint]
    options = ["-o", tmp_path / "out", "-f", "all", "--set", "flow_threads=1"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*map(str, [*command, *options])],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
        env=environment,
    )
    path = tmp_path / "out" / "scene_00.jsonl"
    while process.poll() is None and not (path.exists() and path.read_text()):
        sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["scene_00.jsonl"]
    assert all(json.loads(line) for line in path.read_text().splitlines())
