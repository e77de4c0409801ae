"""Everything that can be wrong in a label file, found at once."""

import json

import pytest

from lstr.errors import LabelsError
from lstr.labels.check import Footage, check, missing, stop_at_errors
from lstr.labels.label_set import Labels, VideoLabels, read_labels
from lstr.labels.segment import Segment
from lstr.labels.video_ids import recording_of

REAL = ("urfall/labels.json", "ut_interaction/labels.json", "thumos14/thumos14_segments.json")


def labels(*segments, **given):
    given = {"subset": "training", "duration": 10.0} | given
    return Labels(("Background", "A", "B"), {"v": VideoLabels(segments=tuple(segments), **given)})


def found(*arguments, **given):
    return [(f.severity, f.kind, f.video) for f in check(*arguments, **given) if f.video]


A = Segment(1, 5, "A")


@pytest.mark.parametrize(
    "segments, expected",
    [
        ([Segment(0, 1, "C")], ("error", "unknown class")),
        ([Segment(2, 1, "A")], ("error", "negative length")),
        ([Segment(-1, 1, "A")], ("error", "before the start")),
        ([Segment(1, 1, "A")], ("warning", "zero length")),
        ([Segment(9, 10.3, "A")], ("warning", "past the end")),
        ([A, Segment(1, 5, "B"), A], ("warning", "duplicate")),
        ([A, Segment(2, 3, "A"), Segment(2, 3, "B")], ("warning", "overlap in one class")),
        ([Segment(1, 5, "A", subject="x"), Segment(2, 3, "A", subject="x")], ("warning", "overlap in one class")),
        ([Segment(1, 2, "A", subject="x")] * 2, ("warning", "duplicate")),
        ([Segment(0, 2, "A"), Segment(2, 10.2, "A"), Segment(1, 3, "B")], None),
        ([A, Segment(1, 3, "A", subject="y")], None),  # two do one thing
    ],
)
def test_each_mistake(segments, expected):
    assert found(labels(*segments)) == ([(*expected, "v")] if expected else [])


def test_against_features():
    both = labels(Segment(0, 4, "A"))
    both.videos["w"] = VideoLabels("testing", None, (Segment(0, 99, "A"),))
    assert found(both, {"v": 40, "w": 400}) == []
    assert found(both, {"v": 15, "w": 400}) == []  # 3.75 s: the tail of a video is shorter than a chunk
    assert found(both, {"v": 14, "w": 400}) == [("warning", "past the end", "v")]
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


def test_real_labels_are_usable_and_no_two_of_their_videos_are_joined(shared):
    for name in REAL:
        path = shared / "data" / name
        findings = check(read_labels(path, lenient=True))
        assert {f.severity for f in findings} == ({"warning"} if "thumos14" in name else set())
        videos = json.loads(path.read_text())["database"]
        assert len({recording_of(video) for video in videos}) == len(videos) > 9
    assert "video_test_0000270" in {f.video for f in findings if f.kind == "past the end"}


def timed(unit: float, n_videos: int = 3, duration: float | None = 6.0) -> Labels:
    """Videos of two segments each, their times multiplied by `unit`; the last one ends with its video, after 6 s."""
    videos = {}
    for i in range(n_videos):
        segments = Segment(1 * unit, 2 * unit, "A"), Segment(2.5 * unit, (4 + i) * unit, "B")
        videos[f"v{i}"] = VideoLabels("training", duration, segments)
    return Labels(("Background", "A", "B"), videos)


@pytest.mark.parametrize(
    "unit, footage, meant",
    [
        (1, {}, None),
        (30, {}, "30"),
        (60, {}, "60"),
        (1000, {}, "1000"),
        (10, {name: Footage(6.0, 10.0) for name in ("v0", "v1", "v2")}, "10"),
    ],
)
def test_times_that_are_no_seconds(unit, footage, meant):
    findings = [f for f in check(timed(unit), footage=footage) if f.video]
    if meant is None:
        assert findings == []
        return
    assert [(f.severity, f.video) for f in findings] == [("error", "v0"), ("error", "v1"), ("error", "v2")]
    with pytest.raises(LabelsError) as caught:
        stop_at_errors(findings, "my labels.csv")
    assert f"lstr labels convert 'my labels.csv' --frames {meant} -o" in caught.value.hint


@pytest.mark.parametrize("segments", [((1, 2), (3, 40)), ((82.5, 112), (120, 150))])
def test_a_slip_is_no_frame_number(segments):
    slip = VideoLabels("training", 6.0, tuple(Segment(*times, "A") for times in segments))
    assert {kind for _, kind, _ in found(Labels(("Background", "A"), {"v": slip}))} == {"past the end"}
    one = timed(1, 3).videos | {"w": VideoLabels("training", 6.0, (Segment(31, 40, "A"),))}
    assert found(Labels(("Background", "A", "B"), one)) == [("warning", "past the end", "w")], "one of many videos"


@pytest.mark.parametrize(
    "unit, chunks, kind, is_found",
    [(30, {}, "whole numbers", True), (1.01, {}, "whole numbers", False), (30, {"v0": 24}, "frame numbers", True)],
)
def test_whole_numbers_of_videos_that_nobody_knows(unit, chunks, kind, is_found):
    lengths = {f"v{i}": 24 for i in range(3)} if chunks else None
    assert (kind in {f.kind for f in check(timed(unit, duration=None), lengths)}) == is_found


def subsets(**of: dict[str, int]) -> Labels:
    """By id "subset_id" how many examples of each class a video has."""
    videos = {}
    for name, counts in of.items():
        segments = tuple(Segment(k + 0.5, k + 1.0, label) for label, n in counts.items() for k in range(n))
        videos[name] = VideoLabels(name.split("_")[0], 100.0, segments)
    return Labels(("Background", "A", "B", "Ambiguous"), videos)


@pytest.mark.parametrize(
    "labels, kind, values",
    [
        (subsets(training_a={"A": 5, "B": 5}, testing_b={"A": 1}), None, ()),
        (subsets(training_a={"A": 5, "B": 4}, testing_b={"A": 1}), "few examples", ("B", "4", "training")),
        (subsets(training_a={"A": 5}, testing_b={"B": 1}), "never trained", ("B", "1", "testing", "training")),
        (subsets(training_a={"A": 5}, testing_b={"A": 9}), "few examples", ("B", "training")),
        (subsets(training_a={"A": 5, "B": 5}, training_b={}), "one subset", ("2", "training")),
        (subsets(testing_a={"A": 5, "B": 1}), "few examples", ("B", "1")),
        (subsets(validation_a={"A": 5}, testing_b={"B": 2}), "never trained", ("B", "2", "testing", "validation")),
        (subsets(training_a={}, testing_b={}), "nothing labelled", ("2",)),
    ],
)
def test_what_the_set_can_teach_and_test(labels, kind, values):
    findings = [f for f in check(labels) if kind != "nothing labelled" or f.kind == kind]
    assert [f.kind for f in findings] == ([kind] if kind else [])
    assert all(value in findings[0].sentence for value in values)


def test_clips_of_one_recording_in_two_subsets():
    videos = {f"game1_clip{i}": VideoLabels("training" if i < 3 else "testing", 10.0, ()) for i in range(5)}
    (finding,) = [f for f in check(Labels(("Background",), videos)) if f.kind == "one recording"]
    assert all(name in finding.sentence for name in ("game1", "game1_clip0", "training", "game1_clip3", "testing"))
    for video in ("game1_clip3", "game1_clip4"):
        del videos[video]
    assert "one recording" not in {f.kind for f in check(Labels(("Background",), videos))}


@pytest.mark.parametrize(
    ("a", "b", "c", "n_longer"),
    [
        (500, 251, 124, 3),
        (400, 198, 101, 0),  # tails are cut in many ways
        (500, 200, 100, 0),  # one video alone is its own matter
        (500, 250, 100, 2),
    ],
)
def test_features_at_another_rate(a, b, c, n_longer):
    seconds = {"a": 100.0, "b": 50.0, "c": 25.0}
    videos = {name: VideoLabels("testing", seconds[name], (Segment(1, 2, "wave"),)) for name in seconds}
    findings = check(Labels(("Background", "wave"), videos), {"a": a, "b": b, "c": c})
    found = [(one.severity, one.sentence) for one in findings if one.kind == "another rate"]
    assert len(found) == bool(n_longer)
    assert all(severity == "warning" and f"{n_longer} of 3" in told and "1.25" in told for severity, told in found)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("seq3", "seq03"),
        ("Seq03", "seq03"),
        ("SEQ0003", "seq03"),
        ("seq00", "seq0"),
        ("videos/seq03.avi", "seq03"),
        ("seq04", ""),
        ("seq13", ""),
        ("b", ""),
    ],
)
def test_an_id_of_another_case_is_meant_and_no_other_number_is(name, meant):
    (found,) = missing([name], ["seq03", "a", "seq0"], "video", "note")
    assert repr(meant) in found.detail if meant else "seq0" not in found.detail
    (found,) = missing(["seq4", "seq04"], ["seq04"], "video", "note")
    assert "seq04" not in found.detail, "no id that has a label is meant"


WHOLE = ("mouse.1.cam.0", "fall-01", "seq10", "kick_clip1", "clip1", "cam0", "run3/cam1", "scene_00", "")


@pytest.mark.parametrize(
    "clip, recording",
    [
        ("seq3-Clip-02", "seq3"),
        ("seq3_clip2_part1", "seq3"),
        ("game1.part2", "game1"),
        ("day 1/seq3_clip2", "day 1/seq3"),
        ("fall-01-cam0-rgb", "fall-01"),
        ("v_Archery_g01_c02", "v_Archery_g01"),
        ("-abc_EFGH12_000010_000020", "-abc_EFGH12"),
        *zip(WHOLE, WHOLE, strict=True),
    ],
)
def test_clips_and_whole_videos(clip, recording):
    assert recording_of(clip) == recording


def questions(*names: str) -> list[str]:
    segments = tuple(Segment(at, at + 0.5, name) for at, name in enumerate(names))
    labels = Labels(("Background", *dict.fromkeys(names)), {"a": VideoLabels("training", None, segments)})
    return [found.detail for found in check(labels) if found.kind == "spellings"]


@pytest.mark.parametrize(
    "names, is_asked",
    [
        (("Fall", "fall", "FALL"), True),
        (("Stürzen", "stu\u0308rzen", "sturzen"), True),
        (("high jump", "high_jump", "HighJump"), True),
        (("Straße", "STRASSE"), True),
        (("fall", "falls"), False),
        (("grooming", *["groming"] * 10), True),
        (("か", "が"), False),
        (("कि", "की"), False),
        (("-", "_"), False),
        (("Background", "background"), False),
    ],
)
def test_case_accents_and_spaces_make_no_other_class(names, is_asked):
    found = questions(names[0], *names, "other")
    assert len(found) == is_asked
    assert all(repr(name) in question for name in names for question in found)
    assert not any("-o labels.json" in question for question in found), "FILE may be that one, a project with comments"
