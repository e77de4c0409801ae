"""`lstr export`: a model file to one that runs without torch."""

from typing import Annotated

import click
from msgspec import Struct

from lstr_cli import console
from lstr_cli.options import OUTPUT, Command, Json, build_from, option, options, set_option


class Export(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output FILE.lstr", "Write this file.")]
    as_json: Json = False
    settings: Annotated[dict[str, str], set_option("streams")] = {}


@click.command("export", cls=Command)
@click.argument("model", metavar="MODEL")
@click.argument("videos", nargs=-1, metavar="[VIDEO|DIR...]")
@options(Export)
def command(model, videos, output, settings, as_json):
    """Write a model file that runs without torch: its networks and one step of its model as ONNX graphs.

    `lstr detect` and `lstr watch` take the file like any other, and run it with ONNX Runtime on the processor. Before
    it is written, torch and the graphs score the same chunks, of VIDEO or of a drawn one, and 200 steps more than the
    model can remember; a file that would differ by more than 0.00001 in probability is not written. MODEL stays as it
    is, and is needed to evaluate, to train on, and to take apart.

    \b
    Examples:
      lstr export fall.lstr -o fall-run.lstr
      lstr export fall.lstr videos/ -o fall-run.lstr
      lstr detect game.mp4 -m fall-run.lstr -o timeline
    """
    console.say_waiting("loading networks…")
    from lstr.pipelines.model_files.export import ExportOptions, export

    model = console.follow(export(build_from(ExportOptions, settings, model=model, output=output, videos=videos)))
    found = model.exported["alike"]
    if as_json:
        console.show_json({"model": str(model.path), **found})
        return
    console.show(f"{found['chunks']} chunks side by side: scores differ by {found['scores']:.1e} at most")
    console.show(f"{found['steps']} steps of the model: scores differ by {found['later_scores']:.1e} at most")
    console.say(f"model: {model.path} ({console.size(model.path.stat().st_size)}; runs without torch)")
    console.say_next("lstr", "detect", "VIDEO", "-m", model.path, "-o", "timeline")
