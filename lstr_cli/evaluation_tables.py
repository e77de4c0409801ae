"""What `lstr evaluate` shows in a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lstr.metrics.actions import sentence
from lstr.pipelines.evaluation.event_rows import ahead_text, event_tables, figure_text, mean_rows
from lstr.pipelines.evaluation.findings import Findings, Judged
from lstr_cli import console

if TYPE_CHECKING:
    from lstr.pipelines.evaluation.comparison import Comparison

AHEAD = ("mAP", "mcAP", "event F1", "instance mAP")


def show_findings(findings: Findings) -> None:
    """The tables of one checkpoint, or of several side by side."""
    judged, quoted = findings.judged, findings.quoted
    for entry in judged:
        name = f"{entry.name}: " if findings.several else ""
        console.show(f"{name}{sentence(entry.document['events'])}")
    _show_events(judged)
    _show_classes(judged)
    if not findings.several and (absent := judged[0].document["absent_classes"]):
        console.say(f"in no mean, because no chunk has them: {', '.join(absent)}")
    _show_means(judged)
    if not findings.several:
        _show_anticipation(judged[0].document)
    else:
        rows = [
            [entry.name] + [ahead_text(row[figure]) for figure in AHEAD]
            for entry, row in zip(judged[1:], findings.comparison, strict=True)
        ]
        console.show_table(f"ahead of {judged[0].name}", ("checkpoint", *AHEAD), rows, right=range(1, 1 + len(AHEAD)))
        for row in findings.comparison:
            console.show(row["sentence"])
    if quoted:
        rows = [[row["method"], row["features"], f"{row['value']:.1f}", row["source"]] for row in quoted["rows"]]
        title = f"{quoted['name']}, quoted; not at hand: {', '.join(quoted['left_out'])}"
        console.show_table(title, ("method", "features", quoted["metric"], "quoted from"), rows, right=(2,))


def show_comparison(comparison: "Comparison") -> None:
    """Which of two model files is better, and the figures that say it; else what each evaluation shows."""
    if comparison.sentence is None:
        show_findings(comparison.findings)
        return
    console.show(comparison.sentence)
    for entry in comparison.findings.judged:
        console.show(f"{entry.name}: {sentence(entry.document['events'])}")
    _show_events(comparison.findings.judged)
    _show_means(comparison.findings.judged)


def show_thresholds(document: dict) -> None:
    """A table for each checkpoint whose thresholds were chosen."""
    for one in document.get("checkpoints", [document]):
        of_class = one["events"]["per_class"]
        rows = [
            (label, *(figure_text(values[key], 2) for key in ("on", "off", "min_length", "merge_gap", "F1", "before")))
            + tuple(of_class[label][key] for key in ("labels", "found", "false_alarms"))
            for label, values in one["thresholds"].items()
        ]
        columns = ("class", "on", "off", "length", "gap", "F1", "by default", "actions", "found", "false alarms")
        console.show_table(f"thresholds in {one['checkpoint']}", columns, rows, right=range(1, len(columns)))
        if any(values.get("highest") for values in one["thresholds"].values()):
            console.show("of actions that never happen together, only the one with the highest score is on.")
        if backdates := {
            label: values["backdate"] for label, values in one["thresholds"].items() if values.get("backdate")
        }:
            told = ", ".join(f"{label} {backdate:g} s" for label, backdate in backdates.items())
            console.show(f"starts are backdated, as the labels have them: {told}.")
        console.show(f"on these videos: {sentence(one['events'])}")
        console.show(f"by default thresholds: {sentence(one['default_events'])}")


def _show_events(judged: Sequence[Judged]) -> None:
    for table in event_tables(judged):
        console.show_table(table.title, table.columns, table.rows, right=range(1, len(table.columns)))


def _show_classes(judged: Sequence[Judged]) -> None:
    """AP and cAP of one checkpoint beside the baselines, or the AP of several."""
    first = judged[0].document
    several = len(judged) > 1
    if several:
        keys, systems = ["AP"], {entry.name: entry.document["lstr"] for entry in judged}
    else:
        keys, systems = ["AP", "cAP"], {name: first[name] for name in ("lstr", "chance", "time_prior") if name in first}
    ours = first["lstr"]["per_class"]
    rows = [
        [label, ours[label]["positives"]]
        + [figure_text(scores["per_class"].get(label, {}).get(key)) for key in keys for scores in systems.values()]
        for label in sorted(ours, key=lambda label: -ours[label]["AP"])
    ]
    rows.append(["mean", ""] + [figure_text(scores[f"m{key}"]) for key in keys for scores in systems.values()])
    title = f"{'AP; ' * several}{first['videos']} videos, {first['chunks']} chunks"
    columns = ["class", "chunks", *(name if several else f"{name} {key}" for key in keys for name in systems)]
    console.show_table(title, columns, rows, right=range(1, len(columns)))


def _show_means(judged: Sequence[Judged]) -> None:
    names = len(judged) > 1
    rows = [[*([entry.name] * names), *map(str.rstrip, cells)] for entry, cells in mean_rows(judged)]
    columns = [*(["checkpoint"] if len(judged) > 1 else []), "convention", "mAP", "mcAP", "videos", "chunks"]
    interval = judged[0].document["interval"]
    title = "means"
    if interval:
        title += f", with {100 * interval['level']:.0f} % intervals of {interval['resamples']} resamples of the videos"
    console.show_table(title, columns, rows, right=range(len(columns) - 4, len(columns)))


def _show_anticipation(document: dict) -> None:
    if "anticipation" in document:
        ahead = [
            (f"{r['seconds']:.2f}", *(_cell(r[mean]) for mean in ("mAP", "mcAP"))) for r in document["anticipation"]
        ]
        console.show_table("anticipation", ("seconds ahead", "mAP", "mcAP"), ahead, right=(0, 1, 2))


def _cell(value: float | None) -> str:
    return "no chunk" if value is None else figure_text(value)
