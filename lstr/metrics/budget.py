"""Where the time goes: how often and how long each action happens, and which follows which."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import AMBIGUOUS
from lstr.labels.segment import Segment
from lstr.metrics.actions import SLACK, Spans, are_inside, covered, labelled_spans

PAUSE = 1 / FEATURES_PER_SECOND
"""Seconds without any action from which on there is a pause: less is what is left between two labels"""

NOWHERE: Spans = np.zeros((0, 2))
Entry = dict[str, Any]


def unobserved(segments: Sequence[Segment], seconds: float) -> Spans:
    """Where a video of that length is labelled ambiguous and nothing else: nobody knows what happens there.

    Spans (N, 2) in seconds, of which none overlaps another.
    """
    spans = {label: labelled_spans(segments, label, seconds) for label in {s.label for s in segments}}
    ambiguous = spans.pop(AMBIGUOUS, NOWHERE)
    known = np.concatenate([NOWHERE, *spans.values()])
    edges = np.unique(np.concatenate([ambiguous, known]))
    middles = (edges[1:] + edges[:-1]) / 2
    return np.stack([edges[:-1], edges[1:]], axis=1)[are_inside(ambiguous, middles) & ~are_inside(known, middles)]


def time_budget(
    spans: Sequence[Spans],
    seconds: Sequence[float],
    start: float = 0.0,
    end: float = np.inf,
    gaps: Sequence[Spans] | None = None,
) -> Entry:
    """How often, how long and how soon something happens in videos, from `start` to `end` (s) of each, in JSON's types.

    spans: starts and ends (N, 2) in each video, which may overlap; who asks says of what: an action, or an action of
    one subject. seconds: how long each video is. gaps: where nobody watched it, as of `unobserved`.

    `observed`: seconds watched. `count`: events that begin in them. `seconds`: of all events, as far as they lie in
    them; `share`: the part of `observed` in which at least one is on. `mean` and `median`: seconds of the events that
    begin in them, each as a whole. `per_minute`: events that begin, a minute. `latency`: seconds watched before
    the first that begins, the median of the `videos` that have one. None where there is nothing to divide by.
    """
    observed, inside, share, lengths, firsts = 0.0, 0.0, 0.0, [np.zeros(0)], []
    for of_video, length, unknown in zip(spans, seconds, gaps or [NOWHERE] * len(spans), strict=True):
        until = min(end, length)
        if until <= start:
            continue
        watched = until - start - _seconds(unknown, start, until)
        observed += watched if watched > SLACK else 0.0
        begins = (of_video[:, 0] >= start) & (of_video[:, 0] < until)
        cut = np.clip(of_video, start, until)
        inside += float((cut[:, 1] - cut[:, 0]).sum())
        share += covered(cut)
        lengths.append(of_video[begins, 1] - of_video[begins, 0])
        if begins.any():
            first = float(of_video[begins, 0].min())
            firsts.append(first - start - _seconds(unknown, start, first))
    each = np.concatenate(lengths)
    return {
        "observed": observed,
        "count": len(each),
        "seconds": inside,
        "mean": float(each.mean()) if len(each) else None,
        "median": float(np.median(each)) if len(each) else None,
        "share": share / observed if observed else None,
        "latency": float(np.median(firsts)) if firsts else None,
        "per_minute": 60 * len(each) / observed if observed else None,
        "videos": len(firsts),
    }


def transitions(
    videos: Sequence[Sequence[Segment]],
    actions: Sequence[str],
    pauses: bool = False,
    least: float = PAUSE,
    gaps: Sequence[Spans] | None = None,
) -> NDArray[np.int64]:
    """How often each action (row) is followed by each (column), counts (A, A); with `pauses` (A + 1, A + 1).

    The next action is the one that begins next in its video, though the one before may still be on. With `pauses` more
    than `least` seconds in which none is on are a state too, the last, which follows what ended last; the time before
    the first action and after the last one is no pause. What begins at one moment is taken in the order of its end,
    then of `actions`. gaps: where nobody watched a video, as of `unobserved`; what follows across more than `least`
    seconds of that is not known, and counts as nothing.
    """
    place = {label: at for at, label in enumerate(actions)}
    size = len(actions) + pauses
    counts = np.zeros((size, size), dtype=np.int64)
    for segments, unknown in zip(videos, gaps or [NOWHERE] * len(videos), strict=True):
        told = sorted((s for s in segments if s.label in place), key=lambda s: (s.start, s.end, place[s.label]))
        longest = None
        for before, after in pairwise(told):
            longest = before if longest is None or before.end >= longest.end else longest
            pause = max(0.0, after.start - longest.end)
            unwatched = _seconds(unknown, longest.end, longest.end + pause)
            if unwatched > least + SLACK:
                continue
            if pauses and pause - unwatched > least + SLACK:
                counts[place[longest.label], -1] += 1
                counts[-1, place[after.label]] += 1
            else:
                counts[place[before.label], place[after.label]] += 1
    return counts


def _seconds(spans: Spans, start: float, end: float) -> float:
    """Seconds of spans that do not overlap, from `start` to `end`."""
    cut = np.clip(spans, start, end)
    return float((cut[:, 1] - cut[:, 0]).sum())


def probabilities(counts: NDArray[np.int64]) -> list[list[float | None]]:
    """What follows each state, as shares of what does (A, A); None in the row of one that nothing follows."""
    sums = counts.sum(axis=1)
    return [[int(n) / int(total) if total else None for n in row] for row, total in zip(counts, sums, strict=True)]


def of_states(states: Sequence[str], counts: NDArray[np.int64]) -> Mapping[str, Any]:
    """Counts and probabilities of what follows what, in JSON's types."""
    return {"states": list(states), "counts": counts.tolist(), "probabilities": probabilities(counts)}
