"""Division of videos into subsets and folds of whole recordings."""

import pytest

from lstr.errors import LabelsError
from lstr.labels.label_set import Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION, Division, divide

CLIPS = {f"seq{n}_clip{k}": "xy" for n in range(8) for k in range(3)}
RECORDINGS = {f"r{n}": "xy" for n in range(8)}


def labels_of(classes_of: dict[str, str], subset: str = TRAINING, **subsets: str) -> Labels:
    """Label videos with the classes that the letters name."""
    videos = {
        name: VideoLabels(subsets.get(name, subset), 10.0, tuple(Segment(k, k + 1, c) for k, c in enumerate(classes)))
        for name, classes in classes_of.items()
    }
    return Labels(("Background", *sorted({c for classes in classes_of.values() for c in classes})), videos)


def of(names, subset: str = TRAINING, **subsets: str) -> Labels:
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
def test_subsets_of_the_labels_are_used(labels, n_folds, training, validation, testing):
    """With folds, all videos but those for testing are for training."""
    division = divide(labels, labels.videos, n_folds=n_folds)
    subsets = ["".join(division.of(subset)) for subset in (TRAINING, VALIDATION, TESTING)]
    assert subsets == [training, validation, testing]


def test_a_subset_of_another_name_is_used_only_without_a_training_subset():
    labels = of("abcd", d="holdout")
    for n_folds in (0, 3):
        assert {*divide(labels, labels.videos, n_folds=n_folds).labels.videos} == {*"abc"}
    labels = of("ab", subset="first set")
    assert {*divide(labels, labels.videos).labels.videos} == {*"ab"}


def test_testing_videos_are_whole_recordings():
    division = divide(labels_of(CLIPS), CLIPS)
    testing = division.of(TESTING)
    assert len(recordings(testing)) == 2 and len(testing) == 6 and "2 of 8" in division.sentence
    assert not recordings(testing) & recordings(division.of(TRAINING))
    assert division == divide(labels_of(CLIPS), CLIPS)


def test_each_action_is_trained_on_and_most_are_tested():
    classes_of = {"r0": "x", "r1": "xy", "r2": "xz", "r3": "xzw"}
    division = divide(labels_of(classes_of), classes_of)
    assert {c for name in division.of(TRAINING) for c in classes_of[name]} == set("xyzw")
    assert division.of(TESTING) in (["r0"], ["r2"])
    classes_of = {f"r{n}": "xyz"[n % 3] for n in range(12)}
    assert {classes_of[name] for name in divide(labels_of(classes_of), classes_of).of(TESTING)} == set("xyz")


def test_many_recordings_include_validation():
    division = divide(labels_of({f"r{n:02}": "xy" for n in range(24)}), [f"r{n:02}" for n in range(24)])
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
def test_videos_that_cannot_be_divided_are_refused(labels, present, seen):
    with pytest.raises(LabelsError):
        divide(labels, present or labels.videos, seen)


def test_videos_without_labels_are_ignored():
    assert set(divide(of("abc"), ["a", "b", "z"]).labels.videos) == {"a", "b"}
    parts = {"only_clip1": "x", "only_clip2": "x", "only 3": ""}
    assert divide(labels_of(parts), parts).of(TESTING)


def test_videos_of_the_initial_networks_are_not_for_testing():
    seen = ["r1", "r2", "r3", "r4", "r5"]
    for n_folds in (0, 3):
        division = divide(labels_of(RECORDINGS), RECORDINGS, seen, n_folds)
        assert division.folds == 0 and len(division.of(TESTING)) == 2 and not set(seen) & set(division.of(TESTING))


def test_folds_are_whole_recordings():
    ids = [f"seq{n}_clip{k}" for n in range(4) for k in range(2)]
    folds = Division(of(ids), "").folds_of(ids, 3)
    assert len(folds) == 3 and sorted(sum(folds, [])) == ids
    for fold in folds:
        assert not recordings(set(ids) - set(fold)) & recordings(fold)
    assert Division(of([]), "").folds_of(["seq1_clip1", "seq1_clip2"], 3) == []
    two = {name: classes for name, classes in CLIPS.items() if name < "seq2"}
    assert divide(labels_of(two), two, n_folds=3).folds == 2
    labels = labels_of({"a": "x", "b": "", "c": ""}, b=TESTING)
    assert divide(labels, labels.videos, n_folds=2).folds == 0, "one fold would have all actions"


def test_copies_of_a_file_share_subset_and_fold():
    """As clips of one recording are; if the labels name two subsets for them, they are refused."""
    contents = {"a": "1", "copy": "1", "b": "2", "c": "3", "other": "3"}
    labels = of(["a", "b", "c", "copy", "other", "z"])
    folds = divide(labels, labels.videos, n_folds=3, contents=contents).folds_of(list(labels.videos))
    assert sorted(map(sorted, folds)) == [["a", "copy", "z"], ["b"], ["c", "other"]]
    for seen in ((), "c"):
        testing = {*divide(labels, labels.videos, seen, contents=contents).of(TESTING)}
        assert all(len(testing & pair) != 1 for pair in ({"a", "copy"}, {"c", "other"})) and not testing & {*seen}
    with pytest.raises(LabelsError, match="copy"):
        divide(of(["a", "b", "copy"], copy=TESTING), ["a", "b", "copy"], n_folds=3, contents=contents)
    two = of(["a", "copy"])
    assert divide(two, two.videos, "a", contents={}).of(TESTING) == ["copy"]
    with pytest.raises(LabelsError, match="one recording"):
        divide(two, two.videos, n_folds=3, contents=contents)
