"""`lstr export`: a model file to one that runs without torch, or to a page that runs it in a browser."""

import click

from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.options import flow_settings
from lstr_cli.settings import setting


@click.command("export", cls=Command)
@click.argument("model", metavar="MODEL")
@click.argument("videos", nargs=-1, metavar="[VIDEO|DIR...]")
@click.option("-o", "--output", required=True, metavar="FILE.lstr|FOLDER", help="The file, or the page, to write.")
@click.option("--web", is_flag=True, help="Write a page that runs the model in a browser.")
@setting(
    "streams",
    type=click.IntRange(min=1, max=256),
    default=1,
    help="How many cameras one call of the model takes; a file serves any number, so many at a time.",
)
@setting(
    "web_runtime",
    metavar="FILE.tgz",
    help="For --web the npm package of ONNX Runtime Web, where this machine cannot fetch it.",
)
@flow_settings
@click.option("--json", "as_json", is_flag=True, help="Print how far apart torch and the file are as JSON.")
def command(model, videos, output, as_json, web, web_runtime, **options):
    """Write a model file that runs without torch: its networks and one step of its model as ONNX graphs.

    `lstr detect` and `lstr watch` take the file like any other, and run it with ONNX Runtime on the processor. Before
    it is written, torch and the graphs score the same chunks, of VIDEO or of a drawn one, and 200 steps more than the
    model can remember; a file that would differ by more than 0.00001 in probability is not written. MODEL stays as it
    is, and is needed to evaluate, to train on, and to take apart.

    With --web FOLDER is a page for any web server: it decides on a video that is dropped on it, or on a webcam, in the
    browser. ONNX Runtime Web is fetched from the npm registry once, and stands beside it; the page fetches nothing from
    anywhere else. MODEL may be exported already, and must not see optical flow.

    \b
    Examples:
      lstr export fall.lstr -o fall-run.lstr
      lstr export fall.lstr videos/ -o fall-run.lstr
      lstr detect game.mp4 -m fall-run.lstr -o timeline
      lstr export fall.lstr --web -o page
    """
    console.say_waiting("loading networks…")
    if web:
        return _export_web(model, videos, output, as_json, web_runtime, options)
    from lstr.pipelines.exporting.job import ExportOptions, export

    exported = console.follow(export(ExportOptions(model, output, videos, **options)))
    if as_json:
        console.show_json({"model": str(exported.model.path), **exported.alike.to_dict()})
        return
    found = exported.alike
    console.show(f"{found.chunks} chunks side by side: scores differ by {found.scores:.1e} at most")
    console.show(f"{found.steps} steps of the model: scores differ by {found.later_scores:.1e} at most")
    size = console.size(exported.model.path.stat().st_size)
    console.say(f"model: {exported.model.path} ({size}; runs without torch)")
    console.say_next("lstr", "detect", "VIDEO", "-m", exported.model.path, "-o", "timeline")


def _export_web(model, videos, output, as_json, web_runtime, options):
    from lstr.pipelines.exporting.web import WebOptions, export_web

    if options["streams"] != 1:
        raise click.UsageError("a page has one stream: leave --set streams out.")
    flow = {name: options[name] for name in ("flow_threads", "flow_backend")}
    made = console.follow(export_web(WebOptions(model, output, videos, web_runtime, **flow)))
    if as_json:
        console.show_json({"page": str(made.path), "bytes": made.sizes, **(made.alike.to_dict() if made.alike else {})})
        return
    if made.alike:
        worst = max(made.alike.scores, made.alike.later_scores)
        console.show(f"{made.alike.steps} steps by torch and by graphs: scores differ by {worst:.1e} at most")
    for part, size in made.sizes.items():
        console.show(f"{part}: {console.size(size)}")
    console.say(f"page: {made.path} ({console.size(sum(made.sizes.values()))}); any web server can give it out")
    console.say("a server other than this machine's own must speak https: else browsers give the page no webcam.")
    console.say_next("python3", "-m", "http.server", "--bind", "127.0.0.1", "-d", made.path, "8000")
