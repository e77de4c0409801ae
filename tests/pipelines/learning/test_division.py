"""Whole recordings are held out, so that each action stays among those that are learnt from."""

import pytest

from lstr.errors import LabelsError
from lstr.labels.label_set import Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION, divide, folds_of


def labels_of(shown: dict[str, str], subset: str = TRAINING, **subsets: str) -> Labels:
    """Videos that show the classes that each letter names."""
    videos = {
        name: VideoLabels(subsets.get(name, subset), 10.0, tuple(Segment(k, k + 1, c) for k, c in enumerate(classes)))
        for name, classes in shown.items()
    }
    return Labels(("Background", *sorted({c for classes in shown.values() for c in classes})), videos)


def test_subsets_of_the_labels_are_kept():
    labels = labels_of({"a": "x", "b": "x", "c": "x", "d": "x"}, b=VALIDATION, c=TESTING, d="other")
    division = divide(labels, labels.videos)
    assert [division.of(subset) for subset in (TRAINING, VALIDATION, TESTING)] == [["a"], ["b"], ["c"]]
    assert "the labels hold out" in division.sentence and "1 video " in division.sentence


def test_validation_is_held_out_where_nothing_is_for_testing():
    labels = labels_of({"a": "x", "b": "x"}, b=VALIDATION)
    division = divide(labels, labels.videos)
    assert division.of(TESTING) == ["b"] and not division.of(VALIDATION)


def test_one_subset_is_divided_by_whole_recordings():
    shown = {f"seq{n}_clip{k}": "xy" for n in range(8) for k in range(3)}
    division = divide(labels_of(shown), shown)
    held = division.of(TESTING)
    assert len({name.split("_")[0] for name in held}) == 2 and len(held) == 6
    assert not {name.split("_")[0] for name in held} & {name.split("_")[0] for name in division.of(TRAINING)}
    assert "2 of 8 recordings" in division.sentence
    assert division == divide(labels_of(shown), shown)


def test_an_action_of_one_recording_stays_among_those_learnt_from():
    shown = {"r0": "x", "r1": "xy", "r2": "xz", "r3": "xzw"}
    division = divide(labels_of(shown), shown)
    learnt = {c for name in division.of(TRAINING) for c in shown[name]}
    assert learnt == set("xyzw") and division.of(TESTING) in (["r0"], ["r2"])


def test_the_held_out_show_as_many_actions_as_they_can():
    shown = {f"r{n}": "xyz"[n % 3] for n in range(12)}
    division = divide(labels_of(shown), shown)
    assert {shown[name] for name in division.of(TESTING)} == set("xyz")


def test_many_recordings_spare_some_to_choose_with():
    shown = {f"r{n:02}": "xy" for n in range(24)}
    division = divide(labels_of(shown), shown)
    assert [len(division.of(subset)) for subset in (TRAINING, VALIDATION, TESTING)] == [15, 3, 6]


@pytest.mark.parametrize(
    ("shown", "sentence"),
    [
        ({"only_clip1": "x", "only_clip2": "x", "only 3": ""}, None),
        ({"seq1_clip1": "x", "seq1_clip2": "x"}, "one recording"),
        ({"a": "x", "b": "y"}, "the only one"),
    ],
)
def test_what_cannot_be_divided_is_refused(shown, sentence):
    if sentence is None:
        assert divide(labels_of(shown), shown).of(TESTING)
        return
    with pytest.raises(LabelsError, match=sentence) as caught:
        divide(labels_of(shown), shown)
    assert caught.value.hint


def test_videos_without_labels_have_no_part():
    labels = labels_of({"a": "x", "b": "x", "c": "x"})
    assert set(divide(labels, ["a", "b", "z"]).labels.videos) == {"a", "b"}
    with pytest.raises(LabelsError, match="No label belongs"):
        divide(labels, ["z"])


def test_what_networks_have_seen_is_not_held_out():
    shown = {f"r{n}": "xy" for n in range(8)}
    seen = ["r1", "r2", "r3", "r4", "r5"]
    division = divide(labels_of(shown), shown, seen)
    assert len(division.of(TESTING)) == 2 and not set(seen) & set(division.of(TESTING))
    with pytest.raises(LabelsError, match="held out"):
        divide(labels_of(shown), shown, shown)
    with pytest.raises(LabelsError, match="networks have seen 1 of the testing videos, first 'r1'") as caught:
        divide(labels_of(shown, r1=TESTING), shown, ["r1"])
    assert "--init" in caught.value.hint


def test_folds_are_whole_recordings():
    ids = [f"seq{n}_clip{k}" for n in range(4) for k in range(2)]
    folds = folds_of(ids)
    assert len(folds) == 3 and sorted(sum(folds, [])) == ids
    for fold in folds:
        others = {name.split("_")[0] for name in ids if name not in fold}
        assert not {name.split("_")[0] for name in fold} & others
    assert folds_of(["seq1_clip1", "seq1_clip2"]) == []


def test_with_folds_every_video_is_learnt_from_but_those_for_testing():
    labels = labels_of({"a": "x", "b": "x", "c": "x", "d": "x", "e": "x"}, b=VALIDATION, c=TESTING, d="other")
    division = divide(labels, labels.videos, n_folds=3)
    assert (division.of(TRAINING), division.of(TESTING), division.folds) == (["a", "b", "e"], ["c"], 3)
    assert "1 video that the labels hold out" in division.sentence
    labels = labels_of({"a": "x", "b": "x", "c": "x"}, b=VALIDATION)
    division = divide(labels, labels.videos, n_folds=3)
    assert division.of(TRAINING) == ["a", "b", "c"] and "in 3 folds of all 3 videos" in division.sentence
    shown = {f"seq{n}_clip{k}": "xy" for n in range(2) for k in range(3)}
    assert divide(labels_of(shown), shown, n_folds=3).folds == 2


def test_where_folds_cannot_measure_videos_are_held_out():
    """Networks have seen a video, or one fold has all actions, or one is asked for."""
    labels = labels_of({f"r{n}": "xy" for n in range(8)})
    for division in (divide(labels, labels.videos, ["r1"], 3), divide(labels, labels.videos)):
        assert division.folds == 0 and len(division.of(TESTING)) == 2
    lonely = labels_of({"a": "x", "b": "", "c": ""}, b=TESTING)
    assert divide(lonely, lonely.videos, n_folds=2).folds == 0


def test_a_held_out_subset_of_another_name_teaches_nothing():
    """As it was where the labels call videos testing besides; without those it taught."""
    labels = labels_of({"a": "x", "b": "x", "c": "x", "d": "x"}, d="holdout")
    for n_folds in (0, 3):
        assert {*divide(labels, labels.videos, n_folds=n_folds).labels.videos} == {*"abc"}
    alone = labels_of({"a": "x", "b": "x"}, subset="first set")
    assert {*divide(alone, alone.videos).labels.videos} == {*"ab"}


def test_videos_for_testing_alone_teach_nothing():
    labels = labels_of({"a": "x", "b": "x", "c": "x"}, subset=TESTING, c=TRAINING)
    for n_folds in (0, 3):
        with pytest.raises(LabelsError, match="testing") as caught:
            divide(labels, ["a", "b"], n_folds=n_folds)
        assert caught.value.hint
    of_two = labels_of({"a": "x", "b": "x", "c": "x"}, subset=VALIDATION, c=TESTING)
    division = divide(of_two, of_two.videos)
    assert (division.of(TRAINING), division.of(TESTING)) == (["a", "b"], ["c"])
