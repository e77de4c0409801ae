"""`lstr bench`: how fast this machine decides."""

from pathlib import Path
from time import monotonic

import click
from click.core import ParameterSource

from lstr_cli.headings import Command
from lstr_cli.options import algorithm_option, device_option, flow_threads_option, precision_option, runtime_option

OF_CHAIN = ("recipe", "precision", "algorithm", "runtime", "flow_threads", "flow_backend", "chunks", "against")
OPTIONS = {
    "recipes": ("inputs", "device"),
    "chain": ("inputs", "device", *OF_CHAIN),
    "lstr": ("checkpoint", "seconds", "threads", "golden", "device"),
    "models": ("kinds", "seconds", "training"),
}
"""Options that each of the four takes, and not all of the others."""


@click.command("bench", cls=Command)
@click.argument("what", metavar="[recipes|chain|lstr|models]", type=click.Choice(list(OPTIONS)), required=False)
@click.option(
    "--input", "inputs", metavar="FILE", multiple=True, help="A video to measure on; repeatable.  [default: rendered]"
)
@click.option(
    "--recipe",
    type=click.Choice(["faithful", "fast", "live", "activitynet", "activitynet-fast"]),
    default="faithful",
    show_default=True,
    help="chain: as for extract.",
)
@precision_option
@algorithm_option
@flow_threads_option
@runtime_option
@device_option
@click.option(
    "--chunks",
    type=click.IntRange(min=10),
    default=80,
    show_default=True,
    help="chain: of each video, three times: serial, overlapped, live.",
)
@click.option(
    "--against", type=click.Choice(["opencv"]), help="chain: pair the compiled TV-L1 kernel with OpenCV's too."
)
@click.option(
    "-c", "--checkpoint", metavar="FILE", help="lstr: the shape of this model.  [default: the THUMOS'14 size]"
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="lstr, models: rough time of a row; designs and memory lengths take a third.",
)
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="models: this one alone; repeatable.")
@click.option("--training", is_flag=True, help="models: measure steps of training too.")
@click.option("--threads", type=click.IntRange(min=1), help="lstr: threads of torch.  [default: torch's own choice]")
@click.option("--golden", metavar="DIR", help="lstr: compare bf16 on lstr_small.pth and .npz of this folder too.")
@click.option("-o", "--output", metavar="FILE", help="Also write the record to this file, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(ctx, what, output, as_json, **options):
    """Measure speed on this machine, with random weights; speed does not depend on them.

    \b
    recipes  what to choose: each recipe, runtime and precision in times real time, cameras at once and
             latency, and one sentence of advice; `--runtime auto` means the fastest from then on
    chain    one recipe from video to decision: each stage, one after the other and overlapped, the latency
             of a live source, peak memory, and the paper's figures beside them
    lstr     decisions from features: every ratio is to the window recomputed at each chunk, measured in
             turns with the stream in the same run
    models   one stream of each kind of model at its published size, on one core and on two, in turns with
             LSTR; `lstr models` shows these speeds from then on

    Without a word it is recipes, or chain where an option of it is there. With -o what is measured so far is in the
    file from the first part on, with "unfinished" where the command was interrupted.

    \b
    Examples:
      lstr bench
      lstr bench --input game.mp4 --json
      lstr bench chain --input game.mp4 --recipe fast --against opencv -o record.json
      lstr bench lstr --json -o record.json
      lstr bench lstr -c run/checkpoint.pt --seconds 2
      lstr bench lstr --device cpu
      lstr bench models --kind miniroad --training -o record.json
    """
    from lstr.pipelines.files.json_files import write_json
    from lstr.pipelines.speed.model import check_output
    from lstr_cli import console

    named = {o.name: o for o in ctx.command.params if ctx.get_parameter_source(o.name) == ParameterSource.COMMANDLINE}
    what = what or ("chain" if named.keys() & set(OF_CHAIN) else "recipes")
    for other, names in OPTIONS.items():
        for name in named.keys() & set(names) - set(OPTIONS[what]):
            raise click.UsageError(f"{named[name].opts[0]} is an option of `lstr bench {other}`.", ctx)
    path = Path(output) if output else None
    if path:
        check_output(path)
    start = monotonic()
    job, show = {
        "recipes": (_recipes, _show_recipes),
        "chain": (_chain, _show_chain),
        "lstr": (_model, _show_model),
        "models": (_kinds, _show_kinds),
    }[what]
    events = _kept(job(console, options), path)
    record = console.follow(events, "chunks" if what == "chain" else "parts")
    if path:
        write_json(path, record)
    if as_json:
        console.show_json(record)
    else:
        show(console, record)
    where = f"; record: {path}" if path else ""
    console.say(f"measured in {monotonic() - start:.0f} s{where}")


def _kept(events, path: Path | None):
    """The same events; what is measured so far is in the file, whatever ends the measurement."""
    from lstr.pipelines.files.json_files import write_json
    from lstr.pipelines.speed.turns import Measured

    for event in events:
        if path and isinstance(event, Measured):
            write_json(path, event.record)
        yield event


def _model(console, options: dict):
    from lstr.checkpoints.checkpoint import load
    from lstr.pipelines.speed import model

    path, golden = options["checkpoint"], options["golden"]
    shape = {}
    if path:
        loaded = load(path)
        shape = {"config": loaded.config, "n_classes": len(loaded.classes)}
    named = f"the shape of {path}" if path else "the published THUMOS'14 size"
    console.say(f"{named}, with random weights and features: speed does not depend on them.")
    bench = model.ModelBench(
        **shape,
        seconds=options["seconds"],
        threads=options["threads"],
        device=options["device"],
        golden=Path(golden) if golden else None,
    )
    return model.bench_lstr(bench)


def _recipes(console, options: dict):
    from lstr.pipelines.speed.choice import ChoiceBench, bench_choices

    return bench_choices(ChoiceBench([Path(path) for path in options["inputs"]], options["device"]))


def _show_recipes(console, record: dict) -> None:
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


def _chain(console, options: dict):
    from lstr.pipelines.networks.recipes import choose_recipe
    from lstr.pipelines.speed.chain import ChainBench, bench_chain

    bench = ChainBench(
        choose_recipe(options["recipe"], algorithm=options["algorithm"], precision=options["precision"]),
        inputs=[Path(path) for path in options["inputs"]],
        n_chunks=options["chunks"],
        device=options["device"],
        flow_threads=options["flow_threads"],
        flow_backend=options["flow_backend"],
        runtime=options["runtime"],
        against_opencv=options["against"] == "opencv",
    )
    return bench_chain(bench)


def _show_chain(console, record: dict) -> None:
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
    title = (
        f"{record['machine']}, {record['device']}; {recipe['flow_crops']} flow crop(s), {recipe['precision']}; "
        f"{recipe['flow_algorithm']} by {flow['backend']}, {flow['workers']} threads"
    )
    columns = ("stage", "per second", "decisions per second", "share", f"paper, {paper['device']}")
    console.show_table(title, columns, rows, right=(1, 2, 3, 4))
    overlapped, latency = whole["overlapped"], whole["overlapped"]["latency_ms"]
    console.show(f"{overlapped['realtime_factor']:.2f} × real time; a live source needs 4 decisions per second")
    console.show(
        f"live, from a chunk's last frame to its decision: p50 {latency['p50']:.0f} ms, p95 {latency['p95']:.0f} ms, "
        f"p99 {latency['p99']:.0f} ms; peak memory {record['peak_memory_mb']:,} MB"
    )
    if "tvl1" in record:
        tvl1 = record["tvl1"]
        console.show(
            f"TV-L1 {tvl1['size'][0]}×{tvl1['size'][1]}, one thread each: compiled {tvl1['native_pairs_per_second']} "
            f"pairs per second, OpenCV {tvl1['opencv_pairs_per_second']}: {tvl1['ratio']} ×, "
            f"{tvl1['mean_epe_px']:.1g} px apart"
        )


def _show_model(console, record: dict) -> None:
    where = record.get("name") or f"{record['machine']}, {record['threads']} threads"
    _show_device(console, where, record)
    if "gpu" in record:
        _show_device(console, record["gpu"]["name"], record["gpu"])


def _show_device(console, where: str, rows: dict) -> None:
    """The tables of one device."""
    names = ("recompute", "stream", "stream_sliding", "stream_bf16", "stream_captured", "batched_16")
    keys = ("steps_per_second", "mean_ms", "p50_ms", "p95_ms", "ratio")
    _table(console, where, "", keys, {name: rows[name] for name in names if name in rows})
    stream, batched, difference = rows["stream"], rows["batched_16"], rows["bf16_difference"]
    update, other = _cell(stream["update_ms"]), _cell(stream["other_ms"])
    console.show(f"a step that updates the long memory: {update} ms; another: {other} ms")
    console.show(f"16 streams at once: {_cell(batched['ratio_to_singles'])} times as fast as one after the other")
    for name, apart in (("random model", difference), ("golden model", difference.get("golden"))):
        if apart:
            console.show(
                f"bf16 against float32, {name}: max {apart['max']:.2g}, mean {apart['mean']:.2g} in probability"
            )
    keys = ("update_ms", "other_ms", "steps_per_second", "bytes_a_stream")
    _table(console, "long memory", "chunks", keys, rows["memory_length"])
    keys = ("parameters", "steps_per_second", "recompute_steps_per_second")
    _table(console, "designs", "design", keys, rows["designs"])


def _table(console, title: str, first: str, keys: tuple[str, ...], rows: dict[str, dict]) -> None:
    columns = (first, *(key.replace("_", " ") for key in keys))
    cells = [(name, *(_cell(row.get(key)) for key in keys)) for name, row in rows.items()]
    console.show_table(title, columns, cells, right=range(1, len(columns)))


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def _kinds(console, options: dict):
    from lstr.pipelines.speed.kinds import KindsBench, bench_kinds

    console.say("published sizes, with random weights and features: speed does not depend on them.")
    return bench_kinds(KindsBench(tuple(options["kinds"]), options["seconds"], options["training"]))


def _show_kinds(console, record: dict) -> None:
    rows = {}
    for kind, row in record["kinds"].items():
        one, two = (row["stream"].get(cores, {}) for cores in ("1", "2"))
        rows[kind] = {
            **{key: row[key] for key in ("parameters", "multiply_adds")},
            "steps_per_second": one.get("steps_per_second"),
            "processor_ms": one.get("processor_ms"),
            "ratio_to_lstr": one.get("ratio_to_lstr"),
            "on_2_cores": two.get("steps_per_second"),
            "training_steps_per_second": row.get("training", {}).get("steps_per_second"),
            "data_wait": row.get("training", {}).get("data_wait"),
        }
    keys = tuple(next(iter(rows.values())))
    _table(console, f"{record['machine']}, {record['processor']}", "kind", keys, rows)
