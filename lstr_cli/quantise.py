"""`lstr quantise`: a model file to one whose feature networks compute in int8."""

from typing import Annotated

import click
from msgspec import Struct

from lstr_cli import console
from lstr_cli.options import OUTPUT, Command, Json, build_from, option, options, set_option


class Quantise(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output FILE.lstr", "Write this model file.")]
    as_json: Json = False
    settings: Annotated[dict[str, str], set_option("chunks runtime")] = {}


@click.command("quantise", cls=Command)
@click.argument("model", metavar="MODEL")
@click.argument("videos", nargs=-1, required=True, metavar="VIDEO|DIR...")
@options(Quantise)
def command(model, videos, output, settings, as_json):
    """Let the feature networks of a model file compute in whole numbers of 8 bits.

    On a processor without AMX that is several times faster than float32. VIDEO is of the kind that the model will
    watch: the values inside the networks are measured on it. The new file says how near its features are to those in
    float32, by the cosine. `lstr evaluate` with both files measures what that costs. MODEL stays as it is.

    \b
    Examples:
      lstr quantise fall.lstr videos/ -o small.lstr
      lstr evaluate fall.lstr small.lstr new_videos/ labels.json
    """
    console.say_waiting("loading networks…")
    from lstr.pipelines.model_files.quantise import QuantiseOptions, quantise

    model = console.follow(quantise(videos, build_from(QuantiseOptions, settings, model=model, output=output)))
    if as_json:
        console.show_json({"model": str(model.path), **model.about["int8"]})
        return
    for stream, cosine in model.about["int8"]["cosine"].items():
        console.show(f"{stream}: cosine to float32 {cosine['mean']:.4f}, least {cosine['least']:.4f}")
    console.say(f"model: {model.path}")
    console.say_next("lstr", "detect", "VIDEO", "-m", model.path, "-o", "timeline")
