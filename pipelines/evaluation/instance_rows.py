"""Instances, starts and segments as the rows of tables, for the page and the CSV."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lstr.metrics.actions import ONSETS, TOLERANT
from lstr.pipelines.evaluation.event_rows import EventTable, figure_text, interval_text
from lstr.pipelines.evaluation.findings import Judged

OFF = {"onset": "start", "edges": "start and end"}
Entry = Mapping[str, Any]


def class_tables(document: Entry) -> list[EventTable]:
    """A row for each class, and one of all together, of the instances, starts, segments and tolerances."""
    instances, starts, segments, events = (document[name] for name in ("instances", "starts", "segments", "events"))
    return [
        EventTable(
            "AP of the detections as instances, by the IoU that a label asks for",
            ("class", "labels", "told", *(f"{least:g}" for least in instances["ious"]), "mean", "late, s"),
            list(_ranked_rows(instances, "labels", late=True)),
        ),
        EventTable(
            "AP of action starts, by the seconds that one may be off",
            ("class", "labels", "said", *(f"{offset} s" for offset in starts["offsets"]), "mean"),
            list(_ranked_rows(starts, "starts")),
        ),
        EventTable(
            "segments of the class with the highest score: F1 by IoU, and edit score",
            ("class", "labels", "said", *(f"F1 at {100 * least:g} %" for least in segments["overlaps"]), "edit score"),
            list(_segment_rows(segments)),
        ),
        *(
            EventTable(
                f"F1 of detections whose {OFF[kind]} may be off by some seconds",
                ("class", *(f"{seconds:g} s" for seconds in ONSETS)),
                [
                    [name, *(tolerance_text(one, kind, seconds) for seconds in ONSETS)]
                    for name, one in [*events["per_class"].items(), ("together", events["together"])]
                ],
            )
            for kind in TOLERANT
        ),
    ]


def _ranked_rows(found: Entry, labels: str, late: bool = False) -> Iterator[list[str]]:
    for name, one in found["per_class"].items():
        values = [figure_text(value, 2) for value in one["AP"]]
        yield [name, str(one[labels]), str(one["said"]), *values, with_interval(one, "mean"), *_late(one, late)]
    values = [figure_text(value, 2) for value in found["mAP"]]
    yield ["mean", "", "", *values, with_interval(found, "mean"), *_late(found, late)]


def _late(one: Entry, shown: bool) -> list[str]:
    return [figure_text(one["late"]["p50"], 2)] if shown else []


def _segment_rows(segments: Entry) -> Iterator[list[str]]:
    for name, one in [*segments["per_class"].items(), ("together", segments)]:
        counts = [str(one[key]) if key in one else "" for key in ("labels", "said")]
        values = [with_interval(one, "F1", place) for place in range(len(one["F1"]))]
        yield [name, *counts, *values, with_interval(one, "edit")]


def with_interval(entry: Entry, key: str, place: int | None = None) -> str:
    """A figure with its interval, for people; of several the one at a place."""
    value, edges = entry[key], (entry["interval"] or {}).get(key)
    if place is not None:
        value, edges = value[place], edges and edges[place]
    return f"{figure_text(value, 2)} {interval_text(edges, digits=2)}".rstrip()


def tolerance_text(one: Entry, kind: str, seconds: float) -> str:
    """F1 of events within some seconds, with its interval."""
    edges = (one["interval"] or {}).get(f"f1_{kind}_{seconds}")
    return f"{figure_text(one[kind][str(seconds)]['f1'], 2)} {interval_text(edges, digits=2)}".rstrip()


def csv_rows(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """A row for each checkpoint and class, then one of all together, with every figure and interval in a column."""
    rows = []
    for entry in judged:
        instances, starts, segments = (entry.document[name] for name in ("instances", "starts", "segments"))
        for label in [*segments["per_class"], None]:
            row: dict[str, Any] = {"checkpoint": entry.name, "class": label or "together"}
            for name, found, limits in (
                ("instance", instances, [f"iou_{least:g}" for least in instances["ious"]]),
                ("start", starts, [f"{offset:g}s" for offset in starts["offsets"]]),
            ):
                one, key = (found, "mAP") if label is None else (found["per_class"].get(label, {}), "AP")
                row |= _columns(one, key, [f"{name}_AP_{limit}" for limit in limits])
                row |= _columns(one, "mean", f"{name}_mAP")
            one = instances if label is None else instances["per_class"].get(label, {})
            row |= {f"late_{name}_s": seconds for name, seconds in one.get("late", {}).items()}
            one = segments if label is None else segments["per_class"][label]
            row |= _columns(one, "F1", [f"segment_F1_{100 * least:g}" for least in segments["overlaps"]])
            row |= _columns(one, "edit", "edit_score")
            rows.append(row)
    return rows


def _columns(one: Entry, key: str, names: str | Sequence[str]) -> dict[str, Any]:
    """The columns of a figure, or of one for each limit, with the edges of their intervals."""
    single = isinstance(names, str)
    names = [names] if isinstance(names, str) else names
    values, edges = one.get(key), (one.get("interval") or {}).get(key)
    values, edges = ([values], [edges]) if single else (values, edges)
    row: dict[str, Any] = {}
    for at, name in enumerate(names):
        low, high = (edges and edges[at]) or (None, None)
        row |= {name: values[at] if values else None, f"{name}_low": low, f"{name}_high": high}
    return row
