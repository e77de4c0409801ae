"""`lstr extract`: videos to a feature folder."""

import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from lstr_cli.options import (
    algorithm_option,
    device_option,
    flow_backend_option,
    inputs_options,
    precision_option,
    processes_options,
    weights_options,
)

SOME_FAILED = 3


@click.command("extract")
@click.argument("videos", nargs=-1, metavar="VIDEO|DIR|PATTERN...")
@inputs_options
@click.option("-o", "--output", required=True, metavar="FEATURES", help="Feature folder to write.")
@click.option(
    "--recipe",
    type=click.Choice(["faithful", "fast"]),
    default="faithful",
    show_default=True,
    help="faithful: ten flow crops, as published. fast: one, and bf16 where the processor has it.",
)
@precision_option
@algorithm_option
@weights_options
@click.option(
    "--calibrate",
    metavar="LABELS|LIST",
    help="Give random networks batch-norm statistics from these videos: the training subset of a label file, "
    "or a text file with an id or path a line.",
)
@processes_options
@flow_backend_option
@device_option
@click.option(
    "--allow-damaged", is_flag=True, help="Of a damaged video keep what precedes the damage, instead of failing it."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done: how much, how long, how much disk.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary, or the plan of a --dry-run, as JSON.")
def command(
    videos,
    lists,
    endings,
    root,
    output,
    recipe,
    precision,
    algorithm,
    rgb_weights,
    flow_weights,
    calibrate,
    workers,
    threads,
    flow_backend,
    device,
    allow_damaged,
    dry_run,
    as_json,
):
    """Decode, compute optical flow, run both TSN networks, and write one array a stream and video.

    A PATTERN in quotes, as 'videos/**/*.mp4', is expanded here. Run the same command again to go on after an
    interruption: finished videos are kept. What fails is named in FEATURES/failed.jsonl and does not stop the rest.

    \b
    Examples:
      lstr extract videos/ -o features --calibrate labels.json
      lstr extract videos/ -o features --dry-run
      lstr extract --list videos.txt --root /data -o features --workers 8
      lstr extract videos/ -o features --rgb-weights tsn_r50.pth --flow-weights bninception_flow.pth
    """
    from extractors.flow import FlowWorkers, choose_backend
    from extractors.inputs import VIDEO_SUFFIXES, find_videos
    from extractors.twostream import WeightSources, default_device
    from lstr_cli import console
    from pipelines.extract import extract, run
    from pipelines.extract_plan import make_plan
    from pipelines.extract_processes import over_processes
    from pipelines.extract_summary import Summary
    from pipelines.extract_worker import WorkerConfig
    from pipelines.machine import share, this_machine
    from pipelines.networks import prepare

    output, device = Path(output), device or default_device()
    found = find_videos([*videos, *lists], endings or VIDEO_SUFFIXES, root)
    machine = this_machine(device)
    flow = choose_backend(algorithm, flow_backend) if algorithm == "tvl1" else algorithm
    plan = make_plan(
        found, output, partial(share, machine, processes=workers, threads=threads), recipe, precision, flow, device
    )
    if dry_run:
        _show_plan(console, plan, as_json)
        return
    _say_plan(console, plan)
    sources = WeightSources(rgb_weights, flow_weights)
    with FlowWorkers(machine.cores, algorithm, flow_backend) as pool, console.Bar("chunks") as bar:
        listed = Path(calibrate) if calibrate else None
        twostream, folder = prepare(found, output, recipe, sources, listed, pool, device, bar.update, precision)
    if twostream.recipe.is_random:
        state = "" if twostream.recipe.calibrated_on else " and are not calibrated (see --calibrate)"
        console.warn(
            f"{twostream.recipe.random_streams} networks carry random weights{state}; "
            "bring published ones with --rgb-weights and --flow-weights."
        )
    ...


def _show_plan(console, plan, as_json: bool) -> None:
    if as_json:
        console.show_json(plan.to_dict())
        return
    rows = []
    for video in plan.videos:
        state = "failed before" if video.failed_before and video.state == "to do" else video.state
        rows.append((video.id, f"{video.seconds:.1f}", video.chunks, state, video.reason or video.failed_before))
    console.show_table("plan", ("video", "seconds", "chunks", "state", "reason"), rows, right=(1, 2))
    _say_plan(console, plan)


def _say_plan(console, plan) -> None:
    """The plan in a line, and what is not enough."""
    counts = f"{len(plan.of('done'))} done, {len(plan.of('to do'))} to do"
    ...
