"""`lstr extract`: videos to a feature folder."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstr.chunk import FEATURES_PER_SECOND
from lstr.pipelines.progress import Failed
from lstr_cli import console
from lstr_cli.options import (
    DATA,
    NETWORKS,
    OF_RECIPE,
    OUTPUT,
    RUN,
    Command,
    list_option,
    option,
    read_lists,
    set_option,
    stream_option,
    weights_option,
)

if TYPE_CHECKING:  # imports torch
    from lstr.pipelines.features.extraction import Plan


@click.command("extract", cls=Command)
@click.argument("videos", nargs=-1, metavar="VIDEO|DIR|PATTERN...")
@option("-o --output FEATURES", OUTPUT, "Write the features into this folder.", required=True)
@option(
    "--recipe NAME|FILE",
    NETWORKS,
    "Make features by this recipe. faithful: as published, with ten flow crops. fast: one crop, and bf16 where faster. "
    "activitynet, activitynet-fast: the variant with ResNet-50 on both streams. Or a recipe file, or the recipe (and "
    "weights) of a feature folder, checkpoint, folder of `lstr finetune`, or model file.  [default: fast on a CPU, "
    "faithful on a GPU]",
)
@stream_option
@weights_option
@option("--calibrate LABELS", NETWORKS, "Give random networks batch-norm statistics of this file's training videos.")
@list_option
@option("--workers N", RUN, "Use N processes.  [default: one per four cores, and per GPU]", type=click.IntRange(min=1))
@option("--allow-damaged", DATA, "Use damaged videos up to the damage, instead of reporting them as failed.")
@option("--dry-run", RUN, "Show the plan with its duration, and stop.")
@option("--json", OUTPUT, "Print the summary, or the plan of a --dry-run, as one JSON document.", "as_json")
@set_option(f"runtime threads root engine cache {OF_RECIPE}")
def extract(videos, output, recipe, stream, weights, calibrate, lists, settings, dry_run, as_json, **others):
    """Decode, compute optical flow, run both TSN networks, and write one array per stream and video.

    A PATTERN in quotes, as 'videos/**/*.mp4', is expanded here. Sources and FEATURES may be URLs that fsspec knows,
    as s3://bucket/videos. Run the same command again to go on after an
    interruption: finished videos are kept. What fails is named in FEATURES/failed.jsonl and does not stop the rest.

    \b
    Examples:
      lstr extract videos/ -o features --calibrate labels.json
      lstr extract videos/ -o features --dry-run
      lstr extract --list videos.txt --set root=/data -o features --workers 8
      lstr extract videos/ -o features --weights kinetics
      lstr extract videos/ -o features --stream rgb --set recipe.rgb.network=tsn_mobilenet.py --weights rgb=tsn.pth
      lstr extract videos/ -o features --recipe my_weights
      lstr extract videos/ -o features --recipe fall.lstr
      lstr extract s3://bucket/videos -o s3://bucket/features --set engine=ray
    """
    if not videos and not lists:
        raise click.UsageError("Specify a video, a folder, a pattern or a --list.")
    from lstr.extractors.video.inputs import find_sources

    # reports a wrong path at once; the imports below take longer
    found = find_sources([*videos, *read_lists(lists)], settings.pop("root", None), console.say)
    console.say_waiting("loading networks…")
    from lstr.extractors.networks.published import weights_by_stream
    from lstr.files.remote import place
    from lstr.pipelines.features.chunk_cache import find_cache
    from lstr.pipelines.features.extract import extract, plan
    from lstr.pipelines.features.extraction import ExtractOptions, Plan
    from lstr.pipelines.features.output_folder import OutputFolder
    from lstr.pipelines.features.recipes import choose_recipe, default_recipe, weights_for

    if not recipe:
        recipe, why = default_recipe(place(output), None)
        console.say(f"recipe: {recipe}, {why}")
    cache, changes = settings.pop("cache", None), settings.take_recipe()
    chosen = choose_recipe(recipe, stream, **changes)
    job = settings.build(
        ExtractOptions,
        "runtime threads engine",
        precision=changes["precision"],
        output=place(output),
        recipe=chosen,
        weights=weights_for(chosen, weights_by_stream(weights, chosen.streams)),
        calibrate=Path(calibrate) if calibrate else None,
        cache=None if cache == "none" else find_cache(cache),
        **others,
    )
    if dry_run:
        planned = plan(found, job)
        if as_json:
            console.show_json(planned.to_dict())
            return
        rows = []
        for video in planned.videos:
            state = "failed before" if video.failed_before and video.state == "to do" else video.state
            rows.append((video.id, f"{video.seconds:.1f}", video.chunks, state, video.reason or video.failed_before))
        console.show_table("plan", ("video", "seconds", "chunks", "state", "reason"), rows, right=(1, 2))
        console.show(_line(planned))
        return
    chunks: dict[str, int] = {}

    def show(event: Any, bar: Any) -> console.Bar | None:
        match event:
            case Plan():
                console.say(_line(event))
                chunks.update({video.id: video.chunks for video in event.of("to do")})
            case OutputFolder():  # calibration is over
                return console.JobBar("chunks", chunks, speed)
            case _:
                bar.finish(event.id)
                say_outcome(event)
        return None

    summary = console.follow(extract(found, job), "chunks", show)
    counted = summary.to_dict()
    if summary.chunks:
        per_second = {name: one["chunks_per_thread_second"] for name, one in counted["stages"].items()}
        stages = ", ".join(f"{name.replace('_', ' ')} {rate:.1f}" for name, rate in per_second.items())
        took, rate = console.clock(counted["seconds"]), speed(counted["chunks_per_second"])
        console.say(f"{summary.chunks} chunks in {took}: {rate}; of one thread: {stages}")
    counts = ", ".join(f"{counted[state]} {state}" for state in ("done", "kept", "failed"))
    console.say(f"{counts}; features in {job.output}")
    if as_json:
        console.show_json({"output": str(job.output), **counted})
    elif not summary.failed:
        console.say_next("lstr", "train", job.output, "--labels", "LABELS", "-o", "run")
    if summary.failed:
        sys.exit(console.PARTIAL_FAILURE)


def speed(chunks_per_second: float) -> str:
    """Return chunks per second in words."""
    return f"{chunks_per_second:.1f} a second, {chunks_per_second / FEATURES_PER_SECOND:.2f} × real time"


def _line(plan: "Plan") -> str:
    """Return a plan in one line. Warns if its disk is too small."""
    about = plan.to_dict()
    counts = f"{about['done']} done, {about['to_do']} to do"
    counts += f", {about['unreadable']} unreadable" if about["unreadable"] else ""
    before = f" ({about['failed_before']} failed before)" if about["failed_before"] else ""
    files = f"{about['files']} file{'s' * (about['files'] != 1)}"
    line = f"plan: {files}, {console.clock(about['hours'] * 3600)} of video: {counts}{before}"
    if about["chunks_to_do"]:
        time = "" if about["seconds"] is None else f"about {console.clock(about['seconds'])} "
        processes = f"{about['processes']} processes × " if about["processes"] > 1 else ""
        line += f"; to do: {console.clock(about['hours_to_do'] * 3600)} of video, "
        line += f"{console.size(about['bytes'])} of disk, {time}with "
        line += f"{processes}{about['threads']} thread{'s' * (about['threads'] > 1)}"
    if about["free_bytes"] is not None and about["bytes"] > about["free_bytes"]:
        console.warn(f"the disk of {about['output']} has only {console.size(about['free_bytes'])} of free space.")
    return line


def say_outcome(outcome: Any) -> None:
    """Say the outcome of a video; nothing for one that was finished before."""
    if isinstance(outcome, Failed):
        console.say(f"failed: {outcome.id}: {outcome.reason}\nhint: {outcome.hint}")
    elif outcome.state == "done":
        if outcome.note:
            console.warn(outcome.note)
        factor = outcome.chunks / FEATURES_PER_SECOND / outcome.seconds
        line = f"{outcome.chunks} chunks in {outcome.seconds:.1f} s ({factor:.2f} × real time)"
        console.say(f"done: {outcome.id}: {line}")
        if outcome.reason:
            console.warn(f"{outcome.id} is {outcome.reason}")
