"""Write an evaluation as JSON, CSV, figures for papers, and a self-contained page."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lstr.chunk import CHUNK_SECONDS
from lstr.files.atomic import write_text
from lstr.files.content import write_json
from lstr.files.names import slug
from lstr.metrics.actions import FOUND_IOU, FOUND_ONSET, length_text, sentence
from lstr.pipelines.evaluation import figures
from lstr.pipelines.evaluation.analysis import Findings
from lstr.pipelines.evaluation.scoring import CROSS_VALIDATED, MEASURED_BY_FOLDS, Evaluation
from lstr.pipelines.evaluation.tables import (
    ahead_text,
    class_tables,
    csv_rows,
    csv_text,
    event_tables,
    figure_text,
    mean_rows,
    rate_text,
)
from lstr.pipelines.evaluation.watching import describe_watching
from lstr.pipelines.model_files.networks import origins_of_checkpoint
from lstr.pipelines.pages.figure import save
from lstr.pipelines.pages.page import build_page

CONVENTIONS = (
    "Each chunk of each video counts once. Corrected: all chunks except those labelled ambiguous. "
    "Published: the chunks that the named code scores; LSTR's code if the code of a kind is not known. Only the "
    "published rows are comparable with published results."
)
EVENTS = (
    "What lstr detect reports with the checkpoint's thresholds. A label is found by a detection of its class with an "
    f"IoU of at least {FOUND_IOU:g}, or with a start within {FOUND_ONSET:g} s of its start, each in one pair at most. "
    "The others are missed labels and false alarms. False seconds are detected and not labelled. p50 and p95 are "
    "seconds from a found label's start to the announcement; below 0 it came early."
)
INSTANCES = (
    "Each detection as it was reported when it ended, with the mean score of its chunks. "
    "Late: seconds (median) from a found label's end until it was reported. AP by "
    "ActivityNet's rules: in order of decreasing score, a detection takes the unmatched label with the largest overlap."
)
STARTS = "A start is reported when the highest-scoring class changes to an action."
SEGMENTS = (
    "Segments are runs of chunks with the same highest-scoring class, without background, as in action segmentation. "
    "The edit score of one class compares the numbers of its segments."
)
TOLERANCES = "Detections as lstr detect reports them; matching pairs the maximum number of them with labels."
AP_TITLE = "Average precision of each class"
# The figures of a single checkpoint that are not in a collapsed section of the page
UNFOLDED = ("found", "operating-curves", "delay", "confusion")
# Markers in the template around the sentence on whether the model is better than another (`lstr learn`).
# A part of a section for the template: a text, a heading, a table or figures.
Part = dict[str, Any]
# A figure for the template, with the name of its file and of its checkpoint (empty for all checkpoints).
Drawing = dict[str, str]


def write_evaluation(folder: Path, findings: Findings) -> Path:
    """Write evaluation.json, evaluation.csv, figures/*.svg and .png, and finally report.html; return its path.

    Videos that browsers do not play are copied into videos/. Raises OutputError if the folder cannot be written.
    """
    judged, several = findings.judged, findings.several
    write_json(folder / "evaluation.json", findings.document)
    write_text(folder / "evaluation.csv", csv_text(csv_rows(judged)))
    drawings: list[Drawing] = []

    def draw(group: str, prefix: str, name: str, title: str, note: str, figure: Figure) -> None:
        svg = base64.b64encode(save(folder, f"{prefix}{name}", figure)).decode()
        address = f"data:image/svg+xml;base64,{svg}"
        drawings.append({"group": group, "name": name, "title": title, "note": note, "address": address})

    if several:
        figure = figures.draw_classes([entry.name for entry in judged], [entry.document for entry in judged])
        draw("", "", "classes", AP_TITLE, "", figure)
    for i, entry in enumerate(judged, start=1):
        prefix = f"{i}-{slug(entry.name, 'checkpoint')}-" if several else ""
        for drawing in _figures_of(entry, alone=not several):
            draw(entry.name, prefix, *drawing)
    path = folder / "report.html"
    write_text(path, draw_page(findings, drawings, describe_watching(findings, folder)))
    return path


def _figures_of(entry: Evaluation, alone: bool) -> Iterator[tuple[str, str, str, Figure]]:
    """Yield name, title, explanation and figure for each figure of one checkpoint."""
    document, split = entry.document, entry.split
    pooled = np.concatenate(entry.scores), np.concatenate([video.targets for video in split.videos])
    note = "Solid: found; hollow: missed; hatched: false alarms."
    yield "found", "Actions found, missed and false", note, figures.draw_event_counts(document)
    note = "The most actions found for a number of false alarms, by the threshold. The dots are the thresholds in use."
    yield "operating-curves", "Actions found against false alarms", note, figures.draw_operating_curves(document)
    if alone:
        yield "classes", AP_TITLE, "", figures.draw_classes([entry.name], [document])
    note = "The dotted line is the share of chunks in which the class is active."
    drawn = figures.draw_precision_recall(*pooled, split.labels.classes)
    yield "precision-recall", "Precision and recall", note, drawn
    note = "A decision is correct if the class scores above every inactive class. Longer delays: the last bar."
    yield "delay", "Delay until the first correct decision", note, figures.draw_delay(document)
    if "anticipation" in document:
        yield "anticipation", "Anticipation", "", figures.draw_anticipation(document)
    note = "Chunks in which the highest-scoring class is inactive, by the active class."
    yield "confusion", "Confusion on wrong chunks", note, figures.draw_confusion(document)


def draw_page(findings: Findings, drawings: Sequence[Drawing], watching: Mapping[str, Any]) -> str:
    """Return the page of an evaluation, with `watching` from `watching.describe_watching`."""
    judged, several = findings.judged, findings.several
    first = judged[0]
    sections: list[tuple[str, Sequence[Part]]] = []  # sections with a title are collapsed
    if several:  # side by side, for comparison
        sections.append(("", [{"heading": "Actions found"}, *_events(judged)]))
        pairs = zip(judged[1:], findings.comparison, strict=True)
        ahead = draw_table(
            ["", "mAP", "mcAP"],
            [[entry.name, *(ahead_text(row[mean]) for mean in ("mAP", "mcAP"))] for entry, row in pairs],
        )
        about = {"text": "On the same resamples of the videos; an interval without 0 is a significant difference."}
        sections.append(("", [{"heading": f"Ahead of {first.name}"}, about, ahead]))
    shown = [one for one in drawings if (not one["group"] if several else one["name"] in UNFOLDED)]
    sections.append(("", [{"svgs": shown}] if shown else []))
    if not several:
        sections.append(("Actions found, by action", _events(judged)))
    sections.append(("Means over chunks", _means(judged)))
    if findings.quoted:
        title = f"{findings.quoted['name']}, quoted, {findings.quoted['metric']} in per cent"
        sections.append((title, _quoted(findings.quoted, judged)))
    for entry in judged:
        name = f"{entry.name}: " if several else ""
        folded = [one for one in drawings if one not in shown and one["group"] == entry.name]
        if several:
            sections.append((f"{name}Actions found, by action", _events([entry])))
        stages = entry.document["stages"]
        columns = ["", *(row["stage"] for row in stages["corrected"])]
        rows = [
            [f"{mean}, {convention}", *(figure_text(row[mean]) for row in stages[convention])]
            for convention in stages
            for mean in ("mAP", "mcAP")
        ]
        sections += [
            (f"{name}Classes, chunk by chunk", _classes(entry.document)),
            (f"{name}Instances, starts and segments", _instances(entry.document)),
            (f"{name}Portions of the actions", [draw_table(columns, rows)]),
            (f"{name}More figures", [{"svgs": folded}] if folded else []),
        ]
    texts = [sentence(entry.document["events"]) for entry in judged]
    sentences = [f"{entry.name}: {text}." for entry, text in zip(judged, texts, strict=True)]
    if not several:
        sentences = [f"{texts[0][0].upper()}{texts[0][1:]}."]
    return build_page(
        "evaluation",
        f"{len(judged)} checkpoints compared" if several else f"Evaluation of {first.name}",
        ("lanes.js", "film.js", "evaluation.js"),
        watching,
        sentences=sentences,
        notes=[_about(first.document), *_origins(judged)],
        warnings=findings.warnings,
        needed=None if several else _needed(first.document),
        sections=[(title, parts) for title, parts in sections if parts],
    )


def draw_table(columns: Sequence[str], rows: Iterable[Sequence[str]], total: bool = False) -> Part:
    """Return a table of texts; the last row is highlighted if it is a `total`."""
    return {"columns": columns, "rows": list(rows), "has_total": total}


def _origins(judged: Sequence[Evaluation]) -> list[str]:
    """Return the initial weights of the feature networks with their licences, as far as they are known."""
    texts = []
    for entry in judged:
        of_model = f"{entry.name}: " if len(judged) > 1 else ""
        of_streams = origins_of_checkpoint(entry.loaded)
        for origin in dict.fromkeys(of_streams.values()):  # one sentence for all networks with the same initial weights
            names = [stream for stream, one in of_streams.items() if one == origin]
            *before, last = names
            which = f"{', '.join(before)} and {last} networks" if before else f"{last} network"
            texts.append(f"{of_model}the {which} started from {origin}.")
    return texts


def _about(document: dict[str, Any]) -> str:
    folds = f", {MEASURED_BY_FOLDS}" if "folds" in document else ""
    if document.get("decided_by_others"):
        folds += f", {CROSS_VALIDATED}"
    if document.get("folds", 1) > 1:
        folds = f" in {document['folds']} folds{folds}"
    parts = [
        f"{document['videos']} videos{folds}",
        f"{document['chunks']} chunks of {document.get('seconds_per_chunk', CHUNK_SECONDS):.4g} s",
    ]
    if document["absent_classes"]:
        parts.append(f"excluded from means, without a positive chunk: {', '.join(document['absent_classes'])}")
    if document["interval"]:
        level, resamples = document["interval"]["level"], document["interval"]["resamples"]
        parts.append(f"in brackets {100 * level:.0f} % intervals of {resamples} resamples of the videos")
    return "; ".join(parts) + "."


def _needed(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the most important results, as a few large numbers."""
    events, prior = document["events"], document.get("time_prior")
    together, delay = events["together"], events["together"]["delay"]
    late = "" if delay["p95"] is None else f"; one in twenty later than {figure_text(delay['p95'], 1)} s"
    alarms = f"in {length_text(events['hours'])}; an hour {rate_text(together)}"
    guess = f"a guess by time alone has {figure_text(prior['mAP'], 2)}" if prior else ""
    return [
        ("Actions found", f"{together['found']} of {together['labels']}", f"{together['missed']} missed"),
        ("False alarms", str(together["false_alarms"]), alarms),
        ("Announced after", f"{figure_text(delay['p50'], 1)} s", f"median of those found{late}"),
        ("mAP over chunks", figure_text(document["lstr"]["mAP"], 2), guess),
    ]


def _means(judged: Sequence[Evaluation]) -> list[Part]:
    rows = [[f"{entry.name}, {convention}", *cells] for entry, (convention, *cells) in mean_rows(judged)]
    for system in ("chance", "time_prior"):
        if system in judged[0].document:
            means = [figure_text(judged[0].document[system][mean]) for mean in ("mAP", "mcAP")]
            rows.append([system.replace("_", " "), *means, "", ""])
    table = draw_table(["", "mAP", "mcAP", "videos", "chunks"], rows)
    convention = judged[0].document["convention"]
    return [table, {"text": f"{CONVENTIONS} Intervals are {convention}."}]


def _events(judged: Sequence[Evaluation]) -> list[Part]:
    shown: list[Part] = []
    for i, (title, columns, rows) in enumerate(event_tables(judged)):
        shown.append({"text": f"{title[0].upper()}{title[1:]}." if i else EVENTS})
        shown.append(draw_table(columns, rows, total=len(judged) == 1))
    return shown


def _quoted(quoted: dict[str, Any], judged: Sequence[Evaluation]) -> list[Part]:
    metric = quoted["metric"]
    rows = [
        [row["method"], row["features"], f"{row['value']:.1f}", f"quoted: {row['source']}"] for row in quoted["rows"]
    ]
    for entry in judged:
        rows.append([entry.name, "", figure_text(100 * entry.document["lstr"][metric], 1), "this evaluation"])
    return [draw_table(["", "features", metric, "source"], rows)]


def _classes(document: dict[str, Any]) -> list[Part]:
    ours, delays = document["lstr"]["per_class"], document["delay"]["per_class"]
    systems = [name for name in ("chance", "time_prior") if name in document]
    columns = ["class", "chunks", "AP", "cAP", *(f"{s.replace('_', ' ')} AP" for s in systems)]
    rows = []
    for label in sorted(ours, key=lambda label: -ours[label]["AP"]):
        delay = delays.get(label, {"actions": 0, "detected": 0, "median": None})
        rows.append([label, str(ours[label]["positives"]), *(figure_text(ours[label][key]) for key in ("AP", "cAP"))])
        rows[-1] += [figure_text(document[s]["per_class"][label]["AP"]) for s in systems]
        rows[-1] += [f"{delay['detected']} of {delay['actions']}", figure_text(delay["median"], 2)]
    total = ["mean", "", *(figure_text(document["lstr"][key]) for key in ("mAP", "mcAP"))]
    total += [figure_text(document[s]["mAP"]) for s in systems]
    total += [f"{document['delay']['detected']} of {document['delay']['actions']}"]
    total += [figure_text(document["delay"]["median"], 2)]
    return [draw_table([*columns, "detected", "median delay, s"], [*rows, total], total=True)]


def _instances(document: dict[str, Any]) -> list[Part]:
    about = [INSTANCES, STARTS, SEGMENTS, TOLERANCES, ""]
    shown: list[Part] = []
    for (title, columns, rows), note in zip(class_tables(document), about, strict=True):
        shown.append({"text": f"{title[0].upper()}{title[1:]}. {note}".rstrip()})
        shown.append(draw_table(columns, rows, total=True))
    return shown
