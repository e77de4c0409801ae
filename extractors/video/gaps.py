"""Chunks of a source that are not decided."""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Gap:
    """Chunks from `first` to before `end` that are not decided: `dropped`, or `unseen`: they never came."""

    first: int
    end: int
    reason: str


def joined(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps in order, neighbours of one reason as one."""
    found: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.first):
        if found and found[-1].end == gap.first and found[-1].reason == gap.reason:
            gap = replace(gap, first=found.pop().first)
        found.append(gap)
    return found
