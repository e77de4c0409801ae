"""`lstr evaluate`: events and per-frame mAP of one or several checkpoints, next to two baselines."""

import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstr.settings import convert, parse_rate
from lstr_cli import console
from lstr_cli.options import (
    DATA,
    EVENTS,
    MODEL,
    OF_DATA,
    OF_MODEL,
    OUTPUT,
    Changes,
    Command,
    Quantity,
    as_json,
    check_paths,
    labels_option,
    option,
    set_option,
)

if TYPE_CHECKING:  # they import numpy
    from lstr.pipelines.evaluation.analysis import Findings
    from lstr.pipelines.evaluation.evaluate import EvaluateResult
    from lstr.pipelines.evaluation.scoring import Evaluation

AHEAD = ("mAP", "mcAP", "event F1", "instance mAP")  # figures by which checkpoints are compared
SYSTEMS = {"lstr": "model", "chance": "chance", "time_prior": "time prior"}  # keys of the JSON, and their columns
# Options that only an evaluation on feature folders has.
OF_FEATURES = ("published", "choose_thresholds", "false_alarms", "allow_seen")


@click.command("evaluate", cls=Command)
@click.argument("paths", metavar="MODEL... FEATURES...|MODEL... VIDEOS... LABELS", nargs=-1, required=True)
@labels_option()
@option("-o --output DIR", OUTPUT, "Write report.html, JSON, CSV and figures into this folder.")
@option("--subset NAME", DATA, "Score this subset.  [default: testing, else validation]")
@option(
    "--choose-thresholds",
    EVENTS,
    "Choose thresholds for `lstr detect` on the validation subset, and write them into CHECKPOINT.",
)
@option(
    "--false-alarms RATE",
    EVENTS,
    "Choose the thresholds that find most with this many false alarms of all classes together, for example 2/h.  "
    "[default: the highest event F1, with a price for delays]",
    type=Quantity(parse_rate),
)
@option("--published", MODEL, "Score the chunks that the published code of this kind scores.")
@option("--allow-seen", DATA, "Score also videos that the feature networks were trained on; the result is marked.")
@option(
    "--to",
    OUTPUT,
    "Print one table for a paper; runs that differ only in their seed are one row of mean and deviation.",
    type=click.Choice(["csv", "latex", "md"]),
)
@option("--all", OUTPUT, "Print all tables, for example errors by kind, intervals and baselines.", name="show_all")
@as_json
@set_option(f"{OF_DATA} resamples mode delay_price recipe.allow_mismatch", model=OF_MODEL)
def evaluate(paths, settings, to, as_json, show_all, **others):
    """Count the actions found, missed and detected falsely, and score every chunk: mAP and mcAP, per class.

    MODEL is a model file (.lstr) or a checkpoint; FEATURES a folder of its recipe.

    Model files with videos and labels are measured on the videos that none of them was trained on; each computes
    features by its own recipe. For two, one sentence names the better one and whether the difference is significant
    (in mAP and event F1, on the same resamples of the videos). Exits with status 0 either way, with 4 if no such
    video is left or the classes differ, and with 3 if a video cannot be read.

    Events are the detections of `lstr detect` with the checkpoint's thresholds: a label is found by a detection
    of its class that overlaps it with an IoU of 0.3 or starts within a second of it.

    Also measured: instances, reported when they end (mAP at an IoU of 0.3 to 0.7), starts (mAP within 1 to 10 s),
    segments (F1 and edit score) and the error of edges in seconds; the report and the JSON have each class.

    Two baselines use no video: chance scores each class by its share of the training chunks, the time prior by how
    often it is active at that time of a training video. Also scored: each tenth of the actions, the delay until they
    are known, and each chunk ahead of a model that anticipates. Several checkpoints are compared
    on the same resamples of the videos. Several feature folders of one recipe are read as one; they come after the
    checkpoints. Videos that the networks of their features were trained on are refused.

    \b
    Examples:
      lstr evaluate run/checkpoint.pt features --labels labels.json
      lstr evaluate fall.lstr features --labels labels.json -o evaluation
      lstr evaluate fall.lstr new_videos/ labels.json
      lstr evaluate old.lstr new.lstr videos/ labels.json
      lstr evaluate a.lstr b.lstr c.lstr videos/ labels.json --to md
      lstr evaluate run/checkpoint.pt features --labels labels.json --choose-thresholds
      lstr evaluate run/checkpoint.pt features --labels labels.json --choose-thresholds --false-alarms 2/h
      lstr evaluate a.pt b.pt c.pt features --labels labels.json --subset validation --json
      lstr evaluate seed*/checkpoint.pt features --labels labels.json --to latex
      lstr evaluate run/checkpoint.pt disk1/features disk2/features --labels labels.json
    """
    from lstr.pipelines.features.folder import is_feature_folder
    from lstr.pipelines.model_files.model_file import is_meant_as_model

    if to and (as_json or others["choose_thresholds"]):
        raise click.UsageError("--to cannot be combined with --json or --choose-thresholds.")
    # Model files that are followed by something else than feature folders
    models = [path for path in paths if is_meant_as_model(path)]
    check_paths(models=models)
    known = [path for path in map(Path, paths[len(models) :]) if path.exists()]
    are_videos = paths[: len(models)] == (*models,) and bool(known) and not any(map(is_feature_folder, known))
    if others["labels"] is None or are_videos:
        result = _compare_on_videos(paths, settings, **others)
        _show(result, to, as_json, show_all)
        if result.failed:
            sys.exit(console.PARTIAL_FAILURE)
        return
    if others["false_alarms"] is not None and not others["choose_thresholds"]:
        raise click.UsageError("--false-alarms needs --choose-thresholds.")
    # The last path is a feature folder, even if it is missing.
    folders = [at == len(paths) - 1 or Path(p).is_dir() or is_feature_folder(Path(p)) for at, p in enumerate(paths)]
    first = folders.index(True)
    if not first or not all(folders[first:]):
        raise click.UsageError(
            "Specify model files or checkpoints, then feature folders, for example: fall.lstr features --labels FILE."
        )
    checkpoints, features = [*paths[:first]], [*paths[first:]]
    check_paths(labels=[others["labels"]], features=features)
    from lstr.pipelines.evaluation.evaluate import EvaluateOptions, evaluate

    others |= {"checkpoints": checkpoints, "features": features, "model": settings.take("model")}
    chosen = settings.build(EvaluateOptions, f"{OF_DATA} resamples mode delay_price recipe.allow_mismatch", **others)
    result = console.follow(evaluate(chosen), "videos")
    _show(result, to, as_json, show_all)
    if len(checkpoints) == 1 and result.takes_videos and not as_json:
        console.say_next("lstr", "detect", "VIDEO", "-c", checkpoints[0], "-o", "timeline")


def _show(result: "EvaluateResult", to: str | None, as_json: bool, show_all: bool) -> None:
    """Print a result: as JSON, as a table for a paper, or as tables for a terminal."""
    from lstr.pipelines.evaluation.tables import paper_table

    findings = result.findings
    if as_json:
        console.show_json(result.document)
    elif findings is None:
        show_thresholds(result.document)
    elif to:
        click.echo(paper_table(findings.judged, to), nl=False)
    else:
        show_findings(findings, result.document.get("sentence", ""), show_all)
    if result.page:
        console.say(f"report: {result.page.resolve()}")


def _compare_on_videos(paths: tuple[str, ...], settings: Changes, **others: Any) -> "EvaluateResult":
    """Measure model files on videos that none was trained on; without --labels the last path is the labels."""
    from lstr.pipelines.model_files.model_file import is_meant_as_model

    models = [*takewhile(is_meant_as_model, paths)]
    given = [*paths[len(models) :], *filter(None, [others["labels"]])]
    if not models or len(given) < 2:
        raise click.UsageError(
            "Specify checkpoints, features and --labels FILE; or model files, videos and labels, for example: "
            "old.lstr new.lstr videos/ labels.json."
        )
    unfit = [f"--{name.replace('_', '-')}" for name in OF_FEATURES if others[name]]
    unfit += [f"--set {name}" for name in settings if name != "resamples"]
    if unfit:
        raise click.UsageError(
            f"{unfit[0]} is only for checkpoints on features: remove it, or specify features and --labels."
        )
    check_paths(given[:-1], given[-1:])
    from lstr.pipelines.evaluation.analysis import RESAMPLES
    from lstr.pipelines.evaluation.comparison import compare_models
    from lstr.pipelines.evaluation.evaluate import EvaluateOptions

    resamples = convert(EvaluateOptions, "resamples", settings.pop("resamples", RESAMPLES))
    job = compare_models(models, given[:-1], given[-1], others["subset"], resamples, others["output"])
    return console.follow(job, "videos")


def show_findings(findings: "Findings", verdict: str, show_all: bool) -> None:
    """Show the table of actions of one checkpoint, or of several side by side; with `show_all` all tables.

    The verdict says which of two model files is better.
    """
    from lstr.metrics.actions import sentence
    from lstr.pipelines.evaluation.tables import ahead_text, event_tables, figure_text, mean_rows

    judged, quoted, several = findings.judged, findings.quoted, findings.several
    document = judged[0].document
    if verdict:
        console.show(verdict)
    for entry in judged:
        name = f"{entry.name}: " if several else ""
        console.show(f"{name}{sentence(entry.document['events'])}")
    for title, columns, rows in event_tables(judged)[: None if show_all else 1]:
        console.show_table(title, columns, rows, right=range(1, len(columns)))
    for row in [] if verdict else findings.comparison:
        console.show(row["sentence"])
    if not show_all:
        console.say("print all tables with --all, or write a report with -o DIR.")
        return
    _show_classes(judged)
    if not several and document["absent_classes"]:
        console.say(f"excluded from the means, because no chunk has them: {', '.join(document['absent_classes'])}")
    title, interval = "means", document["interval"]
    if interval:
        title += f", with {100 * interval['level']:.0f} % intervals of {interval['resamples']} resamples of the videos"
    columns = [*(["checkpoint"] * several), "convention", "mAP", "mcAP", "videos", "chunks"]
    means = [[*([entry.name] * several), *map(str.rstrip, cells)] for entry, cells in mean_rows(judged)]
    console.show_table(title, columns, means, right=range(len(columns) - 4, len(columns)))
    if not several:
        keys = ("delay", "f1", "on", "min_length")
        points = [[figure_text(point[key], 2) for key in keys] for point in document["events"]["delay_curve"]]
        columns = ["mean delay s", "F1", "start threshold", "minimum length s"]
        console.show_table("F1 by delay, with equal thresholds for all actions", columns, points, right=range(4))
    if not several and "anticipation" in document:
        ahead = [
            (f"{row['seconds']:.2f}", *("no chunk" if row[m] is None else figure_text(row[m]) for m in ("mAP", "mcAP")))
            for row in document["anticipation"]
        ]
        console.show_table("anticipation", ("seconds ahead", "mAP", "mcAP"), ahead, right=(0, 1, 2))
    if several:
        rows = [
            [entry.name] + [ahead_text(row[figure]) for figure in AHEAD]
            for entry, row in zip(judged[1:], findings.comparison, strict=True)
        ]
        columns = ["checkpoint", *AHEAD]
        console.show_table(f"difference from {judged[0].name}", columns, rows, right=range(1, len(columns)))
    if quoted:
        rows = [[row["method"], row["features"], f"{row['value']:.1f}", row["source"]] for row in quoted["rows"]]
        columns = ("method", "features", quoted["metric"], "quoted from")
        console.show_table(f"{quoted['name']}, quoted", columns, rows, right=(2,))


def show_thresholds(document: dict) -> None:
    """Show a table of the chosen thresholds of each checkpoint."""
    from lstr.metrics.actions import sentence
    from lstr.pipelines.evaluation.tables import figure_text

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


def _show_classes(judged: Sequence["Evaluation"]) -> None:
    """Show AP and cAP of one checkpoint next to the baselines, or the AP of several."""
    from lstr.pipelines.evaluation.tables import figure_text

    first, several = judged[0].document, len(judged) > 1
    if several:
        keys, systems = ["AP"], {entry.name: entry.document["lstr"] for entry in judged}
    else:
        keys, systems = ["AP", "cAP"], {name: first[name] for name in SYSTEMS if name in first}
    ours = first["lstr"]["per_class"]
    rows = [
        [label, ours[label]["positives"]]
        + [figure_text(scores["per_class"].get(label, {}).get(key)) for key in keys for scores in systems.values()]
        for label in sorted(ours, key=lambda label: -ours[label]["AP"])
    ]
    rows.append(["mean", ""] + [figure_text(scores[f"m{key}"]) for key in keys for scores in systems.values()])
    title = f"{'AP; ' * several}{first['videos']} video{'s' * (first['videos'] != 1)}, {first['chunks']} chunks"
    columns = ["class", "chunks", *(name if several else f"{SYSTEMS[name]} {key}" for key in keys for name in systems)]
    console.show_table(title, columns, rows, right=range(1, len(columns)))
