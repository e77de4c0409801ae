"""`lstr finetune`: labelled videos to the weights of the feature networks."""

import sys
from typing import Annotated, Any

import click
from msgspec import Struct

from lstr.extractors.streams import STREAMS
from lstr.pipelines.progress import Failed
from lstr_cli import console
from lstr_cli.extract import say_outcome, speed
from lstr_cli.next_steps import after_finetune
from lstr_cli.options import (
    NETWORKS,
    OF_RECIPE,
    OF_RUN,
    OUTPUT,
    RUN,
    Command,
    Json,
    Labels,
    Lists,
    RecipeChanges,
    Stream,
    build_from,
    option,
    options,
    read_lists,
    set_option,
    take_run,
)

SOME_FAILED = 3


class Finetune(Struct):
    labels: Labels
    output: Annotated[str, option(OUTPUT, "-o --output WEIGHTS", "Write the weights into this folder.")]
    init: Annotated[
        tuple[str, ...],
        option(
            NETWORKS,
            "--init [STREAM=]PATH|NAME|random",
            "Start from these weights: a file (published, or torchvision's resnet50-*.pth), an earlier WEIGHTS folder, "
            "a model file, the name or recipe of fetched ones, or random; for one network as in rgb=PATH. RGB weights "
            "serve a flow network of their kind too.  [default: random]",
        ),
    ] = ()
    recipe: Annotated[
        str,
        option(
            NETWORKS,
            "--recipe NAME|FILE",
            "Make features by this recipe, as `lstr extract` will: fast, faithful, activitynet (ResNet-50 on both "
            "streams), activitynet-fast, or a recipe file.",
        ),
    ] = "fast"
    stream: Stream = None
    lists: Lists = ()
    resume: Annotated[bool, option(RUN, "--resume", "Continue an interrupted training.")] = False
    as_json: Json = False
    settings: Annotated[
        dict[str, str],
        set_option(
            NAME="a setting of both networks, rgb.NAME or flow.NAME of one: epochs, batch_size, lr, dropout, "
            f"short_side, crop, precision and others; or of the run: {OF_RUN}; or of the recipe: {OF_RECIPE}",
        ),
    ] = {}


@click.command("finetune", cls=Command)
@click.argument("videos", nargs=-1, metavar="VIDEO|DIR|PATTERN...")
@options(Finetune)
def command(videos, lists, init, stream, settings, as_json, **others):
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
        raise click.UsageError("Give a video, a folder, a pattern or a --list.")
    from lstr.pipelines.training.finetune import Filled, Filling, FinetuneOptions, finetune
    from lstr.pipelines.training.run_folder import Step

    wanted, lists = RecipeChanges.of(settings), read_lists(lists)
    others |= {f"{name}_network": network for name, network in wanted.networks.items()}
    others |= {"algorithm": wanted.algorithm, "stream": stream or "both", "settings": settings, "lists": lists}
    of_streams = {value.partition("=")[0]: value.partition("=")[2] for value in init}
    others["inits"] = {name: path for name, path in of_streams.items() if name in STREAMS and path}
    shared = [value for value in init if value.partition("=")[0] not in others["inits"]]
    others["init"] = shared[-1] if shared else None
    chosen = build_from(FinetuneOptions, take_run(settings), videos=videos, **others)

    def show(event: Any, bar: console.Bar) -> console.Bar | None:
        match event:
            case Filling(chunks):
                return console.JobBar("chunks", chunks, speed)
            case Filled():
                line = f"{event.n_chunks} chunks of {event.n_videos} videos in {event.cache}"
                console.say(f"{line}, {event.n_made} made now")
                return console.Bar("steps")
            case Step():
                console.say(f"{event.stage}: {event.line()}")
            case _:
                if isinstance(bar, console.JobBar):  # videos that are only looked at have no bar
                    bar.finish(event.id)
                if isinstance(event, Failed):
                    say_outcome(event)
        return None

    result = console.follow(finetune(chosen), "steps", show)
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
        console.say_next(*after_finetune(weights.path, videos, lists))
    if result.failed:
        some = ", ".join(failed.id for failed in result.failed[:5])
        console.say(f"{len(result.failed)} of {result.n_videos} videos were left out: {some}")
        sys.exit(SOME_FAILED)
