"""Everything that can be wrong in a label file, found at once."""

import json

import pytest

from lstr.label_check import check
from lstr.labels import Labels, VideoLabels, read_labels
from lstr.segment import Segment


def labels(*segments, **given):
    given = {"subset": "training", "duration": 10.0} | given
    return Labels(("Background", "A", "B"), {"v": VideoLabels(segments=tuple(segments), **given)})


def found(*arguments, **given):
    return [(f.severity, f.kind, f.video) for f in check(*arguments, **given)]


@pytest.mark.parametrize(
    "segments, severity, kind",
    [
        ([Segment(0, 1, "C")], "error", "unknown class"),
        ([Segment(2, 1, "A")], "error", "negative length"),
        ([Segment(-1, 1, "A")], "error", "before the start"),
        ([Segment(1, 1, "A")], "warning", "zero length"),
        ([Segment(9, 10.3, "A")], "warning", "past the end"),
        ([Segment(1, 2, "A"), Segment(1, 2, "B"), Segment(1, 2, "A")], "warning", "duplicate"),
        ([Segment(1, 5, "A"), Segment(2, 3, "A"), Segment(2, 3, "B")], "warning", "overlap in one class"),
        ([Segment(1, 9, "A"), Segment(2, 3, "A"), Segment(4, 5, "A")], "warning", "overlap in one class"),
    ],
)
def test_each_mistake(segments, severity, kind):
    findings = found(labels(*segments))
    assert set(findings) == {(severity, kind, "v")}
    assert len(findings) == (2 if len(segments) == 3 and segments[0].end == 9 else 1)


def test_what_is_sound():
    assert found(labels(Segment(0, 2, "A"), Segment(2, 10.2, "A"), Segment(1, 3, "B"))) == []
    assert found(labels(Segment(0, 99, "A"), duration=None)) == [], "nobody knows where the end is"


def test_against_features():
    both = labels(Segment(0, 4, "A"))
    both.videos["w"] = VideoLabels("testing", None, ())
    assert found(both, {"v": 40, "w": 8}) == []
    assert found(both, {"v": 15, "w": 8}) == []  # 3.75 s: the tail of a video is shorter than a chunk
    assert found(both, {"v": 14, "w": 8}) == [("warning", "past the end", "v")]
    assert found(both, {"v": 40, "x": 8}) == [("error", "no features", "w"), ("warning", "no labels", "x")]
    assert found(both, {"v": 40}, subsets=("training",)) == []
    assert found(both, {"v": 40}, skip_missing=True) == [("warning", "no features", "w")]


@pytest.mark.parametrize("rows, expected", [(40, []), (36, ["warning"]), (44, ["warning"]), (45, ["error"])])
def test_targets_of_another_length(rows, expected):
    assert [s for s, kind, _ in found(labels(n_chunks=40), {"v": rows})] == expected


def test_lenient_reading_keeps_what_the_check_names(tmp_path):
    path = tmp_path / "labels.json"
    wrong = [{"label": "A", "segment": [3, 1]}, {"label": "C", "segment": [0, 1]}, {"label": "A", "segment": [0, 1]}]
    video = {"subset": "training", "annotations": wrong}
    path.write_text(json.dumps({"classes": ["A"], "database": {"v": video}}))
    read = read_labels(path, lenient=True)
    assert [kind for _, kind, _ in found(read)] == ["negative length", "unknown class"]


def test_the_published_thumos_labels_are_usable(shared):
    findings = check(read_labels(shared / "data" / "thumos14" / "thumos14_segments.json", lenient=True))
    assert {f.severity for f in findings} == {"warning"}
    assert "video_test_0000270" in {f.video for f in findings if f.kind == "past the end"}
