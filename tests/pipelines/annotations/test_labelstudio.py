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
    assert "--set fps=25" in caught.value.hint


def exported(video: str, *annotations: tuple) -> dict:
    """A task; each annotation is (start, who, whether it was skipped)."""
    made = [
        {
            "completed_by": who,
            "was_cancelled": skipped,
            "result": [
                {
                    "type": "timelinelabels",
                    "value": {"ranges": [{"start": start, "end": 50}], "timelinelabels": ["jump"]},
                }
            ],
        }
        for start, who, skipped in annotations
    ]
    return {"data": {"video": video}, "annotations": made}


@pytest.mark.parametrize(
    ("media", "names"),
    [
        (["/data/upload/3/ab12cd00-seq01.mp4"], ["seq01"]),
        (["/data/upload/3/ab12cd00-a-b.mp4", "/data/upload/3/ab12cd01-c.mp4"], ["a-b", "c"]),
        (["/data/upload/3/ab12cd00-a.mp4", "/data/upload/3/ab12cd01-a.mp4"], ["ab12cd00-a", "ab12cd01-a"]),
        (["/films/ab12cd00-a.mp4", "s3://films/ab12cd01-b.mp4"], ["ab12cd00-a", "ab12cd01-b"]),
    ],
)
def test_the_name_of_an_upload_is_the_one_that_it_had_before(media, names):
    assert list(from_labelstudio([exported(path, (1, 1, False)) for path in media], fps=25).videos) == names


def test_skipped_tasks_are_left_out_and_the_last_annotation_counts():
    tasks = [
        exported("a.mp4", (1, 1, False), (26, 2, False), (30, 3, True)),
        exported("b.mp4", (1, 1, True)),
        exported("c.mp4"),
    ]
    read = from_labelstudio(tasks, fps=25)
    assert read.videos.keys() == {"a", "c"} and segments(read.videos["a"]) == [(1.0, 2.0, "jump")]
    assert [note.sentence for note in read.notes] == [
        "'a' has 2 annotations, of which the last counts, by the annotator 2",
        "'b' was skipped in Label Studio and is left out",
    ]


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
