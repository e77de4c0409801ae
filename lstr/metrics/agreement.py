"""How far two observers of the same videos agree, or a model and a person: Cohen's kappa by chunk."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents, is_ambiguous, spans_of
from lstr.metrics.event_errors import belong_together


def measure_kappa(videos: Sequence[VideoEvents], classes: Sequence[str]) -> dict[str, Any]:
    """Compute Cohen's kappa over all chunks of all videos: {"chunks", "together", "per_class": {label: kappa}}.

    Of a class each chunk is active or not. Together, the answer of an observer is the set of actions that are active
    in a chunk, which may be empty. Chunks that either side labels ambiguous are skipped. A kappa is None where both
    sides give one same answer throughout, and without any chunk.
    """
    actions = tuple(label for label in classes if label not in (BACKGROUND, AMBIGUOUS))
    pairs = [_active(video, actions) for video in videos]
    nothing = np.zeros((0, len(actions)), bool)
    one, other = (np.concatenate([nothing, *(pair[side] for pair in pairs)]) for side in (0, 1))
    per_class = {label: _kappa(one[:, column], other[:, column]) for column, label in enumerate(actions)}
    _, answers = np.unique(np.concatenate([one, other]), axis=0, return_inverse=True)
    together = _kappa(*np.split(answers.reshape(-1), 2))
    return {"chunks": len(one), "together": together, "per_class": per_class}


def without_ambiguous(video: VideoEvents) -> VideoEvents:
    """Drop the events that the other side cannot have, because at least half of each is ambiguous there.

    An event stays where the other side has one of its action that overlaps it.
    """
    sides = (video.truth, video.detections)
    truth, detections = (_judged(own, others) for own, others in (sides, sides[::-1]))
    return VideoEvents(truth, detections, video.seconds)


def _judged(own: Sequence[Segment], others: Sequence[Segment]) -> list[Segment]:
    """One side's events that can be judged by the other's, and all its segments that are no action."""
    spans = np.array([(s.start, s.end) for s in own], dtype=np.float64).reshape(-1, 2)
    excused = is_ambiguous(spans, spans_of(others, AMBIGUOUS))
    return [
        segment
        for segment, span, is_excused in zip(own, spans, excused, strict=True)
        if not is_excused
        or segment.label in (BACKGROUND, AMBIGUOUS)
        or belong_together(span[None], spans_of(others, segment.label)).any()
    ]


def _active(video: VideoEvents, actions: tuple[str, ...]) -> list[NDArray[np.bool_]]:
    """Which actions are active in which chunk (L, C) on both sides, in the chunks that neither labels ambiguous."""
    classes = (*actions, AMBIGUOUS)
    sides = []
    for segments in (video.truth, video.detections):
        known = VideoLabels("", video.seconds, tuple(s for s in segments if s.label in classes))
        sides.append(targets(known, classes, CLOCK.end(video.seconds)) > 0)
    keep = ~(sides[0][:, -1] | sides[1][:, -1])
    return [side[keep, :-1] for side in sides]


def _kappa(one: NDArray[Any], other: NDArray[Any]) -> float | None:
    """Return Cohen's kappa of the answers (L,) of two observers."""
    if not len(one):
        return None
    observed = float(np.mean(one == other))
    expected = sum(float(np.mean(one == answer) * np.mean(other == answer)) for answer in np.unique(one))
    return None if (one[0] == one).all() and (one[0] == other).all() else (observed - expected) / (1 - expected)
