"""JSON forms: by their schemas, as our own label reader takes them, and back."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.labels import read_labels
from lstr.segment import Segment
from pipelines.annotations.activitynet import from_activitynet, to_activitynet
from pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from pipelines.annotations.labelstudio import from_labelstudio, to_labelstudio, to_labelstudio_config
from pipelines.annotations.timeline_json import from_jsonl, from_timeline, to_jsonl, to_text, to_timeline
from tests.support.annotated import AWKWARD, CLASSES, ONE, scored, segments, sets, videos

SEGMENT = {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2, "maxItems": 2}
RESULTS = {  # what the evaluation code of ActivityNet requires of a prediction file
    "type": "object",
    "required": ["version", "results", "external_data"],
    "properties": {
        "results": {
            "additionalProperties": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["label", "score", "segment"],
                    "properties": {"label": {"type": "string"}, "score": {"type": "number"}, "segment": SEGMENT},
                },
            }
        }
    },
}
TASKS = {  # what Label Studio requires of tasks with timeline labels
    "type": "array",
    "items": {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "object", "required": ["video"]}},
        "patternProperties": {
            "^(predictions|annotations)$": {
                "type": "array",
                "items": {
                    "required": ["result"],
                    "properties": {
                        "score": {"type": "number"},
                        "result": {
                            "items": {
                                "required": ["id", "from_name", "to_name", "type", "value"],
                                "properties": {
                                    "type": {"const": "timelinelabels"},
                                    "value": {
                                        "required": ["ranges", "timelinelabels"],
                                        "properties": {
                                            "ranges": {
                                                "items": {
                                                    "required": ["start", "end"],
                                                    "properties": {
                                                        "start": {"type": "integer", "minimum": 1},
                                                        "end": {"type": "integer", "minimum": 1},
                                                    },
                                                }
                                            },
                                            "timelinelabels": {"items": {"type": "string"}, "minItems": 1},
                                        },
                                    },
                                },
                            }
                        },
                    },
                },
            }
        },
    },
}


def test_activitynet_results_and_ground_truth(tmp_path):
    jsonschema.validate(to_activitynet(ONE), RESULTS)
    path = tmp_path / "labels.json"
    path.write_text(to_text(to_activitynet(ONE.without_scores())))
    labels = read_labels(path)
    assert labels.classes == ("Background", *CLASSES)
    video = labels.videos["a b"]
    assert (video.subset, video.duration, len(video.segments)) == ("training", 3700.25, 7)


@given(sets(1000))
def test_activitynet_loses_nothing_it_can_hold(annotated):
    read = from_activitynet(json.loads(json.dumps(to_activitynet(annotated))))
    if "scores" not in annotated.held():
        assert read == annotated
    else:
        for video_id, video in annotated.videos.items():
            shown = [(*facts[:3], facts[3] or 1.0) for facts in scored(video)]
            assert scored(read.videos[video_id]) == sorted(shown)


def test_label_studio_counts_frames_from_one():
    """A second at 25 FPS is the frames 1 to 25; the next begins with 26."""
    video = AnnotatedVideo((Segment(0, 1, "jump", 0.5), Segment(1, 2, "jump", 0.7)), media="a.mp4", fps=25)
    tasks = to_labelstudio(AnnotationSet({"a": video}))
    jsonschema.validate(tasks, TASKS)
    regions = tasks[0]["predictions"][0]["result"]
    assert [r["value"]["ranges"] for r in regions] == [[{"start": 1, "end": 25}], [{"start": 26, "end": 50}]]
    assert tasks[0]["predictions"][0]["score"] == pytest.approx(0.6)
    assert "annotations" in to_labelstudio(AnnotationSet({"a": video}).without_scores())[0]


@given(sets(25))
def test_label_studio_loses_nothing_it_can_hold(annotated):
    tasks = json.loads(json.dumps(to_labelstudio(annotated, fps=25)))
    jsonschema.validate(tasks, TASKS)
    read = from_labelstudio(tasks)
    for video_id, video in annotated.videos.items():
        back = read.videos[video_id]
        assert (scored(back), back.subset, back.duration) == (scored(video), video.subset, video.duration)


def test_an_export_of_label_studio():
    """What a person corrected goes before what was predicted; the frame rate is not in an export."""
    region = {"type": "timelinelabels", "value": {"ranges": [{"start": 26, "end": 50}], "timelinelabels": ["jump"]}}
    task = {
        "id": 7,
        "data": {"video": "/data/upload/1/game.mp4"},
        "annotations": [{"result": [region, {"type": "choices", "value": {"choices": ["sharp"]}}]}],
        "predictions": [{"result": []}],
    }
    read = from_labelstudio([task], fps=25)
    assert segments(read.videos["game"]) == [(1.0, 2.0, "jump")]
    with pytest.raises(AnnotationError, match="how many a second") as caught:
        from_labelstudio([task])
    assert "--fps" in caught.value.hint


def test_label_studio_configuration_names_the_classes():
    import xml.etree.ElementTree as ET

    root = ET.fromstring(to_labelstudio_config(CLASSES, 29.97))
    assert [label.get("value") for label in root.iter("Label")] == list(CLASSES)
    labels, video = root.find("TimelineLabels"), root.find("Video")
    assert (labels.get("name"), labels.get("toName"), video.get("name")) == ("videoLabels", "video", "video")
    assert video.get("frameRate") == "29.97"


def test_a_timeline_there_and_back():
    timeline = json.loads(json.dumps(to_timeline("a b", AWKWARD, CLASSES)))
    assert timeline["chunks"] == 14801 and timeline["classes"][0] == "Background"
    video, classes = from_timeline(timeline)
    assert video == AWKWARD and classes == ("Background", *CLASSES)


@given(videos(1000, score=st.sampled_from([None, 0.5]), least=0))
def test_event_lines_lose_nothing_they_can_hold(video):
    lines = [json.loads(line) for line in to_jsonl(video).splitlines()]
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert scored(from_jsonl(to_jsonl(video))) == scored(video)


def test_lines_of_a_run_that_was_killed():
    """The action that was on lasts until the last whole line; half a line is left out."""
    text = (
        '{"chunk": 0, "time": 0.25, "label": "jump", "score": 0.9, "top": [], "latency_ms": 1}\n'
        '{"event": "started", "label": "jump", "time": 0.25, "start": 0.0, "score": 0.9}\n'
        '{"event": "expected", "label": "wave", "time": 0.25, "start": 0.5, "score": 0.6}\n'
        '{"chunk": 1, "time": 0.5, "label": "jump", "score": 0.9, "top": [], "latency_ms": 1}\n{"chunk": 2, "ti'
    )
    assert from_jsonl(text).segments == (Segment(0, 0.5, "jump", 0.9),)
    with pytest.raises(AnnotationError, match="Line 1 is no line"):
        from_jsonl("{}\n" + text)


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (from_timeline, {"format": "lstr-timeline/1"}),
        (from_activitynet, {"database": []}),
        (from_activitynet, {"database": {"v": {"annotations": [{"label": "jump", "segment": [1]}]}}}),
        (from_labelstudio, [{"data": {"video": "a"}, "annotations": [{}]}]),
        (from_labelstudio, 3),
    ],
)
def test_broken_documents(read, content):
    with pytest.raises(AnnotationError) as caught:
        read(content)
    assert caught.value.hint
