"""`lstr labels budget` and `lstr labels compare`: reports on label files."""

from typing import TYPE_CHECKING

import click

from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.options import rename_setting

if TYPE_CHECKING:
    from lstr.pipelines.pages.table import Table

MINOR_NOTES = ("no subsets", "subset name", "id with ending", "scores")
"""Kinds of notes about what a time budget does not depend on"""
csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print the table as CSV.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.command("budget", cls=Command)
@click.argument("labels", metavar="LABELS...", nargs=-1, required=True)
@csv_option
@json_option
def budget(labels, as_csv, as_json):
    """Show how often and how long each action happens: count, total and mean seconds, by video and subject.

    LABELS is a file or folder of any form that `lstr labels convert` reads, or a folder that `lstr detect` wrote. Of
    several the last counts for a video.

    \b
    Examples:
      lstr labels budget labels.json
      lstr labels budget timeline --csv > budget.csv
    """
    from lstr.pipelines.annotations.budget import time_budget
    from lstr.pipelines.annotations.label_files import read_label_files

    read = read_label_files(labels)
    table = time_budget(read)
    for note in read.notes:
        if note.kind not in MINOR_NOTES:
            console.say(f"{note.sentence}.")
    _print(table, {"rows": [dict(zip(table.names, row, strict=True)) for row in table.rows]}, as_csv, as_json)


@click.command("compare", cls=Command)
@click.argument("labels", metavar="A")
@click.argument("others", metavar="B")
@click.argument("videos", metavar="[VIDEOS]...", nargs=-1)
@rename_setting
@csv_option
@json_option
def compare(labels, others, videos, rename, as_csv, as_json):
    """Show how far the labels A and B of the same videos agree: of two people, or of a person and a model.

    Each is a file or folder of any form that `lstr labels convert` reads, or a folder that `lstr detect` wrote. B is
    measured by A: Cohen's kappa over chunks of 0.25 s, and F1 of events, which match by their intersection over union
    or by their start.

    \b
    Examples:
      lstr labels compare anna.csv ben.csv
      lstr labels compare labels.json timeline --csv > agreement.csv
      lstr labels compare anna.csv ben.csv videos --set class.rename=Fall=falling
    """
    from lstr.pipelines.annotations.agreement import compare_labels

    agreement = compare_labels(labels, others, videos, rename)
    for text in agreement.warnings:
        console.warn(text)
    _print(agreement.table(), agreement.document, as_csv, as_json)


def _print(table: "Table", document: dict, as_csv: bool, as_json: bool) -> None:
    from lstr.pipelines.pages.table import to_csv

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other: give one of them.")
    if as_json:
        console.show_json(document)
    elif as_csv:
        click.echo(to_csv(table), nl=False)
    else:
        console.show_table(table.title, table.names, table.texts(), right=table.numbers)
