"""`lstr extract`: videos to a feature folder."""

import sys
from pathlib import Path

import click

from lstr_cli.options import device_option, recipe_options, workers_option

SOME_FAILED = 3


@click.command("extract")
@click.argument("videos", nargs=-1, required=True, metavar="VIDEO|DIR...")
@click.option("-o", "--output", required=True, metavar="FEATURES", help="Feature folder to write.")
@recipe_options
@click.option(
    "--calibrate",
    metavar="LABELS|LIST",
    help="Give random networks batch-norm statistics from these videos: the training subset of a label file, "
    "or a text file with an id or path a line.",
)
@workers_option
@device_option
@click.option(
    "--allow-damaged", is_flag=True, help="Of a damaged video keep what precedes the damage, instead of failing it."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def command(
    videos,
    output,
    recipe,
    rgb_weights,
    flow_weights,
    calibrate,
    workers,
    flow_backend,
    device,
    allow_damaged,
    dry_run,
):
    """Decode, compute optical flow, run both TSN networks, and write one array a stream and video.

    Run the same command again to go on after an interruption: finished videos are kept.

    \b
    Examples:
      lstr extract videos/ -o features --calibrate labels.json
      lstr extract videos/ -o features --rgb-weights kinetics --flow-weights kinetics
      lstr extract videos/ -o features --streams rgb --rgb-network tsn_mobilenet.py --rgb-weights tsn_mobilenet.pth
    """
    from extractors.twostream import WeightSources, default_device
    from extractors.video import find_videos
    from lstr_cli import console
    from pipelines.extract import extract, plan
    from pipelines.networks import flow_workers, prepare

    output = Path(output)
    found = find_videos(videos)
    if dry_run:
        rows = plan(found, output)
        console.show_table("plan", ("video", "seconds", "chunks", "state"), rows, right=(1, 2))
        return
    device = device or default_device()
    with flow_workers(recipe, workers, flow_backend) as pool, console.Bar("chunks") as bar:
        twostream, folder = prepare(
            found,
            output,
            recipe,
            WeightSources(rgb_weights, flow_weights),
            Path(calibrate) if calibrate else None,
            pool,
            device,
            bar.update,
        )
        if twostream.recipe.is_random:
            state = "" if twostream.recipe.calibrated_on else " and are not calibrated (see --calibrate)"
            console.warn(
                f"{twostream.recipe.random_streams} networks carry random weights{state}; "
                "bring published ones with --rgb-weights and --flow-weights."
            )
        outcomes = []
        for outcome in extract(found, folder, twostream, pool, bar.update, allow_damaged):
            outcomes.append(outcome)
            if outcome.state == "failed":
                console.say(f"failed: {outcome.id}: {outcome.reason}\nhint: {outcome.hint}")
            elif outcome.state == "done":
                speed = outcome.chunks / 4 / outcome.seconds
                console.say(
                    f"done: {outcome.id}: {outcome.chunks} chunks in {outcome.seconds:.1f} s ({speed:.2f} × real time)"
                )
                if outcome.reason:
                    console.warn(f"{outcome.id} is {outcome.reason}")
    counts = {state: sum(o.state == state for o in outcomes) for state in ("done", "kept", "failed")}
    console.say(", ".join(f"{n} {state}" for state, n in counts.items()) + f"; features in {folder.path}")
    if counts["failed"]:
        sys.exit(SOME_FAILED)
