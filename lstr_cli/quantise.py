"""`lstr quantise`: a model file to one whose feature networks compute in int8."""

import click

from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.options import flow_settings, runtime_setting
from lstr_cli.settings import setting


@click.command("quantise", cls=Command)
@click.argument("model", metavar="MODEL")
@click.argument("videos", nargs=-1, required=True, metavar="VIDEO|DIR...")
@click.option("-o", "--output", required=True, metavar="FILE.lstr", help="The model file to write.")
@setting(
    "chunks",
    type=click.IntRange(min=2),
    default=400,
    help="How many quarter seconds of the videos are looked at: half to measure ranges, half to compare.",
)
@flow_settings
@runtime_setting
@click.option("--json", "as_json", is_flag=True, help="Print what int8 costs as JSON.")
def command(model, videos, output, as_json, **options):
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
    from lstr.pipelines.quantisation.job import QuantiseOptions, quantise

    quantised = console.follow(quantise(videos, QuantiseOptions(model, output, **options)))
    if as_json:
        console.show_json({"model": str(quantised.model.path), **quantised.measured})
        return
    for stream, cosine in quantised.measured["cosine"].items():
        console.show(f"{stream}: cosine to float32 {cosine['mean']:.4f}, least {cosine['least']:.4f}")
    console.say(f"model: {quantised.model.path}")
    console.say_next("lstr", "detect", "VIDEO", "-m", quantised.model.path, "-o", "timeline")
