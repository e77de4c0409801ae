"""Times of chunks: exact at any rate, however long a source is."""

from fractions import Fraction

import numpy as np
import pytest

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import VideoLabels, segments_of, targets
from lstr.labels.segment import Segment
from lstr.timeline import Thresholds, Timeline

NTSC = Fraction(30000, 1001)
RATES = [Fraction(4), Fraction(5), Fraction(15, 2), Fraction(24), Fraction(30), NTSC]
CLASSES = ("Background", "wave")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("offset", [Fraction(0), Fraction(2, 5)])
def test_no_rounding_error_accumulates_in_two_hours(rate, offset):
    clock = Clock(rate, offset)
    chunks = np.arange(0, int(7200 * rate), max(1, int(7200 * rate) // 2000))
    times = clock.at(chunks.astype(np.float64))
    exact = [float(k / rate + offset) for k in map(int, chunks)]
    assert [clock.at(int(k)) for k in chunks] == exact == times.tolist()
    assert all(clock.first(t) == clock.end(t) == clock.nearest(t) == k for k, t in zip(chunks, times, strict=True))


def test_times_and_lengths_in_chunks():
    clock = Clock(Fraction(15, 2))
    assert (clock.first(1.3), clock.end(1.3)) == (9, 10)
    assert Clock(Fraction(15, 2), Fraction(2, 5)).first(0.1) == -3, "three chunks before the first"
    assert (CLOCK.first(0.1 + 0.2), CLOCK.end(0.75)) == (1, 3)
    assert (clock.whole_chunks(1.0), clock.chunks_for(1.0), clock.chunks_for(2.0)) == (7, 8, 15)
    rules = Thresholds(min_length=1.0, merge_gap=1.0)
    assert (rules.min_chunks(clock), rules.delays(clock)) == (8, {"started": 7 / 7.5, "ended": 7 / 7.5})


def test_scores_ahead_reach_two_seconds_at_any_rate():
    clock, ahead = Clock(Fraction(15, 2)), np.tile([0.9, 0.1], (20, 1))
    for row, expected in ((15, []), (14, [float(Fraction(24) / Fraction(15, 2))])):
        ahead[row] = 0.1, 0.9
        events = Timeline(CLASSES, Thresholds(), clock).push(clock.at(10), np.array([0.9, 0.1]), ahead)
        assert [(e.event, e.start, e.score) for e in events] == [("expected", start, 0.9) for start in expected]


@pytest.mark.parametrize("rate", RATES)
def test_targets_survive_a_round_trip_through_segments(rate):
    clock, classes = Clock(rate, Fraction(1, 5)), ("Background", "A", "B", "Ambiguous")
    on = np.random.default_rng(3).random((400, 4)) < 0.3
    on[:, 0] = ~on[:, 1:].any(axis=1)
    labels = VideoLabels("training", None, segments_of(on, classes, clock))
    assert np.array_equal(targets(labels, classes, 400, clock), on)


def test_a_label_before_the_first_chunk_is_truncated():
    labels = VideoLabels("training", None, (Segment(0.0, 1.0, "wave"), Segment(0.0, 0.3, "wave")))
    on = targets(labels, CLASSES, 10, Clock(Fraction(15, 2), Fraction(2, 5)))[:, 1]
    assert on.tolist() == [1] * 5 + [0] * 5


def test_a_clock_survives_json_and_an_invalid_rate_is_refused():
    for clock in (CLOCK, Clock(NTSC, Fraction(2, 5))):
        assert Clock.from_dict(clock.to_dict()) == clock
    for rate in ("0", "1e99", 4, "4/0", "1001"):
        with pytest.raises(ValueError, match=str(rate)):
            Clock.from_dict({"rate": rate})
