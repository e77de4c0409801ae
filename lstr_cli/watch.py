"""`lstr watch`: a service that detects actions on cameras for weeks, and announces them."""

import os
import shlex
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import click
from msgspec import Struct

from lstr.files.names import displayed
from lstr_cli import console, interruption
from lstr_cli.options import RUN, Command, option, options

WAIT_S = 3600.0  # at a time for the end of the service


class Watch(Struct):
    begin: Annotated[bool, option(RUN, "--init", "Write CONFIG, with a comment for each entry, and stop.")] = False
    only_check: Annotated[bool, option(RUN, "--check", "Check CONFIG, name each error by its entry, and stop.")] = False


@click.command("watch", cls=Command)
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG", default=Path("watch.toml"))
@options(Watch)
def command(config, begin, only_check):
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
    from lstr.pipelines.watching.config_file import EXAMPLE, check, read_config

    if begin:
        from lstr.files.atomic import write_text

        if config.exists():
            raise click.UsageError(f"{config} exists already; name another file, or delete it.")
        text = EXAMPLE.read_text(encoding="utf-8")
        write_text(config, text.replace("{name}", config.name).replace("{stem}", config.stem))
        console.say(f"{config}: write the addresses of your cameras into it")
        console.say(f"next: {shlex.join(['lstr', 'watch', str(config), '--check'])}")
        return
    checked_config = read_config(config)
    found = check(checked_config, now=only_check)
    if only_check:
        for name, actions in found.items():
            console.show(f"{name}: {', '.join(actions)}")
        console.say(f"{config} can be used: {len(found)} sources, {len(checked_config.channels)} channels")
        return
    console.say_waiting("loading networks…")
    from lstr.pipelines.watching.service import Service

    service = None
    try:
        service = Service(checked_config, _log)
        with service:
            assert service.server
            click.echo(service.server.address)  # with its token, which the log must not contain
            _log(f"watching {', '.join(found)}; Ctrl-C ends it")
            while True:
                service.wait(WAIT_S)
    except KeyboardInterrupt:
        interruption.take()
    _log("ended")
    # a thread that still runs inside a library would abort the process when the interpreter ends
    if service and service.is_running:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def _log(text: str) -> None:
    """Write a line of the log. A line that cannot be written, as on a full disk, ends no thread.

    Not by Python's stream: it keeps what it could not write, and loses everything after it.
    """
    line = f"{datetime.now():%Y-%m-%d %H:%M:%S} {displayed(text)}\n"
    with suppress(OSError):
        os.write(sys.stderr.fileno(), line.encode(sys.stderr.encoding, "backslashreplace"))
