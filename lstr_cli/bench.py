"""`lstr bench`: how fast this machine decides."""

from pathlib import Path
from time import monotonic
from typing import Annotated, Literal

import click
from msgspec import Struct

from lstr_cli import console
from lstr_cli.options import DATA, NETWORKS, Command, Json, RecipeChanges, build_from, option, options, set_option


class Bench(Struct):
    inputs: Annotated[
        tuple[str, ...], option(DATA, "--input FILE", "Measure on this video; repeatable.  [default: rendered]")
    ] = ()
    recipe: Annotated[
        Literal["faithful", "fast", "live", "smallest", "pretrained", "activitynet", "activitynet-fast"] | None,
        option(NETWORKS, "--recipe", "Measure each stage of this recipe.  [default: compare all recipes]"),
    ] = None
    as_json: Json = False
    settings: Annotated[
        dict[str, str], set_option("chunks runtime flow_threads recipe.flow_algorithm recipe.precision")
    ] = {}


@click.command("bench", cls=Command)
@options(Bench)
def command(inputs, recipe, settings, as_json):
    """Measure speed on this machine, with random weights; speed does not depend on them.

    \b
    Without --recipe: each recipe, runtime and precision in times real time, cameras at once and latency,
    and one sentence of advice. From then on `runtime=auto` means the fastest.
    With --recipe: each stage of one recipe from video to decision, one after the other and overlapped, the
    latency of a live source, peak memory, and the runtime table of the paper.

    \b
    Examples:
      lstr bench
      lstr bench --input game.mp4 --json
      lstr bench --input game.mp4 --recipe fast --json > record.json
    """
    from lstr.extractors.presets import Preset
    from lstr.pipelines.chain_speed import bench_chain
    from lstr.pipelines.detection.options import NetworkOptions
    from lstr.pipelines.features.recipes import choose_recipe
    from lstr.pipelines.recipe_speed import bench_choices

    if settings and not recipe:
        raise click.UsageError(f"--set {next(iter(settings))} changes how one recipe is measured: add --recipe.")
    start = monotonic()
    if recipe:
        changes, chunks = RecipeChanges.of(settings), int(settings.pop("chunks", 80))
        wanted = build_from(NetworkOptions, settings)
        preset = choose_recipe(recipe, algorithm=changes.algorithm, precision=changes.precision)
        assert isinstance(preset, Preset), "--recipe takes names of presets alone"
        more = {name: getattr(wanted, name) for name in ("flow_threads", "runtime")}
        events = bench_chain(preset, [Path(path) for path in inputs], chunks, **more)
    else:
        events = bench_choices([Path(path) for path in inputs], None)
    record = console.follow(events, "chunks" if recipe else "parts")
    if as_json:
        console.show_json(record)
    else:
        (_show_chain if recipe else _show_recipes)(record)
    console.say(f"measured in {monotonic() - start:.0f} s")


def _show_recipes(record: dict) -> None:
    rows = []
    for recipe, row in record["recipes"].items():
        for variant in row["variants"]:
            best = row["best"]
            chosen = all(variant[key] == best[key] for key in ("runtime", "precision"))
            name = (recipe, variant["runtime"], variant["precision"])
            if "failed" in variant:
                rows.append((*name, "-", "-", "-", "-", variant["failed"]))
                continue
            cost = f"{variant['processor_seconds_per_second']:.3f}"
            delays = best["latency_ms"]
            lag = f"{delays['p50']:.0f} / {delays['p95']:.0f}" if chosen else ""
            rows.append((*name, cost, f"{variant['real_time']:.1f}", str(variant["cameras"]), lag, "best" * chosen))
    video = record["input"]
    columns = (
        "recipe",
        "runtime",
        "precision",
        "processor s per video s",
        "× real time",
        "cameras",
        "lag p50 / p95 ms",
        "",
    )
    title = f"{record['machine']}, {_processor(record)}; {video['name']}, {video['width']}×{video['height']}"
    console.show_table(title, columns, rows, right=(3, 4, 5, 6))
    console.show(record["advice"])


def _processor(record: dict) -> str:
    """Its name, and what of it makes networks fast."""
    fast = [name for name in ("avx512_vnni", "avx512_bf16", "amx_bf16") if name in record["extensions"]]
    return f"{record['processor'] or 'processor unknown'} ({', '.join(fast) or 'no bfloat16'})"


def _show_chain(record: dict) -> None:
    paper = record["paper"]
    rows = [
        (name.replace("_", " "), f"{s['per_second']:.1f} {s['unit']}", _cell(s["decisions_per_second"]))
        + (f"{100 * s['share']:.0f} %", _cell(paper.get(name)))
        for name, s in record["stages"].items()
    ]
    whole = record["end_to_end"]
    rows.append(("serial", "", _cell(whole["serial"]["decisions_per_second"]), "100 %", _cell(paper["serial"])))
    rows.append(("overlapped", "", _cell(whole["overlapped"]["decisions_per_second"]), "", "-"))
    recipe, flow = record["recipe"], record["flow"]
    crops = ", ".join(f"{n} of {stream}" for stream, n in recipe["crops"].items())
    by = f"{recipe['flow_algorithm']} by {flow['backend']}, {flow['workers']} threads" if flow else "no flow"
    title = f"{record['machine']}, {record['device']}; images a chunk: {crops}; {recipe['precision']}; {by}"
    columns = ("stage", "per second", "decisions per second", "share", f"paper, {paper['device']}")
    console.show_table(title, columns, rows, right=(1, 2, 3, 4))
    overlapped, latency = whole["overlapped"], whole["overlapped"]["latency_ms"]
    console.show(f"{overlapped['realtime_factor']:.2f} × real time; a live source needs 4 decisions per second")
    console.show(
        f"live, from a chunk's last frame to its decision: p50 {latency['p50']:.0f} ms, p95 {latency['p95']:.0f} ms, "
        f"p99 {latency['p99']:.0f} ms; peak memory {record['peak_memory_mb']:,} MB"
    )


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
