"""The HTML page of an evaluation: its videos to watch, what a person needs, then tables; in light and dark."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lstr.chunk import CHUNK_SECONDS
from lstr.metrics.actions import FOUND_IOU, FOUND_ONSET, length_text, sentence
from lstr.pipelines.evaluation.event_rows import ahead_text, event_tables, figure_text, mean_rows, rate_text
from lstr.pipelines.evaluation.findings import Findings, Judged
from lstr.pipelines.evaluation.instance_rows import class_tables
from lstr.pipelines.evaluation.scoring import DECIDED_BY_OTHERS, MEASURED_BY_FOLDS
from lstr.pipelines.files.atomic import write_text
from lstr.pipelines.reports.markup import Drawing, card, draw_table, folded, note, show_figures
from lstr.pipelines.reports.page import Script, build_page, read_markup
from lstr.pipelines.weights.known import origins_of_checkpoint

CONVENTIONS = (
    "Each chunk counts once, of all videos together. Corrected: every chunk but those that are labelled ambiguous. "
    "Published: the chunks that the code named scores, LSTR's where that of a kind is not known. Compare with "
    "published results by the published rows only."
)
EVENTS = (
    "What lstr detect announces with the checkpoint's thresholds. A label is found by a detection of its class with an "
    f"IoU of at least {FOUND_IOU:g}, or with a start within {FOUND_ONSET:g} s of its start, each in one pair at most. "
    "The others are missed labels and false alarms. False seconds are detected and not labelled. p50 and p95 are "
    "seconds from a found label's start to the announcement; below 0 it came early."
)
INSTANCES = (
    "Each detection as it was told when it ended, with the mean score of its chunks; nothing is withdrawn later. Late: "
    "seconds (median) from a found label's end until it was told. AP by "
    "ActivityNet's rules: from the highest score down a detection takes the free label of most overlap."
)
STARTS = "A start is said where the class of the highest score changes to an action."
SEGMENTS = (
    "Runs of the class with the highest score, background left out, as action segmentation is measured. A class's own "
    "edit score says how near the numbers of its segments are."
)
TOLERANCES = "Detections as lstr detect announces them, in as many pairs with labels as there can be."
COMPARED = "<!-- compared --><!-- end -->"
"""Where the page says whether the model is better than another, as soon as that is known"""


def draw_page(findings: Findings, drawings: Sequence[Drawing], watching: Mapping[str, Any]) -> str:
    """The page of an evaluation, with `watching` as `watching.describe_watching` has it. Every name is escaped."""
    judged, several = findings.judged, findings.several
    first = judged[0]
    title = f"{len(judged)} checkpoints compared" if several else f"Evaluation of {first.name}"
    warnings = "".join(f"<div>{escape(text)}</div>" for text in findings.warnings)
    body = [
        f'<div class="opening">{_sentences(judged)}{COMPARED}{note(_about(first.document))}{_origins(judged)}</div>',
        f'<div class="warnings" role="note" aria-label="Warnings">{warnings}</div>' if warnings else "",
        read_markup("watching.html"),
        _compared(findings) if several else _needed(first.document),
        show_figures([one for one in drawings if one.first]),
        "" if several else folded("Actions found, by action", _events(judged)),
        folded("Means over chunks", _means(judged)),
        _quoted(findings.quoted, judged) if findings.quoted else "",
    ]
    for entry in judged:
        name = f"{entry.name}: " if several else ""
        body.append(folded(f"{name}Actions found, by action", _events([entry])) if several else "")
        body.append(folded(f"{name}Classes, chunk by chunk", _classes(entry.document)))
        body.append(folded(f"{name}Instances, starts and segments", _instances(entry.document)))
        body.append(folded(f"{name}Portions of the actions", _stages(entry.document)))
        drawn = show_figures([one for one in drawings if not one.first and one.group == (several and entry.name or "")])
        body.append(folded(f"{name}More figures", drawn) if drawn else "")
    markup = "".join(f"{part}\n" for part in body if part)
    return build_page(title, markup, ("evaluation.css",), Script(("marks.js", "zoom.js", "watching.js"), watching))


def add_comparison(page: Path, text: str) -> None:
    """Write into a page that is there whether its model is better than another. Raises OutputError."""
    begin, end = re.split("(?<=-->)(?=<!--)", COMPARED)
    whole = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    sentence_of_it = f'{begin}<p class="sentence">{escape(text)}</p>{end}'
    write_text(page, whole.sub(lambda _: sentence_of_it, page.read_text("utf-8"), count=1))


def _origins(judged: Sequence[Judged]) -> str:
    """What the feature networks began with, and its licence, as far as it is known."""
    texts = []
    for entry in judged:
        of_model = f"{entry.name}: " if len(judged) > 1 else ""
        of_streams = origins_of_checkpoint(entry.evaluation.loaded)
        for origin in dict.fromkeys(of_streams.values()):  # one sentence, however many networks began so
            names = [stream for stream, one in of_streams.items() if one == origin]
            *before, last = names
            which = f"{', '.join(before)} and {last} networks" if before else f"{last} network"
            texts.append(note(f"{of_model}the {which} began with {origin}."))
    return "".join(texts)


def _about(document: dict[str, Any]) -> str:
    folds = f", {MEASURED_BY_FOLDS}" if "folds" in document else ""
    if document.get("decided_by_others"):
        folds += f", {DECIDED_BY_OTHERS}"
    if document.get("folds", 1) > 1:
        folds = f" in {document['folds']} folds{folds}"
    parts = [
        f"{document['videos']} videos{folds}",
        f"{document['chunks']} chunks of {document.get('seconds_per_chunk', CHUNK_SECONDS):.4g} s",
    ]
    if document["absent_classes"]:
        parts.append(f"without a positive chunk, and in no mean: {', '.join(document['absent_classes'])}")
    if document["interval"]:
        level, resamples = document["interval"]["level"], document["interval"]["resamples"]
        parts.append(f"in brackets {100 * level:.0f} % intervals of {resamples} resamples of the videos")
    return "; ".join(parts) + "."


def _needed(document: dict[str, Any]) -> str:
    """What a person wants to know, as a few large figures."""
    events, prior = document["events"], document.get("time_prior")
    together, delay = events["together"], events["together"]["delay"]
    late = "" if delay["p95"] is None else f"; one in twenty later than {figure_text(delay['p95'], 1)} s"
    alarms = f"in {length_text(events['hours'])}; an hour {rate_text(together)}"
    guess = f"a guess by time alone has {figure_text(prior['mAP'], 2)}" if prior else ""
    figures = [
        ("Actions found", f"{together['found']} of {together['labels']}", f"{together['missed']} missed"),
        ("False alarms", str(together["false_alarms"]), alarms),
        ("Announced after", f"{figure_text(delay['p50'], 1)} s", f"median of those found{late}"),
        ("mAP over chunks", figure_text(document["lstr"]["mAP"], 2), guess),
    ]
    rows = "".join(
        f'<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd class="soft">{escape(more)}</dd></div>'
        for name, value, more in figures
    )
    return f'<dl class="card needed">{rows}</dl>'


def _compared(findings: Findings) -> str:
    """Checkpoints side by side, which is what a comparison is for: not folded."""
    return card(f"<h3>Actions found</h3>{_events(findings.judged)}") + "\n" + card(_differences(findings))


def _means(judged: Sequence[Judged]) -> str:
    rows = [[f"{entry.name}, {convention}", *cells] for entry, (convention, *cells) in mean_rows(judged)]
    for system in ("chance", "time_prior"):
        if system in judged[0].document:
            means = [figure_text(judged[0].document[system][mean]) for mean in ("mAP", "mcAP")]
            rows.append([system.replace("_", " "), *means, "", ""])
    table = draw_table(["", "mAP", "mcAP", "videos", "chunks"], rows)
    convention = judged[0].document["convention"]
    return table + note(f"{CONVENTIONS} Intervals are {convention}.")


def _events(judged: Sequence[Judged]) -> str:
    shown = []
    for i, table in enumerate(event_tables(judged)):
        shown.append(note(f"{table.title[0].upper()}{table.title[1:]}." if i else EVENTS))
        shown.append(draw_table(table.columns, table.rows, total=len(judged) == 1))
    return "".join(shown)


def _sentences(judged: Sequence[Judged]) -> str:
    texts = [sentence(entry.document["events"]) for entry in judged]
    if len(judged) > 1:
        texts = [f"{entry.name}: {text}" for entry, text in zip(judged, texts, strict=True)]
    else:
        texts = [text[0].upper() + text[1:] for text in texts]
    return "".join(f'<p class="sentence">{escape(text)}.</p>' for text in texts)


def _differences(findings: Findings) -> str:
    rows = []
    for entry, row in zip(findings.judged[1:], findings.comparison, strict=True):
        rows.append([entry.name, *(ahead_text(row[mean]) for mean in ("mAP", "mcAP"))])
    about = note("On the same resamples of the videos; an interval without 0 is a difference they agree on.")
    return f"<h3>Ahead of {escape(findings.judged[0].name)}</h3>{about}" + draw_table(["", "mAP", "mcAP"], rows)


def _quoted(quoted: dict[str, Any], judged: Sequence[Judged]) -> str:
    metric = quoted["metric"]
    rows = [
        [row["method"], row["features"], f"{row['value']:.1f}", f"quoted: {row['source']}"] for row in quoted["rows"]
    ]
    for entry in judged:
        rows.append([entry.name, "", figure_text(100 * entry.document["lstr"][metric], 1), "this evaluation"])
    left_out = ", ".join(quoted["left_out"])
    about = note(f"Rows of the table in the LSTR paper that are not at hand: {left_out}.")
    table = draw_table(["", "features", metric, "source"], rows)
    return folded(f"{quoted['name']}, quoted, {metric} in per cent", table + about)


def _classes(document: dict[str, Any]) -> str:
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
    return draw_table([*columns, "decided right", "median delay to it, s"], [*rows, total], total=True)


def _stages(document: dict[str, Any]) -> str:
    columns = ["", *(row["stage"] for row in document["stages"]["corrected"])]
    rows = [
        [f"{mean}, {name}", *(figure_text(row[mean]) for row in stages)]
        for name, stages in document["stages"].items()
        for mean in ("mAP", "mcAP")
    ]
    return draw_table(columns, rows)


def _instances(document: dict[str, Any]) -> str:
    about = [INSTANCES, STARTS, SEGMENTS, TOLERANCES, ""]
    shown = []
    for table, said in zip(class_tables(document), about, strict=True):
        shown.append(note(f"{table.title[0].upper()}{table.title[1:]}. {said}".rstrip()))
        shown.append(draw_table(table.columns, table.rows, total=True))
    return "".join(shown)
