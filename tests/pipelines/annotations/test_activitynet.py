"""ActivityNet's JSON: by its schema, as our own label reader takes it, and back."""

import json

import jsonschema
import pytest

from lstr.errors import LabelsError
from lstr.labels.label_set import read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import from_activitynet, to_activitynet
from tests.support.annotated import CLASSES, ONE

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


def test_activitynet_results_and_ground_truth(tmp_path):
    jsonschema.validate(to_activitynet(ONE), RESULTS)
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(to_activitynet(ONE.without_scores())))
    labels = read_labels(path)
    assert labels.classes == ("Background", *CLASSES)
    video = labels.videos["a b"]
    assert (video.subset, video.duration, len(video.segments)) == ("training", 3700.25, 7)


def test_what_labels_do_not_need():
    """No subset, and a score in the database, which `lstr.labels.label_set.read_labels` leaves alone."""
    content = {"database": {"v": {"annotations": [{"label": "jump", "segment": [1, 2], "score": 0.5}]}}}
    read = from_activitynet(content)
    assert read.videos["v"].segments == (Segment(1.0, 2.0, "jump", 0.5),) and read.videos["v"].subset is None


@pytest.mark.parametrize(
    "content",
    [
        {"database": []},
        {"database": {"v": {"annotations": [{"label": "jump", "segment": [1]}]}}},
        {"database": {"v": {"annotations": [{"label": "jump", "segment": ["1", 2]}]}}},
        {"results": {"v": [{"label": "jump", "segment": [1, 2], "score": "high"}]}},
        {"results": [], "external_data": {}},
        [],
        3,
    ],
)
def test_broken_documents(content):
    with pytest.raises(LabelsError) as caught:
        from_activitynet(content)
    assert caught.value.hint
