"""An evaluation as files: JSON, CSV, a page that needs no other file, and its figures for a paper."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lstr.points import OFFSETS
from pipelines.evaluation import figures
from pipelines.evaluation.evaluate import Evaluation
from pipelines.evaluation.page import Section, build_page
from pipelines.files.atomic import replacing, write_text
from pipelines.files.json_files import write_json

ENDINGS = (".pt", ".pth")
SHOWN_VIDEOS = 5  # best, and as many worst


@dataclass(frozen=True)
class Judged:
    """A checkpoint in a report: its name there, its scores, and everything said of them (`analysis.analyse`)."""

    name: str
    evaluation: Evaluation
    document: dict


def names_of(paths: Sequence[Path]) -> list[str]:
    """A short name for each checkpoint, no two alike: the file's, or its folder's where all files are called the same,
    with as many folders as it takes; else a number."""
    paths = [path.with_suffix("") if path.suffix in ENDINGS else path for path in paths]
    if len({path.name for path in paths}) == 1 < len({path.parent for path in paths}):
        paths = [path.parent for path in paths]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{i}. {path.name}" for i, path in enumerate(paths, start=1)]


def result_of(judged: Sequence[Judged], comparison: Sequence[dict], quoted: dict | None) -> dict:
    """What `--json` prints: the document of one checkpoint, or all of several; NaN becomes None."""
    if len(judged) == 1:
        result = {**judged[0].document}
    else:
        result = {"checkpoints": [{"name": j.name, **j.document} for j in judged], "comparison": list(comparison)}
    return without_nan({**result, "quoted": quoted} if quoted else result)


def without_nan(value):
    """The same with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def class_rows(judged: Sequence[Judged]) -> list[dict]:
    """A row a checkpoint and class, sorted by AP, then a row of means: what the CSV holds."""
    rows = []
    for entry in judged:
        document = entry.document
        ours, delays = document["lstr"]["per_class"], document["delay"]["per_class"]
        for label in sorted(ours, key=lambda label: -ours[label]["AP"]):
            delay, start = delays.get(label, {}), document["starts"]["per_class"].get(label, {})
            rows.append({"checkpoint": entry.name, "class": label, "positives": ours[label]["positives"]})
            rows[-1] |= {key: ours[label][key] for key in ("AP", "cAP")}
            for system in ("chance", "time_prior"):
                rows[-1] |= {f"{system}_{key}": _of(document, system, label, key) for key in ("AP", "cAP")}
            rows[-1] |= {"actions": delay.get("actions", 0), "detected": delay.get("detected", 0)}
            rows[-1] |= {"median_delay_s": delay.get("median"), "mean_delay_s": delay.get("mean")}
            said = start.get("AP", [])
            rows[-1] |= {f"start_AP_{offset}s": value for offset, value in zip(OFFSETS, said, strict=bool(said))}
        means = {
            "checkpoint": entry.name,
            "class": "mean",
            "AP": document["lstr"]["mAP"],
            "cAP": document["lstr"]["mcAP"],
        }
        for system in ("chance", "time_prior"):
            if system in document:
                means |= {f"{system}_AP": document[system]["mAP"], f"{system}_cAP": document[system]["mcAP"]}
        if "seen" in document:
            means["seen_videos"] = len(document["seen"])
        rows.append(means)
    return rows


def _of(document: dict, system: str, label: str, key: str) -> float | None:
    return document[system]["per_class"][label][key] if system in document else None


def csv_text(rows: Sequence[dict]) -> str:
    """Rows as CSV with one header; a value that is missing or NaN is empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    target = io.StringIO()
    writer = csv.DictWriter(target, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(without_nan(row) for row in rows)
    return target.getvalue()


def write_report(
    folder: Path,
    judged: Sequence[Judged],
    comparison: Sequence[dict],
    quoted: dict | None,
    warnings: Sequence[str] = (),
) -> Path:
    """Write evaluation.json, evaluation.csv, figures/*.svg and .png, and at last report.html, whose path is returned.

    Raises OutputError where the folder cannot be written.
    """
    write_json(folder / "evaluation.json", result_of(judged, comparison, quoted))
    write_text(folder / "evaluation.csv", csv_text(class_rows(judged)))
    sections = []
    if len(judged) > 1:
        drawn = figures.draw_classes([j.name for j in judged], [j.document for j in judged])
        sections.append(Section("", "classes", "Average precision of each class", "", _saved(folder, "classes", drawn)))
    for i, entry in enumerate(judged, start=1):
        prefix = "" if len(judged) == 1 else f"{i}-{_file_name(entry.name)}-"
        for name, title, note, drawn in _figures(entry, alone=len(judged) == 1):
            svg = _saved(folder, f"{prefix}{name}", drawn)
            sections.append(Section(entry.name if len(judged) > 1 else "", name, title, note, svg))
    path = folder / "report.html"
    write_text(path, build_page([(j.name, j.document) for j in judged], comparison, quoted, sections, warnings))
    return path


def _figures(entry: Judged, alone: bool):
    """(file name, title, what it shows, figure) of everything drawn for one checkpoint."""
    document, evaluation = entry.document, entry.evaluation
    videos, classes = evaluation.split.videos, evaluation.split.labels.classes
    pooled = np.concatenate(evaluation.scores), np.concatenate([video.targets for video in videos])
    if alone:
        yield "classes", "Average precision of each class", "", figures.draw_classes([entry.name], [document])
    note = "The dotted line is the share of chunks in which the class is on."
    yield "precision-recall", "Precision and recall", note, figures.draw_precision_recall(*pooled, classes)
    note = "Calibrated AP of each tenth of the actions against all chunks without the class."
    yield "stages", "How early an action is known", note, figures.draw_stages(document)
    note = "A decision is correct when the class scores above every class that is not on. Longer delays: the last bar."
    yield "delay", "Delay until the first correct decision", note, figures.draw_delay(document)
    note = "Starts are said where the class of the highest score changes to an action."
    yield "starts", "Where actions start", note, figures.draw_starts(document)
    if "anticipation" in document:
        yield "anticipation", "Anticipation", "", figures.draw_anticipation(document)
    note = "Chunks in which the class of the highest score is not on, by what is on."
    yield "confusion", "Confusion on wrong chunks", note, figures.draw_confusion(document)
    for rank, place, index in _extremes(document["per_video"]):
        row = document["per_video"][index]
        title = f"{rank.capitalize()} video {place}: {row['id']}"
        note = f"mAP {row['mAP']:.3f}, {100 * row['right']:.0f} % of {row['chunks']} chunks right. Bands are labels."
        drawn = figures.draw_video(evaluation.scores[index], videos[index].targets, classes)
        yield f"{rank}-{place}", title, note, drawn


def _extremes(per_video: Sequence[dict]) -> list[tuple[str, int, int]]:
    """("best" or "worst", place, index) of the videos with most and least mAP; none is both."""
    order = [i for i in np.argsort([-row["mAP"] for row in per_video], kind="stable") if per_video[i]["mAP"] >= 0]
    n_best = min(SHOWN_VIDEOS, (len(order) + 1) // 2)
    best, worst = order[:n_best], order[::-1][: min(SHOWN_VIDEOS, len(order) - n_best)]
    return [(rank, place, int(i)) for rank, of in (("best", best), ("worst", worst)) for place, i in enumerate(of, 1)]


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "checkpoint"


def _saved(folder: Path, name: str, figure) -> bytes:
    """The figure's SVG, which is now in the folder beside its PNG."""
    drawn = {form: figures.render(figure, form) for form in ("svg", "png")}
    for form, content in drawn.items():
        with replacing(folder / "figures" / f"{name}.{form}") as temporary:
            temporary.write_bytes(content)
    return figures.for_page(drawn["svg"])
