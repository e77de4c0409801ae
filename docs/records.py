"""Records of benchmarks/, and how their figures are written."""

import json
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def record(name: str) -> dict:
    """A record of benchmarks/ by its name without ending."""
    return json.loads((ROOT / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))


def interval(bounds: Iterable[float]) -> str:
    """[low, high] with three digits."""
    low, high = bounds
    return f"[{low:.3f}, {high:.3f}]"


def scored(result: dict, metric: str = "mAP") -> str:
    """A metric with its interval."""
    return f"{result[metric]:.3f} {interval(result['interval'][metric])}"


def percentiles(values: list[float]) -> tuple[float, float]:
    """The bounds that 95 % of the values lie between."""
    import numpy as np

    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def rounded(value: float) -> str:
    """Two digits that count, or all before the point."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
