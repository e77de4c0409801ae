"""Label Studio's tasks: by its schema, and back."""

import json

import jsonschema
import pytest
from hypothesis import given

from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from lstr.pipelines.annotations.labelstudio import from_labelstudio, to_labelstudio, to_labelstudio_config
from tests.support.annotated import CLASSES, scored, segments, sets

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
    assert "[[fps=25]]" in caught.value.hint


def test_label_studio_configuration_names_the_classes():
    import xml.etree.ElementTree as ET

    root = ET.fromstring(to_labelstudio_config(CLASSES, 29.97))
    assert [label.get("value") for label in root.iter("Label")] == list(CLASSES)
    labels, video = root.find("TimelineLabels"), root.find("Video")
    assert (labels.get("name"), labels.get("toName"), video.get("name")) == ("videoLabels", "video", "video")
    assert video.get("frameRate") == "29.97"


@pytest.mark.parametrize(
    "content",
    [
        [{"data": {"video": "a"}, "annotations": [{}]}],
        3,
    ],
)
def test_broken_documents(content):
    with pytest.raises(AnnotationError) as caught:
        from_labelstudio(content)
    assert caught.value.hint
