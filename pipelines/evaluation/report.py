"""Write an evaluation as JSON, CSV, figures for papers, and a self-contained page."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lstr.chunk import CHUNK_SECONDS
from lstr.files.atomic import write_text
from lstr.files.content import write_json
from lstr.files.names import slug
from lstr.labels.label_set import actions_of
from lstr.metrics.actions import FOUND_IOU, FOUND_ONSET, length_text, sentence
from lstr.metrics.event_errors import judge_events
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
    words_of,
)
from lstr.pipelines.model_files.networks import origins_of_checkpoint
from lstr.pipelines.pages.figure import save, thinned
from lstr.pipelines.pages.page import build_page
from lstr.pipelines.pages.palette import colours_of
from lstr.pipelines.pages.proxy import find_ahead, find_playable, video_url

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
UNFOLDED = ("found", "operating-curves", "delay-curve", "delay", "confusion")
BASELINES = ("chance", "time_prior")
FOUND, MISSED, FALSE, EXCLUDED = "found", "missed", "false", "excluded"
# Maximum duration of video to copy for browsers; beyond it the page links to the originals
COPIED_SECONDS = 600
# Points per curve, and of all curves of a page together, so that a page with hundreds of videos opens quickly
MOST_POINTS, LEAST_POINTS, ALL_POINTS = 1000, 100, 2_000_000
# Codes for probability 1 and for a chunk without a score
FULL_SCALE, NO_SCORE = 254, 255
# A part of a section for the template: a text, a heading, a table or figures.
Part = dict[str, Any]
# A figure for the template, with the name of its file and of its checkpoint (empty for all checkpoints).
Drawing = dict[str, str]
Entry = tuple[Any, ...]
ShownVideo = dict[str, Any]


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
        note = "Lines: all thresholds. Dots: those in use; of all classes together with a 95 % interval of its rate."
        own("operating-curves", "Actions found against false alarms", note, figures.draw_operating_curves(document))
        note = "The highest F1 up to a delay, with one start threshold and one minimum length for all actions."
        own("delay-curve", "F1 against delay", note, figures.draw_delay_curve(document))
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
    """Return the page of an evaluation, with `watching` from `describe_watching`."""
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
    alarms = f"in {length_text(events['hours'])}; per hour {rate_text(together)}"
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


def describe_watching(findings: Findings, folder: Path) -> dict[str, Any]:
    """Return the data of each checkpoint's videos for the page in `folder`, videos with most errors first.

    Copies of videos that browsers do not play are written to `folder`. Raises OutputError.

    Returns:
        `held_out`: whether all are testing videos that no checkpoint was trained on. `models`: `name` and `videos`,
        each with `id`, `duration`, `chunks`, `begin` (in seconds, if not 0), `video` (its URL, or None), `ahead`
        (offset of the player's clock in seconds), `labels` (class, start, end, found or missed, error type),
        `detections` (class, start, end, verdict, score, time of the report, error type) and `curves` of classes with
        labels or detections: the highest score of each interval, as base64 of uint8. Error types are from
        `tables.words_of`.
    """
    labels = findings.judged[0].split.labels
    classes = labels.classes
    models: list[dict[str, Any]] = [{"name": entry.name, "videos": _judged_videos(entry)} for entry in findings.judged]
    n_curves = sum(len(_lanes(video)) for model in models for video in model["videos"])
    most = max(LEAST_POINTS, min(MOST_POINTS, ALL_POINTS // max(1, n_curves)))
    addresses: dict[str, ShownVideo] = {}
    for entry, model in zip(findings.judged, models, strict=True):
        scores = dict(zip((video.id for video in entry.split.videos), entry.scores, strict=True))
        model["videos"].sort(
            key=lambda video: -sum(one[3] in (MISSED, FALSE) for one in (*video["labels"], *video["detections"]))
        )
        for video in model["videos"]:
            rows = scores[video["id"]]
            video["curves"] = {c: encode_curve(rows[:, c], most) for c in _lanes(video) if len(rows)}
        seconds = COPIED_SECONDS
        for video in model["videos"]:
            if video["id"] not in addresses:
                addresses[video["id"]] = {"video": None}
                record = entry.split.folder.read_record(video["id"]) or {}
                source, is_same = Path(str(record.get("source") or "")), False
                with suppress(OSError):  # the record may contain an invalid file name
                    is_same = source.is_file() and source.stat().st_size == record.get("bytes")
                if is_same:
                    copy = folder / "videos" / video["id"]
                    playable = (find_playable(source, copy.parent, copy.name) if seconds > 0 else None) or source
                    seconds -= 0 if playable == source else video["duration"]
                    addresses[video["id"]] = {
                        "video": video_url(playable, folder),
                        "ahead": find_ahead(source, playable),
                    }
            video.update(addresses[video["id"]])
    actions = actions_of(classes)
    held_out = all(labels.videos[video["id"]].subset == "testing" for model in models for video in model["videos"])
    held_out = held_out and not any(entry.document.get("learnt_from") for entry in findings.judged)
    shown = {"classes": list(classes), "actions": actions, "colours": colours_of(classes)}
    return {**shown, "held_out": held_out, "models": models}


def encode_curve(curve: np.ndarray, most: int) -> str:
    """Encode scores (L,), L at least 1, as base64 of uint8: the maximum of each of at most `most` equal intervals."""
    _, values = thinned(np.asarray(curve, np.float64), 1.0, most)
    codes = np.where(np.isnan(values), NO_SCORE, np.rint(np.clip(values, 0, 1) * FULL_SCALE))
    return base64.b64encode(codes[1:].astype(np.uint8).tobytes()).decode("ascii")


def _judged_videos(entry: Evaluation) -> list[ShownVideo]:
    split = entry.split
    classes, shown = split.labels.classes, []
    for video, rows, events in zip(split.videos, entry.scores, entry.events, strict=True):
        labels: list[Entry] = []
        detections: list[Entry] = []
        for label, one in judge_events(events, classes).items():
            place = classes.index(label)
            label_kinds, detection_kinds = words_of(one)
            of_labels = [FOUND if found else MISSED for found in one.found]
            of_detections = [
                EXCLUDED if kind < 0 else FALSE if false else FOUND
                for kind, false in zip(one.detected, one.false, strict=True)
            ]
            labels += [
                (place, *map(float, span), verdict, kind)
                for span, verdict, kind in zip(one.truth, of_labels, label_kinds, strict=True)
            ]
            announced = zip(events.detections, events.announced or (), strict=True)
            own = [(segment, time) for segment, time in announced if segment.label == label]
            detections += [
                (place, segment.start, segment.end, verdict, segment.score, time, kind)
                for (segment, time), verdict, kind in zip(own, of_detections, detection_kinds, strict=True)
            ]
        described: ShownVideo = {"id": video.id, "duration": events.seconds, "chunks": len(rows), "labels": labels}
        begin = {"begin": float(split.clock.offset)} if split.clock.offset else {}
        shown.append({**described, **begin, "detections": detections})
    return shown


def _lanes(video: Mapping[str, Any]) -> list[int]:
    """Return the classes with a label or a detection, in order."""
    return sorted({entry[0] for entry in (*video["labels"], *video["detections"])})
