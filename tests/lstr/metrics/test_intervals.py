"""Resamples of videos: what they equal, and what they say of videos that are alike and that are not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from lstr.metrics.intervals import draw, interval, interval_text, rate_interval
from lstr.metrics.per_frame import per_frame, resampled_means

CLASSES = ("Background", "A", "B", "Ambiguous")


@pytest.mark.parametrize("ignore", ["Ambiguous", None])
def test_a_resample_is_the_metric_of_its_videos(ignore):
    rng = np.random.default_rng(0)
    scores = [rng.random((20 + i, 4)) for i in range(4)]
    targets = [np.eye(4, dtype=int)[rng.choice(4, len(rows), p=[0.5, 0.3, 0.1, 0.1])] for rows in scores]
    draws = draw(4, 10)
    means = {c: resampled_means(scores, targets, CLASSES, draws, c, ignore) for c in (False, True)}
    for i, times in enumerate(draws):
        chosen = np.repeat(np.arange(4), times)
        rows, on = np.concatenate([scores[v] for v in chosen]), np.concatenate([targets[v] for v in chosen])
        expected = per_frame(rows, on, CLASSES, ignore)
        assert (means[False][i], means[True][i]) == pytest.approx((expected["mAP"], expected["mcAP"]))


def test_a_class_that_was_not_drawn_is_in_no_mean():
    """Only the second video has B; a resample without any action has no mean."""
    scores = [np.array([[0, 0.9, 0, 0], [0, 0.1, 0, 0]]), np.array([[0, 0, 0.2, 0], [0, 0, 0.4, 0]]), np.zeros((2, 4))]
    targets = [np.array([[0, 1, 0, 0], [1, 0, 0, 0]]), np.array([[0, 0, 1, 0], [1, 0, 0, 0]]), np.eye(4)[[0, 0]]]
    means = resampled_means(scores, targets, CLASSES, np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]))
    np.testing.assert_allclose(means, [1.0, 0.5, np.nan, 0.75])


def test_draws_are_the_same_for_every_checkpoint():
    assert (draw(7, 50) == draw(7, 50)).all() and draw(7, 0).shape == (0, 7)
    assert (draw(7, 50).sum(axis=1) == 7).all() and len(np.unique(draw(7, 50), axis=0)) > 40


def test_interval():
    assert interval(np.arange(101) / 100) == pytest.approx([0.025, 0.975])
    assert interval(np.array([0.5, np.nan])) == [0.5, 0.5]
    assert np.isnan(interval(np.array([np.nan]))).all()
    for edges, figures in (
        ([139.2, 533.9], ("140", "530")),
        ([0.0253, 5.57], ("0.025", "5.6")),
        ([0.0, 3.0], ("3.0",)),
    ):
        assert all(figure in interval_text(edges) for figure in figures)


@pytest.mark.parametrize("count, hours", [(1, 0.5), (2, 3.0), (130, 0.5)])
def test_each_edge_leaves_a_fortieth_of_the_counts_beyond(count, hours):
    low, high = rate_interval(count, hours)
    assert poisson.sf(count - 1, low * hours) == pytest.approx(0.025)
    assert poisson.cdf(count, high * hours) == pytest.approx(0.025)
    assert low < count / hours < high


def test_none_counted_is_a_bound_and_not_nothing():
    low, high = rate_interval(0, 15 / 3600)
    assert low == 0 and poisson.pmf(0, high * 15 / 3600) == pytest.approx(0.05)
    assert rate_interval(0, 0) is None
