"""What came of a reproduction: each seed's numbers and all of them together beside the published row."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lstr.pipelines.evaluation.findings import without_nan
from lstr.pipelines.provenance import provenance
from lstr.pipelines.reproduction.plan import Plan
from lstr.pipelines.reproduction.rows import Row

Results = Mapping[int, Mapping[str, Any]]
"""By seed, what its result.json has."""


@dataclass(frozen=True)
class Line:
    """One row by one protocol and choice of weights, of all seeds."""

    row: Row
    protocol: str
    weights: str
    seeds: Sequence[int]
    values: Sequence[float | None]
    """Percent, of each of `seeds`"""

    @property
    def mean(self) -> float | None:
        """The mean of the seeds; None where one has no such number."""
        known = [value for value in self.values if value is not None]
        return statistics.fmean(known) if known and len(known) == len(self.values) else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation; None of fewer than two seeds."""
        known = [value for value in self.values if value is not None]
        return statistics.stdev(known) if len(known) == len(self.values) > 1 else None

    @property
    def published(self) -> float | None:
        """The published number; None too where none is at hand."""
        return self.row.published


@dataclass(frozen=True)
class Reproduced:
    """A reproduction so far, all of it where every seed is finished."""

    document: dict[str, Any]
    """What reproduce.json holds"""
    plan: Plan
    results: Results
    path: Path

    @property
    def lines(self) -> list[Line]:
        """The rows of the table."""
        return list(lines_of(self.plan, self.results))

    @property
    def verdicts(self) -> list[str]:
        """One sentence a row, on the numbers that are as published as can be."""
        return self.document["verdicts"]


def lines_of(plan: Plan, results: Results) -> Iterator[Line]:
    """Each row by each choice of weights and each protocol: what is as the published number first."""
    seeds = [seed for seed in plan.seeds if seed in results]
    for at, row in enumerate(plan.rows):
        for weights in plan.weights:
            for protocol in plan.protocols:
                found = [results[seed]["values"].get(weights, {}).get(protocol) for seed in seeds]
                values = [None if one is None else one[at] for one in found]
                yield Line(row, protocol, weights, seeds, values)


def document_of(plan: Plan, results: Results, device: str) -> dict[str, Any]:
    """All of it as JSON."""
    lines = list(lines_of(plan, results))
    own = (plan.protocols[0], plan.weights[0])
    first = [line for line in lines if (line.protocol, line.weights) == own]
    document = {
        **plan.to_dict(),
        "finished": all(seed in results for seed in plan.seeds),
        "results": [dict(results[seed]) for seed in plan.seeds if seed in results],
        "table": [
            {
                "row": asdict(line.row),
                "protocol": line.protocol,
                "weights": line.weights,
                "seeds": dict(zip(map(str, line.seeds), line.values, strict=True)),
                "mean": line.mean,
                "deviation": line.deviation,
            }
            for line in lines
        ],
        "comparable": bool(first) and all(line.published is not None and not line.row.reasons for line in first),
        "verdicts": [line.row.verdict(line.values) for line in first],
        "made_by": provenance(device, 1),
    }
    found: dict[str, Any] = without_nan(document)
    return found
