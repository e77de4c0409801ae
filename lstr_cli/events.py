"""`lstr events`: what `lstr watch` has seen."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Struct

from lstr.pipelines.quantities import seconds_of
from lstr.settings import PositiveAmount
from lstr_cli import console
from lstr_cli.options import DATA, OUTPUT, Command, Json, option, options

if TYPE_CHECKING:
    from lstr.pipelines.watching.history import History, Wanted


class Events(Struct):
    since: Annotated[
        PositiveAmount | None,
        option(DATA, "--since TIME", "Show the last 1d, 12h or 30m.", seconds_of),
    ] = None
    as_labels: Annotated[
        str | None,
        option(OUTPUT, "--as-labels FILE", "Write the events marked right or wrong as labels of their clips."),
    ] = None
    as_json: Json = False


@click.command("events", cls=Command)
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG|DIR", default=Path("watch.toml"))
@options(Events)
def command(config, since, as_labels, as_json):
    """List what `lstr watch` has seen, the newest first.

    CONFIG is the file of the service [default: watch.toml], or the folder where it keeps its events. It may run.

    \b
    Examples:
      lstr events
      lstr events watch.toml --since 1d
      lstr events --since 7d --json > events.json
      lstr events --as-labels corrected.json
    """
    from lstr.pipelines.watching.history import History, Wanted
    from lstr.pipelines.watching.location import CLIPS, history_of

    path = history_of(config)
    history = History(path, readonly=True)
    begin = datetime.now().astimezone() - timedelta(seconds=since) if since else None
    wanted = Wanted(since=begin)
    if as_labels:
        _export(history, path.parent / CLIPS, Path(as_labels), wanted)
        history.close()
        return
    found = history.events(wanted)
    history.close()
    if as_json:
        console.show_json([event.to_dict() for event in found])
    elif not found:
        console.say("nothing was seen in that time" if since else "nothing was seen yet")
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
