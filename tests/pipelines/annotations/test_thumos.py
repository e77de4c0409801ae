"""The text files of THUMOS, there and back."""

from pathlib import Path

import pytest

from lstr.errors import LabelsError
from lstr.labels.label_set import THUMOS_CLASSES, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, format_named
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.annotations.thumos import CLASS_LIST, thumos_numbers
from tests.support.annotated import AWKWARD, CLASSES, ONE, segments


def to_thumos(folder: Path, annotated: AnnotationSet) -> dict[str, str]:
    paths = format_named("thumos").write(folder, annotated, DEFAULTS)
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def test_thumos_annotations_are_a_file_a_class_and_subset(tmp_path):
    files = to_thumos(tmp_path, ONE.without_scores())
    assert files["wave_train.txt"] == "a%20b 0 1.25\na%20b 0.5 2\n" and len(files) == 7
    read = read_annotations(tmp_path)
    assert segments(read.videos["a b"]) == segments(AWKWARD) and read.videos["a b"].subset == "training"
    assert read.classes == CLASSES


def test_thumos_detections_have_the_official_numbers(tmp_path):
    classes = THUMOS_CLASSES[1:-1]
    assert thumos_numbers(classes)["CliffDiving"] == 22 and thumos_numbers(classes)["VolleyballSpiking"] == 97
    video = VideoLabels(segments=(Segment(1.5, 3, "Diving", 0.5),))
    files = to_thumos(tmp_path, AnnotationSet({"video_test_0000004": video}, classes))
    assert files["detections.txt"] == "video_test_0000004 1.5 3 26 0.5\n"
    assert files[CLASS_LIST].startswith("7 BaseballPitch\n9 BasketballDunk\n")
    assert thumos_numbers(("wave", "jump")) == {"wave": 1, "jump": 2}


def parse_thumos(path: Path, text: str) -> AnnotationSet:
    path.write_text(text)
    return read_annotations(path)


def test_thumos_mistakes(tmp_path):
    no_subset = AnnotationSet({"v": VideoLabels(segments=(Segment(0, 1, "jump"),))})
    with pytest.raises(LabelsError, match="subset none") as caught:
        to_thumos(tmp_path, no_subset)
    hint = "name it with --subset training, validation or testing."
    assert caught.value.hint == hint
    with pytest.raises(LabelsError, match="names the class '7'"):
        parse_thumos(tmp_path / "a.txt", "v 1 2 7 0.5\n")
    with pytest.raises(LabelsError, match="not a line of THUMOS"):
        parse_thumos(tmp_path / "Diving_val.txt", "1 2\n")
