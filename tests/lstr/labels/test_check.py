"""The check of labels: one report of all errors and oddities of a label file."""

import json

import pytest

from lstr.errors import LabelsError
from lstr.labels.check import check, missing, stop_at_errors
from lstr.labels.label_set import Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.labels.video_ids import recording_of
from lstr.pipelines.annotations.label_files import read_label_file

REAL = ("urfall/labels.json", "ut_interaction/labels.json", "thumos14/thumos14_segments.json")
CLASSES = ("Background", "A", "B")


def labels_of(*segments, subset="training", duration=10.0, n_chunks=None):
    return Labels(CLASSES, {"v": VideoLabels(subset, duration, segments, n_chunks=n_chunks)})


def findings_of(*arguments, **options):
    return [(f.severity, f.kind, f.video) for f in check(*arguments, **options) if f.video]


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
        ([Segment(0, 2, "A"), Segment(2, 10.2, "A"), Segment(1, 3, "B")], None),
        ([A, Segment(1, 3, "A", subject="y")], None),  # two subjects perform one action
    ],
)
def test_findings_per_segment(segments, expected):
    assert findings_of(labels_of(*segments)) == ([(*expected, "v")] if expected else [])


def test_labels_next_to_features():
    labels = labels_of(Segment(0, 4, "A"))
    labels.videos["w"] = VideoLabels("testing", None, (Segment(0, 99, "A"),))
    assert findings_of(labels, {"v": 40, "w": 400}) == []
    assert findings_of(labels, {"v": 15, "w": 400}) == []  # 3.75 s: the tail of a video is shorter than a chunk
    assert findings_of(labels, {"v": 14, "w": 400}) == [("warning", "past the end", "v")]
    assert findings_of(labels, {"v": 40, "x": 8}) == [("error", "no features", "w"), ("warning", "no labels", "x")]
    assert findings_of(labels, {"v": 40, "w": 0}) == [("error", "no features", "w")], "no rows"
    assert findings_of(labels, {"v": 40}, subsets=("training",)) == []
    assert findings_of(labels, {"v": 40}, skip_missing=True) == [("warning", "no features", "w")]


@pytest.mark.parametrize("rows, expected", [(40, []), (36, ["warning"]), (44, ["warning"]), (45, ["error"])])
def test_targets_of_another_length_than_features(rows, expected):
    assert [severity for severity, *_ in findings_of(labels_of(n_chunks=40), {"v": rows})] == expected


def test_a_file_with_several_errors(tmp_path):
    path = tmp_path / "labels.json"
    segments = [{"label": "A", "segment": [3, 1]}, {"label": "C", "segment": [0, 1]}, {"label": "A", "segment": [0, 1]}]
    videos = {"v": {"subset": "training", "annotations": segments}, "w": {"annotations": []}}
    path.write_text(json.dumps({"classes": ["A"], "database": videos}))
    kinds = [kind for _, kind, _ in findings_of(read_label_file(path, lenient=True))]
    assert kinds == ["negative length", "no subset", "unknown class"]


def test_frames_that_start_after_the_sound():
    (found,) = (f for f in check(labels_of(A), footage={"v": (9.0, 25.0, 3.0)}) if f.kind == "late frames")
    assert (found.severity, found.video) == ("warning", "v") and "3 s" in found.detail


def test_real_labels_are_usable_and_their_videos_are_separate_recordings(shared):
    for name in REAL:
        path = shared / "data" / name
        findings = check(read_label_file(path, lenient=True))
        assert {f.severity for f in findings} == ({"warning"} if "thumos14" in name else set())
        videos = json.loads(path.read_text())["database"]
        assert len({recording_of(video) for video in videos}) == len(videos) > 9
    assert "video_test_0000270" in {f.video for f in findings if f.kind == "past the end"}


def labels_in_units(unit: float, duration: float | None = 6.0) -> Labels:
    """Return videos of two segments with times multiplied by `unit`; the last one ends with its video, at 6 s."""
    videos = {}
    for i in range(3):
        segments = Segment(1 * unit, 2 * unit, "A"), Segment(2.5 * unit, (4 + i) * unit, "B")
        videos[f"v{i}"] = VideoLabels("training", duration, segments)
    return Labels(CLASSES, videos)


KNOWN = {name: (6.0, 10.0, 0.0) for name in ("v0", "v1", "v2")}


@pytest.mark.parametrize(
    "unit, footage, rate", [(1, {}, None), (30, {}, "30"), (60, {}, "60"), (1000, {}, "1000"), (10, KNOWN, "10")]
)
def test_times_that_are_not_seconds(unit, footage, rate):
    findings = [f for f in check(labels_in_units(unit), footage=footage) if f.video]
    assert [(f.severity, f.video) for f in findings] == [("error", f"v{i}") for i in range(3)] * bool(rate)
    if rate:
        with pytest.raises(LabelsError) as caught:
            stop_at_errors(findings, "my labels.csv")
        assert f"lstr labels convert 'my labels.csv' --frames {rate} -o" in caught.value.hint


@pytest.mark.parametrize("times", [((1, 2), (3, 40)), ((82.5, 112), (120, 150))])
def test_a_single_wrong_time_is_not_a_frame_number(times):
    labels = labels_of(*(Segment(start, end, "A") for start, end in times), duration=6.0)
    assert {kind for _, kind, _ in findings_of(labels)} == {"past the end"}
    labels = labels_in_units(1)
    labels.videos["w"] = VideoLabels("training", 6.0, (Segment(31, 40, "A"),))
    assert findings_of(labels) == [("warning", "past the end", "w")]


def test_whole_numbers_of_videos_without_a_duration():
    frames = labels_in_units(30, duration=None)
    assert "whole numbers" in {f.kind for f in check(frames)}
    assert "whole numbers" not in {f.kind for f in check(labels_in_units(1.01, duration=None))}
    assert "frame numbers" in {f.kind for f in check(frames, {"v0": 24, "v1": 24, "v2": 24})}


def labels_with(**counts: dict[str, int]) -> Labels:
    """Return labels from the numbers of examples per class; the name of a video begins with its subset."""
    videos = {}
    for name, examples in counts.items():
        segments = tuple(Segment(k + 0.5, k + 1.0, label) for label, n in examples.items() for k in range(n))
        videos[name] = VideoLabels(name.split("_")[0], 100.0, segments)
    return Labels((*CLASSES, "Ambiguous"), videos)


@pytest.mark.parametrize(
    "labels, kind, values",
    [
        (labels_with(training_a={"A": 5, "B": 5}, testing_b={"A": 1}), None, ()),
        (labels_with(training_a={"A": 5, "B": 4}, testing_b={"A": 1}), "few examples", ("B", "4", "training")),
        (labels_with(training_a={"A": 5}, testing_b={"B": 1}), "never trained", ("B", "1", "testing", "training")),
        (labels_with(training_a={"A": 5, "B": 5}, training_b={}), "one subset", ("2", "training")),
        (labels_with(validation_a={"A": 5}, testing_b={"B": 2}), "never trained", ("B", "2", "testing", "validation")),
        (labels_with(training_a={}, testing_b={}), "nothing labelled", ("2",)),
    ],
)
def test_examples_per_class_and_subset(labels, kind, values):
    findings = [f for f in check(labels) if kind != "nothing labelled" or f.kind == kind]
    assert [f.kind for f in findings] == ([kind] if kind else [])
    assert all(value in findings[0].sentence for value in values)


def test_clips_of_a_recording_in_two_subsets():
    videos = {f"game1_clip{i}": VideoLabels("training" if i < 3 else "testing", 10.0, ()) for i in range(5)}
    (finding,) = [f for f in check(Labels(CLASSES, videos)) if f.kind == "one recording"]
    assert all(name in finding.sentence for name in ("game1", "game1_clip0", "training", "game1_clip3", "testing"))
    training = dict(list(videos.items())[:3])
    assert "one recording" not in {f.kind for f in check(Labels(CLASSES, training))}


@pytest.mark.parametrize(
    ("lengths", "n_longer"), [((500, 251, 124), 3), ((400, 198, 101), 0), ((500, 200, 100), 0), ((500, 250, 100), 2)]
)
def test_features_at_another_rate(lengths, n_longer):
    """Not by tails, which are cut in many ways, nor in a single video, which may have been cut."""
    seconds = {"a": 100.0, "b": 50.0, "c": 25.0}
    videos = {name: VideoLabels("testing", seconds[name], (A,)) for name in seconds}
    findings = check(Labels(CLASSES, videos), dict(zip(seconds, lengths, strict=True)))
    rates = [(f.severity, f.sentence) for f in findings if f.kind == "another rate"]
    assert len(rates) == bool(n_longer)
    assert all(severity == "warning" and f"{n_longer} of 3" in text and "1.25" in text for severity, text in rates)


@pytest.mark.parametrize(
    ("name", "similar"), [("SEQ0003", "seq03"), ("seq00", "seq0"), ("videos/seq03.avi", "seq03"), ("seq04", "")]
)
def test_similar_ids_differ_in_case_or_zeros(name, similar):
    (finding,) = missing([name], ["seq03", "a", "seq0"], "video", "note")
    assert repr(similar) in finding.detail if similar else "seq0" not in finding.detail
    (finding,) = missing(["seq4", "seq04"], ["seq04"], "video", "note")
    assert "seq04" not in finding.detail, "seq04 is labelled already"


COMPLETE = ("mouse.1.cam.0", "fall-01", "seq10", "kick_clip1", "clip1", "cam0", "run3/cam1", "scene_00", "")


@pytest.mark.parametrize(
    "video_id, recording",
    [
        ("seq3-Clip-02", "seq3"),
        ("seq3_clip2_part1", "seq3"),
        ("game1.part2", "game1"),
        ("day 1/seq3_clip2", "day 1/seq3"),
        ("fall-01-cam0-rgb", "fall-01"),
        ("v_Archery_g01_c02", "v_Archery_g01"),
        ("-abc_EFGH12_000010_000020", "-abc_EFGH12"),
        *zip(COMPLETE, COMPLETE, strict=True),
    ],
)
def test_the_recording_of_a_clip(video_id, recording):
    assert recording_of(video_id) == recording


@pytest.mark.parametrize(
    "names, is_found",
    [
        (("Fall", "fall", "FALL"), True),
        (("Stürzen", "stu\u0308rzen", "sturzen"), True),
        (("high jump", "high_jump", "HighJump"), True),
        (("Straße", "STRASSE"), True),
        (("fall", "falls"), False),
        (("grooming", *["groming"] * 10), True),
        (("か", "が"), False),
        (("Background", "background"), False),
    ],
)
def test_spellings_of_a_class(names, is_found):
    names = (names[0], *names, "other")
    video = VideoLabels("training", None, tuple(Segment(at, at + 0.5, name) for at, name in enumerate(names)))
    labels = Labels(("Background", *dict.fromkeys(names)), {"a": video})
    details = [f.detail for f in check(labels) if f.kind == "spellings"]
    assert len(details) == is_found
    assert all(repr(name) in detail for name in names[:-1] for detail in details)
    assert not any("-o labels.json" in detail for detail in details), "FILE may be that one, a project with comments"
