"""`lstr events`: the events of `lstr watch`."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import click
from msgspec import Struct

from lstr.pipelines.quantities import seconds_of
from lstr.settings import PositiveAmount
from lstr_cli import console
from lstr_cli.options import DATA, OUTPUT, Command, Json, option, options


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
    """List the events of `lstr watch`, the latest first.

    CONFIG is the file of the service [default: watch.toml], or the folder of its events. The service may run.

    \b
    Examples:
      lstr events
      lstr events watch.toml --since 1d
      lstr events --since 7d --json > events.json
      lstr events --as-labels corrected.json
    """
    from lstr.pipelines.watching.config_file import CLIPS, find_history
    from lstr.pipelines.watching.history import EventFilter, History

    path = find_history(config)
    history = History(path, readonly=True)
    wanted = EventFilter(since=datetime.now().astimezone() - timedelta(seconds=since) if since else None)
    if as_labels:
        from lstr.pipelines.watching.labels import export_labels

        counts = export_labels(history, path.parent / CLIPS, Path(as_labels), wanted)
        console.say(f"{as_labels}: {counts.right} right events, {counts.wrong} wrong ones")
        if counts.without_clip:
            console.say(f"skipped {counts.without_clip} marked events, whose clips were deleted")
        console.say_next("lstr", "learn", path.parent / CLIPS, as_labels)
        history.close()
        return
    found = history.events(wanted)
    history.close()
    if as_json:
        console.show_json([event.to_dict() for event in found])
    elif not found:
        console.say("no event in that time" if since else "no event yet")
    else:
        rows = [
            (
                f"{event.start:%Y-%m-%d %H:%M:%S}",
                event.source,
                event.action,
                "active" if event.end is None else f"{event.seconds:.1f}",
                f"{event.top_score:.2f}",
                event.verdict,
            )
            for event in found
        ]
        titles = ("began", "source", "action", "seconds", "score", "verdict")
        console.show_table(f"{len(found)} events", titles, rows, right=(3, 4))
