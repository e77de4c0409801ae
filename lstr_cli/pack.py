"""`lstr pack`: a run, or several, and the networks of their features to one model file."""

from typing import Annotated

import click
from msgspec import Struct

from lstr_cli import console
from lstr_cli.options import MODEL, NETWORKS, OUTPUT, Command, option, options


class Pack(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output FILE.lstr", "Write this model file.")]
    weights: Annotated[
        str | None,
        option(
            NETWORKS,
            "--weights DIR",
            "Take the networks of this folder of `lstr finetune`.  [default: where the features of the run say it is]",
        ),
    ] = None
    metrics: Annotated[
        str | None, option(MODEL, "--metrics FILE", "Put the output of `lstr evaluate --json` into the model card.")
    ] = None


@click.command("pack", cls=Command)
@click.argument("runs", nargs=-1, required=True, metavar="RUN|CHECKPOINT|MODEL...")
@options(Pack)
def command(runs, output, weights, metrics):
    """Put a checkpoint, its feature networks, recipe and thresholds into one file, which `lstr detect -m` needs alone.

    RUN is the folder of `lstr train`, of which best.pt is taken where it is, else checkpoint.pt. The file says what it
    detects, on which videos it was trained and how well it does. Random networks are made again from their seed;
    published ones are not copied into it, and have to be fetched where it is used. No code is in the file.

    Of several runs, checkpoints or model files, of any kinds, the file has the average: the geometric mean of their
    probabilities. They must know the same classes; one may take the RGB features alone and another those of flow, of
    the same networks.
    Thresholds go along where all have the same; `lstr evaluate --choose-thresholds` chooses them anew. A single model
    file is copied, with the metrics that are given.

    \b
    Examples:
      lstr pack run -o fall.lstr
      lstr pack run/checkpoint.pt --weights weights -o fall.lstr
      lstr pack run-rnn run-lstr --weights weights -o both.lstr
      lstr pack run -o fall.lstr --metrics evaluation.json
    """
    from pathlib import Path

    from lstr.pipelines.model_files.model_file import is_model
    from lstr.pipelines.model_files.packing import (
        as_checkpoint,
        change_about,
        checkpoint_of,
        metrics_from,
        write_model,
    )

    about = {"metrics": metrics_from(metrics)} if metrics else {}
    checkpoints = [checkpoint_of(Path(run)) for run in runs]
    if len(runs) == 1 and is_model(checkpoints[0]):
        if weights:
            raise click.UsageError("--weights is of a run or checkpoint: a model file has networks of its own.")
        model = change_about(checkpoints[0], output, about)
    else:
        with as_checkpoint(checkpoints, Path(output)) as checkpoint:
            model = write_model(Path(output), checkpoint, Path(weights) if weights else None, about)
    size = console.size(model.path.stat().st_size)
    inside = [stream for stream in model.networks if model.has_inside(stream)]
    console.say(f"model: {model.path} ({size}; networks inside: {', '.join(inside) or 'none'})")
