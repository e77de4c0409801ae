"""`lstr labels`: what is in a label file, and annotations from one form to another."""

from itertools import groupby
from pathlib import Path

import click

from lstr_cli.headings import Group
from lstr_cli.next_steps import after_convert
from lstr_cli.options import data_options, events_options

EXAMPLES = 2  # named per kind of finding in the table


@click.group("labels", cls=Group)
def command():
    """Check label files, and convert annotations.

    \b
    Examples:
      lstr labels check labels.json features
      lstr labels convert annotations/*.eaf --to activitynet --subset training -o labels.json
    """


def _choice(which: str):
    """A callback that takes one of the formats that are `readable` or `writable`, imported when a name is checked."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is None:
            return None
        from pipelines.annotations import formats

        known = getattr(formats, which)()
        if value not in known:
            raise click.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
        return value

    return check


def _subsets(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str | None, str]:
    pairs = [value.rpartition("=") for value in values]
    return {old or None: new for old, _, new in pairs}


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",")) if value else ()


PATH = click.Path(path_type=Path)


@command.command("convert")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--to", required=True, metavar="FORMAT", callback=_choice("writable"), help="What to make of them.")
@click.option(
    "--from",
    "source_format",
    metavar="FORMAT",
    callback=_choice("readable"),
    help="What they are; else recognised.",
)
@click.option("-o", "--output", type=PATH, metavar="PATH", help="File or folder; else a text goes to standard output.")
@click.option("--subset", "subsets", multiple=True, metavar="[OLD=]NEW", callback=_subsets, help="Name subsets.")
@click.option("--classes", metavar="A,B,…", callback=_names, help="Classes in the order of the score columns.")
@click.option("--as-labels", is_flag=True, help="Drop the scores: what was detected becomes labels to train on.")
@click.option("--features", type=PATH, metavar="DIR", help="perframe: make as many chunks as these features have.")
@click.option("--name", default="LSTR", show_default=True, help="perframe: the data set's name in data_info.json.")
@click.option("--fps", type=click.FloatRange(min=0, min_open=True), help="labelstudio: frames a second.")
@click.option("--video", type=PATH, metavar="PATH", help="mp4, html: the video, or the folder of videos.")
@events_options
def convert(sources, to, output, events, **options):
    """Write annotations in another form, from labels of any origin or from what `lstr detect` wrote.

    FORMAT is json (timeline), jsonl, csv, tsv, vtt, srt, ass, eaf (ELAN), labelstudio, activitynet (what --labels
    takes), thumos, audacity, perframe (target_perframe and data_info.json); to show them also png, svg, html, mp4;
    and stored scores (npy) can be read. What the new form has no place for is named.

    \b
    Examples:
      lstr labels convert annotations/ --to activitynet --subset training -o labels.json
      lstr labels convert timeline/game.json --to vtt > game.vtt
      lstr labels convert labels.json --to perframe --features features -o features
      lstr labels convert timeline/game.scores.npy --to csv --on 0.3 --off 0.2
    """
    from lstr.timeline import changed
    from lstr_cli import console
    from pipelines.annotations.convert import convert as job
    from pipelines.annotations.format import ConvertOptions
    from pipelines.annotations.formats import FORMATS
    from pipelines.reports.fonts import illegible_warning

    done = job(sources, to, output, ConvertOptions(thresholds=changed({}, events), **options))
    if done.text is not None:
        click.echo(done.text, nl=False)
    if done.lost:
        console.warn(f"{to} has no place for {', '.join(sorted(done.lost))}.")
    if done.left_out:
        console.warn(f"{len(done.left_out)} videos have no features and were left out: {', '.join(done.left_out[:3])}.")
    form = FORMATS[to]
    if form.paints_text and (text := illegible_warning(done.annotated.classes)):
        console.warn(text)
    held = done.annotated.held()
    if to == "activitynet" and not held & {"scores", "subsets"}:
        console.warn("no video has a subset, which training needs: add --subset training.")
    if form.holds_with_scores and "scores" in held:
        console.say("With their scores these are results to evaluate; --as-labels makes labels of them.")
    segments = sum(len(v.segments) for v in done.annotated.videos.values())
    where = f", in {done.files[0] if len(done.files) == 1 else output}" if done.files else ""
    console.say(f"{len(done.annotated.videos)} videos, {segments} segments{where}")
    console.say_next(*after_convert(to, done.files))


@command.command("check")
@click.argument("labels", metavar="LABELS")
@click.argument("features", metavar="[FEATURES]...", nargs=-1)
@data_options
@click.option("--subset", help="Subset whose videos must have features.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document that names every finding.")
def check(labels, features, dataset, rgb, flow, skip_missing, subset, as_json):
    """List what is wrong or odd in LABELS: an ActivityNet JSON, or a data_info.json with target_perframe.

    Errors stop training, warnings do not: unknown class, negative or zero length, past the end, duplicate, overlap of
    one class; with FEATURES also videos without features, features without labels, targets of another length.

    \b
    Examples:
      lstr labels check labels.json
      lstr labels check labels.json features --subset training
      lstr labels check data/data_info.json data/THUMOS --rgb-features rgb_anet_resnet50
    """
    from dataclasses import asdict

    from lstr.label_check import check as check_labels
    from lstr_cli import console
    from pipelines.datasets.dataset import read_dataset, read_label_file, stop_at_errors

    if features:
        read = read_dataset(features, labels, (rgb, flow), dataset, lenient=True, skip_missing=skip_missing)
        labelled, findings = read.labels, read.check((subset,) if subset else (), skip_missing)
    else:
        labelled = read_label_file(labels, dataset=dataset, lenient=True, skip_missing=skip_missing)
        findings = check_labels(labelled)
    segments = sum(len(video.segments) for video in labelled.videos.values())
    counts = {"videos": len(labelled.videos), "segments": segments, "classes": len(labelled.classes)}
    if as_json:
        console.show_json({**counts, "findings": [asdict(found) for found in findings]})
    else:
        title = ", ".join(f"{count} {what}" for what, count in counts.items())
        console.show_table(f"{labels}: {title}", *table_of(findings))
    stop_at_errors(findings, labels)


def table_of(findings) -> tuple:
    """Columns, rows and number columns of a table with one row per kind of finding."""
    rows = []
    for (severity, kind), group in groupby(findings, key=lambda found: (found.severity, found.kind)):
        members = list(group)
        some = "; ".join(f"{found.video}: {found.detail}" for found in members[:EXAMPLES])
        rows.append((severity, kind, len(members), some + (" …" if len(members) > EXAMPLES else "")))
    return ("", "found", "count", "examples"), rows or [("", "nothing", 0, "")], (2,)
