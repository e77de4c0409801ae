"""`lstr watch`: a service that decides on cameras for weeks, and tells people."""

import os
import shlex
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from signal import SIGHUP
from typing import Annotated

import click
from msgspec import Struct

from lstr.files.names import displayed
from lstr_cli import console, interruption
from lstr_cli.options import RUN, Command, option, options

GLANCE = 0.5  # seconds between two looks at whether it is to read its file again


class Watch(Struct):
    begin: Annotated[bool, option(RUN, "--init", "Write CONFIG, with a comment for each entry, and stop.")] = False
    only_check: Annotated[bool, option(RUN, "--check", "Check CONFIG, name each error by its entry, and stop.")] = False


@click.command("watch", cls=Command)
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG", default=Path("watch.toml"))
@options(Watch)
def command(config, begin, only_check):
    """Watch cameras until it is ended: store what happens, and tell people of it.

    CONFIG is a TOML file [default: watch.toml] with the sources, their model, and who is told of which action. SIGHUP
    reads it again: streams that it does not change go on. Ctrl-C and SIGTERM end it within five seconds; what was not
    told yet is told when it starts again.

    `lstr events` lists what has happened.

    \b
    Examples:
      lstr watch watch.toml --init
      lstr watch watch.toml --check
      lstr watch watch.toml
    """
    from lstr.pipelines.watching.config_file import read_config
    from lstr.pipelines.watching.template import template

    if begin:
        from lstr.files.atomic import write_text

        if config.exists():
            raise click.UsageError(f"{config} exists already; name another file, or delete it.")
        write_text(config, template(config.name))
        console.say(f"{config}: write the addresses of your cameras into it")
        console.say(f"next: {shlex.join(['lstr', 'watch', str(config), '--check'])}")
        return
    checked_config = read_config(config)
    from lstr.pipelines.watching.checking import check

    found = check(checked_config, now=only_check)
    if only_check:
        for name, actions in found.items():
            console.show(f"{name}: {', '.join(actions)}")
        console.say(f"{config} can be used: {len(found)} sources, {len(checked_config.channels)} channels")
        return
    console.say_waiting("loading networks…")
    from lstr.pipelines.watching.service import Service

    hung_up, service = interruption.hear(SIGHUP), None
    try:
        service = Service(checked_config, _say)
        with service:
            assert service.server
            click.echo(service.server.address)  # with its token, which no log has
            _say(f"watching {', '.join(found)}; Ctrl-C ends it")
            while True:
                if hung_up.is_set():
                    hung_up.clear()
                    service.reload()
                service.wait(GLANCE)
    except KeyboardInterrupt:  # how it is ended
        interruption.take()
    _say("ended")
    # the threads of a library that works still abort the process where the interpreter ends
    if service and service.goes_on:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def _say(text: str) -> None:
    """Write a line of the log. One that cannot be written, as on a full disk, ends no thread that has something to say.

    Not through Python's stream: that keeps what it could not write, and sends all that follows nowhere.
    """
    line = f"{datetime.now():%Y-%m-%d %H:%M:%S} {displayed(text)}\n"
    with suppress(OSError):
        os.write(sys.stderr.fileno(), line.encode(sys.stderr.encoding, "backslashreplace"))
