"""Rates of events that are counted, as false alarms an hour, and what a count leaves open about them."""

import math
from collections.abc import Sequence

LEVEL = 0.95


def rate_interval(count: int, hours: float) -> list[float] | None:
    """The rates an hour, [low, high], under which a count in some hours is no surprise: exact for Poisson counts.

    Central (Garwood, 1936): each tail has half of what LEVEL leaves. Of a count of 0 the low edge is 0, and all of
    the rest is above the high one, which is then 3.0 divided by the hours. None without any video.
    """
    if not hours:
        return None
    from scipy.special import gammaincinv

    low = float(gammaincinv(count, (1 - LEVEL) / 2)) if count else 0.0
    high = float(gammaincinv(count + 1, (1 + LEVEL) / 2 if count else LEVEL))
    return [low / hours, high / hours]


def interval_text(edges: Sequence[float]) -> str:
    """The interval of a rate for people, of two figures: `140 to 530`, or `below 720`."""
    low, high = map(_two_figures, edges)
    return f"{low} to {high}" if edges[0] else f"below {high}"


def rate_text(rate: float) -> str:
    """A rate for people: 40, 3.7, 0.0."""
    return f"{rate:.{0 if rate >= 9.95 else 1}f}"


def _two_figures(rate: float) -> str:
    """720, 14, 3.7, 0.025."""
    if not rate:
        return "0"
    digits = 1 - math.floor(math.log10(rate))
    return f"{round(rate, digits):.{max(0, digits)}f}"
