"""What `lstr detect` leaves: every format of a run says the same, and the pages lead to each other."""

import json

import av
import numpy as np
import pytest
import torch

from lstr.checkpoint import load, save
from lstr.kinds import configure, make_model
from lstr.labels.label_set import read_labels
from lstr.pipelines.annotations.format import all_formats, format_named
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.detection.options import DEFAULT_FORMATS, FORMATS, OutputOptions
from lstr.settings import parse_bytes
from tests.support.annotated import scored, segments
from tests.support.detections import decisions_of, run_recorded, sources_of, timelines_of
from tests.support.errors import assert_error
from tests.support.pages import Page
from tests.support.small_set import DIMS

SUFFIXES = {name: format_named(name).suffix for name in FORMATS}
TEXTS = [form.name for form in all_formats() if form.writes]


@pytest.fixture(scope="module")
def everything(small_set, tmp_path_factory):
    """One video detected with -f all."""
    folder = tmp_path_factory.mktemp("all")
    loaded = load(small_set.checkpoint)
    (source,) = sources_of(small_set.videos / "scene_00.mp4", loaded=loaded)
    ended = timelines_of(run_recorded(source, loaded, OutputOptions(folder, FORMATS)))
    assert ended["scene_00"] == json.loads((folder / "scene_00.json").read_text())
    return folder


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_format_is_there_and_no_other_file(everything):
    names = {path.name for path in everything.iterdir()}
    assert names == {f"scene_00{suffix}" for suffix in SUFFIXES.values()} | {"detclasslist.txt"}
    assert "scene_00.mp4" not in names, "the name of the video itself"


@pytest.mark.parametrize("form", TEXTS)
def test_every_text_says_what_the_timeline_says(everything, form):
    timeline = read_annotations(everything / "scene_00.json").videos["scene_00"]
    read = read_annotations(everything / f"scene_00{SUFFIXES[form]}").videos["scene_00"]
    assert timeline.segments
    assert segments(read) == segments(timeline)
    assert scored(read) == scored(timeline)


def test_timeline_lines_and_scores_agree(everything, small_set):
    timeline, classes = json.loads((everything / "scene_00.json").read_text()), load(small_set.checkpoint).classes
    keys = {"source", "duration", "checkpoint", "recipe", "classes", "seconds_per_chunk", "chunks", "segments", "gaps"}
    assert keys | {"speed"} <= timeline.keys() and "expected" not in timeline
    assert timeline["format"] == "lstr-timeline/1" and timeline["warnings"]
    assert timeline["segments"], "the checkpoint has fitted this video, so it sees its actions"
    for segment in timeline["segments"]:
        assert 0 <= segment["start"] < segment["end"] <= timeline["duration"] and segment["label"] in classes
    assert timeline["thresholds"]["on"] == 0.5 and timeline["thresholds"]["delay"] == {"started": 0.0, "ended": 0.0}
    scores = np.load(everything / "scene_00.scores.npy")
    assert scores.shape == (20, 6) and scores.dtype == np.float32 and np.allclose(scores.sum(1), 1, atol=1e-4)
    lines = lines_of(everything / "scene_00.jsonl")
    chunks = [line for line in lines if "chunk" in line]
    assert all({"chunk", "time", "label", "score", "top", "latency_ms"} == line.keys() for line in chunks)
    assert [line["label"] for line in chunks] == [classes[c] for c in scores.argmax(1)]
    assert sum("event" in line for line in lines) == 2 * len(timeline["segments"])


def test_the_video_has_the_frames_of_its_source(everything, small_set):
    counts = []
    for path in (small_set.videos / "scene_00.mp4", everything / "scene_00.lanes.mp4"):
        with av.open(str(path)) as container:
            counts.append(sum(1 for _ in container.decode(video=0)))
    assert counts[0] == counts[1] == 150


def test_options_of_the_command(small_set, tmp_path, lstr):
    given = ("detect", small_set.features, "-c", small_set.checkpoint)
    assert lstr(*given, "-o", tmp_path / "a")[0] == 0
    expected = {f"scene_0{i}{SUFFIXES[form]}" for i in range(4) for form in DEFAULT_FORMATS}
    assert {p.name for p in (tmp_path / "a").iterdir()} == expected | {"index.html"}
    rules = ("--on", 0.4, "--off", 0.2, "--min-length", 0.5, "--merge-gap", 0.25)
    code, _, err = lstr(*given, "-o", tmp_path / "b", "-f", "json", "-f", "vtt, jsonl", *rules)
    assert code == 0 and "0.25 s" in err
    assert {p.suffix for p in (tmp_path / "b").iterdir()} == {".json", ".vtt", ".jsonl"}
    timeline = json.loads((tmp_path / "b" / "scene_00.json").read_text())
    assert timeline["thresholds"]["delay"] == {"started": 0.25, "ended": 0.25}
    begun = [line for line in lines_of(tmp_path / "b" / "scene_00.jsonl") if line.get("event") == "started"]
    assert begun and all(line["time"] - line["start"] >= 0.5 for line in begun)
    code, out, _ = lstr(*given, "-f", "jsonl", "--start", "0:01", "--duration", "1.75s")
    chunks = [line["chunk"] for line in map(json.loads, out.splitlines()) if "chunk" in line]
    assert code == 0 and chunks == [*range(4, 11)] * 4
    code, out, err = lstr(*given, "--json", "--set", f"labels={small_set.labels}")
    timelines = {timeline["source"].rpartition(":")[2]: timeline for timeline in json.loads(out)}
    truth = {name: video.segments[0] for name, video in read_labels(small_set.labels).videos.items()}  # one in each
    starts = {
        name: [s["start"] for s in timelines[name]["segments"] if s["label"] == truth[name].label] for name in truth
    }
    found = sum(any(abs(start - truth[name].start) <= 1 for start in starts[name]) for name in truth)
    assert code == 0 and f"{found} of {len(timelines)} " in err
    code, _, err = lstr(*given, "-o", tmp_path / "d", "-f", "mp4")
    assert code == 0 and "mp4" in err
    for wrong, named in (
        (("-f", "vtt"), "-o DIR"),
        (("-o", tmp_path / "c", "-f", "pdf"), "'pdf'"),
        (("-o", tmp_path / "c", "--on", 0.2, "--off", 0.3), "threshold"),
    ):
        assert_error(lstr(*given, *wrong), 2, named)
    assert not (tmp_path / "c").exists()
    code, _, err = lstr(*given, "--start", "1:00")
    assert code == 3 and "60 s" in err


def test_an_anticipating_model_says_what_is_expected(small_set, tmp_path):
    """Untrained, so that something of everything is expected; by thresholds that its scores cross."""
    torch.manual_seed(0)
    loaded = load(small_set.checkpoint)
    small = {"d_model": 16, "n_heads": 2, "d_feedforward": 16, "n0": 2, "n1": 2}
    config = configure(rgb_dim=DIMS[0], flow_dim=DIMS[1], anticipation=4, **small)
    model = make_model(config, len(loaded.classes)).eval()
    extra = {"thresholds": {label: {"on": 0.2, "off": 0.19} for label in loaded.classes}}
    save(tmp_path / "ahead.pt", model, loaded.classes, loaded.recipe, {}, extra, loaded.calibration)
    ahead = load(tmp_path / "ahead.pt")
    source = sources_of(small_set.features, loaded=ahead)[0]
    running = run_recorded(source, ahead, OutputOptions(tmp_path, ("json", "jsonl")))
    events = [event for decision in decisions_of(running) for event in decision.events]
    timeline = json.loads((tmp_path / f"{source.id}.json").read_text())
    expected = [line for line in lines_of(tmp_path / f"{source.id}.jsonl") if line.get("event") == "expected"]
    assert expected and len(expected) == len(timeline["expected"]) == sum(e.event == "expected" for e in events)
    for entry in timeline["expected"]:
        assert entry["time"] <= entry["start"] <= entry["time"] + 0.75 and entry["score"] >= 0.2
    assert timeline["thresholds"]["wave"]["on"] == 0.2


@pytest.mark.long
def test_one_source_gets_no_index_and_its_video_inside(lstr, small_set, tmp_path):
    video = small_set.videos / "scene_03.mp4"
    given = ("-c", small_set.checkpoint, "-o", tmp_path / "out", "-f", "html", "--set", "embed=1MB")
    assert lstr("detect", video, *given)[0] == 0
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
