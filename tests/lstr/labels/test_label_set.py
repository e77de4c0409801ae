"""Annotations to targets, and the mistakes people make in label files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.chunk import CLOCK
from lstr.errors import LabelsError
from lstr.labels.label_set import VideoLabels, read_labels, runs, segments_of, select, targets
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
    path = write(tmp_path, {"a/b": entry(("Sit", 1, 2.5), ("Fall", 3, 4)), "c": entry(subset="validation")})
    labels = read_labels(path)
    assert labels.classes == ("Background", "Fall", "Sit")
    assert labels.videos["a/b"] == VideoLabels("training", 10.0, (Segment(1.0, 2.5, "Sit"), Segment(3.0, 4.0, "Fall")))
    assert select(labels, "validation").videos.keys() == {"c"}
    with pytest.raises(LabelsError, match="testing") as caught:
        select(labels, "testing")
    assert "training, validation" in caught.value.hint


@pytest.mark.parametrize("given", [["Sit", "Fall"], ["Background", "Sit", "Fall"], ["Sit", "Background", "Fall"]])
def test_background_comes_first_and_given_order_is_kept(tmp_path, given):
    labels = read_labels(write(tmp_path, {"a": entry(("Fall", 0, 1))}, given))
    assert labels.classes == ("Background", "Sit", "Fall")


def test_byte_order_mark_and_other_alphabets(tmp_path):
    path = tmp_path / "labels.json"
    path.write_text("\ufeff" + json.dumps({"database": {"видео": entry(("Падение", 0, 1))}}), encoding="utf-8")
    assert read_labels(path).classes == ("Background", "Падение")


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
    "database, words",
    [
        ({"v1": entry(("A", -1, 2))}, ["v1", "-1"]),
        ({"v1": entry(("A", 3, 2))}, ["v1", "before"]),
        ({"v1": entry(("A", 0, float("nan")))}, ["v1", "nan"]),
        ({"v1": entry(("A", 0, float("inf")))}, ["v1", "inf"]),
        ({"v1": entry(("A", "0", 1))}, ["v1", "segment"]),
        ({"v1": entry(("Other", 0, 1))}, ["v1", "Other"]),
        ({"v1": entry((3, 0, 1))}, ["v1", "label"]),
        ({"v1": {"subset": "training", "annotations": [{"label": "A"}]}}, ["v1", "segment"]),
        ({"v1": {"subset": "training", "annotations": {}}}, ["v1", "annotations"]),
        ({"v1": {"annotations": []}, "v2": entry()}, ["v1", "subset"]),
        ({"v1": entry(("A", "0:61", 1))}, ["v1", "0:61"]),
        ({"v1": entry(duration=-1)}, ["v1", "duration"]),
        ({"v1": []}, ["v1"]),
        ([], ["database"]),
    ],
)
def test_mistakes_are_named_with_file_and_video(tmp_path, database, words):
    path = write(tmp_path, database, classes=["A"])
    with pytest.raises(LabelsError) as caught:
        read_labels(path)
    assert all(word in str(caught.value) for word in [*words, "labels.json"])
    assert caught.value.hint


@pytest.mark.parametrize("classes", ["A", [1], ["A", "A"], [""]])
def test_a_wrong_class_list_is_refused(tmp_path, classes):
    with pytest.raises(LabelsError, match="classes"):
        read_labels(write(tmp_path, {}, classes))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_file_that_is_not_labels_is_refused(tmp_path, content):
    path = tmp_path / "labels.json"
    path.write_bytes(content)
    with pytest.raises(LabelsError, match=r"labels\.json"):
        read_labels(path)


def test_a_video_that_is_there_twice_is_refused(tmp_path):
    """The usual JSON reader keeps the last of two entries and says nothing of the first."""
    path = tmp_path / "labels.json"
    video = '{"subset": "training", "annotations": []}'
    path.write_text(f'{{"database": {{"v1": {video}, "v2": {video}, "v1": {video}}}}}')
    with pytest.raises(LabelsError, match="'v1' twice"):
        read_labels(path)


def test_a_missing_file_or_a_folder_is_refused(tmp_path):
    with pytest.raises(LabelsError, match="does not exist"):
        read_labels(tmp_path / "none.json")
    with pytest.raises(LabelsError):
        read_labels(tmp_path)


def test_segments_of_chunks():
    """Runs of each class, the ambiguous one with them, as targets are made of it too."""
    classes = ("Background", "A", "B", "Ambiguous")
    on = np.zeros((8, 4), dtype=int)
    on[np.arange(8), [".AB?".index(letter) for letter in "..AAB?A."]] = 1
    segments = segments_of(on, classes)
    assert segments == (
        Segment(0.5, 1.0, "A"), Segment(1.5, 1.75, "A"), Segment(1.0, 1.25, "B"), Segment(1.25, 1.5, "Ambiguous")
    )  # fmt: skip
    assert (targets(VideoLabels("training", None, segments), classes, 8) == on).all()


def test_runs_of_chunks():
    assert runs(np.array([1, 1, 0, 1, 0, 0, 1], dtype=bool)) == [(0, 2), (3, 4), (6, 7)]
    assert runs(np.zeros(0, dtype=bool)) == []


@pytest.mark.parametrize(
    "written, subset",
    [
        ("train", "training"),
        ("Test", "testing"),
        ("VAL", "validation"),
        ("dev", "validation"),
        ("Training", "training"),
    ],
)
def test_other_names_of_the_subsets(tmp_path, written, subset):
    labels = read_labels(write(tmp_path, {"v": entry(("A", 0, 1), subset=written), "w": entry(subset="extra")}))
    assert labels.videos["v"].subset == subset and labels.videos["w"].subset == "extra"
    assert [note.sentence for note in labels.notes] == [f"{written!r} is taken as {subset!r}"]
    assert select(labels, written).videos.keys() == {"v"}, "as a person types it"


def test_a_file_without_subsets_is_all_training(tmp_path):
    videos = {"v": entry(("A", 0, 1)), "w": entry()}
    for video in videos.values():
        del video["subset"]
    labels = read_labels(write(tmp_path, videos))
    assert not labels.has_subsets and {video.subset for video in labels.videos.values()} == {"training"}
    assert "all are taken as" in labels.notes[0].sentence
    videos["v"]["subset"] = "testing"
    lenient = read_labels(write(tmp_path, videos), lenient=True)
    assert lenient.has_subsets and lenient.videos["w"].subset == "", "one of several is missing: the check names it"


def test_times_as_a_clock_shows_them(tmp_path):
    labels = read_labels(write(tmp_path, {"v": entry(("A", "0:01.5", "1:02:03"))}))
    assert labels.videos["v"].segments == (Segment(1.5, 3723.0, "A"),)
