"""The text files of THUMOS, there and back."""

from pathlib import Path

import pytest

from lstr.errors import LabelsError
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.thumos import CLASS_LIST, from_thumos, thumos_numbers, to_thumos
from tests.support.annotated import AWKWARD, CLASSES, ONE, segments


def thumos(annotated: AnnotationSet) -> AnnotationSet:
    return from_thumos(Path("."), {Path(name): text for name, text in to_thumos(annotated).items()})


def test_thumos_annotations_are_a_file_a_class_and_subset():
    files = to_thumos(ONE.without_scores())
    assert files["wave_train.txt"] == "a%20b 0 1.25\na%20b 0.5 2\n" and len(files) == 7
    read = thumos(ONE.without_scores())
    assert segments(read.videos["a b"]) == segments(AWKWARD) and read.videos["a b"].subset == "training"
    assert read.classes == CLASSES


def test_thumos_detections_have_the_official_numbers():
    classes = THUMOS_CLASSES[1:-1]
    assert thumos_numbers(classes)["CliffDiving"] == 22 and thumos_numbers(classes)["VolleyballSpiking"] == 97
    video = AnnotatedVideo((Segment(1.5, 3, "Diving", 0.5),))
    files = to_thumos(AnnotationSet({"video_test_0000004": video}, classes))
    assert files["detections.txt"] == "video_test_0000004 1.5 3 26 0.5\n"
    assert files[CLASS_LIST].startswith("7 BaseballPitch\n9 BasketballDunk\n")
    assert thumos_numbers(("wave", "jump")) == {"wave": 1, "jump": 2}


def test_thumos_mistakes():
    no_subset = AnnotationSet({"v": AnnotatedVideo((Segment(0, 1, "jump"),))})
    with pytest.raises(LabelsError, match="subset None") as caught:
        to_thumos(no_subset)
    hint = "name it with --subset training, validation or testing."
    assert caught.value.hint == hint
    with pytest.raises(LabelsError, match="names the class '7'"):
        from_thumos(Path("."), {Path("a.txt"): "v 1 2 7 0.5\n"})
    with pytest.raises(LabelsError, match="not a line of THUMOS"):
        from_thumos(Path("."), {Path("Diving_val.txt"): "1 2\n"})
