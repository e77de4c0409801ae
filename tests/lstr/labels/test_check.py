"""Everything that can be wrong in a label file, found at once."""

import json

import pytest

from lstr.errors import LabelsError
from lstr.labels.check import Footage, check, missing, stop_at_errors
from lstr.labels.label_set import Labels, VideoLabels, read_labels
from lstr.labels.segment import Segment
from lstr.labels.video_ids import recording_of


def labels(*segments, **given):
    given = {"subset": "training", "duration": 10.0} | given
    return Labels(("Background", "A", "B"), {"v": VideoLabels(segments=tuple(segments), **given)})


def found(*arguments, **given):
    """What is found in single videos."""
    return [(f.severity, f.kind, f.video) for f in check(*arguments, **given) if f.video]


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
        ([Segment(1, 5, "A", subject="x"), Segment(2, 3, "A", subject="x")], "warning", "overlap in one class"),
        ([Segment(1, 2, "A", subject="x")] * 2, "warning", "duplicate"),
        ([Segment(1, 9, "A"), Segment(2, 3, "A"), Segment(4, 5, "A")], "warning", "overlap in one class"),
    ],
)
def test_each_mistake(segments, severity, kind):
    findings = found(labels(*segments))
    assert set(findings) == {(severity, kind, "v")}
    assert len(findings) == (2 if len(segments) == 3 and segments[0].end == 9 else 1)


def test_what_is_sound():
    assert found(labels(Segment(0, 2, "A"), Segment(2, 10.2, "A"), Segment(1, 3, "B"))) == []
    assert found(labels(Segment(0, 2, "A", subject="x"), Segment(1, 3, "A", subject="y"))) == [], "two do one thing"
    assert found(labels(Segment(0, 2, "A"), Segment(1, 3, "A", subject="y"))) == []
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


def timed(unit: float, n_videos: int = 3, duration: float | None = 6.0) -> Labels:
    """Videos of two segments each, their times multiplied by `unit`; the last one ends with its video, after 6 s."""
    videos = {
        f"v{i}": VideoLabels(
            "training", duration, (Segment(1 * unit, 2 * unit, "A"), Segment(2.5 * unit, (4 + i) * unit, "B"))
        )
        for i in range(n_videos)
    }
    return Labels(("Background", "A", "B"), videos)


@pytest.mark.parametrize(
    "unit, footage, words",
    [
        (1, {}, None),
        (30, {}, "are these frames? 30/30 = 1.00 s"),
        (60, {}, "are these frames? 60/60 = 1.00 s"),
        (1000, {}, "are these milliseconds? 1000/1000 = 1.00 s"),
        (10, {"v0": Footage(6.0, 10.0), "v1": Footage(6.0, 10.0), "v2": Footage(6.0, 10.0)}, "10/10 = 1.00 s"),
    ],
)
def test_times_that_are_no_seconds(unit, footage, words):
    findings = [f for f in check(timed(unit), footage=footage) if f.video]
    if words is None:
        assert findings == []
        return
    assert {(f.severity, f.video) for f in findings} == {("error", "v0"), ("error", "v1"), ("error", "v2")}
    assert len(findings) == 3 and words in findings[0].detail, "one each, not every segment past the end too"
    with pytest.raises(LabelsError) as caught:
        stop_at_errors(findings, "my labels.csv")
    assert f"lstr labels convert 'my labels.csv' --frames {findings[0].detail.split('/')[1].split()[0]} -o" in str(
        caught.value.hint
    )


def test_a_slip_is_no_frame_number():
    slip = Labels(("Background", "A"), {"v": VideoLabels("training", 6.0, (Segment(1, 2, "A"), Segment(3, 40, "A")))})
    assert found(slip) == [("warning", "past the end", "v")]
    halves = VideoLabels("training", 6.0, (Segment(82.5, 112, "A"), Segment(120, 150, "A")))
    assert {kind for _, kind, _ in found(Labels(("Background", "A"), {"v": halves}))} == {"past the end"}
    one = timed(1, 3).videos | {"w": VideoLabels("training", 6.0, (Segment(31, 40, "A"),))}
    assert found(Labels(("Background", "A", "B"), one)) == [("warning", "past the end", "w")], "one of many videos"


def test_whole_numbers_of_videos_that_nobody_knows():
    kinds = [f.kind for f in check(timed(30, duration=None)) if f.severity == "warning"]
    assert "whole numbers" in kinds
    assert "whole numbers" not in {f.kind for f in check(timed(1.01, duration=None))}
    assert "frame numbers" in {f.kind for f in check(timed(30, duration=None), {f"v{i}": 24 for i in range(3)})}


def subsets(**of: dict[str, int]) -> Labels:
    """By id "subset_id" how many examples of each class a video has."""
    videos = {
        name: VideoLabels(
            name.split("_")[0],
            100.0,
            tuple(Segment(k + 0.5, k + 1.0, label) for label, n in counts.items() for k in range(n)),
        )
        for name, counts in of.items()
    }
    return Labels(("Background", "A", "B", "Ambiguous"), videos)


@pytest.mark.parametrize(
    "labels, expected",
    [
        (subsets(training_a={"A": 5, "B": 5}, testing_b={"A": 1}), []),
        (subsets(training_a={"A": 5, "B": 4}, testing_b={"A": 1}), ["few examples: B: 4 examples in training"]),
        (subsets(training_a={"A": 5}, testing_b={"B": 1}), ["never trained: B: 1 in testing, none in training"]),
        (subsets(training_a={"A": 5}, testing_b={"A": 9}), ["few examples: B: no examples in training"]),
        (
            subsets(training_a={"A": 5, "B": 5}, training_b={}),
            ["one subset: all 2 videos are in training: nothing is left to test on"],
        ),
        (subsets(testing_a={"A": 5, "B": 1}), ["few examples: B: 1 example"]),
        (subsets(validation_a={"A": 5}, testing_b={"B": 2}), ["never trained: B: 2 in testing, none in validation"]),
    ],
)
def test_what_the_set_can_teach_and_test(labels, expected):
    assert [f"{f.kind}: {f.sentence}" for f in check(labels)] == expected


def test_clips_of_one_recording_in_two_subsets():
    videos = {f"game1_clip{i}": VideoLabels("training" if i < 3 else "testing", 10.0, ()) for i in range(5)}
    findings = [f.sentence for f in check(Labels(("Background",), videos))]
    assert findings == ["game1: game1_clip0 in training, game1_clip3 in testing"]
    for video in ("game1_clip3", "game1_clip4"):
        del videos[video]
    assert "one recording" not in {f.kind for f in check(Labels(("Background",), videos))}


def test_a_missing_video_is_named_with_what_may_be_meant():
    (finding,) = missing(["videos/fall-01.avi"], {"fall-01": 8, "fall-02": 8}, "features", "error")
    assert "'fall-01'" in finding.detail and finding.kind == "no features"


def test_real_labels_are_clean(shared):
    for name in ("urfall", "ut_interaction"):
        assert check(read_labels(shared / "data" / name / "labels.json", lenient=True)) == []


def test_labels_without_an_action():
    """Scores of them are a table of dashes."""
    videos = {name: VideoLabels("training", 10.0, ()) for name in "ab"}
    found = [one for one in check(Labels(("Background", "A"), videos)) if one.kind == "nothing labelled"]
    assert [one.sentence for one in found] == ["no action is labelled in any of the 2 videos"]
    videos["b"] = VideoLabels("training", 10.0, (Segment(1, 2, "A"),))
    assert "nothing labelled" not in [one.kind for one in check(Labels(("Background", "A"), videos))]


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ({"a": 500, "b": 251, "c": 124}, "3 of 3 videos are 1.25 times as long as the labels say (a: 500 chunks"),
        ({"a": 400, "b": 198, "c": 101}, ""),  # tails are cut in many ways
        ({"a": 500, "b": 200, "c": 100}, ""),  # one video alone is its own matter
        ({"a": 401, "b": 202, "c": 102}, ""),
        ({"a": 500, "b": 250, "c": 100}, "2 of 3 videos are 1.25 times"),
        ({}, ""),
    ],
)
def test_features_at_another_rate(lengths, words):
    seconds = {"a": 100.0, "b": 50.0, "c": 25.0}
    videos = {name: VideoLabels("testing", seconds[name], (Segment(1, 2, "wave"),)) for name in lengths}
    found = [one for one in check(Labels(("Background", "wave"), videos), lengths) if one.kind == "another rate"]
    assert bool(found) == bool(words)
    if words:
        assert words in found[0].sentence and "5 a second instead of 4" in found[0].sentence
        assert found[0].severity == "warning"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("seq3", "seq03"),
        ("Seq03", "seq03"),
        ("SEQ0003", "seq03"),
        ("seq00", "seq0"),
        ("seq04", ""),
        ("seq13", ""),
        ("b", ""),
    ],
)
def test_an_id_of_another_case_is_meant_and_no_other_number_is(name, meant):
    (found,) = missing([name], ["seq03", "a", "seq0"], "video", "note")
    assert found.detail == ("not found" + (f"; do you mean {meant!r}?" if meant else ""))


def test_a_finding_names_no_id_that_has_a_label():
    assert [f.detail for f in missing(["seq4", "seq04"], ["seq04"], "video", "note")] == ["not found"]


@pytest.mark.parametrize(
    "clip, recording",
    [
        ("seq3_clip2", "seq3"),
        ("seq3-Clip-02", "seq3"),
        ("seq3_clip2_part1", "seq3"),
        ("day 1/seq3_clip2", "day 1/seq3"),
        ("fall-01-cam0", "fall-01"),
        ("fall-01-cam1", "fall-01"),
        ("fall-01-cam0-rgb", "fall-01"),
        ("game_part2", "game"),
        ("v_Archery_g01_c02", "v_Archery_g01"),
        ("v_Archery_g02_c02", "v_Archery_g02"),
        ("-abc_EFGH12_000010_000020", "-abc_EFGH12"),
    ],
)
def test_clips(clip, recording):
    assert recording_of(clip) == recording


@pytest.mark.parametrize(
    "video",
    ["fall-01", "seq1", "seq10", "kick_clip1", "clip1", "cam0", "run3/cam1", "scene_00", "video_test_0000270", ""],
)
def test_whole_videos(video):
    assert recording_of(video) == video


def test_no_two_videos_of_the_real_sets_are_joined(shared):
    for file in ("urfall/labels.json", "ut_interaction/labels.json", "thumos14/thumos14_segments.json"):
        videos = json.loads((shared / "data" / file).read_text())["database"]
        assert len({recording_of(video) for video in videos}) == len(videos) > 9


def questions(*names: str) -> list[str]:
    segments = tuple(Segment(at, at + 0.5, name) for at, name in enumerate(names))
    labels = Labels(("Background", *dict.fromkeys(names)), {"a": VideoLabels("training", None, segments)})
    return [found.detail for found in check(labels) if found.kind == "spellings"]


@pytest.mark.parametrize(
    "names",
    [
        ("Fall", "fall", "FALL"),
        ("Stürzen", "stu\u0308rzen", "sturzen"),
        ("high jump", "high_jump", "HighJump"),
        ("Straße", "STRASSE"),
    ],
)
def test_case_accents_and_spaces_make_no_other_class(names):
    (question,) = questions(names[0], *names, "other")
    assert question.startswith(f"are these one class? {names[0]!r} (2), ")
    assert all(repr(name) in question for name in names) and f"={names[0]}" in question
    assert "-o labels.json" not in question, "FILE may be that one, and a project with comments and keys"


@pytest.mark.parametrize(
    "names", [("fall", "falls"), ("か", "が"), ("कि", "की"), ("-", "_"), ("Background", "background")]
)
def test_other_words_are_other_classes(names):
    assert not questions(*names)
