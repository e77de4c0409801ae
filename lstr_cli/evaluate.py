"""`lstr evaluate`: events and per-frame mAP, beside two baselines, of one checkpoint or of several side by side."""

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstr.pipelines.progress import Failed
from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.next_steps import after_evaluate
from lstr_cli.options import data_settings, device_option, mismatch_setting
from lstr_cli.quantities import RATE
from lstr_cli.settings import model_set_option, setting

if TYPE_CHECKING:  # they bring numpy
    from lstr.pipelines.evaluation.findings import Findings

SOME_FAILED = 3
OF_FEATURES = (
    "published",
    "choose_thresholds",
    "false_alarms",
    "allow_seen",
    "benchmark",
    "dataset",
    "rgb",
    "flow",
    "skip_missing",
    "allow_mismatch",
)
"""Options that only an evaluation on feature folders has."""


@click.command("evaluate", cls=Command)
@click.argument("paths", metavar="(MODEL... FEATURES...)...|MODEL... VIDEOS... LABELS", nargs=-1, required=True)
@click.option("--labels", metavar="FILE", help="Labels: JSON, CSV, ELAN, … or a data_info.json.")
@click.option("-o", "--output", metavar="DIR", help="Write report.html, JSON, CSV and figures into DIR.")
@click.option("--subset", help="Subset to score.  [default: testing, else validation]")
@setting(
    "mode",
    type=click.Choice(["batch", "stream"]),
    default="batch",
    help="Many windows at once, or one chunk at a time as detect does; the scores are the same.",
)
@click.option("--published", is_flag=True, help="Score the chunks that the published code of this kind scores.")
@setting(
    "resamples",
    type=click.IntRange(min=0),
    default=1000,
    help="Resamples of the videos for confidence intervals; 0 leaves them out.",
)
@setting(
    "benchmark",
    type=click.Choice(["thumos14", "tvseries"]),
    help="Data set whose quoted results stand beside.  [default: that of the preset or classes]",
)
@click.option(
    "--choose-thresholds",
    is_flag=True,
    help="Choose thresholds for `lstr detect` on the validation subset and write them into CHECKPOINT.",
)
@click.option(
    "--false-alarms",
    type=RATE,
    metavar="RATE",
    help="With --choose-thresholds: find as much as so many false alarms allow, of all classes together, as in 2/h.  "
    "[default: the highest F1 of found actions]",
)
@data_settings
@mismatch_setting
@click.option(
    "--allow-seen", is_flag=True, help="Score videos too that the feature networks have seen; the result is marked."
)
@model_set_option
@device_option
@click.option(
    "--to",
    type=click.Choice(["csv", "latex", "md"]),
    help="Print one table for a paper; runs that differ in their seed alone are a row of mean and deviation.",
)
@setting(
    "table",
    type=click.Choice(["frames", "instances", "starts", "segments"]),
    default="frames",
    help="Figures in the table of --to: mAP, mcAP and event F1; or those of instances, starts or segments.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(paths, settings, to, table, as_json, **options):
    """Count the actions found, missed and detected falsely, and score every chunk: mAP and mcAP, per class.

    MODEL is a model file (.lstr) or a checkpoint; FEATURES a folder of its recipe.

    Model files with videos and labels are measured on the videos that none of them has seen: each makes features of
    its own, whatever its recipe. Of two, one sentence says which is better and whether by more than chance (in mAP and
    event F1, on the same resamples of the videos). Leaves with 0 whichever is better, with 4 where no such video is
    left or the classes differ, and with 3 where a video cannot be read.

    Events are those that `lstr detect` announces with the checkpoint's thresholds: a label is found by a detection
    of its class that overlaps it with an IoU of 0.3 or starts within a second of it.

    Also as instances that are told when they end (mAP at an IoU of 0.3 to 0.7), as starts (mAP within 1 to 10 s), as
    segments (F1 and edit score) and by how many seconds edges are off; the report and the JSON have each class.

    Two baselines: chance scores each class's share of the training chunks everywhere; the time prior how often a
    class is on at that time of a video. Neither sees the video. Also scored: each tenth of the actions, the delay until
    they are known, and each chunk ahead of a model that anticipates. Several checkpoints are compared
    on the same resamples of the videos. Several feature folders of one recipe are read as one; they come after their
    checkpoints, and checkpoints of another recipe after them. Videos that the networks of their features were trained
    on are refused.

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
      lstr evaluate seed*/checkpoint.pt features --labels labels.json --to latex --set table=instances
      lstr evaluate run/checkpoint.pt disk1/features disk2/features --labels labels.json
      lstr evaluate rgb/checkpoint.pt rgb_features flow/checkpoint.pt flow_features --labels labels.json --to csv
    """
    from lstr.pipelines.evaluation.job import EvaluateOptions, evaluate

    if to and (as_json or options["choose_thresholds"]):
        raise click.UsageError("--to makes a table: give neither --json nor --choose-thresholds with it.")
    if table != "frames" and not to:
        raise click.UsageError(f"--set table={table} is of the table for a paper: add --to md, or leave it out.")
    if options["labels"] is None or _are_videos(paths):
        _on_videos(paths, settings, to, table, as_json, **options)
        return
    (checkpoints, features), *beside = _sorted(paths)
    if options["false_alarms"] is not None and not options["choose_thresholds"]:
        raise click.UsageError("--false-alarms says how thresholds are chosen: add --choose-thresholds.")
    options["model"] = settings
    result = console.follow(evaluate(EvaluateOptions(checkpoints, features, beside=beside, **options)), "videos")
    if as_json:
        console.show_json(result.document)
        return
    from lstr_cli.evaluation_tables import show_findings, show_thresholds

    if to and result.findings:
        _show_table(result.findings, to, table)
    elif result.findings:
        show_findings(result.findings)
    else:
        show_thresholds(result.document)
    if result.page:
        console.say(f"report: {result.page.resolve()}")
    if len(checkpoints) == 1 and not beside and result.takes_videos:
        console.say_next(*after_evaluate(checkpoints[0]))


def _show_table(findings: "Findings", to: str, table: str) -> None:
    """The table for a paper."""
    from lstr.pipelines.evaluation.paper_table import repeated, rows_of, write_rows

    judged = findings.judged
    again = repeated(judged)
    for at, first in again.items():
        console.warn(f"{judged[at].name} is {judged[first].name} again: the table has it once.")
    rows = rows_of([one for at, one in enumerate(judged) if at not in again], table)
    click.echo(write_rows(rows, to), nl=False)


def _are_videos(paths: tuple[str, ...]) -> bool:
    """Whether model files are followed by something else than feature folders."""
    from lstr.pipelines.features.folder import is_feature_folder
    from lstr.pipelines.model_files.model_file import is_meant_as_model

    models = [path for path in paths if is_meant_as_model(path)]
    others = [Path(path) for path in paths[len(models) :]]
    known = [path for path in others if path.exists()]
    return paths[: len(models)] == (*models,) and bool(known) and not any(map(is_feature_folder, known))


def _on_videos(
    paths: tuple[str, ...], settings: Any, to: str | None, table: str, as_json: bool, **options: Any
) -> None:
    """Model files on videos that none has seen; without --labels the last path is the labels."""
    import sys

    from lstr.pipelines.evaluation.comparison import ComparisonOptions, compare_models
    from lstr.pipelines.model_files.model_file import is_meant_as_model
    from lstr_cli.evaluation_tables import show_comparison

    models = [*takewhile(is_meant_as_model, paths)]
    others = [*paths[len(models) :], *filter(None, [options["labels"]])]
    if not models or len(others) < 2:
        raise click.UsageError(
            "Give --labels FILE with checkpoints and features; or model files, videos and labels, as in "
            "old.lstr new.lstr videos/ labels.json."
        )
    unfit = [name for name in OF_FEATURES if options[name]] + ["mode"] * (options["mode"] != "batch")
    if unfit or settings:
        names = {param.name: param.opts[0] for param in click.get_current_context().command.params}
        name = names[unfit[0]] if unfit else "--set model.…"
        raise click.UsageError(f"{name} is for checkpoints on features: leave it out, or give --labels and features.")
    shared = {name: options[name] for name in ("subset", "resamples", "device", "output")}
    chosen = ComparisonOptions(models, others[:-1], others[-1], **shared)
    result = console.follow(compare_models(chosen), "videos", _say_failed)
    if as_json:
        console.show_json(result.document)
    elif to:
        _show_table(result.findings, to, table)
    else:
        show_comparison(result)
    if result.page:
        console.say(f"report: {result.page.resolve()}")
    if result.failed:
        sys.exit(SOME_FAILED)


def _say_failed(event: Any, _: console.Bar) -> None:
    if isinstance(event, Failed):
        console.say(f"failed: {event.reason}\nhint: {event.hint}")


def _sorted(paths: tuple[str, ...]) -> list[tuple[list[str], list[str]]]:
    """Checkpoints and their feature folders, as often as folders are followed by checkpoints again.

    The last path is a folder, though it may be missing.
    """
    from lstr.pipelines.features.folder import is_feature_folder

    groups: list[tuple[list[str], list[str]]] = [([], [])]
    for at, path in enumerate(paths):
        is_folder = at == len(paths) - 1 or Path(path).is_dir() or is_feature_folder(Path(path))
        if not is_folder and groups[-1][1]:
            groups.append(([], []))
        groups[-1][is_folder].append(path)
    if not all(checkpoints for checkpoints, _ in groups):
        raise click.UsageError(
            "Give a model file or checkpoint, as fall.lstr or run/checkpoint.pt, and then a feature folder."
        )
    return groups
