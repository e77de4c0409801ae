"""`lstr labels`: what is in a label file."""

from itertools import groupby

import click

from lstr_cli.options import data_options

EXAMPLES = 2  # named a kind of finding in the table


@click.group("labels")
def command():
    """Check label files.

    \b
    Examples:
      lstr labels check labels.json
      lstr labels check labels.json features
    """


@command.command("check")
@click.argument("labels", metavar="LABELS")
@click.argument("features", metavar="[FEATURES]...", nargs=-1)
@data_options
@click.option("--subset", help="Subset whose videos must have features.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document that names every finding.")
def check(labels, features, dataset, rgb, flow, skip_missing, subset, as_json):
    """Say what is wrong or odd in LABELS: an ActivityNet JSON, or a data_info.json with target_perframe.

    Errors stop training, warnings do not: unknown class, negative or zero length, past the end, duplicate, overlap of
    one class; with FEATURES also videos without features, features without labels, targets of another length.

    \b
    Examples:
      lstr labels check labels.json
      lstr labels check labels.json features --subset training
      lstr labels check data/data_info.json data/THUMOS --rgb rgb_anet_resnet50 --flow flow_anet_resnet50
    """
    from dataclasses import asdict

    from lstr.label_check import check as check_labels
    from lstr_cli import console
    from pipelines.dataset import read_annotations, read_dataset, stop_at_errors

    if features:
        read = read_dataset(features, labels, (rgb, flow), dataset, lenient=True, skip_missing=skip_missing)
        annotations, findings = read.labels, read.check((subset,) if subset else (), skip_missing)
    else:
        annotations = read_annotations(labels, (), dataset, True, skip_missing)
        findings = check_labels(annotations)
    segments = sum(len(video.segments) for video in annotations.videos.values())
    counts = {"videos": len(annotations.videos), "segments": segments, "classes": len(annotations.classes)}
    if as_json:
        console.show_json({**counts, "findings": [asdict(found) for found in findings]})
    else:
        title = ", ".join(f"{count} {what}" for what, count in counts.items())
        console.show_table(f"{labels}: {title}", *table_of(findings))
    stop_at_errors(findings, labels)


def table_of(findings) -> tuple:
    """Columns, rows and number columns of a table with a row a kind of finding."""
    rows = []
    for (severity, kind), group in groupby(findings, key=lambda found: (found.severity, found.kind)):
        members = list(group)
        some = "; ".join(f"{found.video}: {found.detail}" for found in members[:EXAMPLES])
        rows.append((severity, kind, len(members), some + (" …" if len(members) > EXAMPLES else "")))
    return ("", "found", "count", "examples"), rows or [("", "nothing", 0, "")], (2,)
