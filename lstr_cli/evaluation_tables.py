"""What `lstr evaluate` shows in a terminal."""

from collections.abc import Sequence

from lstr.metrics.actions import sentence
from lstr.pipelines.evaluation.findings import Findings, Judged
from lstr.pipelines.evaluation.tables import ahead_text, event_tables, figure_text, mean_rows
from lstr_cli import console

AHEAD = ("mAP", "mcAP", "event F1", "instance mAP")


def show_findings(findings: Findings, verdict: str | None = None) -> None:
    """Show the tables of one checkpoint, or of several side by side.

    With a verdict, on which of two model files is better, only it and the figures that it is based on are shown.
    """
    judged, quoted = findings.judged, findings.quoted
    document = judged[0].document
    if verdict:
        console.show(verdict)
    for entry in judged:
        name = f"{entry.name}: " if findings.several else ""
        console.show(f"{name}{sentence(entry.document['events'])}")
    for table in event_tables(judged):
        console.show_table(table.title, table.columns, table.rows, right=range(1, len(table.columns)))
    if verdict:
        _show_means(judged)
        return
    _show_classes(judged)
    if not findings.several and document["absent_classes"]:
        console.say(f"in no mean, because no chunk has them: {', '.join(document['absent_classes'])}")
    _show_means(judged)
    if not findings.several and "anticipation" in document:
        ahead = [
            (f"{row['seconds']:.2f}", *("no chunk" if row[m] is None else figure_text(row[m]) for m in ("mAP", "mcAP")))
            for row in document["anticipation"]
        ]
        console.show_table("anticipation", ("seconds ahead", "mAP", "mcAP"), ahead, right=(0, 1, 2))
    if findings.several:
        rows = [
            [entry.name] + [ahead_text(row[figure]) for figure in AHEAD]
            for entry, row in zip(judged[1:], findings.comparison, strict=True)
        ]
        console.show_table(f"ahead of {judged[0].name}", ("checkpoint", *AHEAD), rows, right=range(1, 1 + len(AHEAD)))
        for row in findings.comparison:
            console.show(row["sentence"])
    if quoted:
        rows = [[row["method"], row["features"], f"{row['value']:.1f}", row["source"]] for row in quoted["rows"]]
        title = f"{quoted['name']}, quoted; not available: {', '.join(quoted['left_out'])}"
        console.show_table(title, ("method", "features", quoted["metric"], "quoted from"), rows, right=(2,))


def show_thresholds(document: dict) -> None:
    """Show a table for each checkpoint whose thresholds were chosen."""
    columns = ("class", "on", "off", "length", "gap", "F1", "by default", "actions", "found", "false alarms")
    for one in document.get("checkpoints", [document]):
        rows = []
        for label, values in one["thresholds"].items():
            figures = [figure_text(values[key], 2) for key in ("on", "off", "min_length", "merge_gap", "F1", "before")]
            counts = one["events"]["per_class"][label]
            rows.append([label, *figures, *(counts[key] for key in ("labels", "found", "false_alarms"))])
        console.show_table(f"thresholds in {one['checkpoint']}", columns, rows, right=range(1, len(columns)))
        chosen = one["thresholds"].items()
        if any(values.get("highest") for _, values in chosen):
            console.show("of actions that never happen together, only the one with the highest score is active.")
        if backdates := [f"{label} {v['backdate']:g} s" for label, v in chosen if v.get("backdate")]:
            console.show(f"starts are backdated, as the labels have them: {', '.join(backdates)}.")
        console.show(f"on these videos: {sentence(one['events'])}")
        console.show(f"by default thresholds: {sentence(one['default_events'])}")


def _show_classes(judged: Sequence[Judged]) -> None:
    """Show AP and cAP of one checkpoint next to the baselines, or the AP of several."""
    first, several = judged[0].document, len(judged) > 1
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
    columns = [*(["checkpoint"] * names), "convention", "mAP", "mcAP", "videos", "chunks"]
    interval, title = judged[0].document["interval"], "means"
    if interval:
        title += f", with {100 * interval['level']:.0f} % intervals of {interval['resamples']} resamples of the videos"
    console.show_table(title, columns, rows, right=range(len(columns) - 4, len(columns)))
