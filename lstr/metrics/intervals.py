"""Confidence intervals: of metrics by resampling videos, and of rates of counted events."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
Draws = NDArray[np.int64]  # how often each video is in each resample (R, videos)


def draw(n_videos: int, resamples: int, seed: int = 0) -> Draws:
    """Return how often each video is in each bootstrap resample (resamples, n_videos), by a seeded generator."""
    drawn = np.random.default_rng(seed).integers(0, n_videos, (resamples, n_videos))
    return np.array([np.bincount(row, minlength=n_videos) for row in drawn], dtype=np.int64).reshape(-1, n_videos)


def interval(values: NDArray[np.float64]) -> list[float]:
    """Return the percentile bootstrap interval [low, high] of resampled values; NaN without a value."""
    values = values[~np.isnan(values)]
    if not len(values):
        return [float("nan"), float("nan")]
    tail = 100 * (1 - LEVEL) / 2
    return [float(edge) for edge in np.percentile(values, [tail, 100 - tail])]


def mean_of_known(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return the mean along an axis of the values that are not NaN; NaN without any."""
    return np.ma.masked_invalid(values).mean(axis=axis).filled(np.nan)


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return the median and the 95th percentile of delays as {"p50", "p95"}; None without delays."""
    p50, p95 = np.percentile(seconds, [50, 95]).tolist() if len(seconds) else (None, None)
    return {"p50": p50, "p95": p95}


def rate_interval(count: int, hours: float) -> list[float] | None:
    """Return the exact Poisson confidence interval [low, high] of a rate per hour, from a count and the hours.

    The interval is central (Garwood, 1936): both tails have the same probability. For a count of 0 the lower limit is
    0 and the upper tail has all of it, so the upper limit is 3.0 divided by the hours. None without video.
    """
    if not hours:
        return None
    from scipy.special import gammaincinv

    low = float(gammaincinv(count, (1 - LEVEL) / 2)) if count else 0.0
    high = float(gammaincinv(count + 1, (1 + LEVEL) / 2 if count else LEVEL))
    return [low / hours, high / hours]


def interval_text(edges: Sequence[float]) -> str:
    """Format the interval of a rate with two significant digits: `140 to 530`, or `below 720`."""
    texts = []
    for rate in edges:
        digits = 1 - math.floor(math.log10(rate)) if rate else 0
        texts.append(f"{round(rate, digits):.{max(0, digits)}f}")
    return " to ".join(texts) if edges[0] else f"below {texts[1]}"


def rate_text(rate: float) -> str:
    """Format a rate: 40, 3.7, 0.0."""
    return f"{rate:.{0 if rate >= 9.95 else 1}f}"
