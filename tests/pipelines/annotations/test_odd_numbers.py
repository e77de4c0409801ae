"""Numbers that no label file should have, at every place of every format: one typed error that names the file."""

import json
import re

import pytest

from lstr.errors import LabelsError, LstrError
from lstr.labels.check import check
from lstr.labels.label_set import VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, all_formats, format_named
from lstr.pipelines.annotations.label_files import read_annotations, read_label_file

SEGMENTS = (Segment(1.25, 3.5, "A"), Segment(4.75, 6.125, "B"))
SET = AnnotationSet({"v0": VideoLabels("training", 10.0, SEGMENTS, "v0.mp4")}, ("A", "B"))
ODD = (
    "9" * 400,
    "-" + "9" * 400,
    "9" * 5000,
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "-5",
    "1e300",
    "null",
    '"x"',
    "[1]",
)
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)")
TEXTS = {form.name: form.text(SET, DEFAULTS) for form in all_formats() if form.reads and form.writes}


@pytest.mark.parametrize("name", TEXTS)
def test_each_number_of_each_format(tmp_path, name):
    """What is read all the same can be checked and made targets of, as a number in a comment can."""
    text, path = TEXTS[name], tmp_path / f"v0{format_named(name).suffix}"
    places = list(NUMBER.finditer(text))
    assert len(places) >= 4
    refused = 0
    for place in places[:: len(places) // 20 | 1]:  # of a table with a row a frame some rows, in each column
        for i, odd in enumerate(ODD):
            path.write_text(text[: place.start()] + odd + text[place.end() :])
            try:
                labels = read_label_file(path, lenient=(i + place.start()) % 2 == 0)
                check(labels)
                for video in labels.videos.values():
                    assert len(targets(video, labels.classes, 40)) == 40
            except LstrError as error:
                refused += 1
                assert error.hint and str(path) in str(error) and len(str(error)) < 700
    assert refused > 20


@pytest.mark.parametrize("number", [str(10**400), "-" + "9" * 400, "1e400", "NaN", "1e300"])
def test_the_message_names_video_and_entry(tmp_path, number):
    path = tmp_path / "labels.json"
    text = json.dumps({"database": {"v7": {"subset": "training", "annotations": [{"label": "A", "segment": [0, 77]}]}}})
    path.write_text(text.replace("77", number))
    with pytest.raises(LabelsError, match=r"labels.json, video 'v7', annotation 0: segment is \[0, ") as caught:
        read_label_file(path)
    assert len(str(caught.value)) < 250
    path.write_text(text.replace('"annotations"', f'"duration": {number}, "annotations"'))
    with pytest.raises(LabelsError, match=r"video 'v7': duration is "):
        read_label_file(path)


@pytest.mark.parametrize(
    "task",
    [
        [{"data": {"id": 7}}],
        [{"data": {"id": ["v"]}}],
        [7],
        [{"data": []}],
        [{"data": {"id": "v"}, "annotations": [7]}],
    ],
)
def test_tasks_of_label_studio_that_are_none(tmp_path, task):
    (tmp_path / "tasks.json").write_text(json.dumps(task))
    with pytest.raises(LabelsError, match=r"tasks.json") as caught:
        read_annotations(tmp_path / "tasks.json")
    assert caught.value.hint
