"""`lstr bench`: how fast this machine decides."""

from pathlib import Path
from time import monotonic

import click
from click.core import ParameterSource

from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.options import (
    PATH,
    algorithm_setting,
    device_option,
    flow_settings,
    precision_setting,
    runtime_setting,
)
from lstr_cli.settings import setting

OF_CHAIN = ("recipe", "precision", "algorithm", "runtime", "flow_threads", "flow_backend", "chunks")
"""Options that recipes do not take."""


@click.command("bench", cls=Command)
@click.argument("what", metavar="[recipes|chain]", type=click.Choice(["recipes", "chain"]), required=False)
@click.option(
    "--input",
    "inputs",
    type=PATH,
    metavar="FILE",
    multiple=True,
    help="A video to measure on; repeatable.  [default: rendered]",
)
@click.option(
    "--recipe",
    type=click.Choice(["faithful", "fast", "live", "smallest", "pretrained", "activitynet", "activitynet-fast"]),
    default="faithful",
    help="chain: as for extract.",
)
@setting(
    "chunks",
    type=click.IntRange(min=10),
    default=80,
    help="chain: of each video, three times: serial, overlapped, live.",
)
@precision_setting
@algorithm_setting
@flow_settings
@runtime_setting
@device_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the record to this file, as JSON.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(ctx, what, output, as_json, **options):
    """Measure speed on this machine, with random weights; speed does not depend on them.

    \b
    recipes  what to choose: each recipe, runtime and precision in times real time, cameras at once and
             latency, and one sentence of advice; `runtime=auto` means the fastest from then on
    chain    one recipe from video to decision: each stage, one after the other and overlapped, the latency
             of a live source, peak memory, and the paper's runtime table beside them

    Without a word it is recipes, or chain where an option of it is there.

    \b
    Examples:
      lstr bench
      lstr bench --input game.mp4 --json
      lstr bench chain --input game.mp4 --recipe fast -o record.json
    """
    named = {o.name: o for o in ctx.command.params if ctx.get_parameter_source(o.name) == ParameterSource.COMMANDLINE}
    of_chain = [named[name].opts[0] for name in OF_CHAIN if name in named]
    what = what or ("chain" if of_chain else "recipes")
    if what == "recipes" and of_chain:
        raise click.UsageError(f"{of_chain[0]} is an option of `lstr bench chain`.", ctx)
    from lstr.extractors.presets import Preset
    from lstr.files.atomic import check_writable
    from lstr.files.content import write_json
    from lstr.pipelines.networks.recipes import choose_recipe
    from lstr.pipelines.speed.chain import bench_chain
    from lstr.pipelines.speed.choice import bench_choices

    start = monotonic()
    if output:
        check_writable(output.parent)
    if what == "chain":
        preset = choose_recipe(options["recipe"], algorithm=options["algorithm"], precision=options["precision"])
        assert isinstance(preset, Preset), "--recipe takes names of presets alone"
        more = {name: options[name] for name in ("device", "flow_threads", "flow_backend", "runtime")}
        events = bench_chain(preset, options["inputs"], options["chunks"], **more)
    else:
        events = bench_choices(options["inputs"], options["device"])
    record = console.follow(events, "chunks" if what == "chain" else "parts")
    if output:
        write_json(output, record)
    if as_json:
        console.show_json(record)
    else:
        (_show_chain if what == "chain" else _show_recipes)(record)
    console.say(f"measured in {monotonic() - start:.0f} s{f'; record: {output}' if output else ''}")


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
