"""`lstr pack`: a run, or several, and the networks of their features to one model file."""

import click

from lstr_cli import console
from lstr_cli.command import Command


@click.command("pack", cls=Command)
@click.argument("runs", nargs=-1, required=True, metavar="RUN|CHECKPOINT|MODEL...")
@click.option("-o", "--output", required=True, metavar="FILE.lstr", help="The model file to write.")
@click.option(
    "--weights",
    metavar="DIR",
    help="Folder of `lstr finetune` with the networks.  [default: where the features of the run say that it is]",
)
@click.option("--metrics", metavar="FILE", help="What `lstr evaluate --json` printed, for the model card.")
@click.option("--title", metavar="TEXT", help="What the model is called.  [default: the name of FILE]")
@click.option("--make-default", is_flag=True, help="Let `lstr detect` use it when no other model is named.")
@click.option("--json", "as_json", is_flag=True, help="Print what the file holds as JSON.")
def command(runs, output, weights, metrics, title, make_default, as_json):
    """Put a checkpoint, its feature networks, recipe and thresholds into one file, which `lstr detect -m` needs alone.

    RUN is the folder of `lstr train`, of which best.pt is taken where it is, else checkpoint.pt. The file says what it
    detects, on which videos it was trained and how well it does. Random networks are made again from their seed;
    published ones are not copied into it, and have to be fetched where it is used. No code is in the file.

    Of several runs, checkpoints or model files, of any kinds, the file has the average: the geometric mean of their
    probabilities. They must know the same classes; one may take the RGB features alone and another those of flow, of
    the same networks.
    Thresholds go along where all have the same; `lstr evaluate --choose-thresholds` chooses them anew. A single model
    file is copied, with the title and metrics that are given.

    \b
    Examples:
      lstr pack run -o fall.lstr
      lstr pack run/checkpoint.pt --weights weights -o fall.lstr
      lstr pack run-rnn run-lstr --weights weights -o both.lstr
      lstr pack run -o fall.lstr --metrics evaluation.json --title "Falls in a living room"
    """
    from pathlib import Path

    from lstr.pipelines.detection.checkpoint import make_default as leave
    from lstr.pipelines.info import describe
    from lstr.pipelines.model_files.averaging import averaged
    from lstr.pipelines.model_files.model_file import is_model
    from lstr.pipelines.model_files.packing import change_about, write_model
    from lstr.pipelines.model_files.parts import checkpoint_of, metrics_from

    about = {**({"title": title} if title else {}), **({"metrics": metrics_from(metrics)} if metrics else {})}
    checkpoints = [checkpoint_of(Path(run)) for run in runs]
    if len(runs) == 1 and is_model(checkpoints[0]):
        if weights:
            raise click.UsageError("--weights is of a run or checkpoint: a model file has networks of its own.")
        model = change_about(checkpoints[0], output, about)
    else:
        with averaged(checkpoints, Path(output)) as checkpoint:
            model = write_model(Path(output), checkpoint, Path(weights) if weights else None, about)
    if as_json:
        console.show_json(describe(model.path, {}))
    size = console.size(model.path.stat().st_size)
    inside = [stream for stream in model.networks if model.has_inside(stream)]
    console.say(f"model: {model.path} ({size}; networks inside: {', '.join(inside) or 'none'})")
    if make_default:
        console.say(f"default model: {leave(model.path)}")
