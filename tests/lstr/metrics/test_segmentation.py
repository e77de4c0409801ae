"""Segment F1 and edit score beside a second implementation, frame by frame, and what is special."""

import math
from functools import cache

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
    scores = [scores_of(said, letters=LETTERS) for said, _ in videos]
    return measure_segmentation(scores, [targets_of(on, LETTERS) for _, on in videos], CLASSES, **more)


# The second implementation: sets of frames, one segment after the other, and a recursive edit distance.


def plain_segments(letters: str) -> list[tuple[str, set[int]]]:
    found: list[tuple[str, set[int]]] = []
    for at, letter in enumerate(letters):
        if at and letters[at - 1] == letter and letter != ".":
            found[-1][1].add(at)
        elif letter != ".":
            found.append((letter, {at}))
    return found


def plain_f1(videos, least: float) -> float:
    right = wrong = missed = 0
    for said, on in videos:
        ours, theirs = plain_segments(said), plain_segments(on)
        taken = set()
        for letter, frames in ours:
            shares = [len(frames & there) / len(frames | there) if one == letter else 0.0 for one, there in theirs]
            best = max(range(len(shares)), key=lambda t: shares[t]) if shares else None
            if best is not None and shares[best] >= least and best not in taken:
                taken.add(best)
            else:
                wrong += 1
        right += len(taken)
        missed += len(theirs) - len(taken)
    whole = 2 * right + wrong + missed
    return 2 * right / whole if whole else math.nan


def plain_distance(a: str, b: str) -> int:
    @cache
    def apart(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(apart(i - 1, j) + 1, apart(i, j - 1) + 1, apart(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return apart(len(a), len(b))


pair = st.integers(0, 14).flatmap(
    lambda n: st.tuples(*(st.text(alphabet=".AABBC", min_size=n, max_size=n) for _ in range(2)))
)


@settings(max_examples=60)
@given(st.lists(pair, min_size=1, max_size=4))
def test_every_figure_is_that_of_the_second_implementation(videos):
    found = measure(*videos)
    for place, least in enumerate((0.1, 0.25, 0.5)):
        assert found["F1"][place] == pytest.approx(plain_f1(videos, least), nan_ok=True)
        for letter in "ABC":
            alone = [["".join(c if c == letter else "." for c in text) for text in video] for video in videos]
            expected = plain_f1(alone, least)
            assert found["per_class"][letter]["F1"][place] == pytest.approx(expected, nan_ok=True)
    orders = [["".join(letter for letter, _ in plain_segments(text)) for text in video] for video in videos]
    scores = [1 - plain_distance(a, b) / max(len(a), len(b)) for a, b in orders if a or b]
    assert found["edit"] == pytest.approx(np.mean(scores) if scores else math.nan, nan_ok=True)


def test_ambiguous_chunks_are_background_on_both_sides():
    found = measure(("AABAA", "AA?AA"))
    assert found["F1"] == [1.0, 1.0, 1.0] and found["edit"] == 1.0


def test_labels_that_overlap_are_all_there():
    on = targets_of("AAAA", LETTERS)
    on[2:, 2] = 1
    found = measure_segmentation([scores_of("AABB", letters=LETTERS)], [on], CLASSES)
    assert found["per_class"]["A"]["labels"] == found["per_class"]["B"]["labels"] == 1
    assert found["F1"] == [1.0, 1.0, 1.0] and found["edit"] == 1.0


def test_nothing_to_measure():
    found = measure(("....", "...."), ("", ""), draws=draw(2, 5))
    assert all(map(math.isnan, [*found["F1"], found["edit"], *found["interval"]["edit"]]))
    assert measure()["per_class"]["A"]["labels"] == 0
    assert measure(("AAAA", "...."))["F1"] == [0.0, 0.0, 0.0]
