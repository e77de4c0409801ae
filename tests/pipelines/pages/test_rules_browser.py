"""Thresholds and verdicts as the page's script decides them, against Python's, in a real headless Chromium."""

import base64
from dataclasses import asdict
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from lstr.chunk import CLOCK, Clock
from lstr.pipelines.pages.page import FULL_SCALE, NO_SCORE, encode_scores
from lstr.timeline import Thresholds, Timeline, changed, segments_in

RULES = [
    Thresholds(),
    Thresholds(0.6, 0.2, min_length=0.75, merge_gap=0.5),
    Thresholds(0.37, 0.37, min_length=0.3, merge_gap=1.0),
    Thresholds(0.8, 0.0, merge_gap=0.25),
    Thresholds(0.5, 0.49, min_length=2.0),
    Thresholds(0.5, 0.3, min_length=0.5, merge_gap=0.25, backdate=1.1),
]
OTHER_CLOCK = Clock(Fraction(15, 2), Fraction(2, 5))
"""Features at 7.5 a second from 0.4 s on: lengths in seconds are other numbers of chunks."""


def in_python(curve: np.ndarray, rules: Thresholds, clock: Clock = CLOCK) -> list[tuple[float, float, float, float]]:
    """Start, end, announcement and mean score of each segment of a curve; chunks without a score are never pushed."""
    timeline, events = Timeline(("action",), rules, clock), []
    for chunk, score in enumerate(curve):
        if not np.isnan(score):
            events += timeline.push(clock.at(chunk + 1), np.array([score]))
    events += timeline.finish(clock.at(int(np.flatnonzero(~np.isnan(curve))[-1]) + 1))
    announced = [event.time for event in events if event.event == "started"]
    return [(s.start, s.end, time, s.score) for s, time in zip(segments_in(events), announced, strict=True)]


def check_decisions(page) -> None:
    """Random walks, so that runs end, close again and are too short; a tenth of the chunks has no score."""
    rng = np.random.default_rng(0)
    curves = 1 / (1 + np.exp(-np.cumsum(rng.normal(0, 0.8, (400, 12)), 0)))
    curves[rng.random(curves.shape) < 0.1] = np.nan
    codes = np.frombuffer(base64.b64decode("".join(encode_scores(curves))), "<u2").reshape(12, 400)
    for rules, clock in product(RULES, (CLOCK, OTHER_CLOCK)):
        decided = page.evaluate(
            """([curves, rule, fullScale, missing, step, begin]) => curves.map((curve) => backdated([{
              rule, runs: decideRuns(Uint16Array.from(curve), { fullScale, missing, step, begin }, rule),
            }], { step, begin })[0])""",
            [codes.tolist(), asdict(rules), FULL_SCALE, NO_SCORE, clock.seconds, float(clock.offset)],
        )
        for row, segments in zip(codes, decided, strict=True):
            expected = in_python(np.where(row == NO_SCORE, np.nan, row / FULL_SCALE), rules, clock)
            assert len(segments) == len(expected)
            for one, (*times, score) in zip(segments, expected, strict=True):
                assert [one["start"], one["end"], one["announced"]] == pytest.approx(times, abs=1e-9)
                assert one["score"] == pytest.approx(score, abs=5.1e-5)
        assert sum(map(len, decided)) > 10


def check_highest(page, **more) -> None:
    """Two actions that take turns, and background above both, which has no part."""
    rng = np.random.default_rng(0)
    scores = np.column_stack([np.full(400, 0.99), rng.uniform(0, 1, (100, 2)).repeat(4, axis=0)])
    scores[::17] = np.nan
    codes = np.frombuffer(base64.b64decode("".join(encode_scores(scores))), "<u2").reshape(3, 400)
    rules = Thresholds(0.4, 0.2, merge_gap=0.5, highest=True, **more)
    decided = page.evaluate(
        """([codes, rule, fullScale, missing]) => backdated([1, 2].map((index) => ({ rule, runs: decideRuns(
          Uint16Array.from(codes.slice(index * 400, (index + 1) * 400)), { fullScale, missing, step: 0.25 }, rule,
          highestOf(codes, 400, index, [1, 2])) })), { step: 0.25 })""",
        [codes.ravel().tolist(), asdict(rules), FULL_SCALE, NO_SCORE],
    )
    timeline, events = Timeline(("Background", "hug", "kick"), rules), []
    for chunk in np.flatnonzero(codes[0] != NO_SCORE):
        events += timeline.push((chunk + 1) * 0.25, codes[:, chunk] / FULL_SCALE)
    segments = segments_in(events + timeline.finish(100.0))
    for label, of_page in zip(("hug", "kick"), decided, strict=True):
        expected = [(s.start, s.end) for s in segments if s.label == label]
        assert [(s["start"], s["end"]) for s in of_page] == expected and len(expected) > 5


def check_changed_rules(page) -> None:
    """Stored thresholds with those that are tried over them: one of `on` and `off` follows the other."""
    stored = [{}, {"on": 0.7, "off": 0.6}, {"on": 0.2, "off": 0.1, "min_length": 1.0}]
    tried = [{}, {"on": 0.15}, {"off": 0.9}, {"on": 0.9, "off": 0.3}, {"on": None, "off": 0.05, "merge_gap": 0.5}]
    pairs = list(product(stored, tried))
    decided = page.evaluate("(pairs) => pairs.map(([stored, tried]) => changedRules(stored, tried))", pairs)
    assert decided == [asdict(changed(*pair)) for pair in pairs]


def found(label: tuple[float, float], detection: tuple[float, float]) -> bool:
    """Whether a detection can be a label's: by overlap or by onset."""
    both = max(0.0, min(label[1], detection[1]) - max(label[0], detection[0]))
    union = label[1] - label[0] + detection[1] - detection[0] - both
    return both / union >= 0.3 or abs(detection[0] - label[0]) <= 1.0


def draw_spans(rng: np.random.Generator, count: int) -> list[tuple[float, float]]:
    starts = rng.integers(0, 400, count) / 10
    return [(start, start + length / 10) for start, length in zip(starts, rng.integers(1, 60, count), strict=True)]


def check_matching(page) -> None:
    """Greedy choice finds fewer: crowded random spans, against scipy's maximum matching."""
    rng, most, greedy = np.random.default_rng(1), 0, 0
    for _ in range(60):
        labels, detections = draw_spans(rng, 25), draw_spans(rng, 25)
        fits = np.array([[found(label, detection) for detection in detections] for label in labels])
        matched = maximum_bipartite_matching(csr_array(fits), perm_type="column")
        arguments = [[{"label": "a", "start": s, "end": e} for s, e in spans] for spans in (labels, detections)]
        pairs = page.evaluate("([labels, detections]) => judge(labels, detections)", arguments)
        assert len(pairs) == (matched >= 0).sum()
        for one in (0, 1):  # each in at most one pair
            spans = [(pair[one]["start"], pair[one]["end"]) for pair in pairs]
            assert all(spans.count(span) <= (labels, detections)[one].count(span) for span in spans)
        assert all(found(*((side["start"], side["end"]) for side in pair)) for pair in pairs)
        most += len(pairs)
        free = fits.copy()
        for row in free:
            if row.any():
                greedy += 1
                free[:, row.argmax()] = False
    assert most > greedy


def test_the_script_decides_and_judges_as_python_does(show, report):
    page = show(report)
    check_decisions(page)
    for more in ({}, {"backdate": 1.0}, {"backdate": 1.0, "min_length": 0.5}):
        check_highest(page, **more)
    check_changed_rules(page)
    check_matching(page)
