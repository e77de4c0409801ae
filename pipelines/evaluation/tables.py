"""The figures of an evaluation as rows of tables: for the terminal, the page and the CSV."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lstr.metrics import intervals
from lstr.metrics.actions import ONSETS, TOLERANT
from lstr.metrics.event_errors import EDGE, EDGES, JudgedEvents
from lstr.metrics.event_errors import OF_DETECTIONS as DETECTION_KINDS
from lstr.metrics.event_errors import OF_LABELS as LABEL_KINDS
from lstr.pipelines.evaluation.findings import Judged, without_nan
from lstr.pipelines.pages.table import cell_of

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
# Names of an edge that is off, for a single event, by its start
LATE, EARLY = "late", "early"
# Without those that are never false alarms
OF_FALSE_ALARMS = {kind: name for kind, name in OF_DETECTIONS.items() if kind != "correct"}
OFF = {"onset": "start", "edges": "start and end"}
# Where a document has the limits of figures that are lists, and what of it is not a figure of a class
LIMITS = {"instances": "ious", "starts": "offsets", "segments": "overlaps"}
NO_FIGURES = ("per_class", "seconds", *LIMITS.values())
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class ResultTable:
    """A table of texts: a row for each class and one for all together, or one for each checkpoint."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def figure_text(value: float | None, digits: int = 3) -> str:
    """Return a number for people; a dash for None and NaN."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def interval_text(edges: Sequence[float] | None, sign: str = "", digits: int = 3) -> str:
    """Return a confidence interval for people; nothing for None and NaN."""
    if edges is None or not all(map(math.isfinite, edges)):
        return ""
    return f"[{edges[0]:{sign}.{digits}f}, {edges[1]:{sign}.{digits}f}]"


def ahead_text(row: Entry) -> str:
    """Return how far one checkpoint is ahead of another, with the interval; a dash if either has no figure."""
    if row["difference"] is None:
        return "–"
    return f"{row['difference']:+.3f} {interval_text(row.get('interval'), '+')}".rstrip()


def rate_text(one: Entry) -> str:
    """Return the false alarms per hour with the interval of their count, as `lstr.metrics.actions.sentence` has it."""
    rate, edges = one["false_alarms_per_hour"], (one["interval"] or {}).get("false_alarms_per_hour")
    if rate is None or edges is None:
        return figure_text(rate, 1)
    within = intervals.interval_text(edges)
    return f"{intervals.rate_text(rate)} [{within}]" if rate else within


def with_interval(value: float | None, entry: Entry, key: str, place: int | None = None) -> str:
    """Return a figure with the interval of that name in its entry; of several intervals the one at a place."""
    edges = (entry["interval"] or {}).get(key)
    if place is not None:
        edges = edges and edges[place]
    return f"{figure_text(value, 2)} {interval_text(edges, digits=2)}".rstrip()


def event_tables(judged: Sequence[Judged]) -> list[ResultTable]:
    """Return tables of what was found and missed, of the kinds of errors, and of F1 by several rules.

    Each is narrow enough for a terminal.
    """
    if len(judged) > 1:
        name, entries = "checkpoint", [(entry.name, entry.document["events"]["together"]) for entry in judged]
    else:
        events = judged[0].document["events"]

        def found_share(item: tuple[str, Entry]) -> float:
            return -(item[1]["found"] / (item[1]["labels"] or math.inf))

        name, entries = "class", sorted(events["per_class"].items(), key=found_share)
        entries.append(("together", events["together"]))

    def table(title: str, columns: Sequence[str], cells: Callable[[Entry], list[str]]) -> ResultTable:
        return ResultTable(title, (name, *columns), [[label, *cells(one)] for label, one in entries])

    def start_text(one: Entry) -> str:
        median = one["kinds"]["start"]["median"]
        return "–" if median is None else f"{median:+.2f}"

    return [
        table(
            "actions found, missed and detected falsely, and seconds until found ones are announced",
            ("actions", "found", "missed", "false alarms", "false s", "p50 s", "p95 s"),
            lambda one: [
                *(str(one[key]) for key in ("labels", "found", "missed", "false_alarms")),
                figure_text(one["false_seconds"], 1),
                *(figure_text(one["delay"][key], 2) for key in ("p50", "p95")),
            ],
        ),
        table(
            f"actions by what was detected of them: edges off by more than {EDGE:g} s; by how much starts are late",
            (*OF_LABELS.values(), "start s"),
            lambda one: [*(str(one["kinds"]["labels"][kind]) for kind in OF_LABELS), start_text(one)],
        ),
        table(
            "false alarms by what they are",
            ("false alarms", *OF_FALSE_ALARMS.values()),
            lambda one: [
                str(one["false_alarms"]),
                *(str(one["kinds"]["false_alarms"][kind]) for kind in OF_FALSE_ALARMS),
            ],
        ),
        table(
            "IoU of at least 0.3 with the label, and false alarms an hour",
            ("precision", "recall", "F1", "false an hour"),
            lambda one: [*(with_interval(one["iou"]["0.3"][key], one, key) for key in FIGURES), rate_text(one)],
        ),
        table(
            "IoU of at least 0.5, and F1 by the start alone",
            ("precision", "recall", "F1", *(f"start {within:g} s" for within in ONSETS)),
            lambda one: [
                *(figure_text(one["iou"]["0.5"][key], 2) for key in FIGURES),
                *(figure_text(one["onset"][str(within)]["f1"], 2) for within in ONSETS),
            ],
        ),
    ]


def class_tables(document: Entry) -> list[ResultTable]:
    """Return tables of the instances, starts, segments and tolerances, a row for each class and one for all."""
    instances, starts, segments, events = (document[name] for name in ("instances", "starts", "segments", "events"))

    def ranked(found: Entry, labels: str, late: bool = False) -> Iterator[list[str]]:
        for name, one in [*found["per_class"].items(), ("mean", found)]:
            is_mean = one is found
            counts = ["", ""] if is_mean else [str(one[labels]), str(one["said"])]
            values = [figure_text(value, 2) for value in one["mAP" if is_mean else "AP"]]
            seconds = [figure_text(one["late"]["p50"], 2)] if late else []
            yield [name, *counts, *values, with_interval(one["mean"], one, "mean"), *seconds]

    return [
        ResultTable(
            "AP of the detections as instances, by the IoU that a label asks for",
            ("class", "labels", "told", *(f"{least:g}" for least in instances["ious"]), "mean", "late, s"),
            list(ranked(instances, "labels", late=True)),
        ),
        ResultTable(
            "AP of action starts, by the seconds that one may be off",
            ("class", "labels", "said", *(f"{offset} s" for offset in starts["offsets"]), "mean"),
            list(ranked(starts, "starts")),
        ),
        ResultTable(
            "segments of the class with the highest score: F1 by IoU, and edit score",
            ("class", "labels", "said", *(f"F1 at {100 * least:g} %" for least in segments["overlaps"]), "edit score"),
            [
                [
                    name,
                    *(str(one.get(key, "")) for key in ("labels", "said")),
                    *(with_interval(value, one, "F1", place) for place, value in enumerate(one["F1"])),
                    with_interval(one["edit"], one, "edit"),
                ]
                for name, one in [*segments["per_class"].items(), ("together", segments)]
            ],
        ),
        *(
            ResultTable(
                f"F1 of detections whose {OFF[kind]} may be off by some seconds",
                ("class", *(f"{seconds:g} s" for seconds in ONSETS)),
                [
                    [name, *(with_interval(one[kind][str(s)]["f1"], one, f"f1_{kind}_{s}") for s in ONSETS)]
                    for name, one in [*events["per_class"].items(), ("together", events["together"])]
                ],
            )
            for kind in TOLERANT
        ),
    ]


def mean_rows(judged: Sequence[Judged]) -> Iterator[tuple[Judged, list[str]]]:
    """Yield each checkpoint with a convention, mAP, mcAP, videos and chunks as text, with intervals of its means.

    The published convention names the code that chooses its chunks; videos that networks have seen are counted.
    """
    for entry in judged:
        document = entry.document
        for name, found in document["conventions"].items():
            edges = (document["interval"] or {}) if name == document["convention"] else {}
            means = [f"{figure_text(found[mean])} {interval_text(edges.get(mean))}" for mean in ("mAP", "mcAP")]
            code = f" ({document['published_rule']})" if name == "published" else ""
            seen = f", {found['seen']} seen" if "seen" in found else ""
            yield entry, [f"{name}{code}", *means, f"{found['videos']}{seen}", str(found["chunks"])]


def csv_rows(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return a row per checkpoint and class, then one of all classes together, with every figure in a column.

    A column is named by where `lstr evaluate --json` has the figure: `events_iou_0.3_f1`.
    """
    rows = []
    for entry in judged:
        parts = ("lstr", "chance", "time_prior", "delay", "events", "instances", "starts", "segments")
        for label in (*entry.document["segments"]["per_class"], "together"):
            row: dict[str, Any] = {"checkpoint": entry.name, "class": label}
            for name in (name for name in parts if name in entry.document):
                part = entry.document[name]
                if label == "together":
                    own = part.get("together") or {key: part[key] for key in part if key not in NO_FIGURES}
                else:
                    own = part["per_class"].get(label, {})
                row |= _columns(name, own, part[LIMITS[name]] if name in LIMITS else ())
            if label == "together" and "seen" in entry.document:
                row["seen_videos"] = len(entry.document["seen"])
            rows.append(row)
    return rows


def _columns(name: str, value: Any, limits: Sequence[float]) -> dict[str, Any]:
    """Return the columns of a figure, of an interval, of one figure for each limit, or of several by name."""
    parts: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str):
        parts = zip(map(str, limits) if len(value) == len(limits) else ("low", "high"), value, strict=True)
    else:
        return {name: value}
    return {column: cell for key, part in parts for column, cell in _columns(f"{name}_{key}", part, limits).items()}


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV with one header; a value that is missing or NaN is empty, and none is a formula."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    target = io.StringIO()
    writer = csv.DictWriter(target, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: cell_of(value) for key, value in without_nan(row).items()} for row in rows)
    return target.getvalue()


def words_of(judged: JudgedEvents) -> tuple[list[str], list[str]]:
    """Return a name of the kind of each label and of each detection of an action; "" for a skipped detection."""

    def name_of(names: Mapping[str, str], kind: str, later: float | None) -> str:
        if later is None or abs(later) <= EDGE:  # then it is the end that is off
            return names[kind]
        return LATE if later > 0 else EARLY

    starts = list(zip(judged.pairs.tolist(), judged.edges[:, 0].tolist(), strict=True))
    of_labels = {label: later for (label, _), later in starts}
    of_detections = {detection: later for (_, detection), later in starts}
    labels = [
        name_of(OF_LABELS, LABEL_KINDS[kind], of_labels[at] if kind == EDGES else None)
        for at, kind in enumerate(judged.labels.tolist())
    ]
    detections = [
        "" if kind < 0 else name_of(OF_DETECTIONS, DETECTION_KINDS[kind], of_detections[at] if kind == EDGES else None)
        for at, kind in enumerate(judged.detected.tolist())
    ]
    return labels, detections
