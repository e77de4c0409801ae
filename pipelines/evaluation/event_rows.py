"""Event metrics as the rows of tables, for the terminal, the page and the CSV."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from lstr.event_metrics import IOUS, ONSETS
from pipelines.evaluation.findings import Judged
from pipelines.evaluation.wording import figure_text, interval_text

FIGURES = ("precision", "recall", "f1")
FITS = (
    *(f"{name} IoU {least}" for least in IOUS for name in ("precision", "recall", "F1")),
    *(f"F1 start {within:g} s" for within in ONSETS),
)
COUNTS = ("actions", "found", "missed", "false alarms", "an hour", "false s", "delay p50, s", "delay p95, s")


def columns_of(judged: Sequence[Judged], figures: Sequence[str]) -> list[str]:
    """The heads of such a table, with COUNTS or FITS as `figures`."""
    return ["checkpoint" if len(judged) > 1 else "class", *figures]


def count_rows(judged: Sequence[Judged]) -> list[list[str]]:
    """Name and COUNTS of each class, most found first, then of all together; of several checkpoints only that."""
    return [
        [name, *(str(one[key]) for key in ("labels", "found", "missed", "false_alarms"))]
        + [
            _rate(one),
            figure_text(one["false_seconds"], 1),
            *(figure_text(one["delay"][key], 2) for key in ("p50", "p95")),
        ]
        for name, one in _entries(judged)
    ]


def fit_rows(judged: Sequence[Judged]) -> list[list[str]]:
    """As `count_rows`, of FITS."""
    rows = []
    for name, one in _entries(judged):
        row = [name]
        for least in map(str, IOUS):
            figures = one["iou"][least]
            row += [
                f"{figure_text(figures[key], 2)} {_edges(one, key, 2) if least == '0.3' else ''}".rstrip()
                for key in FIGURES
            ]
        rows.append(row + [figure_text(one["onset"][str(within)]["f1"], 2) for within in ONSETS])
    return rows


def csv_rows(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """A row for each checkpoint and class, then one of all together, with every figure in a column."""
    rows = []
    for entry in judged:
        events = entry.document["events"]
        for label, one in [*events["per_class"].items(), ("together", events["together"])]:
            row = {"checkpoint": entry.name, "class": label}
            row |= {key: value for key, value in one.items() if not isinstance(value, dict) and key != "interval"}
            for kind in ("iou", "onset"):
                row |= {f"{key}_{kind}_{limit}": of[key] for limit, of in one[kind].items() for key in FIGURES}
            row |= {f"delay_{key}_s": value for key, value in one["delay"].items()}
            for name, edges in (one["interval"] or {}).items():
                low, high = edges or (None, None)
                row |= {f"{name}_low": low, f"{name}_high": high}
            rows.append(row)
    return rows


def _entries(judged: Sequence[Judged]) -> Iterator[tuple[str, dict[str, Any]]]:
    if len(judged) > 1:
        yield from ((entry.name, entry.document["events"]["together"]) for entry in judged)
        return
    events = judged[0].document["events"]
    yield from sorted(
        events["per_class"].items(), key=lambda item: -(item[1]["found"] / (item[1]["labels"] or math.inf))
    )
    yield "together", events["together"]


def _rate(one: dict[str, Any]) -> str:
    """False alarms an hour with their interval; without decimals where there are hundreds."""
    rate = one["false_alarms_per_hour"]
    digits = 0 if rate is not None and rate >= 100 else 1
    return f"{figure_text(rate, digits)} {_edges(one, 'false_alarms_per_hour', digits)}".rstrip()


def _edges(one: dict[str, Any], name: str, digits: int) -> str:
    return interval_text((one["interval"] or {}).get(name), digits=digits)
