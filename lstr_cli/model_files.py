"""`lstr pack`, `unpack` and `export`: model files from runs and from other model files."""

from pathlib import Path

import click

from lstr_cli import console
from lstr_cli.options import MODEL, NETWORKS, OUTPUT, Command, as_json, option, set_option


@click.command("pack", cls=Command)
@click.argument("runs", nargs=-1, required=True, metavar="RUN|CHECKPOINT|MODEL...")
@option("-o --output FILE.lstr", OUTPUT, "Write this model file.", required=True)
@option(
    "--weights DIR",
    NETWORKS,
    "Take the networks of this folder of `lstr finetune`.  [default: the folder that the features of the run name]",
)
@option("--metrics FILE", MODEL, "Put the output of `lstr evaluate --json` into the model card.")
def pack(runs, output, weights, metrics):
    """Put a checkpoint, its feature networks, recipe and thresholds into one file, which `lstr detect -m` needs alone.

    RUN is the folder of `lstr train`; its best.pt is used if there is one, else checkpoint.pt. The file states its
    actions, the videos it was trained on and its results. Random networks are made again from their seed; published
    ones are not copied into it, and have to be fetched where it is used. No code is in the file.

    Of several runs, checkpoints or model files, of any kinds, the file has the average: the geometric mean of their
    probabilities. They must know the same classes; one may take only the RGB features and another only the flow
    features of the same networks.
    Thresholds go along where all have the same; `lstr evaluate --choose-thresholds` chooses new ones. A single
    model file is copied, with the given metrics.

    \b
    Examples:
      lstr pack run -o fall.lstr
      lstr pack run/checkpoint.pt --weights weights -o fall.lstr
      lstr pack run-rnn run-lstr --weights weights -o both.lstr
      lstr pack run -o fall.lstr --metrics evaluation.json
    """
    from lstr.pipelines.model_files.model_file import is_model
    from lstr.pipelines.model_files.packing import metrics_from
    from lstr.pipelines.model_files.packing import pack as job

    about = {"metrics": metrics_from(metrics)} if metrics else {}
    if weights and len(runs) == 1 and is_model(runs[0]):
        raise click.UsageError("--weights is for a run or checkpoint: a model file contains its networks.")
    model = job([Path(run) for run in runs], Path(output), Path(weights) if weights else None, about)
    size = console.size(model.path.stat().st_size)
    console.say(f"model: {model.path} ({size}; networks inside: {', '.join(model.inside) or 'none'})")


@click.command("unpack", cls=Command)
@click.argument("model", metavar="FILE.lstr")
@option("-o --output DIR", OUTPUT, "Write the files into this folder.", required=True)
def unpack(model, output):
    """Write checkpoint.pt, card.md and, where networks are in the file, the folder `weights` into DIR.

    `lstr train`, `lstr finetune --init` and your own programs can start from them. The tensors equal the tensors of the
    model file to the bit; `lstr detect -m DIR/checkpoint.pt` finds the networks next to it.

    \b
    Examples:
      lstr unpack fall.lstr -o fall
    """
    from lstr.pipelines.model_files.packing import unpack_model

    console.say(f"checkpoint: {unpack_model(model, output) / 'checkpoint.pt'}")


@click.command("export", cls=Command)
@click.argument("model", metavar="MODEL")
@click.argument("videos", nargs=-1, metavar="[VIDEO|DIR...]")
@option("-o --output FILE.lstr", OUTPUT, "Write this file.", required=True)
@as_json
@set_option("streams")
def export(model, videos, output, settings, as_json):
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
    from lstr.pipelines.model_files.export import export as job

    model = console.follow(job(model, output, videos, settings.read_count("streams", 1)))
    alike = model.exported["alike"]
    if as_json:
        console.show_json({"model": str(model.path), **alike})
        return
    console.show(f"{alike['chunks']} chunks side by side: scores differ by {alike['scores']:.1e} at most")
    console.show(f"{alike['steps']} steps of the model: scores differ by {alike['later_scores']:.1e} at most")
    console.say(f"model: {model.path} ({console.size(model.path.stat().st_size)}; runs without torch)")
    console.say_next("lstr", "detect", "VIDEO", "-m", model.path, "-o", "timeline")
