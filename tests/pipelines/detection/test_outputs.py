"""Outputs of `lstr detect`: every format has the same segments, and pages link each other."""

import json

import av
import numpy as np
import pytest
import torch

from lstr.checkpoint import load, save
from lstr.kinds import configure, make_model
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.format import Detection, all_formats, format_named
from lstr.pipelines.annotations.label_files import read_annotations, read_label_file
from lstr.pipelines.detection.options import DEFAULT_FORMATS, FORMATS, OutputOptions
from lstr.settings import parse_bytes
from tests.support.annotated import scored, segments
from tests.support.browser import write_greys
from tests.support.detections import decisions_of, lines_of, run_session, sources_of
from tests.support.errors import assert_error
from tests.support.pages import Page
from tests.support.small_set import DIMS

SUFFIXES = {name: format_named(name).suffix for name in FORMATS}


@pytest.fixture(scope="module")
def folder(small_set, loaded, tmp_path_factory):
    """The outputs of one video in every format."""
    folder = tmp_path_factory.mktemp("all")
    (source,) = sources_of(small_set.videos / "scene_00.mp4", loaded=loaded)
    *_, ended = run_session([source], loaded, output=OutputOptions(folder, FORMATS))
    assert ended.timeline == json.loads((folder / "scene_00.json").read_text())
    return folder


def test_there_is_a_file_of_each_format(folder):
    names = {path.name for path in folder.iterdir()}
    assert names == {f"scene_00{suffix}" for suffix in SUFFIXES.values()} | {"detclasslist.txt"}


@pytest.mark.parametrize("form", [form.name for form in all_formats() if form.writes])
def test_every_format_has_the_segments_of_the_timeline(folder, form):
    timeline = read_annotations(folder / "scene_00.json").videos["scene_00"]
    read = read_annotations(folder / f"scene_00{SUFFIXES[form]}").videos["scene_00"]
    assert timeline.segments and segments(read) == segments(timeline) and scored(read) == scored(timeline)


def test_times_for_players_count_from_the_sound(tmp_path):
    write_greys(video := tmp_path / "v.mp4", late=3)
    timeline = {"segments": [Segment(1, 2, "A").to_dict()], "duration": 4.0, "classes": ["A"]}
    (tmp_path / "v.json").write_text(json.dumps({**timeline, "format": "lstr-timeline/1", "source": str(video)}))
    for form in map(format_named, ("csv", "eaf", "vtt")):
        form.write_detection(path := tmp_path / f"v{form.suffix}", Detection("v", timeline, None, (), video))
        found = segments(read_annotations(path).videos["v"])
        assert found[0][:2] == pytest.approx((1, 2) if form.name == "csv" else (4, 5), abs=0.05)
        assert segments(convert([tmp_path / "v.json"], form.name).annotated.videos["v"]) == found
    assert convert([tmp_path / "v.eaf"], "vtt").text == path.read_text()


def test_timeline_lines_and_scores_agree(folder, loaded):
    timeline, classes = json.loads((folder / "scene_00.json").read_text()), loaded.classes
    keys = {"source", "duration", "checkpoint", "recipe", "classes", "seconds_per_chunk", "chunks", "segments", "gaps"}
    assert keys | {"speed"} <= timeline.keys() and "expected" not in timeline
    assert timeline["format"] == "lstr-timeline/1" and timeline["warnings"] and timeline["segments"]
    for segment in timeline["segments"]:
        assert 0 <= segment["start"] < segment["end"] <= timeline["duration"] and segment["label"] in classes
    assert timeline["thresholds"]["on"] == 0.5 and timeline["thresholds"]["delay"] == {"started": 0.0, "ended": 0.0}
    scores = np.load(folder / "scene_00.scores.npy")
    assert scores.shape == (20, 6) and scores.dtype == np.float32 and np.allclose(scores.sum(1), 1, atol=1e-4)
    lines = lines_of(folder, "scene_00")
    chunks = [line for line in lines if "chunk" in line]
    assert all({"chunk", "time", "label", "score", "top", "latency_ms"} == line.keys() for line in chunks)
    assert [line["label"] for line in chunks] == [classes[c] for c in scores.argmax(1)]
    assert sum("event" in line for line in lines) == 2 * len(timeline["segments"])


def test_the_video_has_the_frames_of_its_source(folder, small_set):
    for path in (small_set.videos / "scene_00.mp4", folder / "scene_00.lanes.mp4"):
        with av.open(str(path)) as container:
            assert sum(1 for _ in container.decode(video=0)) == 150


def test_options_of_the_command(small_set, tmp_path, lstr, run):
    command = ("detect", small_set.features, "-c", small_set.checkpoint)
    assert lstr(*command, "-o", tmp_path / "a")[0] == 0
    expected = {f"scene_0{i}{SUFFIXES[form]}" for i in range(4) for form in DEFAULT_FORMATS}
    assert {p.name for p in (tmp_path / "a").iterdir()} == expected | {"index.html"}
    rules = ("--on", 0.4, "--off", 0.2, "--min-length", 0.5, "--merge-gap", 0.25)
    assert "0.25 s" in run(*command, "-o", tmp_path / "b", "-f", "json", "-f", "vtt, jsonl", *rules)[1]
    assert {p.suffix for p in (tmp_path / "b").iterdir()} == {".json", ".vtt", ".jsonl"}
    timeline = json.loads((tmp_path / "b" / "scene_00.json").read_text())
    assert timeline["thresholds"]["delay"] == {"started": 0.25, "ended": 0.25}
    starts = [line for line in lines_of(tmp_path / "b", "scene_00") if line.get("event") == "started"]
    assert starts and all(line["time"] - line["start"] >= 0.5 for line in starts)
    code, out, _ = lstr(*command, "-f", "jsonl", "--start", "0:01", "--duration", "1.75s")
    chunks = [line["chunk"] for line in map(json.loads, out.splitlines()) if "chunk" in line]
    assert code == 0 and chunks == [*range(4, 11)] * 4
    code, out, err = lstr(*command, "--json", "--set", f"labels={small_set.labels}")
    timelines = {timeline["source"].rpartition(":")[2]: timeline for timeline in json.loads(out)}
    detected = 0
    for name, video in read_label_file(small_set.labels).videos.items():
        (truth,) = video.segments
        starts = [s["start"] for s in timelines[name]["segments"] if s["label"] == truth.label]
        detected += any(abs(start - truth.start) <= 1 for start in starts)
    assert code == 0 and f"{detected} of {len(timelines)} " in err
    videos, short = small_set.videos / "scene_0[01].mp4", ("-c", small_set.checkpoint, "--duration", 1)
    assert len(json.loads(run("detect", videos, *short, "--json")[0])) == 2
    assert "mp4" in run(*command, "-o", tmp_path / "d", "-f", "mp4")[1]
    assert_error(lstr(*command, "-f", "vtt"), 2, "-o DIR")
    assert_error(lstr(*command, "-o", tmp_path / "c", "--on", 0.2, "--off", 0.3), 2, "threshold")
    assert not (tmp_path / "c").exists()
    code, _, err = lstr(*command, "--start", "1:00")
    assert code == 3 and "60 s" in err


def test_expected_actions_of_an_anticipating_model(small_set, loaded, tmp_path):
    """An untrained model with thresholds that its scores cross expects every action."""
    torch.manual_seed(0)
    small = {"d_model": 16, "n_heads": 2, "d_feedforward": 16, "n0": 2, "n1": 2}
    config = configure(rgb_dim=DIMS[0], flow_dim=DIMS[1], anticipation=4, **small)
    model = make_model(config, len(loaded.classes)).eval()
    extra = {"thresholds": {label: {"on": 0.2, "off": 0.19} for label in loaded.classes}}
    save(tmp_path / "ahead.pt", model, loaded.classes, loaded.recipe, {}, extra, loaded.calibration)
    ahead = load(tmp_path / "ahead.pt")
    source = sources_of(small_set.features, loaded=ahead)[0]
    running = run_session([source], ahead, output=OutputOptions(tmp_path, ("json", "jsonl")))
    events = [event for decision in decisions_of(running) for event in decision.events]
    timeline = json.loads((tmp_path / f"{source.id}.json").read_text())
    expected = [line for line in lines_of(tmp_path, source.id) if line.get("event") == "expected"]
    assert expected and len(expected) == len(timeline["expected"]) == sum(e.event == "expected" for e in events)
    for entry in timeline["expected"]:
        assert entry["time"] <= entry["start"] <= entry["time"] + 0.75 and entry["score"] >= 0.2
    assert timeline["thresholds"]["wave"]["on"] == 0.2


@pytest.mark.long
def test_the_page_of_a_single_video_contains_it(lstr, small_set, tmp_path):
    video = small_set.videos / "scene_03.mp4"
    options = ("-c", small_set.checkpoint, "-o", tmp_path / "out", "-f", "html", "--set", "embed=1MB")
    assert lstr("detect", video, *options)[0] == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["scene_03.html"]
    page = Page(tmp_path / "out" / "scene_03.html")
    assert page.data["index"] is None and page.data["video"] is None and page.data["embedded"] == {"type": "video/mp4"}
    assert len(page.texts[3]) == (video.stat().st_size + 2) // 3 * 4


def test_sizes():
    sizes = {"20MB": 20_000_000, "1.5 GiB": 3 * 2**29, "500k": 500_000, "0": 0}
    assert {text: parse_bytes(text) for text in sizes} == sizes
    for text in ("", "MB", "-1MB", "1TB", "20 apples"):
        with pytest.raises(ValueError):
            parse_bytes(text)
