"""Event metrics as the rows of tables, for the terminal, the page and the CSV; figures as text for people."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lstr.metrics import rates
from lstr.metrics.actions import ONSETS, TOLERANT
from lstr.metrics.event_errors import EDGE, EDGES, JudgedEvents
from lstr.metrics.event_errors import OF_DETECTIONS as DETECTION_KINDS
from lstr.metrics.event_errors import OF_LABELS as LABEL_KINDS
from lstr.pipelines.evaluation.findings import Judged

FIGURES = ("precision", "recall", "f1")
OF_LABELS = {
    "correct": "correct",
    "edges": "edge off",
    "fragmented": "in pieces",
    "merged": "merged",
    "fragmented_merged": "both",
    "wrong_action": "wrong action",
    "deleted": "nothing",
}
OF_DETECTIONS = {
    "correct": "correct",
    "edges": "edge off",
    "fragment": "piece of one",
    "merging": "several as one",
    "fragment_merging": "both",
    "wrong_action": "wrong action",
    "inserted": "nothing there",
}
# What an edge that is off is called where one event is told of: by its start
LATE, EARLY = "late", "early"
# Without those that are never false alarms
OF_FALSE_ALARMS = {kind: name for kind, name in OF_DETECTIONS.items() if kind != "correct"}


@dataclass(frozen=True)
class EventTable:
    """A table of event metrics: a row for each class and one of all together, or one for each checkpoint."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def event_tables(judged: Sequence[Judged]) -> list[EventTable]:
    """What was found and what was false; of what kinds that is; how well it fits; and by other rules.

    Each is narrow enough for a terminal.
    """
    entries = list(_entries(judged))
    name = "checkpoint" if len(judged) > 1 else "class"
    return [
        EventTable(title, [name, *columns], [[name, *cells(one)] for name, one in entries])
        for title, columns, cells in (
            (
                "actions found, missed and detected falsely, and seconds until found ones are announced",
                ("actions", "found", "missed", "false alarms", "false s", "p50 s", "p95 s"),
                _counts,
            ),
            (
                f"actions by what was detected of them: edges off by more than {EDGE:g} s; by how much starts are late",
                (*OF_LABELS.values(), "start s"),
                _of_labels,
            ),
            (
                "false alarms by what they are",
                ("false alarms", *OF_FALSE_ALARMS.values()),
                _of_false_alarms,
            ),
            (
                "IoU of at least 0.3 with the label, and false alarms an hour",
                ("precision", "recall", "F1", "false an hour"),
                _closeness,
            ),
            (
                "IoU of at least 0.5, and F1 by the start alone",
                ("precision", "recall", "F1", *(f"start {within:g} s" for within in ONSETS)),
                _other_rules,
            ),
        )
    ]


def _counts(one: dict[str, Any]) -> list[str]:
    return [
        *(str(one[key]) for key in ("labels", "found", "missed", "false_alarms")),
        figure_text(one["false_seconds"], 1),
        *(figure_text(one["delay"][key], 2) for key in ("p50", "p95")),
    ]


def _of_labels(one: dict[str, Any]) -> list[str]:
    kinds = one["kinds"]
    median = kinds["start"]["median"]
    return [*(str(kinds["labels"][kind]) for kind in OF_LABELS), "–" if median is None else f"{median:+.2f}"]


def _of_false_alarms(one: dict[str, Any]) -> list[str]:
    kinds = one["kinds"]["false_alarms"]
    return [str(one["false_alarms"]), *(str(kinds[kind]) for kind in OF_FALSE_ALARMS)]


def _closeness(one: dict[str, Any]) -> list[str]:
    figures = [f"{figure_text(one['iou']['0.3'][key], 2)} {_edges(one, key, 2)}".rstrip() for key in FIGURES]
    return [*figures, rate_text(one)]


def _other_rules(one: dict[str, Any]) -> list[str]:
    figures = [*(one["iou"]["0.5"][key] for key in FIGURES), *(one["onset"][str(within)]["f1"] for within in ONSETS)]
    return [figure_text(value, 2) for value in figures]


def csv_rows(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """A row for each checkpoint and class, then one of all together, with every figure in a column."""
    rows = []
    for entry in judged:
        events = entry.document["events"]
        for label, one in [*events["per_class"].items(), ("together", events["together"])]:
            row = {"checkpoint": entry.name, "class": label}
            row |= {key: value for key, value in one.items() if not isinstance(value, dict) and key != "interval"}
            for kind in ("iou", *TOLERANT):
                row |= {f"{key}_{kind}_{limit}": of[key] for limit, of in one[kind].items() for key in FIGURES}
            for of in ("labels", "missed", "detections", "false_alarms"):
                row |= {f"{of}_{kind}": count for kind, count in one["kinds"][of].items()}
            for edge in ("start", "end"):
                row |= {f"{edge}_{key}": value for key, value in one["kinds"][edge].items()}
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


def rate_text(one: dict[str, Any]) -> str:
    """False alarms an hour with the interval of their count, as `lstr.metrics.actions.sentence` has them."""
    rate, edges = one["false_alarms_per_hour"], (one["interval"] or {}).get("false_alarms_per_hour")
    if rate is None or edges is None:
        return figure_text(rate, 1)
    within = rates.interval_text(edges)
    return f"{rates.rate_text(rate)} [{within}]" if rate else within


def _edges(one: dict[str, Any], name: str, digits: int) -> str:
    return interval_text((one["interval"] or {}).get(name), digits=digits)


def figure_text(value: float | None, digits: int = 3) -> str:
    """A number for people; a dash for None and NaN."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def interval_text(edges: Sequence[float] | None, sign: str = "", digits: int = 3) -> str:
    """A confidence interval for people; nothing for None and NaN."""
    if edges is None or not all(map(math.isfinite, edges)):
        return ""
    return f"[{edges[0]:{sign}.{digits}f}, {edges[1]:{sign}.{digits}f}]"


def ahead_text(row: Mapping[str, Any]) -> str:
    """How far one checkpoint is ahead of another in a figure, with the interval; a dash where either has none."""
    if row["difference"] is None:
        return "–"
    return f"{row['difference']:+.3f} {interval_text(row.get('interval'), '+')}".rstrip()


def mean_rows(judged: Sequence[Judged]) -> Iterator[tuple[Judged, list[str]]]:
    """Each checkpoint with a convention, mAP, mcAP, videos and chunks as text; intervals where the means have them.

    The published convention names the code that chooses its chunks; of videos it is told how many networks have seen.
    """
    for entry in judged:
        document = entry.document
        for name, found in document["conventions"].items():
            edges = (document["interval"] or {}) if name == document["convention"] else {}
            means = [f"{figure_text(found[mean])} {interval_text(edges.get(mean))}" for mean in ("mAP", "mcAP")]
            code = f" ({document['published_rule']})" if name == "published" else ""
            seen = f", {found['seen']} seen" if "seen" in found else ""
            yield entry, [f"{name}{code}", *means, f"{found['videos']}{seen}", str(found["chunks"])]


def words_of(judged: JudgedEvents) -> tuple[list[str], list[str]]:
    """What each label and each detection of an action is called, in their order; "" of a detection that is left out."""
    later = dict(zip(map(tuple, judged.pairs.tolist()), judged.edges[:, 0].tolist(), strict=True))
    of_labels = {label: start for (label, _), start in later.items()}
    of_detections = {detection: start for (_, detection), start in later.items()}
    labels = [
        _by_start(of_labels[at]) if kind == EDGES else OF_LABELS[LABEL_KINDS[kind]]
        for at, kind in enumerate(judged.labels.tolist())
    ]
    detections = [
        "" if kind < 0 else _by_start(of_detections[at]) if kind == EDGES else OF_DETECTIONS[DETECTION_KINDS[kind]]
        for at, kind in enumerate(judged.detected.tolist())
    ]
    return labels, detections


def _by_start(later: float) -> str:
    if abs(later) <= EDGE:
        return OF_LABELS["edges"]  # it is the end that is off
    return LATE if later > 0 else EARLY
