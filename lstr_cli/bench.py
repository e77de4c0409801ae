"""`lstr bench`: how fast this machine decides."""

from pathlib import Path
from time import monotonic

import click


@click.command("bench")
@click.argument("what", metavar="WHAT", type=click.Choice(["lstr"]))
@click.option("-c", "--checkpoint", metavar="FILE", help="Measure this model's shape.  [default: the THUMOS'14 size]")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Rough time of a row; designs and memory lengths take a third.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of torch.  [default: torch's own choice]")
@click.option("--golden", metavar="DIR", help="Compare bf16 on lstr_small.pth and lstr_small.npz of this folder too.")
@click.option("-o", "--output", metavar="FILE", help="Write the record there too, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(what, checkpoint, seconds, threads, golden, output, as_json):
    """Measure speed on this machine, with random weights and features.

    WHAT is lstr: decisions from features. Every ratio is to the window recomputed at each chunk, measured in turns
    with the stream in the same run.

    \b
    Examples:
      lstr bench lstr
      lstr bench lstr --json -o record.json
      lstr bench lstr -c run/checkpoint.pt --seconds 2
    """
    from lstr.checkpoint import THUMOS_CLASSES, load
    from lstr.config import LSTRConfig
    from lstr_cli import console
    from pipelines.bench import bench_lstr, check_output
    from pipelines.store import write_json

    path = Path(output) if output else None
    if path:
        check_output(path)
    config, classes = LSTRConfig(), THUMOS_CLASSES
    if checkpoint:
        loaded = load(checkpoint)
        config, classes = loaded.config, loaded.classes
    shape = f"the shape of {checkpoint}" if checkpoint else "the published THUMOS'14 size"
    console.say(f"{shape}, with random weights and features: speed does not depend on them.")
    start = monotonic()
    with console.Bar("parts") as bar:
        record = bench_lstr(config, len(classes), seconds, bar.update, threads, golden)
    if path:
        write_json(path, record)
    if as_json:
        console.show_json(record)
    else:
        _show(console, f"{record['machine']}, {record['threads']} threads", record)
        if "gpu" in record:
            _show(console, record["gpu"]["name"], record["gpu"])
    where = f"; record: {path}" if path else ""
    console.say(f"measured in {monotonic() - start:.0f} s{where}")


def _show(console, where: str, rows: dict) -> None:
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
