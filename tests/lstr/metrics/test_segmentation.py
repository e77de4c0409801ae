"""Segment F1 and edit score against a second implementation, and special cases."""

import math
from functools import cache
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.metrics.intervals import draw
from lstr.metrics.segmentation import measure_segmentation
from tests.support.drawn import scores_of, targets_of

CLASSES = ("Background", "A", "B", "C", "Ambiguous")
LETTERS = ".ABC?"


def measure(*videos, **more):
    scores = [scores_of(detected, letters=LETTERS) for detected, _ in videos]
    return measure_segmentation(scores, [targets_of(on, LETTERS) for _, on in videos], CLASSES, **more)


# The second implementation: sets of frames, one segment after the other, and a recursive edit distance.


def plain_segments(letters: str) -> list[tuple[str, set[int]]]:
    runs = groupby(range(len(letters)), letters.__getitem__)
    return [(letter, set(frames)) for letter, frames in runs if letter != "."]


def plain_f1(videos, least: float) -> float:
    correct = total = 0
    for detected, on in videos:
        ours, theirs = plain_segments(detected), plain_segments(on)
        paired = set()
        for letter, frames in ours:
            ious = [len(frames & other) / len(frames | other) * (letter == label) for label, other in theirs]
            best = max(range(len(ious)), key=lambda t: ious[t], default=None)
            if best is not None and ious[best] >= least:
                paired.add(best)
        correct += len(paired)
        total += len(ours) + len(theirs)
    return 2 * correct / total if total else math.nan


def plain_distance(a: str, b: str) -> int:
    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return distance(len(a), len(b))


pair = st.integers(0, 14).flatmap(lambda n: st.tuples(*[st.text(alphabet=".AABBC", min_size=n, max_size=n)] * 2))


@settings(max_examples=60)
@given(st.lists(pair, min_size=1, max_size=4))
def test_every_figure_equals_that_of_the_second_implementation(videos):
    result = measure(*videos)
    for place, least in enumerate((0.1, 0.25, 0.5)):
        assert result["F1"][place] == pytest.approx(plain_f1(videos, least), nan_ok=True)
        for letter in "ABC":
            of_class = [["".join(c if c == letter else "." for c in text) for text in video] for video in videos]
            expected = plain_f1(of_class, least)
            assert result["per_class"][letter]["F1"][place] == pytest.approx(expected, nan_ok=True)
    orders = [["".join(letter for letter, _ in plain_segments(text)) for text in video] for video in videos]
    scores = [1 - plain_distance(a, b) / max(len(a), len(b)) for a, b in orders if a or b]
    assert result["edit"] == pytest.approx(np.mean(scores) if scores else math.nan, nan_ok=True)


def test_ambiguous_chunks_are_background_on_both_sides():
    result = measure(("AABAA", "AA?AA"))
    assert result["F1"] == [1.0, 1.0, 1.0] and result["edit"] == 1.0


def test_overlapping_labels_are_separate_segments():
    on = targets_of("AAAA", LETTERS)
    on[2:, 2] = 1
    result = measure_segmentation([scores_of("AABB", letters=LETTERS)], [on], CLASSES)
    assert result["per_class"]["A"]["labels"] == result["per_class"]["B"]["labels"] == 1
    assert result["F1"] == [1.0, 1.0, 1.0] and result["edit"] == 1.0


def test_videos_without_actions():
    result = measure(("....", "...."), ("", ""), draws=draw(2, 5))
    assert all(map(math.isnan, [*result["F1"], result["edit"], *result["interval"]["edit"]]))
    assert measure()["per_class"]["A"]["labels"] == 0
