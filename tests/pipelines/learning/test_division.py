"""Whole recordings are held out, so that each action stays among those that are learnt from."""

from collections.abc import Iterable

import pytest

from lstr.errors import LabelsError
from lstr.labels.label_set import Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION, divide, folds_of

CLIPS = {f"seq{n}_clip{k}": "xy" for n in range(8) for k in range(3)}
RECORDINGS = {f"r{n}": "xy" for n in range(8)}


def labels_of(shown: dict[str, str], subset: str = TRAINING, **subsets: str) -> Labels:
    """Videos that show the classes that each letter names."""
    videos = {
        name: VideoLabels(subsets.get(name, subset), 10.0, tuple(Segment(k, k + 1, c) for k, c in enumerate(classes)))
        for name, classes in shown.items()
    }
    return Labels(("Background", *sorted({c for classes in shown.values() for c in classes})), videos)


def of(names: Iterable[str], subset: str = TRAINING, **subsets: str) -> Labels:
    """Videos that show one class, named by a letter each."""
    return labels_of(dict.fromkeys(names, "x"), subset, **subsets)


def recordings(names) -> set[str]:
    return {name.split("_")[0] for name in names}


@pytest.mark.parametrize(
    ("labels", "n_folds", "training", "validation", "testing"),
    [
        (of("abcd", b=VALIDATION, c=TESTING, d="other"), 0, "a", "b", "c"),
        (of("abcd", b=VALIDATION, c=TESTING, d="other"), 3, "ab", "", "c"),
        (of("abcde", b=VALIDATION, c=TESTING, d="other"), 3, "abe", "", "c"),
        (of("ab", b=VALIDATION), 0, "a", "", "b"),
        (of("abc", b=VALIDATION), 3, "abc", "", ""),
        (of("abc", subset=VALIDATION, c=TESTING), 0, "ab", "", "c"),
    ],
)
def test_subsets_of_the_labels_are_kept(labels, n_folds, training, validation, testing):
    """With folds every video is learnt from but those for testing."""
    division = divide(labels, labels.videos, n_folds=n_folds)
    found = ["".join(division.of(subset)) for subset in (TRAINING, VALIDATION, TESTING)]
    assert found == [training, validation, testing]


def test_a_held_out_subset_of_another_name_teaches_nothing():
    labels = of("abcd", d="holdout")
    for n_folds in (0, 3):
        assert {*divide(labels, labels.videos, n_folds=n_folds).labels.videos} == {*"abc"}
    alone = of("ab", subset="first set")
    assert {*divide(alone, alone.videos).labels.videos} == {*"ab"}


def test_one_subset_is_divided_by_whole_recordings():
    division = divide(labels_of(CLIPS), CLIPS)
    held = division.of(TESTING)
    assert len(recordings(held)) == 2 and len(held) == 6 and "2 of 8" in division.sentence
    assert not recordings(held) & recordings(division.of(TRAINING))
    assert division == divide(labels_of(CLIPS), CLIPS)


def test_each_action_is_learnt_and_as_many_as_can_be_are_held_out():
    shown = {"r0": "x", "r1": "xy", "r2": "xz", "r3": "xzw"}
    division = divide(labels_of(shown), shown)
    learnt = {c for name in division.of(TRAINING) for c in shown[name]}
    assert learnt == set("xyzw") and division.of(TESTING) in (["r0"], ["r2"])
    shown = {f"r{n}": "xyz"[n % 3] for n in range(12)}
    assert {shown[name] for name in divide(labels_of(shown), shown).of(TESTING)} == set("xyz")


def test_many_recordings_spare_some_to_choose_with():
    shown = {f"r{n:02}": "xy" for n in range(24)}
    division = divide(labels_of(shown), shown)
    assert [len(division.of(subset)) for subset in (TRAINING, VALIDATION, TESTING)] == [15, 3, 6]


@pytest.mark.parametrize(
    ("labels", "present", "seen"),
    [
        (labels_of({"seq1_clip1": "x", "seq1_clip2": "x"}), None, ()),  # one recording
        (labels_of({"a": "x", "b": "y"}), None, ()),  # each the only one of an action
        (of("abc"), "z", ()),  # no label is of a video
        (of("abc", subset=TESTING, c=TRAINING), "ab", ()),  # for testing alone
        (labels_of(RECORDINGS), None, RECORDINGS),  # all seen by networks
        (labels_of(RECORDINGS, r1=TESTING), None, ["r1"]),
    ],
)
def test_what_cannot_be_divided_is_refused(labels, present, seen):
    with pytest.raises(LabelsError) as caught:
        divide(labels, present or labels.videos, seen)
    assert caught.value.hint


def test_videos_without_labels_have_no_part():
    assert set(divide(of("abc"), ["a", "b", "z"]).labels.videos) == {"a", "b"}
    parts = {"only_clip1": "x", "only_clip2": "x", "only 3": ""}
    assert divide(labels_of(parts), parts).of(TESTING)


def test_what_networks_have_seen_is_not_held_out():
    seen = ["r1", "r2", "r3", "r4", "r5"]
    for n_folds in (0, 3):
        division = divide(labels_of(RECORDINGS), RECORDINGS, seen, n_folds)
        assert division.folds == 0 and len(division.of(TESTING)) == 2 and not set(seen) & set(division.of(TESTING))


def test_folds_are_whole_recordings():
    ids = [f"seq{n}_clip{k}" for n in range(4) for k in range(2)]
    folds = folds_of(ids, 3, {})
    assert len(folds) == 3 and sorted(sum(folds, [])) == ids
    for fold in folds:
        assert not recordings(set(ids) - set(fold)) & recordings(fold)
    assert folds_of(["seq1_clip1", "seq1_clip2"], 3, {}) == []
    two = {name: classes for name, classes in CLIPS.items() if name < "seq2"}
    assert divide(labels_of(two), two, n_folds=3).folds == 2
    lonely = labels_of({"a": "x", "b": "", "c": ""}, b=TESTING)
    assert divide(lonely, lonely.videos, n_folds=2).folds == 0, "one fold would have all actions"


def test_copies_of_a_file_are_never_apart():
    """They share a fold and are held out together, as clips of one recording; named subsets must agree about them."""
    contents = {"a": "1", "copy": "1", "b": "2", "c": "3", "other": "3"}
    labels = of(["a", "b", "c", "copy", "other", "z"])
    folds = divide(labels, labels.videos, n_folds=3, contents=contents).folds_of(list(labels.videos))
    assert sorted(map(sorted, folds)) == [["a", "copy", "z"], ["b"], ["c", "other"]]
    for seen in ((), "c"):
        held = {*divide(labels, labels.videos, seen, contents=contents).of(TESTING)}
        assert all(len(held & pair) != 1 for pair in ({"a", "copy"}, {"c", "other"})) and not held & {*seen}
    with pytest.raises(LabelsError, match="copy"):
        divide(of(["a", "b", "copy"], copy=TESTING), ["a", "b", "copy"], n_folds=3, contents=contents)
    two = of(["a", "copy"])
    assert divide(two, two.videos, "a", contents={}).of(TESTING) == ["copy"]
    with pytest.raises(LabelsError, match="one recording"):
        divide(two, two.videos, n_folds=3, contents=contents)
