"""Write an evaluation as JSON, CSV, figures for papers, and a self-contained page."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
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
from lstr.pipelines.evaluation.analysis import MEANS, Findings
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
BASELINES = ("chance", "time_prior")
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

    def draw(name: str, title: str, note: str, figure: Figure, group: str = "", prefix: str = "") -> None:
        svg = base64.b64encode(save(folder, f"{prefix}{name}", figure)).decode()
        address = f"data:image/svg+xml;base64,{svg}"
        drawings.append({"group": group, "name": name, "title": title, "note": note, "address": address})

    names, documents = [entry.name for entry in judged], [entry.document for entry in judged]
    if several:
        draw("classes", AP_TITLE, "", figures.draw_classes(names, documents))
    for i, (entry, document) in enumerate(zip(judged, documents, strict=True), start=1):
        prefix = f"{i}-{slug(entry.name, 'checkpoint')}-" if several else ""
        own = partial(draw, group=entry.name, prefix=prefix)
        note = "Solid: found; hollow: missed; hatched: false alarms."
        own("found", "Actions found, missed and false", note, figures.draw_event_counts(document))
        note = (
            "The most actions found for a number of false alarms, by the threshold. The dots are the thresholds in use."
        )
        own("operating-curves", "Actions found against false alarms", note, figures.draw_operating_curves(document))
        if not several:
            own("classes", AP_TITLE, "", figures.draw_classes(names, documents))
        note = "The dotted line is the share of chunks in which the class is active."
        pooled = np.concatenate(entry.scores), np.concatenate([video.targets for video in entry.split.videos])
        figure = figures.draw_precision_recall(*pooled, entry.split.labels.classes)
        own("precision-recall", "Precision and recall", note, figure)
        note = "A decision is correct if the class scores above every inactive class. Longer delays: the last bar."
        own("delay", "Delay until the first correct decision", note, figures.draw_delay(document))
        if "anticipation" in document:
            own("anticipation", "Anticipation", "", figures.draw_anticipation(document))
        note = "Chunks in which the highest-scoring class is inactive, by the active class."
        own("confusion", "Confusion on wrong chunks", note, figures.draw_confusion(document))
    path = folder / "report.html"
    write_text(path, draw_page(findings, drawings, describe_watching(findings, folder)))
    return path


def draw_page(findings: Findings, drawings: Sequence[Drawing], watching: Mapping[str, Any]) -> str:
    """Return the page of an evaluation, with `watching` from `watching.describe_watching`."""
    judged, several = findings.judged, findings.several
    document = judged[0].document
    folds = f", {MEASURED_BY_FOLDS}" if "folds" in document else ""
    if document.get("decided_by_others"):
        folds += f", {CROSS_VALIDATED}"
    if document.get("folds", 1) > 1:
        folds = f" in {document['folds']} folds{folds}"
    about = [
        f"{document['videos']} videos{folds}",
        f"{document['chunks']} chunks of {document.get('seconds_per_chunk', CHUNK_SECONDS):.4g} s",
    ]
    if document["absent_classes"]:
        about.append(f"excluded from means, without a positive chunk: {', '.join(document['absent_classes'])}")
    if document["interval"]:
        level, resamples = document["interval"]["level"], document["interval"]["resamples"]
        about.append(f"in brackets {100 * level:.0f} % intervals of {resamples} resamples of the videos")
    notes = ["; ".join(about) + "."]
    sentences = []
    for entry in judged:
        text = sentence(entry.document["events"])
        sentences.append(f"{entry.name}: {text}." if several else f"{text[0].upper()}{text[1:]}.")
        # the initial weights of the feature networks with their licences, as far as they are known
        of_streams = origins_of_checkpoint(entry.loaded)
        for origin in dict.fromkeys(of_streams.values()):  # one sentence for all networks with the same initial weights
            *before, last = [stream for stream, one in of_streams.items() if one == origin]
            which = f"{', '.join(before)} and {last} networks" if before else f"{last} network"
            notes.append(f"{f'{entry.name}: ' if several else ''}the {which} started from {origin}.")
    events, prior = document["events"], document.get("time_prior")
    together, delay = events["together"], events["together"]["delay"]
    late = "" if delay["p95"] is None else f"; one in twenty later than {figure_text(delay['p95'], 1)} s"
    alarms = f"in {length_text(events['hours'])}; an hour {rate_text(together)}"
    guess = f"a guess by time alone has {figure_text(prior['mAP'], 2)}" if prior else ""
    needed = [
        ("Actions found", f"{together['found']} of {together['labels']}", f"{together['missed']} missed"),
        ("False alarms", str(together["false_alarms"]), alarms),
        ("Announced after", f"{figure_text(delay['p50'], 1)} s", f"median of those found{late}"),
        ("mAP over chunks", figure_text(document["lstr"]["mAP"], 2), guess),
    ]
    return build_page(
        "evaluation",
        f"{len(judged)} checkpoints compared" if several else f"Evaluation of {judged[0].name}",
        ("lanes.js", "film.js", "evaluation.js"),
        watching,
        sentences=sentences,
        notes=notes,
        warnings=findings.warnings,
        needed=None if several else needed,
        sections=[(title, parts) for title, parts in _sections(findings, drawings) if parts],
    )


def _sections(findings: Findings, drawings: Sequence[Drawing]) -> Iterator[tuple[str, Sequence[Part]]]:
    """Yield title and parts of each section; sections with a title are collapsed."""
    judged, several, quoted = findings.judged, findings.several, findings.quoted
    first = judged[0].document
    if several:  # side by side, for comparison
        yield "", [{"heading": "Actions found"}, *_events(judged)]
        ahead = [
            [entry.name, *(ahead_text(row[mean]) for mean in MEANS)]
            for entry, row in zip(judged[1:], findings.comparison, strict=True)
        ]
        about = {"text": "On the same resamples of the videos; an interval without 0 is a significant difference."}
        yield "", [{"heading": f"Ahead of {judged[0].name}"}, about, draw_table(["", *MEANS], ahead)]
    shown = [one for one in drawings if (not one["group"] if several else one["name"] in UNFOLDED)]
    yield "", [{"svgs": shown}] if shown else []
    if not several:
        yield "Actions found, by action", _events(judged)
    rows = [[f"{entry.name}, {convention}", *cells] for entry, (convention, *cells) in mean_rows(judged)]
    for system in BASELINES:
        if system in first:
            rows.append([system.replace("_", " "), *(figure_text(first[system][mean]) for mean in MEANS), "", ""])
    text = f"{CONVENTIONS} Intervals are {first['convention']}."
    yield "Means over chunks", [draw_table(["", *MEANS, "videos", "chunks"], rows), {"text": text}]
    if quoted:
        metric = quoted["metric"]
        rows = [
            [row["method"], row["features"], f"{row['value']:.1f}", f"quoted: {row['source']}"]
            for row in quoted["rows"]
        ]
        for entry in judged:
            rows.append([entry.name, "", figure_text(100 * entry.document["lstr"][metric], 1), "this evaluation"])
        title = f"{quoted['name']}, quoted, {metric} in per cent"
        yield title, [draw_table(["", "features", metric, "source"], rows)]
    for entry in judged:
        name = f"{entry.name}: " if several else ""
        if several:
            yield f"{name}Actions found, by action", _events([entry])
        for title, parts in _details(entry.document):
            yield f"{name}{title}", parts
        folded = [one for one in drawings if one not in shown and one["group"] == entry.name]
        yield f"{name}More figures", [{"svgs": folded}] if folded else []


def _details(document: dict[str, Any]) -> Iterator[tuple[str, list[Part]]]:
    """Yield title and tables of each section of one checkpoint."""
    ours, delay = document["lstr"], document["delay"]
    systems = [name for name in BASELINES if name in document]
    rows = []
    for label in sorted(ours["per_class"], key=lambda label: -ours["per_class"][label]["AP"]):
        one = ours["per_class"][label]
        found = delay["per_class"].get(label, {"actions": 0, "detected": 0, "median": None})
        rows.append([label, str(one["positives"]), *(figure_text(one[key]) for key in ("AP", "cAP"))])
        rows[-1] += [figure_text(document[s]["per_class"][label]["AP"]) for s in systems]
        rows[-1] += [f"{found['detected']} of {found['actions']}", figure_text(found["median"], 2)]
    rows.append(["mean", "", *(figure_text(ours[mean]) for mean in MEANS)])
    rows[-1] += [figure_text(document[s]["mAP"]) for s in systems]
    rows[-1] += [f"{delay['detected']} of {delay['actions']}", figure_text(delay["median"], 2)]
    columns = ["class", "chunks", "AP", "cAP", *(f"{s.replace('_', ' ')} AP" for s in systems)]
    table = draw_table([*columns, "detected", "median delay, s"], rows, total=True)
    yield "Classes, chunk by chunk", [table]
    shown: list[Part] = []
    about = [INSTANCES, STARTS, SEGMENTS, TOLERANCES, ""]
    for (title, names, lines), note in zip(class_tables(document), about, strict=True):
        shown.append({"text": f"{title[0].upper()}{title[1:]}. {note}".rstrip()})
        shown.append(draw_table(names, lines, total=True))
    yield "Instances, starts and segments", shown
    stages = document["stages"]
    rows = [
        [f"{mean}, {convention}", *(figure_text(row[mean]) for row in stages[convention])]
        for convention in stages
        for mean in MEANS
    ]
    yield "Portions of the actions", [draw_table(["", *(row["stage"] for row in stages["corrected"])], rows)]


def draw_table(columns: Sequence[str], rows: Iterable[Sequence[str]], total: bool = False) -> Part:
    """Return a table of texts; the last row is highlighted if it is a `total`."""
    return {"columns": columns, "rows": list(rows), "has_total": total}


def _events(judged: Sequence[Evaluation]) -> list[Part]:
    shown: list[Part] = []
    for i, (title, columns, rows) in enumerate(event_tables(judged)):
        shown.append({"text": f"{title[0].upper()}{title[1:]}." if i else EVENTS})
        shown.append(draw_table(columns, rows, total=len(judged) == 1))
    return shown
