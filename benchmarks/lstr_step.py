"""Measure the speed of a model's steps on this machine; writes lstr-step.json.

Weights, features and memories are random, because speed does not depend on them. Every ratio is to a full recomputation
of the window at each chunk, in the same run: rows are measured in turns of short rounds, so that other load on the
machine affects all of them. The record is written from the first part on.

    python benchmarks/lstr_step.py [RECORD.json] [--device cpu] [--seconds 2] [-c run/checkpoint.pt]
"""

import argparse
import statistics
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, TypeVar

import numpy as np
import torch

from lstr import checkpoint, streaming
from lstr.config import WindowConfig
from lstr.errors import CheckpointError
from lstr.extractors.devices import choose_device
from lstr.files.atomic import check_writable
from lstr.files.content import write_json
from lstr.kinds import KINDS, change
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.models.kind import Model
from lstr.models.lstr import ENCODERS, INTEGRATIONS, LSTRConfig
from lstr.pipelines.models import build, filled, full_age
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.provenance import about_machine
from lstr.streaming import StreamState
from lstr.windows.plans import CHANGES, Compressed
from lstr.windows.windows import gather
from lstr_cli import console

ROUNDS = 10  # turns of each of the headline rows
FEW_ROUNDS = 5  # turns of a design or a memory length
FEW_SHARE = 1 / 3  # of a headline row's seconds
STREAMS = 16  # in the batched row
LENGTHS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)  # of the model's own long memory; 256 to 8192 chunks at the published size
PAPER = {"stream_fps": 91.6, "device": "V100"}
"""The paper's runtime table: LSTR alone, streaming, batch 1."""

Result = TypeVar("Result")
Measuring = Generator[None, None, Result]
"""A measurement that yields after each part, and returns its result."""

Rounds = dict[str, list[list[float]]]
"""Seconds of every step, by row and round."""


@dataclass(frozen=True)
class Row:
    """A step that is timed."""

    step: Callable[[], object]
    burst: int = 1
    """Steps always taken together: a stride of a stream, so that every round has its share of updates"""


@dataclass(frozen=True)
class ModelBench:
    """Which model to measure, and for how long."""

    config: WindowConfig = LSTRConfig()
    n_classes: int = len(THUMOS_CLASSES)
    seconds: float = 5.0
    """Rough time of a headline row; a third of it for the others"""
    threads: int | None = None
    """torch's; None for its own choice"""
    device: str | None = None
    """None for the CPU and, in "gpu", the GPU where one is"""


def bench_lstr(options: ModelBench) -> Iterator[Progress | Finished[dict]]:
    """Measure an LSTR of one shape: headline rows, memory lengths and designs; the last event has the record.

    If no device is named and there is a GPU, the entry "gpu" has the same rows measured on it. Raises CheckpointError
    for a model without long memory to stream, and DeviceError for a device that does not exist.
    """
    device = choose_device(options.device) if options.device else "cpu"
    config = options.config
    if config.kind != "lstr" or not config.n_long:
        raise CheckpointError(
            f"The model is of kind {config.kind} with {config.n_long} slots of long memory, no LSTR to measure.",
            "leave -c out to measure the published size, whose designs include every kind.",
        )
    threads_before = torch.get_num_threads()
    try:
        torch.set_num_threads(options.threads or threads_before)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            threads = torch.get_num_threads()
            about = {"device": device, **_name_of(device), "threads": threads, "seconds_a_row": options.seconds}
            about |= {"weights": "random", "config": config.to_dict(), "classes": options.n_classes, "paper": PAPER}
            about = about_machine() | about
            rows: dict = {}
            for done, _ in enumerate(measure(device, options, rows), start=1):
                yield Progress("measuring", done, n_parts(options))
    finally:
        torch.set_num_threads(threads_before)
    yield Finished({**about, **rows})


def n_parts(options: ModelBench) -> int:
    """Return the number of parts that `measure` yields."""
    config, devices = options.config, 2 if _adds_gpu(options) else 1
    return devices * (ROUNDS + len(_lengths(config)) + len(designs(config)))


def _adds_gpu(options: ModelBench) -> bool:
    return options.device is None and torch.cuda.is_available()


def _name_of(device: str) -> dict[str, str]:
    return {"name": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}


def measure(device: str, options: ModelBench, rows: dict) -> Measuring[None]:
    """Measure every row on a device into `rows`, and if no device was named, on the GPU into its entry "gpu"."""
    yield from measure_on(device, options, rows)
    if _adds_gpu(options):
        rows["gpu"] = _name_of("cuda")
        yield from measure_on("cuda", options, rows["gpu"])


def measure_on(device: str, options: ModelBench, rows: dict) -> Measuring[None]:
    """Measure every row on one device into `rows`."""
    config, n_classes = options.config, options.n_classes
    rows |= yield from headline(config, n_classes, options.seconds, device)
    few = options.seconds * FEW_SHARE
    lengths = rows["memory_length"] = {}
    for length in _lengths(config):
        lengths[str(length)] = memory_row(config.replace(grid="fixed", long_length=length), n_classes, few, device)
        yield
    shapes = rows["designs"] = {}
    for name, design in designs(config).items():
        shapes[name] = design_row(design, n_classes, few, device)
        yield


def headline(config: WindowConfig, n_classes: int, seconds: float, device: str) -> Measuring[dict]:
    """Measure the recomputed window and the streams that replace it, in the same rounds."""
    fixed = build(config.replace(grid="fixed"), n_classes, device)
    sliding = build(config.replace(grid="sliding"), n_classes, device)
    first = filled(streaming.create(fixed))
    singles = [filled(streaming.create(fixed), offset) for offset in range(STREAMS)]
    turns = [stream_row(fixed, single) for single in singles]
    stride = config.long_stride
    rows = {
        "recompute": recompute_row(fixed),
        "stream": stream_row(fixed, first),
        "stream_sliding": stream_row(sliding, filled(streaming.create(sliding))),
        "batched": stream_row(fixed, filled(streaming.create(fixed, STREAMS))),
        "singles": Row(lambda: [turn.step() for turn in turns], stride),
    }
    if device != "cpu":
        captured = filled(streaming.create(fixed))
        streaming.capture(fixed, captured)
        rows["stream_captured"] = stream_row(fixed, captured)
    taken = yield from interleave(rows, seconds, ROUNDS, device)
    batched, one_by_one = taken.pop("batched"), taken.pop("singles")
    result = {name: {**summary(rounds), "ratio": ratio(taken["recompute"], rounds)} for name, rounds in taken.items()}
    # A stream whose memory changes once a stride has two kinds of steps, and its p95 is that of an update.
    result["stream"] |= by_kind(taken["stream"], fixed.config)
    result["batched_16"] = {
        **summary(batched, STREAMS),
        "ratio": ratio(taken["recompute"], batched, STREAMS),
        "singles_steps_per_second": summary(one_by_one, STREAMS)["steps_per_second"],
        "ratio_to_singles": ratio(one_by_one, batched),
    }
    return result


def memory_row(config: WindowConfig, n_classes: int, seconds: float, device: str) -> dict:
    """Measure a stream with a long memory of config.long_length chunks: time and bytes."""
    model = build(config, n_classes, device)
    state = filled(streaming.create(model))
    rounds = whole(interleave({"stream": stream_row(model, state)}, seconds, FEW_ROUNDS, device))["stream"]
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state.tensors.values())
    return {
        **by_kind(rounds, config),
        "steps_per_second": summary(rounds)["steps_per_second"],
        "bytes_a_stream": n_bytes,
    }


def designs(config: WindowConfig) -> dict[str, WindowConfig]:
    """Return the designs that the paper compares, by name; the first is the proposed one."""
    plain = {"grid": "fixed", "encoder": "two-stage", "integration": "cross-attention", "anticipation": 0}
    proposed = change(config, plain)
    encoders = {name: change(proposed, {"encoder": name}) for name in ENCODERS}
    integrations = {name: change(proposed, {"integration": name}) for name in INTEGRATIONS[1:]}
    kinds = {name: change(proposed, {"kind": name}) for name in KINDS if name != proposed.kind}
    return encoders | integrations | kinds


def design_row(config: WindowConfig, n_classes: int, seconds: float, device: str) -> dict:
    """Measure a design as a stream and, for an LSTR, as recomputed windows."""
    model = build(config, n_classes, device)
    rows = {"stream": stream_row(model, filled(streaming.create(model)))}
    if config.kind == "lstr":  # the window of another kind is not what its stream computes
        rows["recompute"] = recompute_row(model)
    taken = whole(interleave(rows, seconds, FEW_ROUNDS, device))
    speeds = {name: summary(rounds)["steps_per_second"] for name, rounds in taken.items()}
    result = {"parameters": sum(p.numel() for p in model.parameters()), "steps_per_second": speeds["stream"]}
    return result | ({"recompute_steps_per_second": speeds["recompute"]} if "recompute" in speeds else {})


def stream_row(model: Model, state: StreamState) -> Row:
    """Return a row that steps every stream of a state."""
    config = model.config
    rgb, flow = torch.randn(len(state.chunks), config.input_dim).split([config.rgb_dim, config.flow_dim], dim=1)
    return Row(lambda: streaming.step(model, state, rgb, flow), config.long_stride)


def recompute_row(model: Model) -> Row:
    """Return a row that computes the whole window of one chunk, with both memories full."""
    last = full_age(model.config)
    windows = gather(torch.randn(last + 1, model.config.input_dim), [last], model.config)
    windows = windows.map(lambda tensor: tensor.to(model.classifier.weight.device))

    @torch.no_grad()
    def step() -> None:
        model(windows)

    return Row(step)


def by_kind(rounds: list[list[float]], config: WindowConfig) -> dict:
    """Return median milliseconds of steps that update the long memory and of other steps; None without such steps."""
    assert isinstance(config, LSTRConfig), "as `bench_lstr` asks for"
    first = full_age(config)
    plans = (Compressed.of(config)(np.array([first + i])) for i in range(config.long_stride))
    updates = np.array([CHANGES in plan and plan[CHANGES].any() for plan in plans])  # (stride,), as in every burst
    ms = 1000 * np.concatenate(rounds).reshape(-1, config.long_stride)
    medians = (round(float(np.median(ms[:, which])), 3) if which.any() else None for which in (updates, ~updates))
    return dict(zip(("update_ms", "other_ms"), medians, strict=True))


def _lengths(config: WindowConfig) -> list[int]:
    """Return long memories to compare, in chunks: multiples of the stride, from 1/8 to 4 times the model's own."""
    stride = config.long_stride
    return sorted({max(1, int(config.n_long * share)) * stride for share in LENGTHS})


def whole(parts: Measuring[Result]) -> Result:
    """Run a measurement to its end and return the result."""
    while True:
        try:
            next(parts)
        except StopIteration as finished:
            return finished.value


def interleave(rows: dict[str, Row], seconds: float, n_rounds: int, device: str) -> Measuring[Rounds]:
    """Return the seconds of every step, by row and round; yield after each round.

    A row takes `seconds` in all rounds together, but at least one burst per round.
    """
    finish = partial(torch.cuda.synchronize, device) if device != "cpu" else lambda: None
    for row in rows.values():
        for _ in range(2 * row.burst):  # the first steps pack weights and wake the processor
            row.step()
    taken: Rounds = {name: [] for name in rows}
    for _ in range(n_rounds):
        for name, row in rows.items():
            times: list[float] = []
            finish()
            until = perf_counter() + seconds / n_rounds
            while not times or perf_counter() < until:
                for _ in range(row.burst):
                    start = perf_counter()
                    row.step()
                    finish()
                    times.append(perf_counter() - start)
            taken[name].append(times)
        yield
    return taken


def summary(rounds: list[list[float]], n_streams: int = 1) -> dict:
    """Return steps per second of one stream, and milliseconds of a step of all n_streams.

    The speed is of the median round, as in `ratio`, so that one disturbed round does not count.
    """
    ms = 1000 * np.concatenate(rounds)
    return {
        "steps_per_second": round(n_streams / statistics.median(map(statistics.fmean, rounds)), 2),
        "mean_ms": round(float(ms.mean()), 3),
        "p50_ms": round(float(np.median(ms)), 3),
        "p95_ms": round(float(np.percentile(ms, 95)), 3),
        "steps": len(ms),
    }


def ratio(baseline: list[list[float]], rounds: list[list[float]], n_streams: int = 1) -> float:
    """Return the speed relative to the baseline: the median over rounds, which both ran under the same load."""
    each = [statistics.fmean(slow) / statistics.fmean(fast) for slow, fast in zip(baseline, rounds, strict=True)]
    return round(n_streams * statistics.median(each), 2)


def follow(events: Iterable[Any], path: Path) -> None:
    """Run a measurement from a terminal, and write its record."""
    start = monotonic()
    check_writable(path.parent)
    write_json(path, console.follow(iter(events), "parts"))
    console.say(f"measured in {monotonic() - start:.0f} s; record: {path}")


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", nargs="?", type=Path, default=Path(__file__).with_name("lstr-step.json"))
    parser.add_argument("-c", "--checkpoint", help="the shape of this model; else the THUMOS'14 size")
    parser.add_argument("--seconds", type=float, default=5.0, help="rough time of a row; designs take a third")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--device", help="cpu or cuda; else both")
    given = parser.parse_args()
    shape = {}
    if given.checkpoint:
        loaded = checkpoint.load(given.checkpoint)
        shape = {"config": loaded.config, "n_classes": len(loaded.classes)}
    options = ModelBench(**shape, seconds=given.seconds, threads=given.threads, device=given.device)
    follow(bench_lstr(options), given.record)


if __name__ == "__main__":
    main()
