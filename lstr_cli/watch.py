"""`lstr watch`: a service that detects actions on cameras for weeks, and announces them."""

import os
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import click

from lstr.files.names import displayed
from lstr.settings import parse_seconds
from lstr_cli import console, interruption
from lstr_cli.options import DATA, OUTPUT, RUN, Command, Quantity, as_json, option

WAIT_S = 3600.0  # at a time for the end of the service


@click.command("watch", cls=Command)
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG", default=Path("watch.toml"))
@option("--init", RUN, "Write CONFIG, with a comment for each entry, and stop.", "create")
@option("--check", RUN, "Check CONFIG, name each error by its entry, and stop.", "only_check")
def watch(config, create, only_check):
    """Watch cameras until interrupted: store events, and notify people.

    CONFIG is a TOML file [default: watch.toml] with the sources, their model, and the channels that announce each
    action. Ctrl-C and SIGTERM end the service within five seconds; pending notifications are delivered when it starts
    again.

    `lstr events` lists what has happened.

    \b
    Examples:
      lstr watch watch.toml --init
      lstr watch watch.toml --check
      lstr watch watch.toml
    """
    from lstr.pipelines.watching.config import EXAMPLE, check, read_config

    if create:
        from lstr.files.atomic import write_text

        if config.exists():
            raise click.UsageError(f"{config} exists already; name another file, or delete it.")
        text = EXAMPLE.read_text(encoding="utf-8")
        write_text(config, text.replace("{name}", config.name).replace("{stem}", config.stem))
        console.say(f"{config}: write the addresses of your cameras into it")
        console.say_next("lstr", "watch", config, "--check")
        return
    checked_config = read_config(config)
    found = check(config, checked_config, now=only_check)
    if only_check:
        for name, actions in found.items():
            console.show(f"{name}: {', '.join(actions)}")
        console.say(f"{config} can be used: sources: {len(found)}, channels: {len(checked_config.channels)}")
        return
    console.say_waiting("loading networks…")
    from lstr.pipelines.watching.service import Service

    service = None
    try:
        service = Service(config, checked_config, _log)
        with service:
            assert service.server
            click.echo(service.server.address)  # with its token, which the log must not contain
            paused = {name: f"{name} (paused)" for name in service.paused}
            _log(f"watching {', '.join(paused.get(name, name) for name in service.sources)}; Ctrl-C ends it")
            while True:
                service.ended.wait(WAIT_S)
    except KeyboardInterrupt:
        interruption.accept_signal()
    _log("ended")
    # a thread that still runs inside a library would abort the process when the interpreter ends
    if service and any(worker.thread.is_alive() for worker in service.workers.values()):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def _log(text: str) -> None:
    """Write a line of the log. A line that cannot be written, as on a full disk, ends no thread."""
    # not by Python's stream: after a failed write it keeps the text, and loses everything after it
    line = f"{datetime.now():%Y-%m-%d %H:%M:%S} {displayed(text)}\n"
    with suppress(OSError):
        os.write(sys.stderr.fileno(), line.encode(sys.stderr.encoding, "backslashreplace"))


@click.command("events", cls=Command)
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG|DIR", default=Path("watch.toml"))
@option("--since TIME", DATA, "Show the last 1d, 12h or 30m.", type=Quantity(parse_seconds, positive=True))
@option("--as-labels FILE", OUTPUT, "Write the events marked right or wrong as labels of their clips.")
@as_json
def events(config, since, as_labels, as_json):
    """List the events of `lstr watch`, the latest first.

    CONFIG is the file of the service [default: watch.toml], or the folder of its events. The service may run.

    \b
    Examples:
      lstr events
      lstr events watch.toml --since 1d
      lstr events --since 7d --json > events.json
      lstr events --as-labels corrected.json
    """
    from lstr.pipelines.watching.config import CLIPS, find_history
    from lstr.pipelines.watching.history import History

    path = find_history(config)
    history = History(path, readonly=True)
    begin = datetime.now().astimezone() - timedelta(seconds=since) if since else None
    if as_labels:
        from lstr.pipelines.watching.labels import export_labels

        right, wrong, without_clip = export_labels(history, path.parent / CLIPS, Path(as_labels), since=begin)
        console.say(f"{as_labels}: events marked right: {right}, wrong: {wrong}")
        if without_clip:
            console.say(f"skipped {without_clip} marked events, because their clips were deleted")
        console.say_next("lstr", "learn", path.parent / CLIPS, as_labels)
        history.close()
        return
    found = history.events(since=begin)
    history.close()
    if as_json:
        console.show_json([event.to_dict() for event in found])
    elif not found:
        console.say("no events in this period" if since else "no events yet")
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
