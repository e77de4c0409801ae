"""Average precision of ranked predictions and of resamples, beside a plain count of copied videos."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.metrics.bootstrap import draw
from lstr.metrics.ranked import joined, match_by_score

tenths = st.integers(0, 10).map(lambda k: k / 10)
prediction = st.tuples(tenths, st.sampled_from(["right", "wrong", "neither"]))
of_video = st.tuples(st.lists(prediction, max_size=6), st.integers(0, 3))


def ranked(videos):
    """Predictions and truths of videos; a video has at least as many truths as right predictions."""
    parts, truths = [], []
    for predictions, more in videos:
        scores = np.array([score for score, _ in predictions])
        right, wrong = (np.array([[kind == word] for _, kind in predictions], bool) for word in ("right", "wrong"))
        parts.append((scores, right.reshape(-1, 1), wrong.reshape(-1, 1)))
        truths.append(int(right.sum()) + more)
    return joined(parts, truths, 1)


def plain(videos, interpolated: bool) -> float:
    """AP by lists: the precision at each score that a right one has, times the recall that it adds."""
    every = [one for predictions, _ in videos for one in predictions]
    total = sum(more + sum(kind == "right" for _, kind in predictions) for predictions, more in videos)
    if not total:
        return float("nan")
    points = []
    for level in sorted({score for score, _ in every}, reverse=True):
        above = [kind for score, kind in every if score >= level and kind != "neither"]
        points.append((above.count("right"), above.count("right") / len(above) if above else 0.0))
    gained, before = 0.0, 0
    for at, (right, precision) in enumerate(points):
        best = max(p for _, p in points[at:]) if interpolated else precision
        gained += (right - before) * best
        before = right
    return gained / total


@given(st.lists(of_video, min_size=1, max_size=4), st.booleans())
def test_average_precision_and_its_resamples_are_those_of_copied_videos(videos, interpolated):
    draws = draw(len(videos), 5)
    found = ranked(videos)
    once = found.average_precisions(interpolated=interpolated)
    assert once[0, 0] == pytest.approx(plain(videos, interpolated), nan_ok=True)
    resampled = found.average_precisions(draws, interpolated)[:, 0]
    copies = [[video for video, times in zip(videos, row, strict=True) for _ in range(times)] for row in draws]
    assert resampled == pytest.approx([plain(some, interpolated) for some in copies], nan_ok=True)
    backwards = ranked(videos[::-1]).average_precisions(interpolated=interpolated)
    assert backwards == pytest.approx(once, nan_ok=True)


def test_the_best_free_truth_is_taken_and_equal_scores_go_by_their_order():
    worth = np.array([[0.9, 0.5], [0.8, 0.6], [0.4, 0.7]])
    assert match_by_score(worth, np.array([0.5, 0.7, 0.5]), (0.3, 0.55)).tolist() == [[1, -1], [0, 0], [-1, 1]]
    assert match_by_score(np.zeros((2, 0)), np.ones(2), (0.3,)).tolist() == [[-1], [-1]]
    assert match_by_score(np.zeros((0, 2)), np.ones(0), (0.3,)).shape == (0, 1)


def test_many_resamples_are_computed_in_parts(monkeypatch):
    videos = [([(0.9, "right"), (0.4, "wrong")], 1), ([(0.8, "wrong"), (0.3, "right")], 0)]
    whole = ranked(videos).average_precisions(draw(2, 50))
    monkeypatch.setattr("lstr.metrics.ranked.CELLS_TOGETHER", 10)
    assert np.array_equal(ranked(videos).average_precisions(draw(2, 50)), whole, equal_nan=True)
