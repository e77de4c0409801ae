"""target_perframe and data_info.json."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from lstr.pipelines.annotations.perframe import chunk_targets, read_perframe, write_perframe
from tests.support.annotated import ONE, segments, sets

CLASSES = ("jump", "wave", "Ambiguous")
LABELS = AnnotationSet(
    {
        "a/1": AnnotatedVideo((Segment(0.3, 1.0, "jump"), Segment(0.5, 1.5, "wave")), "training", 2.6),
        "b": AnnotatedVideo((Segment(0.0, 0.25, "Ambiguous"),), "testing", 1.0),
    },
    CLASSES,
)


def test_the_folder_is_what_the_published_code_reads(tmp_path):
    assert write_perframe(tmp_path, LABELS, "MINE") == []
    info = json.loads((tmp_path / "data_info.json").read_text())["MINE"]
    assert info == {
        "data_root": str(tmp_path),
        "class_names": ["Background", *CLASSES],
        "num_classes": 4,
        "ignore_index": 3,
        "metrics": "AP",
        "fps": 4,
        "train_session_set": ["a/1"],
        "test_session_set": ["b"],
    }
    array = np.load(tmp_path / "target_perframe" / "a" / "1.npy")
    assert array.dtype == np.float32 and array.shape == (10, 4), "the short tail of 0.1 s has no chunk"
    assert array[:, 1].tolist() == [0, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert array[:, 2].tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    assert array[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_as_many_chunks_as_the_features_have(tmp_path):
    assert write_perframe(tmp_path, LABELS, "MINE", {"b": 7}) == ["a/1"]
    assert np.load(tmp_path / "target_perframe" / "b.npy").shape == (7, 4)
    assert json.loads((tmp_path / "data_info.json").read_text())["MINE"]["train_session_set"] == []


def test_another_data_set_of_the_file_is_kept(tmp_path):
    write_perframe(tmp_path, LABELS, "ONE")
    write_perframe(tmp_path, AnnotationSet(LABELS.videos, ("jump", "wave")), "TWO")
    info = json.loads((tmp_path / "data_info.json").read_text())
    assert list(info) == ["ONE", "TWO"] and read_perframe(tmp_path, "TWO").classes == CLASSES
    assert ONE.videos["a b"].subset == "training"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(sets(4, score=st.none(), label=st.sampled_from(CLASSES)))
def test_it_loses_nothing_it_can_hold(tmp_path, annotated):
    """Segments on the grid of chunks come back, those of one class that touch or overlap as one."""
    classes = annotated.classes
    annotated = AnnotationSet(
        {f"v{i}": AnnotatedVideo(v.segments[:3], v.subset, 20_100.0) for i, v in enumerate(annotated.videos.values())},
        classes,
    )
    write_perframe(tmp_path, annotated, "LSTR")
    read = read_perframe(tmp_path)
    assert read.classes == classes
    for video_id, video in annotated.videos.items():
        back = read.videos[video_id]
        assert (back.subset, back.duration) == (video.subset, video.duration)
        assert (chunk_targets(back, classes) == chunk_targets(video, classes)).all()
        if len({a.label for a in video.segments}) == len(video.segments):
            assert segments(back) == segments(video)


def test_targets_of_another_rate_keep_their_seconds(tmp_path):
    """As of a set with a row per 6 frames of 30 FPS video, which no feature folder fits but a person may look at."""
    write_perframe(tmp_path, LABELS, "MINE")
    info = json.loads((tmp_path / "data_info.json").read_text())
    info["MINE"]["fps"] = 5
    (tmp_path / "data_info.json").write_text(json.dumps(info))
    video = read_perframe(tmp_path).videos["a/1"]
    assert video.duration == 2.0 and segments(video)[0] == (0.2, 0.8, "jump")
    info["MINE"]["fps"] = 0
    (tmp_path / "data_info.json").write_text(json.dumps(info))
    with pytest.raises(AnnotationError, match="0 targets a second"):
        read_perframe(tmp_path)


def test_mistakes(tmp_path):
    with pytest.raises(AnnotationError, match="no per-chunk targets"):
        read_perframe(tmp_path)
    with pytest.raises(AnnotationError, match="subset None") as caught:
        write_perframe(tmp_path, AnnotationSet({"v": AnnotatedVideo()}), "X")
    assert caught.value.hint == "name it with --subset training or testing."
    (tmp_path / "data_info.json").write_text("{")
    with pytest.raises(AnnotationError, match="is not JSON"):
        write_perframe(tmp_path, LABELS, "X")
