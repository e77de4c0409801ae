"""`lstr events`: what `lstr watch` has seen."""

import csv
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.options import PATH
from lstr_cli.quantities import POSITIVE_TIME

if TYPE_CHECKING:
    from lstr.pipelines.watching.history import History, Wanted

CSV_COLUMNS = "id source action start decided end seconds score top_score still_on verdict model clip".split()


@click.command("events", cls=Command)
@click.argument("config", type=PATH, metavar="CONFIG|DIR", default=Path("watch.toml"))
@click.option("--since", type=POSITIVE_TIME, metavar="TIME", help="Of the last 1d, 12h or 30m.")
@click.option("--source", metavar="NAME", help="Of this source alone.")
@click.option("--action", metavar="NAME", help="Of this action alone.")
@click.option(
    "--as-labels",
    type=PATH,
    metavar="FILE",
    help="Write the events that were marked right or wrong as labels of their clips.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(config, since, source, action, as_labels, as_csv, as_json):
    """List what `lstr watch` has seen, the newest first.

    CONFIG is the file of the service [default: watch.toml], or the folder where it keeps its events. It may run.

    \b
    Examples:
      lstr events
      lstr events watch.toml --since 1d --action falling
      lstr events --since 7d --csv > events.csv
      lstr events --as-labels corrected.json
    """
    from lstr.pipelines.watching.history import History, Wanted
    from lstr.pipelines.watching.location import CLIPS, history_of

    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two forms of the same; choose one.")
    path = history_of(config)
    history = History(path, readonly=True)
    begin = datetime.now().astimezone() - timedelta(seconds=since) if since else None
    wanted = Wanted(since=begin, source=source, action=action)
    if as_labels:
        _export(history, path.parent / CLIPS, as_labels, wanted)
        history.close()
        return
    found = history.events(wanted)
    history.close()
    if as_json:
        console.show_json([event.to_dict() for event in found])
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(event.to_dict() for event in found)
    elif not found:
        console.say("nothing was seen in that time" if since or source or action else "nothing was seen yet")
    else:
        rows = [
            (
                f"{event.start:%Y-%m-%d %H:%M:%S}",
                event.source,
                event.action,
                "on" if event.end is None else f"{event.seconds:.1f}",
                f"{event.top_score:.2f}",
                event.verdict,
            )
            for event in found
        ]
        console.show_table(
            f"{len(found)} events", ("began", "source", "action", "seconds", "score", "verdict"), rows, right=(3, 4)
        )


def _export(history: "History", clips: Path, output: Path, wanted: "Wanted") -> None:
    """Write judged events as labels, and say what to learn of them."""
    from lstr.pipelines.watching.export import export_labels

    made = export_labels(history, clips, output, wanted)
    console.say(f"{output}: {made.right} events that are right, {made.wrong} that are wrong")
    if made.without_clip:
        console.say(f"{made.without_clip} marked events are not in it: their clips are gone")
    console.say_next("lstr", "learn", clips, output)
