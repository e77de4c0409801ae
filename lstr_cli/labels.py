"""`lstr labels`: what is in a label file, and annotations from one form to another."""

import re
from collections.abc import Callable, Mapping, Sequence

import click

from lstr_cli import console
from lstr_cli.command import Group
from lstr_cli.label_reports import budget, compare
from lstr_cli.next_steps import after_convert
from lstr_cli.options import PATH, data_settings, rename_setting, store_settings

ONE = {"videos": "video", "segments": "segment", "classes": "class"}


def _format_in(names: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return a callback that checks a format of annotations; the formats are imported when one is given."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is None:
            return None
        from lstr.pipelines.annotations import formats

        if value not in (known := getattr(formats, names)()):
            raise click.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
        return value

    return check


@click.group("labels", cls=Group)
def command():
    """Check label files, convert annotations, report time budgets and agreement.

    \b
    Examples:
      lstr labels convert annotations/*.eaf -o labels.json
      lstr labels check labels.json videos
      lstr labels budget labels.json
      lstr labels compare anna.csv ben.csv
    """


command.add_command(budget)
command.add_command(compare)


def _subsets(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str | None, str]:
    pairs = [value.rpartition("=") for value in values]
    return {old or None: new for old, _, new in pairs}


def _columns(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """What columns are called, by what they are; a header may have commas of its own."""
    pairs = [part.partition("=") for value in values for part in re.split(r",(?=\w+=)", value)]
    if wrong := [name for name, equals, header in pairs if not (name and equals and header)]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=HEADER, as in start=Beginn.")
    return {name.strip(): header for name, _, header in pairs}


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",")) if value else ()


@command.command("convert")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--to",
    callback=_format_in("writable"),
    metavar="FORMAT",
    help="What to make of them.  [default: by the ending of -o; .json is activitynet]",
)
@click.option(
    "--from",
    "source_format",
    callback=_format_in("readable"),
    metavar="FORMAT",
    help="What they are; else recognised.",
)
@click.option("-o", "--output", type=PATH, metavar="PATH", help="File or folder; else a text goes to standard output.")
@click.option("--subset", "subsets", multiple=True, metavar="[OLD=]NEW", callback=_subsets, help="Name subsets.")
@click.option(
    "--classes",
    metavar="A,B,…",
    callback=_names,
    help="Classes in the order of the score columns.",
)
@click.option(
    "--columns",
    multiple=True,
    metavar="NAME=HEADER,…",
    callback=_columns,
    help="Tables: which column is what, as in start=Beginn,end=Ende,label=Aktion.",
)
@rename_setting
@click.option("--as-labels", is_flag=True, help="Drop the scores: what was detected becomes labels to train on.")
@click.option(
    "--frames",
    type=click.FloatRange(min=0, min_open=True),
    metavar="FPS",
    help="The sources count frames, so many a second, where seconds belong: make seconds of them.",
)
@click.option(
    "--video",
    type=PATH,
    metavar="PATH",
    help="The video, or the folder of videos: to draw on, and whose rates make seconds of frames.",
)
def convert(sources, to, output, **options):
    """Write annotations in another form, from labels of any origin or from what `lstr detect` wrote.

    FORMAT is activitynet (what --labels takes), csv, vtt, eaf (ELAN) or thumos, which can be read too, or png, svg,
    html or mp4, which show the labels. These can only be read: json and jsonl (timelines), tsv, srt, boris (its
    project), borisevents (its exports), binary (a column of 0 and 1 for each action), labelstudio, and perframe
    (target_perframe and data_info.json). A warning names what FORMAT has no place for.

    \b
    Examples:
      lstr labels convert annotations/*.eaf -o labels.json
      lstr labels convert labels.csv --frames 30 -o labels.json
      lstr labels convert codes.csv --video videos -o labels.json
      lstr labels convert werte.csv --columns start=Beginn,end=Ende,label=Aktion -o labels.json
      lstr labels convert timeline/game.json --to vtt > game.vtt
    """
    from lstr.pipelines.annotations.format import ConvertOptions
    from lstr.pipelines.annotations.formats import convert as job
    from lstr.pipelines.pages.fonts import illegible_warning

    if str(output) == "-":
        output = None
    done = job(sources, to, output, ConvertOptions(**options))
    if done.text is not None:
        click.echo(done.text, nl=False)
    for note in done.annotated.notes:
        console.say(f"{note.sentence}.")
    if done.lost:
        console.warn(f"{done.form.name} has no place for {', '.join(sorted(done.lost))}.")
    if done.form.paints_text and (text := illegible_warning(done.annotated.classes)):
        console.warn(text)
    held = done.annotated.held()
    if done.form.name == "activitynet" and not held & {"scores", "subsets"}:
        console.say("No video has a subset: all are for training. Name them in the source, or with --subset testing.")
    if done.form.holds_with_scores and "scores" in held:
        console.say("With their scores these are results to evaluate; --as-labels makes labels of them.")
    videos = done.annotated.videos
    what = _in_words({"videos": len(videos), "segments": sum(len(video.segments) for video in videos.values())})
    where = f", in {done.files[0] if len(done.files) == 1 else output}" if done.files else ""
    console.say(f"{what}{where}")
    console.say_next(*after_convert(done.form.name, done.files))


@command.command("check")
@click.argument("labels", metavar="LABELS")
@click.argument("features", metavar="[LABELS|FEATURES|VIDEOS]...", nargs=-1)
@data_settings
@store_settings
@click.option("--subset", help="Subset whose videos must have features.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document that names every finding.")
def check(labels, features, dataset, rgb, flow, skip_missing, subset, as_json, **store):
    """List what is wrong or odd in LABELS: a file or a folder of any form that `lstr labels convert` reads.

    Of several label files the last counts for a video, as for `lstr learn`.

    Errors stop training: unknown class, negative length, before the start, no subset, times that are frame numbers, no
    label that belongs to any of the videos or features.
    Warnings do not: zero length, past the end, duplicate, overlap of one class; classes that are tested and never
    trained, fewer than 5 examples of a class, all videos in one subset, clips of one recording in two. With FEATURES or
    VIDEOS also what is missing there or has no labels; real durations and frame rates find more.

    \b
    Examples:
      lstr labels check labels.json
      lstr labels check annotations/ videos
      lstr labels check labels.json features --subset training
      lstr labels check data/data_info.json data/THUMOS --set rgb_features=rgb_anet_resnet50
    """
    from dataclasses import asdict

    from lstr.errors import few
    from lstr.labels.check import stop_at_errors
    from lstr.pipelines.annotations.label_file import counts_of
    from lstr.pipelines.annotations.label_files import more_labels

    more, features = more_labels(features)
    files = [labels, *more]
    labelled, findings = _checked(files, features, (rgb, flow), dataset, skip_missing, subset, store)
    counts = counts_of(labelled)
    title = f"{few(files)}: {_in_words(counts)}"
    if as_json:
        console.show_json({**counts, "findings": [asdict(found) for found in findings]})
    elif findings:
        console.show_table(title, *console.findings_table(findings))
    else:
        console.show(f"{title}; nothing wrong was found")
    stop_at_errors(findings, few(files), files)


def _checked(
    files: Sequence[str],
    at_hand: Sequence[str],
    streams: tuple,
    dataset: str | None,
    skip_missing: bool,
    subset: str | None,
    store: Mapping[str, str | None],
) -> tuple:
    """The labels, and what is found in them: beside features, beside videos, or alone."""
    from lstr.labels.check import WARNING, check, in_order, missing, unmatched
    from lstr.pipelines.annotations.footage import footage_of_files, videos_among
    from lstr.pipelines.annotations.label_files import read_label_files

    videos = videos_among(at_hand)
    if at_hand and not videos:
        from lstr.pipelines.features.dataset import read_dataset  # brings torch
        from lstr.pipelines.features.stated import PREFIX, stated_in

        said, _ = stated_in({f"{PREFIX}{name.removeprefix('feature_')}": text for name, text in store.items() if text})
        read = read_dataset(at_hand, files, streams, dataset, lenient=True, skip_missing=skip_missing, stated=said)
        return read.labels, read.check((subset,) if subset else (), skip_missing)
    labels = read_label_files(files, (), dataset, lenient=True, skip_missing=skip_missing, present=videos)
    findings = check(labels, footage=footage_of_files(videos))
    if videos:
        findings += unmatched(labels.videos, videos)
        findings += missing(labels.videos, videos, "video", WARNING)
        findings += missing(videos, labels.videos, "labels", WARNING)
    return labels, in_order(findings)


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {ONE[what] if count == 1 else what}" for what, count in counts.items())
