"""In which order proposals are worth looking at."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from lstr.pipelines.labelling.values import Proposal

STRETCH = 60.0
"""Seconds of a stretch of video, about, in which proposals are counted."""


class Placed(NamedTuple):
    """A proposal, the id of its video and its own."""

    video: str
    key: str
    proposal: Proposal


def least_sure(proposals: Iterable[Placed]) -> list[Placed]:
    """The order in which those come first whose peak is nearest to their threshold, on whichever side of it."""
    return sorted(proposals, key=lambda placed: (abs(placed.proposal.peak - placed.proposal.threshold), *_time(placed)))


def densest(proposals: Iterable[Placed], durations: Mapping[str, float]) -> list[Placed]:
    """By time, those of the stretches first that have most proposals per minute.

    durations: seconds by video; where one is not known, the video counts as ending with its last proposal. A video is
    cut into equal stretches of about a minute; one shorter than that is one stretch.
    """
    proposals = list(proposals)
    ends = {placed.video: 0.0 for placed in proposals}
    for video, _, proposal in proposals:
        ends[video] = max(ends[video], proposal.end)
    lengths: dict[str, float] = {}
    for video, end in ends.items():
        duration = max(durations.get(video, 0.0), end)
        lengths[video] = duration / max(1, round(duration / STRETCH))

    def stretch(placed: Placed) -> tuple[str, int]:
        return placed.video, int(placed.proposal.start / lengths[placed.video])

    numbers = Counter(map(stretch, proposals))
    return sorted(
        proposals,
        key=lambda placed: (-numbers[stretch(placed)] / lengths[placed.video], *stretch(placed), *_time(placed)),
    )


def at_random(proposals: Iterable[Placed], seed: int = 0) -> list[Placed]:
    """In an order of chance, the same for the same seed; it stays as it is when others come or go."""

    def drawn(placed: Placed) -> bytes:
        return hashlib.blake2b(f"{seed}\n{placed.video}\n{placed.key}".encode()).digest()

    return sorted(proposals, key=drawn)


def in_time(proposals: Iterable[Placed]) -> list[Placed]:
    """Video by video, from beginning to end."""
    return sorted(proposals, key=_time)


def _time(placed: Placed) -> tuple[str, float, float, str]:
    return placed.video, placed.proposal.start, placed.proposal.end, placed.key


ORDERS: dict[str, Callable[[Iterable[Placed], Mapping[str, float]], list[Placed]]] = {
    "least sure": lambda proposals, durations: least_sure(proposals),
    "densest": densest,
    "random": lambda proposals, durations: at_random(proposals),
    "in time": lambda proposals, durations: in_time(proposals),
}
"""By their names on the page, the first one unless another is chosen: proposals and seconds by video to the order."""
