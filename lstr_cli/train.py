"""`lstr train` and `lstr finetune`: a model on features, and feature networks on videos."""

import sys
from typing import Any

import click

from lstr.extractors.streams import STREAMS
from lstr.pipelines.progress import Failed
from lstr_cli import console
from lstr_cli.extract import say_outcome, speed
from lstr_cli.options import (
    MODEL,
    NETWORKS,
    OF_DATA,
    OF_FEATURES,
    OF_RECIPE,
    OF_RUN,
    OF_RUN_AND_RECIPE,
    OUTPUT,
    RUN,
    Command,
    as_json,
    check_paths,
    labels_option,
    list_option,
    option,
    read_lists,
    set_option,
    stream_option,
)

MAX_LISTED_PATHS = 3  # of --list, in the next command


@click.command("train", cls=Command)
@click.argument("features", metavar="FEATURES...", nargs=-1, required=True)
@labels_option(required=True)
@option("-o --output RUN", OUTPUT, "Write the checkpoint and the log into this folder.", required=True)
@option(
    "--preset NAME",
    MODEL,
    "Start from these settings. thumos14, tvseries, hacs: from the paper. thumos14-published: from the published "
    "code. lstr-small: LSTR for up to an hour of video. KIND-small, KIND-thumos14: other kinds of model, for example "
    "rnn-small and miniroad-thumos14; see `lstr models KIND`.  [default: lstr-small up to an hour of training video, "
    "else thumos14; for another model.kind, its presets]",
)
@option("--config FILE", MODEL, "Start from the settings of another run: its config.json.")
@option("--eval-every EPOCHS", RUN, "Evaluate after this many epochs, and keep best.pt.", type=click.IntRange(min=1))
@option("--resume", RUN, "Continue an interrupted run.")
@option("--print-config", OUTPUT, "Print all settings as JSON, for --config, and train nothing.")
@set_option(
    f"{OF_DATA} {OF_FEATURES} eval_subset",
    model="of the model, such as model.kind=rnn",
    train="of its training, such as train.epochs=10",
)
def train(features, print_config, settings, eval_every, **others):
    """Train LSTR, or a baseline, on one or several feature folders, or on features of other programs.

    RUN gets checkpoint.pt (self-describing), best.pt with --eval-every, config.json, metrics.jsonl, events for
    TensorBoard, and resume.pt, from which --resume continues an interrupted run. Settings choose
    the model: its kind (`lstr models` lists them), each design the paper compares, anticipation. Started by torchrun,
    the same command trains on several GPUs or machines.

    \b
    Examples:
      lstr train features --labels labels.json -o run
      lstr train features --labels labels.json -o run --eval-every 1 --set train.patience=3
      lstr train features --labels labels.json -o run --set model.long_length=512 --set train.precision=bf16
      lstr train data/THUMOS --labels data/data_info.json -o run --eval-every 1 --set eval_subset=testing
      lstr train i3d/ --labels labels.json -o run --set features.rate=7.5
      torchrun --nproc-per-node 8 --no-python lstr train features --labels labels.json -o run
    """
    check_paths(labels=[others["labels"]], features=features)
    from lstr.pipelines.training.train import TrainOptions, planned_settings, train

    if eval_every is not None:
        settings.setdefault("train.eval_every", str(eval_every))
    chosen = settings.build(TrainOptions, f"{OF_DATA} eval_subset", features=features, settings=settings, **others)
    if print_config:
        console.show_json(console.follow(planned_settings(chosen)))
        return

    def show(event: Any, bar: console.Bar) -> None:
        bar.update(event.stage or "train", event.step, event.steps, event.line())
        if event.evaluation or event.step == event.steps:
            console.say(f"{f'{event.stage}: ' if event.stage else ''}step {event.step}/{event.steps} {event.line()}")

    trained = console.follow(train(chosen), "steps", show)
    if trained is None:  # another process of the run prints
        return
    console.say(f"checkpoint: {trained.checkpoint}")
    if trained.held_out:
        report = trained.checkpoint.with_name("evaluation")
        skipping = ("--set", "skip_missing=true") if chosen.skip_missing else ()
        words = "evaluate", trained.checkpoint, *features, "--labels", chosen.labels, *skipping, "-o", report
        console.say_next("lstr", *words)
    else:
        source = "VIDEO" if trained.takes_videos else features[0]
        console.say_next("lstr", "detect", source, "-c", trained.checkpoint, "-o", "timeline")


@click.command("finetune", cls=Command)
@click.argument("videos", nargs=-1, metavar="VIDEO|DIR|PATTERN...")
@labels_option(required=True)
@option("-o --output WEIGHTS", OUTPUT, "Write the weights into this folder.", required=True)
@option(
    "--init [STREAM=]PATH|NAME|random",
    NETWORKS,
    "Start from these weights: a file (published, or torchvision's resnet50-*.pth), an earlier WEIGHTS folder, a model "
    "file, the name or recipe of fetched ones, or random; for one network as in rgb=PATH. RGB weights serve a flow "
    "network of their kind too.  [default: random]",
    multiple=True,
)
@option(
    "--recipe NAME|FILE",
    NETWORKS,
    "Make features by this recipe, as `lstr extract` will: fast, faithful, activitynet (ResNet-50 on both streams), "
    "activitynet-fast, or a recipe file.",
    default="fast",
)
@stream_option
@list_option
@option("--resume", RUN, "Continue an interrupted training.")
@as_json
@set_option(
    NAME="a setting of both networks, rgb.NAME or flow.NAME of one: epochs, batch_size, lr, dropout, short_side, crop, "
    f"precision and others; or of the run: {OF_RUN}; or of the recipe: {OF_RECIPE}"
)
def finetune(videos, lists, init, stream, settings, as_json, **others):
    """Train the two feature networks on your own labelled videos.

    Frames and flow are computed once, into the cache, and read from there at each epoch; `lstr extract` reads them
    from it too. WEIGHTS gets rgb.pth and flow.pth, recipe.json and finetune.json; `lstr extract --recipe WEIGHTS` makes
    features with them. --set NAME=VALUE changes a setting of both networks, rgb.NAME or flow.NAME of one: epochs,
    batch_size, lr, dropout, short_side, crop, precision and others. Started by torchrun, the same command trains on
    several GPUs; all have to see the cache and WEIGHTS.

    \b
    Examples:
      lstr finetune videos/ --labels labels.json -o weights
      lstr finetune videos/ --labels labels.json -o weights --init kinetics
      lstr finetune videos/ --labels labels.json -o weights --stream flow --set epochs=30 --set lr=0.005
      lstr finetune videos/ --labels labels.json -o weights --init rgb=resnet50-0676ba61.pth --resume
      lstr finetune new/ --labels new.json -o better --init weights
      lstr finetune new/ --labels new.json -o better --init fall.lstr
      torchrun --nproc-per-node 8 --no-python lstr finetune videos/ --labels labels.json -o weights
    """
    if not videos and not lists:
        raise click.UsageError("Specify a video, a folder, a pattern or a --list.")
    lists = read_lists(lists)
    check_paths([*videos, *lists], [others["labels"]])
    from lstr.pipelines.training.finetune import Filling, FinetuneOptions
    from lstr.pipelines.training.finetune import finetune as job
    from lstr.pipelines.training.network_config import trainable
    from lstr.pipelines.training.run import Step

    changes = settings.take_recipe()
    others["recipe"] = trainable(others["recipe"], stream or "both", None, changes["networks"], changes["precision"])
    others |= {"videos": [*videos, *lists], "settings": settings, "algorithm": changes["algorithm"]}
    of_streams = {value.partition("=")[0]: value.partition("=")[2] for value in init}
    others["inits"] = {name: path for name, path in of_streams.items() if name in STREAMS and path}
    # A value without a stream is for both networks, the last one counts.
    shared = [value for value in init if value.partition("=")[0] not in others["inits"]]
    others["init"] = shared[-1] if shared else None
    chosen = settings.build(FinetuneOptions, OF_RUN_AND_RECIPE, **others)

    def show(event: Any, bar: console.Bar) -> console.Bar | None:
        match event:
            case Filling(chunks):
                return console.JobBar("chunks", chunks, speed) if chunks else console.Bar("steps")
            case Step():
                console.say(f"{event.stage}: {event.line()}")
            case _:
                if isinstance(bar, console.JobBar):  # videos that are only looked at have no bar
                    bar.finish(event.id)
                if isinstance(event, Failed):
                    say_outcome(event)
        return None

    result = console.follow(job(chosen), "steps", show)
    if result is None:  # another process of the run prints
        return
    weights = result.weights
    if as_json:
        failed = [{"id": failed.id, "reason": failed.reason} for failed in result.failed]
        console.show_json({**weights.about, "output": str(weights.path), "failed": failed})
    else:
        rows = []
        for stream, pairs in weights.about["metrics"].items():
            for pair, known in pairs.items():
                score = "" if known["mAP"] is None else f"{known['mAP']:.4f}"
                epoch = f"{known['epoch']}/{known['epochs']}"
                rows.append((stream, pair, score, epoch, console.clock(known["seconds"])))
        console.show_table(weights.about["name"], ("stream", "pair", "mAP", "epoch", "time"), rows, right=(2, 3, 4))
    console.say(f"weights: {weights.path}")
    if not as_json:
        sources = [*videos, *lists] if len(lists) <= MAX_LISTED_PATHS else ["VIDEOS"]
        features = weights.path.with_name("features")
        console.say_next("lstr", "extract", *sources, "-o", features, "--recipe", weights.path)
    if result.failed:
        some = ", ".join(failed.id for failed in result.failed[:5])
        console.say(f"{len(result.failed)} of {result.n_videos} videos were skipped: {some}")
        sys.exit(console.PARTIAL_FAILURE)
