"""Rows that are compared take turns in short rounds, so that whatever else the machine does hits all of them alike."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch

from lstr.pipelines.speed.measuring import Measuring, Result, written
from lstr_cli import console

Rounds = dict[str, list[list[float]]]
"""Seconds of every step, by row and round."""


@dataclass(frozen=True)
class Row:
    """Something that is timed step by step."""

    step: Callable[[], object]
    burst: int = 1
    """Steps always taken together: a stride of a stream, so that every round has its share of updates"""


def whole(parts: Measuring[Result]) -> Result:
    """The result of a measurement whose parts nobody watches."""
    while True:
        try:
            next(parts)
        except StopIteration as finished:
            return finished.value


def interleave(rows: dict[str, Row], seconds: float, n_rounds: int, device: str) -> Measuring[Rounds]:
    """Seconds of every step, by row and round; yields after each round.

    A row takes `seconds` in all rounds together, but at least one burst per round.
    """
    finish = partial(torch.cuda.synchronize, device) if device != "cpu" else lambda: None
    for row in rows.values():
        for _ in range(2 * row.burst):  # the first steps pack weights and wake the processor
            row.step()
    taken: Rounds = {name: [] for name in rows}
    for _ in range(n_rounds):
        for name, row in rows.items():
            times: list[float] = []
            finish()
            until = perf_counter() + seconds / n_rounds
            while not times or perf_counter() < until:
                for _ in range(row.burst):
                    start = perf_counter()
                    row.step()
                    finish()
                    times.append(perf_counter() - start)
            taken[name].append(times)
        yield
    return taken


def summary(rounds: list[list[float]], n_streams: int = 1) -> dict:
    """Speed in steps of a stream per second, and the milliseconds of a step that takes all n_streams at once.

    The speed is that of the median round, as in `ratio`, so that one disturbed round does not make it.
    """
    ms = 1000 * np.concatenate(rounds)
    return {
        "steps_per_second": round(n_streams / statistics.median(map(statistics.fmean, rounds)), 2),
        "mean_ms": round(float(ms.mean()), 3),
        "p50_ms": round(float(np.median(ms)), 3),
        "p95_ms": round(float(np.percentile(ms, 95)), 3),
        "steps": len(ms),
    }


def ratio(baseline: list[list[float]], rounds: list[list[float]], n_streams: int = 1) -> float:
    """How many times as fast as the baseline: the median over rounds, in each of which both met the same machine."""
    each = [statistics.fmean(slow) / statistics.fmean(fast) for slow, fast in zip(baseline, rounds, strict=True)]
    return round(n_streams * statistics.median(each), 2)


def follow(events: Iterable[Any], path: Path) -> None:
    """Run a measurement from a terminal; its record is in the file from the first part on."""
    start = monotonic()
    console.follow(written(events, path), "parts")
    console.say(f"measured in {monotonic() - start:.0f} s; record: {path}")
