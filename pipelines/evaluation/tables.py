"""Tables of the results of an evaluation: for the terminal, the page, CSV and papers."""

import json
import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lstr.metrics import intervals
from lstr.metrics.actions import ONSETS, SLACK, TOLERANT
from lstr.metrics.event_errors import EDGE, EDGES, JudgedEvents
from lstr.metrics.event_errors import OF_DETECTIONS as DETECTION_KINDS
from lstr.metrics.event_errors import OF_LABELS as LABEL_KINDS
from lstr.pipelines.evaluation.analysis import FIGURE_PATHS, figure_at
from lstr.pipelines.evaluation.scoring import Evaluation
from lstr.pipelines.pages.table import WRITERS, Cell, Column, Table

FIGURES = ("precision", "recall", "f1")
# Names of the types of errors for people, where they differ from those in JSON
SHOWN = {"edges": "boundary", "merging": "merge", "wrong_action": "wrong action"}
SHOWN |= dict.fromkeys(("fragmented_merged", "fragment_merging"), "both")
OF_LABELS = {kind: SHOWN.get(kind, kind) for kind in LABEL_KINDS}
OF_DETECTIONS = {kind: SHOWN.get(kind, kind) for kind in DETECTION_KINDS}
# Names of the error of a single event with a wrong edge, by its start
LATE, EARLY = "late", "early"
# The types of false alarms
OF_FALSE_ALARMS = {kind: name for kind, name in OF_DETECTIONS.items() if kind != "correct"}
OFF = {"onset": "start", "edges": "start and end"}
# Keys of the limits of metrics that are lists, and keys that are not metrics of a class
LIMITS = {"instances": "ious", "starts": "offsets", "segments": "overlaps"}
NO_FIGURES = ("per_class", "seconds", *LIMITS.values())
# The metrics in a table for a paper
PAPER_FIGURES = ("mAP", "mcAP", "event F1")
# Training settings that do not define an experiment: runs that differ only in these form one row
RUN_SETTINGS = ("seed", "save_seconds")
# The end of the common prefix of the names of several runs, which is removed
NAME_END = re.compile(r"[\W_]+(?:seed|run|s|r)?[\W_]*$", re.IGNORECASE)
Entry = Mapping[str, Any]
# Title, names of columns, and rows of texts: one per class and one for all together, or one per checkpoint
ResultTable = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def figure_text(value: float | None, digits: int = 3) -> str:
    """Format a number; a dash for None and NaN."""
    if value is None or not math.isfinite(value):
        return "–"
    # half of the last digit, for example 2.25 s, is rounded away from 0, as in the sentence of the result
    return f"{value + math.copysign(SLACK, value):.{digits}f}"


def interval_text(edges: Sequence[float] | None, sign: str = "", digits: int = 3) -> str:
    """Format a confidence interval; empty for None and NaN."""
    if edges is None or not all(map(math.isfinite, edges)):
        return ""
    return f"[{edges[0]:{sign}.{digits}f}, {edges[1]:{sign}.{digits}f}]"


def ahead_text(row: Entry) -> str:
    """Format the difference of two checkpoints with its interval; a dash if it is undefined."""
    if row["difference"] is None:
        return "–"
    return f"{row['difference']:+.3f} {interval_text(row.get('interval'), '+')}".rstrip()


def rate_text(one: Entry) -> str:
    """Format the false alarms per hour with their interval, as in `lstr.metrics.actions.sentence`."""
    rate, edges = one["false_alarms_per_hour"], (one["interval"] or {}).get("false_alarms_per_hour")
    if rate is None or edges is None:
        return figure_text(rate, 1)
    within = intervals.interval_text(edges)
    return f"{intervals.rate_text(rate)} [{within}]" if rate else within


def with_interval(value: float | None, entry: Entry, key: str, place: int | None = None) -> str:
    """Format a value with the interval `key` of its entry; `place` is the index if there are several intervals."""
    edges = (entry["interval"] or {}).get(key)
    if place is not None:
        edges = edges and edges[place]
    return f"{figure_text(value, 2)} {interval_text(edges, digits=2)}".rstrip()


def event_tables(judged: Sequence[Evaluation]) -> list[ResultTable]:
    """Return tables of detected and missed actions, of types of errors, and of F1 by several rules.

    Each is narrow enough for a terminal.
    """
    if len(judged) > 1:
        documents = {entry.name: entry.document for entry in judged}
        entries = [(label, {**of["events"]["together"], "AP": of["lstr"]["mAP"]}) for label, of in documents.items()]
        name, average = "checkpoint", "mAP"
    else:
        events, scores = judged[0].document["events"], judged[0].document["lstr"]
        per_class = scores["per_class"]
        of_class = {i: {**one, "AP": per_class.get(i, {}).get("AP")} for i, one in events["per_class"].items()}
        by_recall = sorted(
            of_class, key=lambda label: -(of_class[label]["found"] / (of_class[label]["labels"] or math.inf))
        )
        name, average, entries = "class", "AP", [(label, of_class[label]) for label in by_recall]
        entries.append(("together", {**events["together"], "AP": scores["mAP"]}))

    def table(title: str, columns: Sequence[str], cells: Callable[[Entry], list[str]]) -> ResultTable:
        return title, (name, *columns), [[label, *cells(one)] for label, one in entries]

    return [
        table(
            f"actions, seconds until they are reported, and per-frame {average}",
            ("actions", "found", "missed", "false alarms", "false s", "p50 s", "p95 s", average),
            lambda one: [
                *(str(one[key]) for key in ("labels", "found", "missed", "false_alarms")),
                figure_text(one["false_seconds"], 1),
                *(figure_text(one["delay"][key], 2) for key in ("p50", "p95")),
                figure_text(one["AP"]),
            ],
        ),
        table(
            f"actions by error type; boundary: an edge differs by more than {EDGE:g} s; start: median delay",
            (*OF_LABELS.values(), "start s"),
            lambda one: [
                *(str(one["kinds"]["labels"][kind]) for kind in OF_LABELS),
                "–" if (median := one["kinds"]["start"]["median"]) is None else f"{median:+.2f}",
            ],
        ),
        table(
            "false alarms by error type",
            ("false alarms", *OF_FALSE_ALARMS.values()),
            lambda one: [
                str(one["false_alarms"]),
                *(str(one["kinds"]["false_alarms"][kind]) for kind in OF_FALSE_ALARMS),
            ],
        ),
        table(
            "IoU of at least 0.3 with the label, and false alarms per hour",
            ("precision", "recall", "F1", "false per hour"),
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
    """Return tables of instances, starts, segments and tolerances, with a row per class and one for all classes."""
    instances, starts, segments, events = (document[name] for name in ("instances", "starts", "segments", "events"))

    def ranked(found: Entry, labels: str, late: bool = False) -> Iterator[list[str]]:
        for name, one in [*found["per_class"].items(), ("mean", found)]:
            is_mean = one is found
            counts = ["", ""] if is_mean else [str(one[labels]), str(one["detections"])]
            values = [figure_text(value, 2) for value in one["mAP" if is_mean else "AP"]]
            seconds = [figure_text(one["late"]["p50"], 2)] if late else []
            yield [name, *counts, *values, with_interval(one["mean"], one, "mean"), *seconds]

    return [
        (
            "AP of the detections as instances, by the required IoU",
            ("class", "labels", "detections", *(f"{least:g}" for least in instances["ious"]), "mean", "late, s"),
            list(ranked(instances, "labels", late=True)),
        ),
        (
            "AP of action starts, by tolerance in seconds",
            ("class", "labels", "detections", *(f"{offset} s" for offset in starts["offsets"]), "mean"),
            list(ranked(starts, "starts")),
        ),
        (
            "segments of the class with the highest score: F1 by IoU, and edit score",
            (
                "class",
                "labels",
                "detections",
                *(f"F1 at {100 * least:g} %" for least in segments["overlaps"]),
                "edit score",
            ),
            [
                [
                    name,
                    *(str(one.get(key, "")) for key in ("labels", "detections")),
                    *(with_interval(value, one, "F1", place) for place, value in enumerate(one["F1"])),
                    with_interval(one["edit"], one, "edit"),
                ]
                for name, one in [*segments["per_class"].items(), ("together", segments)]
            ],
        ),
        *(
            (
                f"F1 of detections by tolerance of the {OFF[kind]}",
                ("class", *(f"{seconds:g} s" for seconds in ONSETS)),
                [
                    [name, *(with_interval(one[kind][str(s)]["f1"], one, f"f1_{kind}_{s}") for s in ONSETS)]
                    for name, one in [*events["per_class"].items(), ("together", events["together"])]
                ],
            )
            for kind in TOLERANT
        ),
    ]


def mean_rows(judged: Sequence[Evaluation]) -> Iterator[tuple[Evaluation, list[str]]]:
    """Yield each checkpoint with convention, mAP, mcAP, videos and chunks as text, with intervals of the means.

    The published convention names the code with its rule; the number of videos that networks were trained on is added.
    """
    for entry in judged:
        document = entry.document
        for name, found in document["conventions"].items():
            edges = (document["interval"] or {}) if name == document["convention"] else {}
            means = [f"{figure_text(found[mean])} {interval_text(edges.get(mean))}" for mean in ("mAP", "mcAP")]
            code = f" ({document['published_rule']})" if name == "published" else ""
            seen = f", {found['seen']} seen" if "seen" in found else ""
            yield entry, [f"{name}{code}", *means, f"{found['videos']}{seen}", str(found["chunks"])]


def csv_rows(judged: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Return a row per checkpoint and class, then one for all classes together, with every metric in a column.

    The name of a column is the path in `lstr evaluate --json`, for example `events_iou_0.3_f1`.
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
    """Return the columns of a number, of an interval, of a number per limit, or of several numbers by name."""
    parts: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str):
        parts = zip(map(str, limits) if len(value) == len(limits) else ("low", "high"), value, strict=True)
    else:
        return {name: value}
    return {column: cell for key, part in parts for column, cell in _columns(f"{name}_{key}", part, limits).items()}


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV with one header; missing values and NaN are empty, and formulas are escaped."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    return WRITERS["csv"](Table("", list(map(Column, names)), [[row.get(name) for name in names] for row in rows]))


def paper_table(judged: Sequence[Evaluation], form: str) -> str:
    """Return one table in a format of `lstr.pipelines.pages.table.WRITERS`, as printed by `lstr evaluate --to`.

    Checkpoints of equal trainings with different seeds form one row with mean and sample standard deviation. A second
    checkpoint with the same seed, such as best.pt next to checkpoint.pt, has a separate row; so has a file without
    training settings. CSV has fractions with all digits and the seeds; other formats have percentages with one decimal.
    """
    runs_of_rows: dict[tuple[str, int], list[tuple[Evaluation, int | None]]] = {}
    seeds_of: Counter[tuple[str, int | None]] = Counter()
    for at, entry in enumerate(judged):
        training, seed = f"#{at}", None
        train, data = entry.loaded.extra.get("train"), entry.loaded.extra.get("data")
        if isinstance(train, Mapping) and train.get("seed") is not None and isinstance(data, Mapping):
            seed, facts = train["seed"], ("recipe", "classes", "videos_sha256", "labels_sha256")
            about = {
                "model": entry.loaded.config.to_dict(),
                "train": {name: value for name, value in train.items() if name not in RUN_SETTINGS},
                # features are identified by their recipe, or by their folder if they have none
                "data": {name: data.get(name) for name in (facts if data.get("recipe") else (*facts, "features"))},
            }
            training = json.dumps(about, sort_keys=True, default=str)
        runs_of_rows.setdefault((training, seeds_of[training, seed]), []).append((entry, seed))
        seeds_of[training, seed] += 1
    lines: list[list[Cell]] = []
    for runs in runs_of_rows.values():
        name = runs[0][0].name
        if len(runs) > 1:
            name = NAME_END.sub("", os.path.commonprefix([entry.name for entry, _ in runs])) or name
        line: list[Cell] = [name, len(runs)]
        if form == "csv":
            line.append(" ".join(str(seed) for _, seed in runs if seed is not None))
        for figure in PAPER_FIGURES:
            values = [figure_at(entry.document, FIGURE_PATHS[figure]) for entry, _ in runs]
            known = [value for value in values if value is not None]
            mean = statistics.fmean(known) if len(known) == len(runs) else None
            deviation = None if mean is None or len(known) == 1 else statistics.stdev(known)
            if form == "csv":
                line += [mean, deviation]
            else:
                spread = "" if deviation is None else f" ± {100 * deviation:.1f}"
                line.append(None if mean is None else f"{100 * mean:.1f}{spread}")
        lines.append(line)
    columns = [Column("checkpoint", is_text=True), Column("runs")]
    if form == "csv":
        columns.append(Column("seeds", is_text=True))
        columns += [Column(f"{figure}{end}") for figure in PAPER_FIGURES for end in ("", " deviation")]
    else:
        columns += map(Column, PAPER_FIGURES)
    return WRITERS[form](Table("", columns, lines))


def words_of(judged: JudgedEvents) -> tuple[list[str], list[str]]:
    """Return the error type of each label and of each detection of an action as text; "" for a skipped detection."""
    labels = [OF_LABELS[LABEL_KINDS[kind]] for kind in judged.labels]
    detections = ["" if kind < 0 else OF_DETECTIONS[DETECTION_KINDS[kind]] for kind in judged.detected]
    for (label, detection), (later, _) in zip(judged.pairs.tolist(), judged.edges.tolist(), strict=True):
        if judged.labels[label] == EDGES and abs(later) > EDGE:  # otherwise only the end is wrong
            labels[label] = detections[detection] = LATE if later > 0 else EARLY
    return labels, detections
