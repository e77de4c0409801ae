"""What a count leaves open about a rate."""

import pytest
from scipy.stats import poisson

from lstr.metrics.rates import interval_text, rate_interval


@pytest.mark.parametrize("count", [1, 2, 10, 130])
@pytest.mark.parametrize("hours", [0.5, 3.0])
def test_each_edge_leaves_a_fortieth_of_the_counts_beyond(count, hours):
    low, high = rate_interval(count, hours)
    assert poisson.sf(count - 1, low * hours) == pytest.approx(0.025)
    assert poisson.cdf(count, high * hours) == pytest.approx(0.025)
    assert low < count / hours < high


def test_none_counted_is_a_bound_and_not_nothing():
    low, high = rate_interval(0, 15 / 3600)
    assert low == 0 and poisson.pmf(0, high * 15 / 3600) == pytest.approx(0.05)
    assert interval_text([low, high]) == "below 720"
    assert rate_interval(0, 0) is None


def test_an_interval_is_told_with_two_figures():
    assert interval_text([139.2, 533.9]) == "140 to 530"
    assert interval_text([0.0253, 5.57]) == "0.025 to 5.6"
    assert interval_text([0.0, 3.0]) == "below 3.0"
