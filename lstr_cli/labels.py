"""`lstr labels`: what is in a label file, and annotations from one form to another."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstr_cli import console
from lstr_cli.options import DATA, OF_DATA, OF_FEATURES, OUTPUT, Group, as_json, option, read_pairs, set_option

if TYPE_CHECKING:
    from lstr.pipelines.pages.table import Table

# Kinds of notes about what a time budget does not depend on
MINOR_NOTES = ("no subsets", "subset name", "id with ending", "scores")
SINGULAR = {"videos": "video", "segments": "segment", "classes": "class"}


@click.group("labels", cls=Group)
def labels():
    """Check label files, convert annotations, report time budgets and agreement.

    \b
    Examples:
      lstr labels convert annotations/*.eaf -o labels.json
      lstr labels check labels.json videos
      lstr labels budget labels.json
      lstr labels compare anna.csv ben.csv
    """


def read_columns(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return the header of each column by its meaning; a header may contain commas."""
    pairs = [part.partition("=") for value in values for part in re.split(r",(?=\w+=)", value)]
    if wrong := [name for name, equals, header in pairs if not (name and equals and header)]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=HEADER, as in start=Beginn.")
    return {name.strip(): header for name, _, header in pairs}


@labels.command("convert")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@option("-o --output PATH", OUTPUT, "Write this file or folder; else text goes to standard output.")
@option("--to FORMAT", OUTPUT, "Write this format.  [default: by the ending of -o; .json is activitynet]")
@option("--from FORMAT", DATA, "Read this format.  [default: recognised]", "source_format")
@option(
    "--columns NAME=HEADER,…",
    DATA,
    "Read these columns: start=Beginn,end=Ende,label=Aktion.",
    multiple=True,
    callback=read_columns,
)
@option(
    "--frames FPS",
    DATA,
    "Read times as frame numbers, at this many frames per second.",
    type=click.FloatRange(0, min_open=True),
)
@option("--video PATH", DATA, "Use this video or folder: for the rates of frame numbers, and for ELAN to open.")
@option("--subset [OLD=]NEW", OUTPUT, "Name the subset of videos without one, or rename one.", "subsets", multiple=True)
@option("--rename OLD=NEW", OUTPUT, "Rename a class; repeatable.", multiple=True, callback=read_pairs)
@option("--as-labels", OUTPUT, "Drop the scores, so that detections become labels to train on.")
def convert(sources, to, output, columns, subsets, video, **others):
    """Convert annotations to another format.

    SOURCE is labels of any origin, or what `lstr detect` wrote.

    FORMAT is activitynet (what --labels takes), csv, vtt, eaf (ELAN) or thumos, which can be read too. These can only
    be read: json and jsonl (timelines), tsv, srt, boris (its project), borisevents (its exports), binary (a column of
    0 and 1 for each action), labelstudio, and perframe (target_perframe and data_info.json). A warning names what
    FORMAT has no place for.

    \b
    Examples:
      lstr labels convert annotations/*.eaf -o labels.json
      lstr labels convert labels.csv --frames 30 -o labels.json
      lstr labels convert codes.csv --video videos -o labels.json
      lstr labels convert werte.csv --columns start=Beginn,end=Ende,label=Aktion -o labels.json
      lstr labels convert timeline/game.json --to vtt > game.vtt
    """
    from lstr.pipelines.annotations.convert import convert as job
    from lstr.pipelines.annotations.format import ConvertOptions, readable, writable

    for name, known, word in ((to, writable, "--to"), (others["source_format"], readable, "--from")):
        if name is not None and name not in known():
            raise click.UsageError(f"{word}: {name!r} is not one of {', '.join(known())}.")
    path = Path(output) if output not in (None, "-") else None
    pairs = [value.rpartition("=") for value in subsets]
    others |= {"subsets": {old: new for old, _, new in pairs}, "columns": columns}
    done = job(sources, to, path, ConvertOptions(video=video and Path(video), **others))
    if done.text is not None:
        click.echo(done.text, nl=False)
    for note in done.annotated.notes:
        console.say(f"{note.sentence}.")
    if lost := done.form.lost(done.annotated):
        console.warn(f"The format {done.form.name} does not store: {', '.join(sorted(lost))}.")
    held = done.annotated.extras()
    if done.form.name == "activitynet" and not held & {"scores", "subsets"}:
        console.say("No video has a subset: all are for training. Set it in the source, or with --subset testing.")
    if done.form.holds_with_scores and "scores" in held:
        console.say("Annotations with scores are detections; use --as-labels to write labels without scores.")
    videos = done.annotated.videos
    what = _in_words({"videos": len(videos), "segments": sum(len(video.segments) for video in videos.values())})
    where = f", in {done.files[0] if len(done.files) == 1 else output}" if done.files else ""
    console.say(f"{what}{where}")
    if done.form.name == "activitynet" and done.files:
        console.say_next("lstr", "labels", "check", done.files[-1])


@labels.command("check")
@click.argument("labels", metavar="LABELS")
@click.argument("features", metavar="[LABELS|FEATURES|VIDEOS]...", nargs=-1)
@option("--json", OUTPUT, "Print one JSON document that names every finding.", "as_json")
@set_option(f"{OF_DATA} {OF_FEATURES}")
def check(labels, features, settings, as_json):
    """List errors and warnings in label files.

    LABELS is a file or a folder of any format that `lstr labels convert` reads. Of several label files the last
    counts for a video, as for `lstr learn`.

    Errors stop training: unknown class, negative length, before the start, no subset, times that are frame numbers, no
    label that belongs to any of the videos or features.
    Warnings do not: zero length, past the end, duplicate, overlap of one class; classes that are tested and never
    trained, fewer than 5 examples of a class, all videos in one subset, clips of one recording in two. With FEATURES or
    VIDEOS also what is missing there or has no labels; real durations and frame rates find more.

    \b
    Examples:
      lstr labels check labels.json
      lstr labels check annotations/ videos
      lstr labels check labels.json features
      lstr labels check data/data_info.json data/THUMOS --set rgb_features=rgb_anet_resnet50
    """
    from dataclasses import asdict

    from lstr.errors import few
    from lstr.labels import check as checks
    from lstr.pipelines.annotations.label_files import count_classes, count_labels, divide_labels, read_label_files
    from lstr.pipelines.annotations.videos import find_labelled_videos, footage_of_files

    more, features = divide_labels(features)
    files, videos, dataset = [labels, *more], find_labelled_videos(features), settings.pop("dataset", None)
    streams = (settings.pop("rgb_features", None), settings.pop("flow_features", None))
    skip_missing = settings.pop("skip_missing", "false") == "true"
    if features and not videos:
        from lstr.pipelines.features.dataset import read_dataset  # brings torch
        from lstr.pipelines.features.feature_files import split_settings

        stated, _ = split_settings(settings)
        read = read_dataset(features, files, streams, dataset, lenient=True, skip_missing=skip_missing, stated=stated)
        labelled, findings = read.labels, read.check((), skip_missing)
    else:
        labelled = read_label_files(files, (), dataset, lenient=True, skip_missing=skip_missing, present=videos)
        findings = checks.check(labelled, footage=footage_of_files(videos))
        if videos:  # also compare with the labels
            findings += checks.unmatched(labelled.videos, videos)
            findings += checks.missing(labelled.videos, videos, "video", checks.WARNING)
            findings += checks.missing(videos, labelled.videos, "labels", checks.WARNING)
            findings = checks.in_order(findings)
    counts, per_class = count_labels(labelled), count_classes(labelled)
    title = f"{few(files)}: {_in_words(counts)}"
    if as_json:
        console.show_json({**counts, "per_class": per_class, "findings": [asdict(found) for found in findings]})
    elif findings:
        console.show_table(title, *console.findings_table(findings))
    else:
        console.show(f"{title}; no errors or warnings")
    if per_class and not as_json:
        rows = [(name, *(f"{number:g}" for number in facts.values())) for name, facts in per_class.items()]
        console.show_table("examples", ("class", "segments", "seconds", "videos"), rows)
    checks.stop_at_errors(findings, few(files), files)


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {SINGULAR[what] if count == 1 else what}" for what, count in counts.items())


@labels.command("budget")
@click.argument("labels", metavar="LABELS...", nargs=-1, required=True)
@as_json
def budget(labels, as_json):
    """Show how often and how long each action happens.

    The table has the count, total and mean seconds, by video and subject. LABELS is a file or folder of any form
    that `lstr labels convert` reads, or a folder that `lstr detect` wrote. Of several the last counts for a video.

    \b
    Examples:
      lstr labels budget labels.json
      lstr labels budget timeline --json > budget.json
    """
    from lstr.pipelines.annotations.label_files import read_label_files
    from lstr.pipelines.annotations.reports import time_budget

    read = read_label_files(labels)
    table = time_budget(read)
    for note in read.notes:
        if note.kind not in MINOR_NOTES:
            console.say(f"{note.sentence}.")
    _print(table, {"rows": [dict(zip(table.names, row, strict=True)) for row in table.rows]}, as_json)


@labels.command("compare")
@click.argument("labels", metavar="A")
@click.argument("others", metavar="B")
@click.argument("videos", metavar="[VIDEOS]...", nargs=-1)
@as_json
def compare(labels, others, videos, as_json):
    """Show how far two label files agree.

    A and B are labels of the same videos: of two people, or of a person and a model. Each is a file or folder of
    any form that `lstr labels convert` reads, or a folder that `lstr detect` wrote. B is measured by A: Cohen's
    kappa over chunks of 0.25 s, and F1 of events, which match by their intersection over union or by their start.

    \b
    Examples:
      lstr labels compare anna.csv ben.csv
      lstr labels compare labels.json timeline --json > agreement.json
    """
    from lstr.pipelines.annotations.reports import agreement_table, compare_labels

    agreement, warnings = compare_labels(labels, others, videos)
    for text in warnings:
        console.warn(text)
    _print(agreement_table(agreement), agreement, as_json)


def _print(table: "Table", document: dict, as_json: bool) -> None:
    if as_json:
        console.show_json(document)
    else:
        numbers = [at for at, column in enumerate(table.columns) if not column.is_text]
        console.show_table(table.title, table.names, table.texts(), right=numbers)
