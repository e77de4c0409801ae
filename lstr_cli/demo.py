"""`lstr demo`: everything, end to end, on videos made on the spot."""

from pathlib import Path
from typing import Annotated

import click
from msgspec import Struct

from lstr_cli import console
from lstr_cli.options import OUTPUT, Command, option, options


class Demo(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output DIR", "Write everything into this folder.")] = "demo"


@click.command("demo", cls=Command)
@options(Demo)
def command(output):
    """Draw a small labelled set of videos, learn from most of them, and detect on the others.

    Takes two minutes on two CPU cores and 300 MB of disk, and downloads nothing. What runs is `lstr learn` and `lstr
    detect -m`, as on videos of your own; the model has only seen drawings, and knows nothing else. Run it again to go
    on after an interruption.

    \b
    Examples:
      lstr demo
      lstr demo -o /tmp/demo
    """
    from lstr.pipelines.demo import demo
    from lstr_cli.learn import follow

    console.say("draws 14 videos, learns from 10 and detects on 4; about two minutes on two cores, 300 MB of disk")
    made = follow(demo(Path(output)))
    rows = [
        (label, f"{one['found']} of {one['labels']}", str(one["false_alarms"]))
        for label, one in made.events["per_class"].items()
    ]
    console.show_table("held-out videos", ("action", "found", "false alarms"), rows, right=(1, 2))
    for line in made.learnt.lines():
        console.show(line)
    console.show(f"open: {made.index}")
    console.say(f"took {console.clock(made.seconds)}; the model, {made.learnt.model}, has only seen drawings")
    console.say("next, with videos of your own: lstr learn VIDEOS LABELS -o my.lstr")
