"""ActivityNet's JSON, by its schema and there and back, and target_perframe with data_info.json."""

import json

import jsonschema
import numpy as np
import pytest

from lstr.errors import LabelsError
from lstr.labels.label_set import read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.annotations.label_files import read_annotations
from tests.support.annotated import CLASSES, ONE, parse, segments

PERFRAME = ConvertOptions(source_format="perframe")
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
    read = parse("activitynet", content)
    assert read.videos["v"].segments == (Segment(1.0, 2.0, "jump", 0.5),) and read.videos["v"].subset == ""


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
        parse("activitynet", content)
    assert caught.value.hint


@pytest.fixture
def folder(tmp_path):
    info = {
        "class_names": ["Background", "jump", "wave", "Ambiguous"],
        "fps": 4,
        "train_session_set": ["a/1"],
        "test_session_set": ["b"],
    }
    (tmp_path / "target_perframe" / "a").mkdir(parents=True)
    rows = np.eye(4, dtype=np.float32)
    targets = rows[[0, 1, 1, 2, 0, 0]]
    targets[1, 2] = 1
    np.save(tmp_path / "target_perframe" / "a" / "1.npy", targets)
    np.save(tmp_path / "target_perframe" / "b.npy", rows[[3, 0]])
    (tmp_path / "data_info.json").write_text(json.dumps({"MINE": info, "OTHER": info}))
    return tmp_path


def test_a_folder_of_targets(folder):
    read = read_annotations(folder)
    assert read.classes == ("jump", "wave", "Ambiguous")
    assert segments(read.videos["a/1"]) == [(0.25, 0.5, "wave"), (0.25, 0.75, "jump"), (0.75, 1.0, "wave")]
    assert [(v.subset, v.duration) for v in read.videos.values()] == [("training", 1.5), ("testing", 0.5)]
    assert segments(read.videos["b"]) == [(0.0, 0.25, "Ambiguous")]


def test_targets_of_another_rate_keep_their_seconds(folder):
    """As of a set with a row per 6 frames of 30 FPS video, which no feature folder fits but a person may look at."""
    info = json.loads((folder / "data_info.json").read_text())
    info["MINE"]["fps"] = 5
    (folder / "data_info.json").write_text(json.dumps(info))
    video = read_annotations(folder).videos["a/1"]
    assert video.duration == pytest.approx(1.2) and segments(video)[0] == (0.2, 0.4, "wave")
    info["MINE"]["fps"] = 0
    (folder / "data_info.json").write_text(json.dumps(info))
    with pytest.raises(LabelsError, match="0 targets a second"):
        read_annotations(folder)


def test_a_folder_without_targets(tmp_path):
    with pytest.raises(LabelsError, match="no per-chunk targets"):
        read_annotations(tmp_path, PERFRAME)
    (tmp_path / "data_info.json").write_text("{")
    with pytest.raises(LabelsError, match="is not JSON"):
        read_annotations(tmp_path, PERFRAME)
