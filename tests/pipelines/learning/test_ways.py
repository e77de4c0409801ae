"""Which models a way is made of, and which way is taken; no model that measures a fold has learnt from it."""

import pytest

from lstr.pipelines.learning.pace import affordable
from lstr.pipelines.learning.ways import (
    AS_GOOD,
    Candidate,
    Run,
    best_of,
    candidates_of,
    measured_runs,
    share_of,
    ways_of,
)

A, B, C = (Candidate(name, "small") for name in "abc")


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_what_measures_a_fold_lacks_it_and_what_is_packed_has_learnt_from_all(n_folds):
    folds = range(1, n_folds + 1)
    for way in ways_of([A, B, C], n_folds):
        for fold in folds:
            runs = way.runs(frozenset({fold}), folds)
            assert runs and all(fold in run.held and len(run.held) < n_folds for run in runs)
        packed = way.runs(frozenset(), folds)
        for other in folds:
            assert any(other not in run.held for run in packed)


def test_an_average_over_folds_is_measured_by_models_that_lack_two():
    ways = [way for way in ways_of([A, B], 3) if way.candidates == (A,)]
    assert [way.name for way in ways] == ["a", "a, average over folds"] and len(ways_of([A], 3)) == 1
    assert ways[1].runs(frozenset({1}), [1, 2, 3]) == [Run("a", (1, 2)), Run("a", (1, 3))]
    assert [run.name for run in ways[1].runs(frozenset(), [1, 2, 3])] == ["without_1", "without_2", "without_3"]
    assert len(measured_runs(ways, [1, 2, 3])) == 6 and len(measured_runs(ways_of([A], 2), [1, 2])) == 2
    assert share_of(Run("a", (1, 3)), 3) == pytest.approx(1 / 3) and share_of(Run("a", ()), 3) == 1


def test_several_are_averaged_in_pairs_and_all_together():
    names = [way.name for way in ways_of([A, B, C], 2)]
    assert names == [
        "a",
        "b",
        "c",
        *(f"average of {some}" for some in ("a and b", "a and c", "b and c", "a and b and c")),
    ]


def test_the_simplest_is_taken_unless_another_is_better_by_more_than_chance_gives():
    assert best_of({"a": 0.5, "b": 0.5 + AS_GOOD / 2, "c": 0.4}) == "a"
    assert best_of({"a": 0.5, "b": 0.6, "c": 0.6 + AS_GOOD / 2}) == "b"


def test_a_model_that_the_settings_name_is_the_only_one():
    assert {one.preset for one in candidates_of({"model.kind": "lstr"}, 1000)} == {"lstr-small"}
    assert [one.preset for one in candidates_of({"train.seed": "1"}, 1000)] == ["small", "small", "trn-small"]


def test_only_what_the_time_allows_is_tried():
    candidates = candidates_of({}, 1000)
    seconds = {"small": 4.0, "small-seen": 4.0, "trn": 40.0}
    for budget, networks, n in (
        (None, 1.0, 2),
        (None, 1000.0, 3),
        (2000.0, 1.0, 3),
        (300.0, 1000.0, 2),
        (60.0, 1.0, 1),
    ):
        assert len(affordable(candidates, seconds, 3, budget, networks)) == n


def test_what_is_trained_on_seen_features_is_no_average_over_folds():
    """For no networks lack two folds."""
    plain, seen, _ = candidates_of({}, 1000)
    assert (plain.seen, seen.seen) == (False, True)
    assert [way.name for way in ways_of([plain, seen], 3) if way.by_folds] == ["small, average over folds"]
