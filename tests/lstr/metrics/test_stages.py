"""Tenths of an action by hand, and where the published convention differs."""

import numpy as np
import pytest

from lstr.metrics.per_frame import per_stage, published_per_stage

CLASSES = ("Background", "A", "B", "Ambiguous")


def targets(*on, ambiguous=()):
    """One video's targets (L, 4) from A's chunks."""
    made = np.zeros((len(on), 4), dtype=int)
    made[:, 1] = on
    made[list(ambiguous), 3] = 1
    made[:, 0] = ~made.any(axis=1)
    return made


def falling(length, column=1):
    scores = np.zeros((length, 4))
    scores[:, column] = np.linspace(1, 0.1, length)
    return scores


def test_each_chunk_of_an_action_is_in_one_tenth():
    on = targets(*[0] * 5, *[1] * 20, *[0] * 5, *[1] * 3)
    rows = per_stage([falling(33)], [on], CLASSES)
    assert [row["stage"] for row in rows][::9] == ["0-10%", "90-100%"]
    support = [row["per_class"]["A"]["positives"] for row in rows]
    assert sum(support) == 23
    assert support == [2, 3, 2, 2, 2, 3, 2, 2, 3, 2]  # the middles of 3 chunks are at 1/6, 1/2 and 5/6


def test_the_precision_of_a_tenth_by_hand():
    """Chunks 0 to 9 are on, 10 to 19 off, and of those two score above the last chunk of the action."""
    on = targets(*[1] * 10, *[0] * 10)
    scores = np.zeros((20, 4))
    scores[:10, 1] = np.linspace(0.9, 0.5, 10)
    scores[10:12, 1] = 0.6
    rows = per_stage([scores], [on], CLASSES)
    assert rows[0]["mAP"] == rows[0]["mcAP"] == 1.0
    assert rows[9]["mAP"] == pytest.approx(1 / 3)
    assert rows[9]["mcAP"] == pytest.approx(1 / (1 + 2 / 10))  # ten negatives to one positive


def test_runs_end_with_their_video():
    """Published, the two actions are one of 20 chunks; each is of 10."""
    first, second = targets(*[0] * 10, *[1] * 10), targets(*[1] * 10, *[0] * 10)
    scores = np.random.default_rng(0).random((40, 4))
    rows = per_stage([scores[:20], scores[20:]], [first, second], CLASSES)
    assert [row["per_class"]["A"]["positives"] for row in rows] == [2] * 10
    joined = published_per_stage(scores, np.concatenate([first, second]), CLASSES)
    assert [row["per_class"]["A"]["positives"] for row in joined] == [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]  # the last is lost


def test_ambiguous_chunks_are_left_out_and_published_runs_join_across_them():
    on = targets(*[1] * 10, *[0] * 5, *[1] * 10, *[0] * 10, ambiguous=range(10, 15))
    scores = np.random.default_rng(0).random((35, 4))
    rows = published_per_stage(scores, on, CLASSES)
    keep = np.r_[0:10, 15:35]
    assert rows == published_per_stage(scores[keep], on[keep], CLASSES)
    assert [row["per_class"]["A"]["positives"] for row in rows] == [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    assert [row["per_class"]["A"]["positives"] for row in per_stage([scores], [on], CLASSES)] == [2] * 10


def test_no_class_gives_nan():
    rows = per_stage([falling(5)], [targets(*[0] * 5)], CLASSES)
    assert len(rows) == 10 and all(np.isnan(row["mAP"]) and row["per_class"] == {} for row in rows)
