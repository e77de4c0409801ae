"""Label files in ActivityNet's JSON and their errors, and per-chunk targets."""

import json

import numpy as np
import pytest

from lstr.errors import LabelsError
from lstr.labels.label_set import VideoLabels, select, targets
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.label_files import read_label_file


def entry(*annotations, **facts):
    annotations = [{"label": label, "segment": [start, end]} for label, start, end in annotations]
    return {"subset": "training", "duration": 10.0, "annotations": annotations, **facts}


def write(tmp_path, database, classes=None):
    path = tmp_path / "labels.json"
    content = {"version": "1", "database": database} | ({} if classes is None else {"classes": classes})
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_videos_subsets_and_sorted_classes(tmp_path):
    path = write(tmp_path, {"a/b": entry(("Sit", 1, "0:02.5"), ("Fall", 3, 4)), "видео": entry(subset="validation")})
    path.write_text("\ufeff" + path.read_text())  # a byte order mark
    labels = read_label_file(path)
    assert labels.classes == ("Background", "Fall", "Sit")
    assert labels.videos["a/b"] == VideoLabels("training", 10.0, (Segment(1.0, 2.5, "Sit"), Segment(3.0, 4.0, "Fall")))
    assert select(labels, "validation").videos.keys() == {"видео"}
    with pytest.raises(LabelsError, match="testing") as caught:
        select(labels, "testing")
    assert "training, validation" in caught.value.hint


@pytest.mark.parametrize("classes", [["Sit", "Fall"], ["Sit", "Background", "Fall"], ["Sit", "Fall", "BACKGROUND"]])
def test_background_comes_first_in_any_case(tmp_path, classes):
    labels = read_label_file(write(tmp_path, {"a": entry(("background", 0, 1), ("Fall", 2, 3))}, classes))
    assert labels.classes == ("Background", "Sit", "Fall") and labels.videos["a"].segments[0].label == "Background"
    assert [note.kind for note in labels.notes] == ["background"]


@pytest.mark.parametrize(
    "start, end, chunks",
    [
        (0.25, 0.76, [1, 2, 3]),
        (0.1 + 0.2, 0.75000000000001, [1, 2]),
        (0.7499999999999999, 1.0, [3]),
        (0.3, 0.3, [1]),
        (0.5, 0.5, []),
        (2.0, 99.0, [8, 9]),
        (99.0, 100.0, []),
    ],
)
def test_start_is_rounded_down_and_end_up(start, end, chunks):
    hot = targets(VideoLabels("training", None, (Segment(start, end, "A"),)), ("Background", "A"), 10)
    assert np.flatnonzero(hot[:, 1]).tolist() == chunks
    assert (hot[:, 0] == 1 - hot[:, 1]).all()


def test_labels_of_the_background_do_not_count_and_unknown_ones_are_refused():
    video = VideoLabels("training", None, (Segment(0, 0.5, "B"), Segment(0, 9, "Background")))
    assert targets(video, ("Background", "B"), 3).tolist() == [[0, 1], [0, 1], [1, 0]]
    with pytest.raises(LabelsError, match="'B'"):
        targets(video, ("Background", "A"), 3)


@pytest.mark.parametrize(
    "video, value",
    [
        (entry(("A", -1, 2)), "-1"),
        (entry(("A", 3, 2)), "2"),
        (entry(("A", 0, float("nan"))), "nan"),
        (entry(("A", "0", 1)), "segment"),
        (entry(("A", "0:61", 1)), "0:61"),
        (entry(("Other", 0, 1)), "Other"),
        (entry((3, 0, 1)), "label"),
        (entry(("\ud800", 0, 1)), "label"),
        (entry(annotations=[{"label": "A"}]), "segment"),
        (entry(annotations={}), "annotations"),
        (entry(duration=-1), "duration"),
        *((entry(subset=subset), "subset") for subset in ("", "\ud800", [], {}, 0, False)),
        ([], ""),
    ],
)
def test_errors_name_the_file_and_the_video(tmp_path, video, value):
    with pytest.raises(LabelsError, match=r"labels\.json, video 'v1'") as caught:
        read_label_file(write(tmp_path, {"v1": video, "v2": entry()}, classes=["A"]))
    assert value in str(caught.value)


@pytest.mark.parametrize("classes", ["A", [1], ["A", "A"], [""]])
def test_a_wrong_class_list_is_an_error(tmp_path, classes):
    with pytest.raises(LabelsError, match="classes"):
        read_label_file(write(tmp_path, {}, classes))


VIDEO = b'{"subset": "training", "annotations": []}'
TWICE = b'{"database": {"v1": %s, "v2": %s, "v1": %s}}' % (VIDEO, VIDEO, VIDEO)
"""Python's JSON reader would silently keep the last of two entries."""


@pytest.mark.parametrize(
    "content", [b"", b"{", b"3", b'{"database": []}', b"\xff\xfe\x00", b"[" * 100_000, TWICE, None, "a folder"]
)
def test_a_file_that_is_not_labels_is_an_error(tmp_path, content):
    path = tmp_path / "labels.json"
    if content == "a folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(LabelsError, match="'v1'" if content == TWICE else r"labels\.json"):
        read_label_file(path)


@pytest.mark.parametrize("name, subset", [("train", "training"), ("Test", "testing"), ("dev", "validation")])
def test_other_names_of_the_subsets(tmp_path, name, subset):
    labels = read_label_file(write(tmp_path, {"v": entry(("A", 0, 1), subset=name), "w": entry(subset="extra")}))
    assert labels.videos["v"].subset == subset and labels.videos["w"].subset == "extra"
    (note,) = labels.notes
    assert repr(name) in note.sentence and repr(subset) in note.sentence
    assert select(labels, name).videos.keys() == {"v"}, "as a person types it"


def test_a_file_without_subsets_is_for_training(tmp_path):
    labels = read_label_file(write(tmp_path, {"v": entry(("A", 0, 1), subset=None), "w": entry(subset=None)}))
    assert not labels.has_subsets and {video.subset for video in labels.videos.values()} == {"training"}
    assert len(labels.notes) == 1
