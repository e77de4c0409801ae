"""The order in which proposals are looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.pipelines.labelling.orders import ORDERS, Placed, at_random, densest, in_time, least_sure
from lstr.pipelines.labelling.values import Proposal


def placed(video: str, start: float, peak: float = 0.5, threshold: float = 0.5) -> Placed:
    return Placed(video, f"{video} {start:g}", Proposal("kick", start, start + 1, peak, threshold, "m"))


def keys(order) -> list[str]:
    return [one.key for one in order]


def test_the_least_sure_has_its_peak_nearest_to_its_own_threshold():
    some = [placed("a", 1, 0.9, 0.5), placed("a", 2, 0.3, 0.32), placed("b", 3, 0.55, 0.5), placed("b", 4, 0.1, 0.5)]
    assert keys(least_sure(some)) == ["a 2", "b 3", "a 1", "b 4"]


def test_the_densest_counts_by_minute_of_video():
    some = [placed("a", start) for start in (5, 70, 80, 90)] + [placed("short", 3), placed("unknown", 1)]
    order = densest(some, {"a": 120.0, "short": 10.0})
    assert keys(order) == ["unknown 1", "short 3", "a 70", "a 80", "a 90", "a 5"], "one in 10 s is six a minute"
    assert densest([], {}) == []


def test_chance_is_the_same_for_the_same_seed_and_stays_when_others_come():
    some = [placed("a", start) for start in range(40)]
    order = keys(at_random(some, 3))
    assert order == keys(at_random(some[::-1], 3)) != keys(at_random(some, 4)) and order != keys(some)
    assert keys(at_random(some[:20], 3)) == [key for key in order if key in keys(some[:20])]


def test_in_time_goes_through_one_video_after_the_other():
    assert keys(in_time([placed("b", 1), placed("a", 9), placed("a", 2)])) == ["a 2", "a 9", "b 1"]


@pytest.mark.parametrize("name", ORDERS)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 300), st.floats(0, 1)), max_size=30), st.randoms())
def test_an_order_has_each_once_however_they_came(name, drawn, chance):
    some = [Placed(v, str(at), Proposal("x", s, s + 1, p, 0.5, "m")) for at, (v, s, p) in enumerate(drawn)]
    order = ORDERS[name](some, {"a": 200.0})
    assert sorted(order, key=lambda one: one.key) == sorted(some, key=lambda one: one.key)
    chance.shuffle(some)
    assert ORDERS[name](some, {"a": 200.0}) == order
