"""`lstr unpack`: a model file to its checkpoint and the weights folder of its networks."""

from typing import Annotated

import click
from msgspec import Struct

from lstr_cli import console
from lstr_cli.options import OUTPUT, Command, option, options


class Unpack(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output DIR", "Write the files into this folder.")]


@click.command("unpack", cls=Command)
@click.argument("model", metavar="FILE.lstr")
@options(Unpack)
def command(model, output):
    """Write checkpoint.pt, card.md and, where networks are in the file, the folder `weights` into DIR.

    `lstr train`, `lstr finetune --init` and programs of your own can go on from them. The tensors are those of the
    model file to the bit; `lstr detect -m DIR/checkpoint.pt` finds the networks beside it.

    \b
    Examples:
      lstr unpack fall.lstr -o fall
    """
    from lstr.pipelines.model_files.packing import unpack_model

    console.say(f"checkpoint: {unpack_model(model, output) / 'checkpoint.pt'}")
