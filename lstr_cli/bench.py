"""`lstr bench`: how fast this machine decides."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import click

from lstr_cli import console
from lstr_cli.options import DATA, NETWORKS, Command, as_json, option, set_option

FAST = ("avx512_vnni", "avx512_bf16", "amx_bf16")  # what makes networks fast on a processor
RECIPES = click.Choice(
    ["faithful", "fast", "live", "smallest", "pretrained", "people", "activitynet", "activitynet-fast"]
)


@click.command("bench", cls=Command)
@option("--input FILE", DATA, "Measure on this video; repeatable.  [default: rendered]", "inputs", multiple=True)
@option("--recipe", NETWORKS, "Measure each stage of this recipe.  [default: compare all recipes]", type=RECIPES)
@as_json
@set_option("chunks runtime flow_threads recipe.flow_algorithm recipe.precision")
def bench(inputs, recipe, settings, as_json):
    """Measure speed on this machine, with random weights; speed does not depend on them.

    \b
    Without --recipe: each recipe, runtime and precision in times real time, cameras at once and latency,
    and one sentence of advice.
    With --recipe: each stage of one recipe from video to decision, in sequence and overlapped, the
    latency of a live source, peak memory, and the runtime table of the paper.

    \b
    Examples:
      lstr bench
      lstr bench --input game.mp4 --json
      lstr bench --input game.mp4 --recipe fast --json > record.json
    """
    from lstr.extractors.presets import Preset
    from lstr.pipelines.bench import bench_chain, bench_recipes
    from lstr.pipelines.features.recipes import choose_recipe

    if settings and not recipe:
        raise click.UsageError(f"--set {next(iter(settings))} needs --recipe.")
    start, videos = monotonic(), [Path(path) for path in inputs]
    measure: Callable[..., dict] = partial(bench_recipes, videos)
    if recipe:
        changes, chunks = settings.take_recipe(), settings.read_count("chunks", 80)
        preset = choose_recipe(recipe, **changes)
        assert isinstance(preset, Preset), "--recipe takes only names of presets"
        threads, runtime = settings.read_count("flow_threads", None), settings.get("runtime", "auto")
        measure = partial(bench_chain, preset, videos, chunks, threads, runtime)
    if not videos:
        console.say("measuring on rendered video of 320×240 at 30 FPS")
    with console.Bar("chunks" if recipe else "parts") as bar:
        record = measure(progress=bar.update)
    if as_json:
        console.show_json(record)
    else:
        (_show_chain if recipe else _show_recipes)(record)
    console.say(f"measured in {monotonic() - start:.0f} s")


def _show_recipes(record: dict[str, Any]) -> None:
    rows = []
    for recipe, row in record["recipes"].items():
        best = row["best"]
        for variant in row["variants"]:
            name = (recipe, variant["runtime"], variant["precision"])
            if "failed" in variant:
                rows.append((*name, "-", "-", "-", "-", variant["failed"]))
                continue
            is_best = name[1:] == (best["runtime"], best["precision"])
            lag = "{p50:.0f} / {p95:.0f}".format(**best["latency_ms"]) if is_best else ""
            speed = (f"{variant['processor_seconds_per_second']:.3f}", f"{variant['real_time']:.1f}")
            rows.append((*name, *speed, str(variant["cameras"]), lag, "best" * is_best))
    columns = ("recipe", "runtime", "precision", "processor s per video s", "× real time", "cameras")
    video, fast = record["input"], [name for name in FAST if name in record["extensions"]]
    processor = f"{record['processor'] or 'processor unknown'} ({', '.join(fast) or 'no bfloat16'})"
    title = f"{record['machine']}, {processor}; {video['name']}, {video['width']}×{video['height']}"
    console.show_table(title, (*columns, "lag p50 / p95 ms", ""), rows, right=(3, 4, 5, 6))
    console.show(record["advice"])


def _show_chain(record: dict[str, Any]) -> None:
    paper, whole = record["paper"], record["end_to_end"]
    overlapped, latency = whole["overlapped"], whole["overlapped"]["latency_ms"]

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.2f}"

    rows = []
    for name, stage in record["stages"].items():
        rate = (f"{stage['per_second']:.1f} {stage['unit']}", cell(stage["decisions_per_second"]))
        rows.append((name.replace("_", " "), *rate, f"{100 * stage['share']:.0f} %", cell(paper.get(name))))
    rows.append(("serial", "", cell(whole["serial"]["decisions_per_second"]), "100 %", cell(paper["serial"])))
    rows.append(("overlapped", "", cell(overlapped["decisions_per_second"]), "", "-"))
    recipe, flow = record["recipe"], record["flow"]
    crops = ", ".join(f"{n} of {stream}" for stream, n in recipe["crops"].items())
    by = f"{recipe['flow_algorithm']} by {flow['backend']}, {flow['workers']} threads" if flow else "no flow"
    title = f"{record['machine']}, {record['device']}; images a chunk: {crops}; {recipe['precision']}; {by}"
    columns = ("stage", "per second", "decisions per second", "share", f"paper, {paper['device']}")
    console.show_table(title, columns, rows, right=(1, 2, 3, 4))
    console.show(f"{overlapped['realtime_factor']:.2f} × real time; a live source needs 4 decisions per second")
    console.show(
        f"live, from a chunk's last frame to its decision: p50 {latency['p50']:.0f} ms, p95 {latency['p95']:.0f} ms, "
        f"p99 {latency['p99']:.0f} ms; peak memory {record['peak_memory_mb']:,} MB"
    )
