"""An evaluation as files: JSON, CSV, a page that needs no other file, and its figures for a paper."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lstr.files.atomic import write_text
from lstr.files.content import write_json
from lstr.files.names import slug
from lstr.pipelines.evaluation import figures
from lstr.pipelines.evaluation.findings import Findings, Judged
from lstr.pipelines.evaluation.page import Drawing, draw_page
from lstr.pipelines.evaluation.tables import csv_rows, csv_text
from lstr.pipelines.evaluation.watching import describe_watching
from lstr.pipelines.pages.figure import save

AP_TITLE = "Average precision of each class"
# The figures of a single checkpoint that the page does not fold
FIRST = ("found", "operating-curves", "delay", "confusion")
SHOWN_VIDEOS = 5  # best, and as many worst


def write_evaluation(folder: Path, findings: Findings) -> Path:
    """Write evaluation.json, evaluation.csv, figures/*.svg and .png, and at last report.html; return its path.

    Videos that browsers do not play are copied into videos/. Raises OutputError if the folder cannot be written.
    """
    judged, several = findings.judged, findings.several
    write_json(folder / "evaluation.json", findings.document)
    write_text(folder / "evaluation.csv", csv_text(csv_rows(judged)))
    drawings = []
    if several:
        figure = figures.draw_classes([one.name for one in judged], [one.document for one in judged])
        drawings.append(Drawing("", AP_TITLE, "", save(folder, "classes", figure), first=True))
    for i, entry in enumerate(judged, start=1):
        prefix = f"{i}-{slug(entry.name, 'checkpoint')}-" if several else ""
        for name, title, note, figure in _figures(entry, alone=not several):
            svg = save(folder, f"{prefix}{name}", figure)
            drawings.append(Drawing(entry.name if several else "", title, note, svg, name in FIRST and not several))
    path = folder / "report.html"
    write_text(path, draw_page(findings, drawings, describe_watching(findings, folder)))
    return path


def _figures(entry: Judged, alone: bool) -> Iterator[tuple[str, str, str, Figure]]:
    """(file name, title, what it shows, figure) of everything drawn for one checkpoint."""
    document, evaluation = entry.document, entry.evaluation
    videos, classes = evaluation.split.videos, evaluation.split.labels.classes
    pooled = np.concatenate(evaluation.scores), np.concatenate([video.targets for video in videos])
    note = "Solid: found; hollow: missed; hatched: false alarms."
    yield "found", "Actions found, missed and false", note, figures.draw_found(document)
    note = "The most actions found for a number of false alarms, by the threshold. The dots are the thresholds in use."
    yield "operating-curves", "Actions found against false alarms", note, figures.draw_operating_curves(document)
    if alone:
        yield "classes", AP_TITLE, "", figures.draw_classes([entry.name], [document])
    note = "The dotted line is the share of chunks in which the class is on."
    yield "precision-recall", "Precision and recall", note, figures.draw_precision_recall(*pooled, classes)
    note = "Calibrated AP of each tenth of the actions against all chunks without the class."
    yield "stages", "How early an action is known", note, figures.draw_stages(document)
    note = "A decision is correct when the class scores above every class that is not on. Longer delays: the last bar."
    yield "delay", "Delay until the first correct decision", note, figures.draw_delay(document)
    note = "A start is decided where the class of the highest score changes to an action."
    yield "starts", "Where actions start", note, figures.draw_starts(document)
    if "anticipation" in document:
        yield "anticipation", "Anticipation", "", figures.draw_anticipation(document)
    note = "Chunks in which the class of the highest score is not on, by what is on."
    yield "confusion", "Confusion on wrong chunks", note, figures.draw_confusion(document)
    for rank, place, index in _extremes(document["per_video"]):
        row = document["per_video"][index]
        title = f"{rank.capitalize()} video {place}: {row['id']}"
        note = f"mAP {row['mAP']:.3f}, {100 * row['right']:.0f} % of {row['chunks']} chunks right. Bands are labels."
        drawn = figures.draw_video(evaluation.scores[index], videos[index].targets, classes, evaluation.split.clock)
        yield f"{rank}-{place}", title, note, drawn


def _extremes(per_video: Sequence[dict]) -> list[tuple[str, int, int]]:
    """("best" or "worst", place, index) of the videos with most and least mAP; none is both."""
    order = [i for i in np.argsort([-row["mAP"] for row in per_video], kind="stable") if per_video[i]["mAP"] >= 0]
    n_best = min(SHOWN_VIDEOS, (len(order) + 1) // 2)
    best, worst = order[:n_best], order[::-1][: min(SHOWN_VIDEOS, len(order) - n_best)]
    return [(rank, place, int(i)) for rank, of in (("best", best), ("worst", worst)) for place, i in enumerate(of, 1)]
