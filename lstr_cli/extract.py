"""`lstr extract`: videos to a feature folder."""

import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from lstr_cli.options import (
    device_option,
    flow_backend_option,
    inputs_options,
    processes_option,
    recipe_options,
)

SOME_FAILED = 3


@click.command("extract")
@click.argument("videos", nargs=-1, metavar="VIDEO|DIR|PATTERN...")
@inputs_options
@click.option("-o", "--output", required=True, metavar="FEATURES", help="Feature folder to write.")
@recipe_options
@click.option(
    "--calibrate",
    metavar="LABELS|LIST",
    help="Give random networks batch-norm statistics from these videos: the training subset of a label file, "
    "or a text file with an id or path a line.",
)
@processes_option
@flow_backend_option
@device_option
@click.option(
    "--allow-damaged", is_flag=True, help="Of a damaged video keep what precedes the damage, instead of failing it."
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="ray: on a Ray cluster, a task a video; sources and features must be where every node reaches them.",
)
@click.option(
    "--ray-address",
    metavar="HOST:PORT",
    help="Of the Ray cluster.  [default: $RAY_ADDRESS, else the one running here, else this machine alone]",
)
@click.option(
    "--cache",
    metavar="DIR",
    help="Chunks and flow that are there already, as `lstr finetune` leaves them.  [default: $LSTR_HOME/chunks]",
)
@click.option("--no-cache", is_flag=True, help="Decode and compute flow anew; the features are the same.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done: how much, how long, how much disk.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary, or the plan of a --dry-run, as JSON.")
def command(
    videos,
    lists,
    endings,
    root,
    output,
    recipe,
    rgb_weights,
    flow_weights,
    calibrate,
    workers,
    threads,
    flow_backend,
    device,
    allow_damaged,
    engine,
    ray_address,
    cache,
    no_cache,
    dry_run,
    as_json,
):
    """Decode, compute optical flow, run both TSN networks, and write one array a stream and video.

    A PATTERN in quotes, as 'videos/**/*.mp4', is expanded here. Sources and FEATURES may be URLs that fsspec knows,
    as s3://bucket/videos. Run the same command again to go on after an
    interruption: finished videos are kept. What fails is named in FEATURES/failed.jsonl and does not stop the rest.

    \b
    Examples:
      lstr extract videos/ -o features --calibrate labels.json
      lstr extract videos/ -o features --dry-run
      lstr extract --list videos.txt --root /data -o features --workers 8
      lstr extract videos/ -o features --rgb-weights kinetics --flow-weights kinetics
      lstr extract videos/ -o features --streams rgb --rgb-network tsn_mobilenet.py --rgb-weights tsn_mobilenet.pth
      lstr extract videos/ -o features --recipe my_weights
      lstr extract s3://bucket/videos -o s3://bucket/features --engine ray --ray-address 10.0.0.1:6379
    """
    from extractors.flow.workers import choose_backend, flow_workers
    from extractors.networks.build import WeightSources
    from extractors.twostream import default_device
    from extractors.video.inputs import VIDEO_SUFFIXES
    from lstr_cli import console
    from pipelines.extraction.chunk_cache import find_cache
    from pipelines.extraction.extract import extract, run
    from pipelines.extraction.machine import share, this_machine
    from pipelines.extraction.outcome import Summary
    from pipelines.extraction.plan import make_plan
    from pipelines.extraction.prepare import prepare
    from pipelines.extraction.processes import over_processes
    from pipelines.extraction.ray_cluster import cluster, nodes, over_cluster, portion_of, share_cluster
    from pipelines.extraction.worker import WorkerConfig
    from pipelines.files.remote import place
    from pipelines.files.videos import find_sources

    if not videos and not lists:
        raise click.UsageError("Give a video, a folder, a pattern or a --list.")
    if ray_address and engine != "ray":
        raise click.UsageError("--ray-address is for --engine ray.")
    if cache and no_cache:
        raise click.UsageError("--cache and --no-cache exclude each other.")
    cache = None if no_cache else find_cache(cache)
    output = place(output)
    found = find_sources([*videos, *lists], endings or VIDEO_SUFFIXES, root)
    if engine == "ray":
        click.get_current_context().with_resource(cluster(ray_address))
        portion = portion_of(nodes().values(), device, threads)
        sharing = partial(share_cluster, portion, most=workers)
        there, device, backend_here = portion.device, "cpu", "auto"  # all that is made here is the recipe
    else:
        there = device = device or default_device()
        sharing = partial(share, this_machine(device), processes=workers, threads=threads)
        backend_here = flow_backend
    machine = this_machine(device)
    backend = choose_backend(recipe.algorithm, backend_here) if recipe.algorithm else ""
    plan = make_plan(found, output, recipe, backend, there, sharing)
    if dry_run:
        _show_plan(console, plan, as_json)
        return
    console.say(_line(console, plan))
    _warn_of_disk(console, plan)
    sources = WeightSources(rgb_weights, flow_weights)
    with flow_workers(recipe.algorithm, threads or machine.cores, backend_here) as pool:
        with console.Bar("chunks") as bar:
            listed = Path(calibrate) if calibrate else None
            twostream, folder = prepare(found, output, recipe, sources, listed, pool, device, bar.update)
        if twostream.recipe.is_random:
            state = "" if twostream.recipe.calibrated_on else " and are not calibrated (see --calibrate)"
            console.warn(
                f"{twostream.recipe.random_streams} networks carry random weights{state}; "
                "bring published ones with --rgb-weights and --flow-weights."
            )
        summary = Summary()
        with console.JobBar("chunks", plan.chunks, speed) as bar:
            config = WorkerConfig(output, sources, there, plan.share.threads, flow_backend, allow_damaged, cache)
            if engine == "ray":
                how = {"portion": portion, "most": workers, "notice": console.warn}
                outcomes = run(plan.longest_first(), folder, partial(over_cluster, config=config, **how))
            elif plan.share.processes == 1:
                outcomes = extract(found, folder, twostream, pool, bar.update, allow_damaged, cache)
            else:
                how = {"processes": plan.share.processes, "gpus": machine.gpus, "progress": bar.update}
                del twostream  # each process has its own
                outcomes = run(plan.longest_first(), folder, partial(over_processes, config=config, **how))
            planned = {video.id: video.chunks for video in plan.of("to do")}
            with closing(outcomes):
                for outcome in outcomes:
                    summary.add(outcome)
                    bar.finish(outcome.id, planned.get(outcome.id, 0))
                    say_outcome(console, outcome)
    _say_summary(console, summary, folder.path)
    if as_json:
        console.show_json({"output": str(folder.path), **summary.to_dict()})
    if summary.failed:
        sys.exit(SOME_FAILED)


def speed(chunks_per_second: float) -> str:
    """Of chunks, for people."""
    return f"{chunks_per_second:.1f} a second, {chunks_per_second / 4:.2f} × real time"


def _show_plan(console, plan, as_json: bool) -> None:
    if as_json:
        console.show_json(plan.to_dict())
        return
    rows = []
    for video in plan.videos:
        state = "failed before" if video.failed_before and video.state == "to do" else video.state
        rows.append((video.id, f"{video.seconds:.1f}", video.chunks, state, video.reason or video.failed_before))
    console.show_table("plan", ("video", "seconds", "chunks", "state", "reason"), rows, right=(1, 2))
    console.show(_line(console, plan))
    _warn_of_disk(console, plan)


def _line(console, plan) -> str:
    states = {"done": len(plan.of("done")), "to do": len(plan.of("to do")), "unreadable": len(plan.of("unreadable"))}
    counts = ", ".join(f"{n} {state}" for state, n in states.items() if n or state != "unreadable")
    before = f" ({plan.failed_before} failed before)" if plan.failed_before else ""
    line = f"plan: {len(plan.videos)} files, {console.clock(plan.hours * 3600)} of video: {counts}{before}"
    if plan.chunks:
        time = "time" if plan.seconds is None else f"about {console.clock(plan.seconds)}"
        line += f"; to do: {console.clock(plan.hours_to_do * 3600)} of video, {console.size(plan.bytes)} of disk, "
        line += f"{time} with {plan.share} ({plan.rate.origin})"
    return line


def _warn_of_disk(console, plan) -> None:
    if plan.free_bytes is not None and plan.bytes > plan.free_bytes:
        console.warn(f"{plan.output} has {console.size(plan.free_bytes)} of disk left, too little.")


def say_outcome(console, outcome) -> None:
    """Tell what became of a video; of one that was finished before, nothing."""
    if outcome.state == "failed":
        console.say(f"failed: {outcome.id}: {outcome.reason}\nhint: {outcome.hint}")
    elif outcome.state == "done":
        if outcome.note:
            console.warn(outcome.note)
        factor = outcome.chunks / 4 / outcome.seconds
        line = f"{outcome.chunks} chunks in {outcome.seconds:.1f} s ({factor:.2f} × real time)"
        console.say(f"done: {outcome.id}: {line}")
        if outcome.reason:
            console.warn(f"{outcome.id} is {outcome.reason}")


def _say_summary(console, summary, path: Path) -> None:
    told = summary.to_dict()
    if summary.chunks:
        stages = (f"{name.replace('_', ' ')} {s['chunks_per_thread_second']:.1f}" for name, s in told["stages"].items())
        console.say(
            f"{summary.chunks} chunks in {console.clock(told['seconds'])}: {speed(told['chunks_per_second'])}; "
            f"of one thread: {', '.join(stages)}"
        )
    counts = ", ".join(f"{told[state]} {state}" for state in ("done", "kept", "failed"))
    console.say(f"{counts}; features in {path}")
