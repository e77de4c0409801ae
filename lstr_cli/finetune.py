"""`lstr finetune`: labelled videos to the weights of the feature networks."""

import sys
from pathlib import Path

import click

from lstr_cli.extract import say_outcome, speed
from lstr_cli.options import Size, algorithm_option, device_option, inputs_options, set_option, workers_option

SOME_FAILED = 3
NETWORKS = click.Choice(["resnet50", "bninception"])


@click.command("finetune")
@click.argument("videos", nargs=-1, metavar="VIDEO|DIR|PATTERN...")
@inputs_options
@click.option("--labels", required=True, metavar="FILE", help="ActivityNet JSON, or a published data_info.json.")
@click.option("--dataset", metavar="NAME", help="Which data set of a data_info.json.")
@click.option("-o", "--output", required=True, metavar="WEIGHTS", help="Folder for the weights.")
@click.option("--stream", type=click.Choice(["rgb", "flow", "both"]), default="both", show_default=True)
@click.option(
    "--init",
    metavar="PATH|NAME|random",
    help="Their first weights: a file (published, or torchvision's resnet50-*.pth), an earlier WEIGHTS folder, "
    "the name or recipe of fetched ones, or random. RGB weights serve a flow network of the same kind too.  "
    "[default: random]",
)
@click.option("--rgb-init", metavar="PATH|NAME|random", help="The same of the RGB network alone.")
@click.option("--flow-init", metavar="PATH|NAME|random", help="The same of the flow network alone.")
@click.option("--folds", type=click.IntRange(min=2), metavar="K", help="Train K more pairs, each without a K-th.")
@click.option("--subset", default="training", show_default=True, help="Subset of the labels to train on.")
@click.option(
    "--eval-subset",
    metavar="NAME",
    help="Subset that chooses the epoch.  [default: validation where it is, else one in five training videos]",
)
@click.option(
    "--recipe",
    metavar="NAME|FILE",
    default="fast",
    show_default=True,
    help="How features will be made, as for `lstr extract`: fast, faithful, activitynet (ResNet-50 on both streams), "
    "activitynet-fast, or a recipe file of your own.",
)
@click.option("--rgb-network", type=NETWORKS, help="Another network for RGB.")
@click.option("--flow-network", type=NETWORKS, help="Another network for flow.")
@algorithm_option
@click.option("--cache", metavar="DIR", help="Where frames and flow are kept.  [default: $LSTR_HOME/chunks]")
@click.option("--cache-size", type=Size(), default="50GB", show_default=True, help="All that the cache may take.")
@set_option
@click.option("--seed", type=click.IntRange(min=0), help="Of weights, samples, augmentation and dropout.")
@click.option("--resume", is_flag=True, help="Go on with a training that was stopped.")
@click.option("--readers", type=click.IntRange(min=0), help="Processes that read samples ahead.")
@workers_option
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(
    videos,
    lists,
    endings,
    root,
    labels,
    dataset,
    output,
    stream,
    init,
    rgb_init,
    flow_init,
    folds,
    subset,
    eval_subset,
    recipe,
    rgb_network,
    flow_network,
    algorithm,
    cache,
    cache_size,
    settings,
    seed,
    resume,
    readers,
    workers,
    flow_backend,
    device,
    as_json,
):
    """Train the two feature networks on your own labelled videos.

    Frames and flow are computed once, into the cache, and read from there at each epoch; `lstr extract` reads them
    there too. WEIGHTS gets rgb.pth and flow.pth, with --folds also a pair without each fold, recipe.json and
    finetune.json; `lstr extract --recipe WEIGHTS` makes features with them, of each video with a pair that has not
    seen it. --set NAME=VALUE changes a setting of both networks, rgb.NAME or flow.NAME of one: epochs, batch_size, lr,
    dropout, short_side, crop, precision, patience and others.

    \b
    Examples:
      lstr finetune videos/ --labels labels.json -o weights
      lstr finetune videos/ --labels labels.json -o weights --folds 3 --init kinetics
      lstr finetune videos/ --labels labels.json -o weights --stream flow --set epochs=30 --set lr=0.005
      lstr finetune videos/ --labels labels.json -o weights --rgb-init resnet50-0676ba61.pth --resume
      lstr finetune new/ --labels new.json -o better --init weights
    """
    from extractors.networks.backbones import registry

    registry()  # quietly, or an error of ours
    from extractors.flow.workers import choose_backend
    from extractors.networks.model_card import is_weights_folder
    from extractors.twostream import default_device
    from extractors.video.inputs import VIDEO_SUFFIXES
    from lstr_cli import console
    from pipelines.extraction.chunk_cache import ChunkCache
    from pipelines.files.home import home
    from pipelines.files.videos import find_sources
    from pipelines.finetuning.cached_videos import chunks_of
    from pipelines.finetuning.config import resolve, trainable
    from pipelines.finetuning.finetune import Training, check_blind, finetune
    from pipelines.finetuning.folds import check_labels, make_pairs, parts_of
    from pipelines.finetuning.initial_weights import initial_weights
    from pipelines.finetuning.run_folder import check_output
    from pipelines.networks.weights_folder import open_weights

    if not videos and not lists:
        raise click.UsageError("Give a video, a folder, a pattern or a --list.")
    output = Path(output)
    check_output(output, resume)
    if resume and is_weights_folder(output):
        console.say(f"{output} is finished; to train its networks further, give --init {output} and another -o.")
        _result(open_weights(output), [], as_json)
        return
    device = device or default_device()
    preset = trainable(recipe, stream, {"rgb": rgb_network, "flow": flow_network}, algorithm)
    initial = initial_weights(preset, init, {"rgb": rgb_init, "flow": flow_init})
    given = settings | ({"seed": str(seed)} if seed is not None else {})
    preset, configs = resolve(preset, {s: i.path is not None for s, i in initial.items()}, given, device)
    if preset.algorithm:
        choose_backend(preset.algorithm, flow_backend)  # before anything takes long

    annotated = _read_labels(labels, dataset, [v for v in videos if Path(v).is_dir()])
    found = find_sources([*videos, *lists], endings or VIDEO_SUFFIXES, root)
    parts = parts_of(annotated, found, subset, eval_subset)
    _say_left_out(parts, labels, subset)
    chunks = ChunkCache(Path(cache) if cache else home() / "chunks", chunks_of(preset), cache_size)
    used = {i: found[i] for i in (*parts.training, *parts.validation)}

    def plan(there):
        """The pairs of the videos that are there, their folds, and a warning."""
        training, validation = ([i for i in ids if i in there] for ids in (parts.training, parts.validation))
        warning = check_labels(annotated, training, labels)
        if folds:
            check_blind(initial, there)
        return *make_pairs(annotated, training, validation, folds or 0), warning

    cached, bad = _cache(used, chunks, preset, plan, workers, flow_backend)
    pairs, fold_of, warning = plan(cached)
    if warning:
        console.warn(warning)
    _say_plan(annotated, pairs, configs, initial, init)
    training = Training(preset, configs, initial, annotated, cached, pairs, fold_of)
    weights = _train(finetune, training, output, device, resume, readers)
    _result(weights, bad, as_json)
    if bad:
        console.say(f"{len(bad)} of {len(used)} videos were left out: {', '.join(outcome.id for outcome in bad[:5])}")
        sys.exit(SOME_FAILED)


def _read_labels(source: str, dataset: str | None, roots: list[str]):
    """The labels without errors; what is odd in them is said."""
    from lstr.label_check import check
    from lstr_cli import console
    from lstr_cli.labels import table_of
    from pipelines.datasets.dataset import read_label_file, stop_at_errors

    annotated = read_label_file(source, roots, dataset, lenient=True, skip_missing=True)
    findings = check(annotated)
    if findings:
        console.say_table(f"{source}:", *table_of(findings))
    stop_at_errors(findings, source)
    return annotated


def _say_left_out(parts, labels: str, subset: str) -> None:
    from lstr_cli import console

    for ids, what in (
        (parts.absent, f"labelled in {labels} and not among the videos given"),
        (parts.unlabelled, f"given, but labelled neither as {subset} nor to choose the epoch"),
    ):
        if ids:
            some = ", ".join(ids[:3]) + (" …" if len(ids) > 3 else "")
            console.warn(f"left out, for {what}: {some} ({len(ids)} in all).")


def _cache(videos, chunks, preset, plan, workers: int | None, flow_backend: str):
    """Each video's chunks in the cache, by id, and the Outcomes of those that failed."""
    from extractors.errors import VideoError
    from extractors.flow.workers import flow_workers
    from lstr_cli import console
    from pipelines.finetuning.cached_videos import fill, look_at

    console.say(f"looking at {len(videos)} videos")
    sound, bad = look_at(videos, chunks)
    for outcome in bad:
        say_outcome(console, outcome)
    if not sound:
        raise VideoError("None of the videos can be read.", "each is named above, with what to do.")
    plan({video.id: video for video in sound})  # what cannot be trained on is told before hours of flow
    cached, made = {}, 0
    total = sum(video.n_chunks for video in sound)
    with flow_workers(preset.algorithm, workers, flow_backend) as pool, console.JobBar("chunks", total, speed) as bar:
        for (outcome, there), video in zip(fill(sound, chunks, pool, bar.update), sound, strict=True):
            bar.finish(outcome.id, video.n_chunks)
            if there is None:
                say_outcome(console, outcome)
                bad.append(outcome)
                continue
            cached[outcome.id] = there
            made += outcome.state == "done"
            if outcome.reason:
                console.warn(f"{outcome.id} was {outcome.reason}.")
    if not cached:
        raise VideoError("None of the videos can be read to its end.", "each is named above, with what to do.")
    n_chunks = sum(len(there.chunks) for there in cached.values())
    console.say(f"{n_chunks} chunks of {len(cached)} videos in {chunks.path}, {made} made now")
    return cached, bad


def _say_plan(labels, pairs, configs, initial, init: str | None) -> None:
    """What is to be trained, and what of it a person should know."""
    from lstr_cli import console
    from pipelines.finetuning.folds import unlearnt

    whole = pairs[0]
    chosen = f"{len(whole.validation)} choose the epoch" if whole.validation else "none chooses the epoch"
    also = f", and {len(pairs) - 1} times without a fold" if len(pairs) > 1 else ""
    console.say(f"{len(whole.training)} videos to train on, {chosen}; {len(labels.classes)} classes{also}")
    for stream, config in configs.items():
        begins = initial[stream]
        origin = f"the {'RGB ' if begins.crossed else ''}weights of {begins.path}" if begins.path else "random weights"
        images = f"images of {config.crop} pixels, in {config.precision}"
        console.say(f"{stream}: begins with {origin}; {config.epochs} epochs at most, of {images}")
        if init not in (None, "random") and not begins.path:
            console.warn(f"{init} does not fit the {stream} network, which begins with random weights.")
    for pair in pairs[1:]:
        if missing := unlearnt(pair, labels):
            console.warn(f"without fold {pair.fold} no training video shows {', '.join(missing)}.")


def _train(job, training, output: Path, device: str, resume: bool, readers: int | None):
    """Run the job, with a line of progress, and one that stays for each epoch."""
    from lstr_cli import console

    with console.Bar("steps") as bar:

        def say(stream: str, fold: int | None, epoch) -> None:
            scores = "" if epoch.mAP is None else f" mAP {epoch.mAP:.4f} (best {epoch.best:.4f})"
            console.say(
                f"{_name(stream, fold)}: epoch {epoch.epoch}/{epoch.epochs} loss {epoch.loss:.3f} lr {epoch.lr:.1e} "
                f"{epoch.rate:.1f} images/s, waited {100 * epoch.waiting:.0f} %{scores}"
            )

        def step(stream: str, fold: int | None, done: int, total: int) -> None:
            bar.update(_name(stream, fold), done, total)

        return job(training, output, device, resume, readers, say, step)


def _name(stream: str, fold: int | None) -> str:
    return f"{stream} without fold {fold}" if fold else stream


def _result(weights, bad, as_json: bool) -> None:
    """What a finished folder says of its networks, and what to do with it."""
    from lstr_cli import console

    if as_json:
        failed = [{"id": outcome.id, "reason": outcome.reason} for outcome in bad]
        console.show_json({**weights.about, "output": str(weights.path), "failed": failed})
    else:
        rows = []
        for stream, of in weights.about["metrics"].items():
            for pair, known in of.items():
                score = "" if known["mAP"] is None else f"{known['mAP']:.4f}"
                epoch = f"{known['epoch']}/{known['epochs']}"
                rows.append((stream, pair, score, epoch, console.clock(known["seconds"])))
        console.show_table(weights.name, ("stream", "pair", "mAP", "epoch", "time"), rows, right=(2, 3, 4))
    console.say(f"weights: {weights.path}; to use them: lstr extract VIDEOS -o FEATURES --recipe {weights.path}")
