"""`lstr labels budget` and `lstr labels compare`: what behaviour scientists report of labels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.options import rename_setting
from lstr_cli.quantities import Seconds

if TYPE_CHECKING:
    from lstr.pipelines.reports.table import Table

FORMS = ["csv", "latex", "md", "html"]
MOST_VIDEOS = 20
"""Rows by video on a terminal; the files have all"""
WIDEST = 12
"""Columns of a table on a terminal, as of what follows what"""
LONG = ("by video",)
to_option = click.option("--to", type=click.Choice(FORMS), help="Print the table for a spreadsheet, a paper or a page.")
output_option = click.option(
    "-o", "--output", metavar="DIR", help="Write report.html, JSON, CSV and ethograms into DIR."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.command("budget", cls=Command)
@click.argument("labels", metavar="LABELS")
@click.argument("more", metavar="[LABELS|VIDEOS]...", nargs=-1)
@click.option("--bin", type=Seconds(positive=True), metavar="TIME", help="Also in bins of time, as in 60s.")
@to_option
@output_option
@json_option
def budget(labels, more, bin, to, output, as_json):
    """Tell how often and how long each action of LABELS happens, and what follows what.

    LABELS is a file or folder of any form that `lstr labels convert` reads, or a folder that `lstr detect` wrote. Of
    several the last counts for a video.

    Of each action: events, total, mean and median seconds, the share of the time watched, the latency to the first, and
    events a minute; of all videos together and of each. A video is as long as the labels state, else as its file
    among VIDEOS, else it ends with its last label, which is told.

    \b
    Examples:
      lstr labels budget labels.json
      lstr labels budget codes.csv videos --bin 60s
      lstr labels budget timeline -o budget
      lstr labels budget labels.json --to csv > budget.csv
    """
    from lstr.pipelines.annotations.label_files import more_labels
    from lstr.pipelines.behaviour.budget import BudgetOptions, make_budget

    _refuse_both(to, as_json)
    others, videos = more_labels(more)
    options = BudgetOptions([labels, *others], videos, bin, output)
    made = console.follow(make_budget(options), "videos")
    tables = made.tables()
    _print(made, to, as_json, made.raw(), [table for table in tables if table.title not in LONG], tables)


@click.command("compare", cls=Command)
@click.argument("labels", metavar="A")
@click.argument("others", metavar="B")
@click.argument("videos", metavar="[VIDEOS]...", nargs=-1)
@rename_setting
@to_option
@output_option
@json_option
def compare(labels, others, videos, rename, to, output, as_json):
    """Tell how far the labels A and B of the same videos agree: of two people, or of a person and a model.

    Each is a file or folder of any form that `lstr labels convert` reads, or a folder that `lstr detect` wrote. A is
    the one that B is measured by.

    Chunk by chunk: Cohen's kappa, of each action and of all together. Event by event: how many are the same by their
    intersection over union. And by kind: correct, with an edge off, in pieces, merged, of a wrong action, only in one.

    \b
    Examples:
      lstr labels compare anna.csv ben.csv
      lstr labels compare labels.json timeline -o agreement
      lstr labels compare anna.csv ben.csv videos --set class.rename=Fall=falling
      lstr labels compare anna.csv ben.csv --to latex
    """
    from lstr.pipelines.behaviour.comparison import CompareOptions, compare_labels

    _refuse_both(to, as_json)
    made = console.follow(compare_labels(CompareOptions(labels, others, videos, rename, output)), "videos")
    tables = made.tables()
    _print(made, to, as_json, made.raw(), tables, [*tables, made.by_video()])


def _refuse_both(to: str | None, as_json: bool) -> None:
    if as_json and to:
        raise click.UsageError("--to and --json are two forms of one result: give one of them.")


def _print(
    made: Any, to: str | None, as_json: bool, raw: "Table", for_paper: "Sequence[Table]", shown: "Sequence[Table]"
) -> None:
    """What was made, in the form that was asked for."""
    from lstr.pipelines.reports.table import WRITERS

    if as_json:
        console.show_json(made.document)
    elif to:
        click.echo("\n".join(WRITERS[to](table) for table in ([raw] if to == "csv" else for_paper)), nl=False)
    else:
        console.show(made.sentence)
        for table in shown:
            rows = table.texts()
            if (table.title in LONG and len(rows) > MOST_VIDEOS) or len(table.columns) > WIDEST:
                console.say(f"not shown here: {table.title} ({len(rows)} rows); --json and the files of -o have it.")
            else:
                console.show_table(table.title, table.names, rows, right=table.numbers)
    if made.page:
        console.say(f"report: {made.page.resolve()}")
