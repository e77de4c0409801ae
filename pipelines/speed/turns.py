"""Rows that are compared take turns in short rounds, so that whatever else the machine does hits all of them alike."""

import json
import statistics
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch

from lstr.pipelines.progress import Progress

Result = TypeVar("Result")
Measuring = Generator[None, None, Result]
"""A measurement that yields after each of its parts, and returns its result."""
Rounds = dict[str, list[list[float]]]
"""Seconds of every step, by row and round."""


@dataclass(frozen=True)
class Row:
    """Something that is timed step by step."""

    step: Callable[[], object]
    burst: int = 1
    """Steps always taken together: a stride of a stream, so that every round has its share of updates"""


def counted(parts: Measuring[Result], total: int) -> Generator[Progress, None, Result]:
    """A measurement of `total` parts as progress."""
    done = 0
    while True:
        try:
            next(parts)
        except StopIteration as finished:
            return finished.value
        done += 1
        yield Progress("measuring", done, total)


@dataclass(frozen=True)
class Measured:
    """The record of a measurement as far as it has come; `unfinished` in it says so."""

    record: dict


def recorded(events: Generator[Any, None, Result], about: dict, parts: dict) -> Generator[Any, None, Result]:
    """The same events, each after a Measured of what is new in `parts`, which the measurement fills, and `about` it."""
    told = ""
    while True:
        try:
            event = next(events)
        except StopIteration as finished:
            return finished.value
        now = json.dumps(parts)
        if now not in (told, "{}"):
            told = now
            yield Measured({**about, **json.loads(now), "unfinished": True})
        yield event


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
