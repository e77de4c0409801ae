"""`lstr info`: what a video, feature folder, model file, checkpoint, weights, recipe, timeline or label file holds."""

import sys
from typing import Annotated

import click
from msgspec import Struct

from lstr_cli import console
from lstr_cli.options import OF_MODEL, Command, Json, options, set_option, take

DAMAGED = 3
SHOWN = 20  # faults in a table; --json has them all


class Info(Struct):
    as_json: Json = False
    settings: Annotated[dict[str, str], set_option(model=OF_MODEL)] = {}


@click.command("info", cls=Command)
@click.argument("path", metavar="PATH")
@options(Info)
def command(path, settings, as_json):
    """Describe a video, feature folder, model file, checkpoint, weights, recipe, timeline or label file.

    A feature folder is read whole: lengths, recipe, numbers that are not finite, rows of zeros, and the hashes that
    were recorded when the arrays were written. Leaves with 3 when something is wrong with it.

    \b
    Examples:
      lstr info game.mp4
      lstr info features
      lstr info fall.lstr
      lstr info run/checkpoint.pt --json
      lstr info my_weights
      lstr info labels.json
      lstr info fast
    """
    from lstr.pipelines.info import describe
    from lstr_cli.description import tables

    with console.Bar("videos") as bar:
        described = describe(path, take(settings, "model"), lambda _, done, total: bar.update("checked", done, total))
    faults = described.get("faults", [])
    if as_json:
        console.show_json(described)
    else:
        for title, rows in tables(described):
            console.show_table(title or f"{path}: {described['kind']}", ("entry", "value"), rows)
        if faults:
            found = [(fault["id"], fault["stream"], fault["what"]) for fault in faults[:SHOWN]]
            console.show_table(f"{len(faults)} faults", ("video", "stream", "what"), found)
    if faults:
        redo = f"remove their files in {path}/records and run the same `lstr extract` again: it redoes them."
        hint = redo if "recipe" in described else "make the features of these videos again, or take their files away."
        number = len(described["damaged"])
        what = f"1 video of {path} is" if number == 1 else f"{number} videos of {path} are"
        console.say(f"failed: {what} not whole.\nhint: {hint}")
        sys.exit(DAMAGED)
