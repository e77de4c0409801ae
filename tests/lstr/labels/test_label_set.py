"""Annotations to targets, and the mistakes people make in label files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.chunk import CLOCK
from lstr.errors import LabelsError
from lstr.labels.label_set import VideoLabels, read_labels, select, targets
from lstr.labels.segment import Segment


def entry(*annotations, subset="training", duration=10.0):
    return {
        "subset": subset,
        "duration": duration,
        "annotations": [{"label": label, "segment": [start, end]} for label, start, end in annotations],
    }


def write(tmp_path, database, classes=None):
    content = {"version": "1", "database": database}
    if classes is not None:
        content["classes"] = classes
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_reads_videos_and_sorts_classes(tmp_path):
    path = write(tmp_path, {"a/b": entry(("Sit", 1, "0:02.5"), ("Fall", 3, 4)), "видео": entry(subset="validation")})
    path.write_text("\ufeff" + path.read_text())  # a byte order mark
    labels = read_labels(path)
    assert labels.classes == ("Background", "Fall", "Sit")
    assert labels.videos["a/b"] == VideoLabels("training", 10.0, (Segment(1.0, 2.5, "Sit"), Segment(3.0, 4.0, "Fall")))
    assert select(labels, "validation").videos.keys() == {"видео"}
    with pytest.raises(LabelsError, match="testing") as caught:
        select(labels, "testing")
    assert "training, validation" in caught.value.hint


@pytest.mark.parametrize("given", [["Sit", "Fall"], ["Background", "Sit", "Fall"], ["Sit", "Background", "Fall"]])
def test_background_comes_first_and_given_order_is_kept(tmp_path, given):
    labels = read_labels(write(tmp_path, {"a": entry(("Fall", 0, 1))}, given))
    assert labels.classes == ("Background", "Sit", "Fall")


@pytest.mark.parametrize(
    "start, end, chunks",
    [
        (0.25, 0.75, [1, 2]),
        (0.3, 0.75, [1, 2]),
        (0.25, 0.76, [1, 2, 3]),
        (0.1 + 0.2, 0.75000000000001, [1, 2]),
        (0.7499999999999999, 1.0, [3]),
        (0.3, 0.3, [1]),
        (0.5, 0.5, []),
        (2.0, 99.0, [8, 9]),
        (99.0, 100.0, []),
    ],
)
def test_floor_of_start_and_ceiling_of_end(start, end, chunks):
    hot = targets(VideoLabels("training", None, (Segment(start, end, "A"),)), ("Background", "A"), 10)
    assert np.flatnonzero(hot[:, 1]).tolist() == chunks
    assert (hot[:, 0] == 1 - hot[:, 1]).all()


@given(k=st.integers(0, 40_000), noise=st.integers(-3, 3))
def test_a_time_on_a_chunk_edge_stays_there_in_spite_of_float_noise(k, noise):
    time = k / 4
    for _ in range(abs(noise)):
        time = max(0.0, float(np.nextafter(time, np.inf if noise > 0 else -np.inf)))
    assert CLOCK.first(time) == CLOCK.end(time) == k


def test_targets_hold_several_classes_and_ambiguous_is_no_background():
    video = VideoLabels(
        "training",
        None,
        (Segment(0, 1, "A"), Segment(0.5, 1.5, "B"), Segment(2, 2.5, "Ambiguous"), Segment(0, 9, "Background")),
    )
    hot = targets(video, ("Background", "A", "B", "Ambiguous"), 12)
    assert hot.dtype == np.uint8 and hot.shape == (12, 4)
    assert hot[2].tolist() == [0, 1, 1, 0] and hot[8].tolist() == [0, 0, 0, 1]
    assert np.flatnonzero(hot[:, 0]).tolist() == [6, 7, 10, 11]
    with pytest.raises(LabelsError, match="'B'"):
        targets(video, ("Background", "A"), 12)


@pytest.mark.parametrize(
    "database, named",
    [
        ({"v1": entry(("A", -1, 2))}, "-1"),
        ({"v1": entry(("A", 3, 2))}, ""),
        ({"v1": entry(("A", 0, float("nan")))}, "nan"),
        ({"v1": entry(("A", 0, float("inf")))}, "inf"),
        ({"v1": entry(("A", "0", 1))}, "segment"),
        ({"v1": entry(("Other", 0, 1))}, "Other"),
        ({"v1": entry((3, 0, 1))}, "label"),
        ({"v1": {"subset": "training", "annotations": [{"label": "A"}]}}, "segment"),
        ({"v1": {"subset": "training", "annotations": {}}}, "annotations"),
        ({"v1": {"annotations": []}, "v2": entry()}, "subset"),
        ({"v1": entry(("A", "0:61", 1))}, "0:61"),
        ({"v1": entry(duration=-1)}, "duration"),
        ({"v1": []}, ""),
        ([], "database"),
    ],
)
def test_mistakes_are_named_with_file_and_video(tmp_path, database, named):
    with pytest.raises(LabelsError, match=r"labels\.json") as caught:
        read_labels(write(tmp_path, database, classes=["A"]))
    assert named in str(caught.value) and ("v1" in str(caught.value) or database == []) and caught.value.hint


@pytest.mark.parametrize("classes", ["A", [1], ["A", "A"], [""]])
def test_a_wrong_class_list_is_refused(tmp_path, classes):
    with pytest.raises(LabelsError, match="classes"):
        read_labels(write(tmp_path, {}, classes))


VIDEO = b'{"subset": "training", "annotations": []}'
TWICE = b'{"database": {"v1": %s, "v2": %s, "v1": %s}}' % (VIDEO, VIDEO, VIDEO)
"""The usual JSON reader keeps the last of two entries and says nothing of the first."""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"[" * 100_000, TWICE, "no file", "a folder"])
def test_a_file_that_is_not_labels_is_refused(tmp_path, content):
    path = tmp_path / "labels.json"
    if content == "a folder":
        path.mkdir()
    elif content != "no file":
        path.write_bytes(content)
    with pytest.raises(LabelsError, match="'v1'" if content == TWICE else r"labels\.json"):
        read_labels(path)


@pytest.mark.parametrize(
    "written, subset", [("train", "training"), ("Test", "testing"), ("VAL", "validation"), ("dev", "validation")]
)
def test_other_names_of_the_subsets(tmp_path, written, subset):
    labels = read_labels(write(tmp_path, {"v": entry(("A", 0, 1), subset=written), "w": entry(subset="extra")}))
    assert labels.videos["v"].subset == subset and labels.videos["w"].subset == "extra"
    (note,) = labels.notes
    assert repr(written) in note.sentence and repr(subset) in note.sentence
    assert select(labels, written).videos.keys() == {"v"}, "as a person types it"


def test_a_file_without_subsets_is_all_training(tmp_path):
    videos = {"v": entry(("A", 0, 1)), "w": entry()}
    for video in videos.values():
        del video["subset"]
    labels = read_labels(write(tmp_path, videos))
    assert not labels.has_subsets and {video.subset for video in labels.videos.values()} == {"training"}
    assert len(labels.notes) == 1
    videos["v"]["subset"] = "testing"
    lenient = read_labels(write(tmp_path, videos), lenient=True)
    assert lenient.has_subsets and lenient.videos["w"].subset == "", "one of several is missing: the check names it"


def test_background_in_any_case_is_no_action(tmp_path):
    labels = read_labels(write(tmp_path, {"a": entry(("background", 0, 1), ("Fall", 2, 3))}, ["BACKGROUND", "Fall"]))
    assert labels.classes == ("Background", "Fall") and labels.videos["a"].segments[0].label == "Background"
    assert [note.kind for note in labels.notes] == ["background"]
