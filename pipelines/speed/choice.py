"""What this machine can do with each recipe, and what to choose: `lstr bench` without more words.

Every figure is processor seconds, which other work on the machine hardly changes, but for those of a whole run: they
say what this machine does now. Networks and model carry random weights, for speed does not depend on them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np

from lstr import streaming
from lstr.extractors.devices import choose_device, fast_precision
from lstr.extractors.errors import NetworkRuntimeError
from lstr.extractors.flow.workers import FlowWorkers, default_workers
from lstr.extractors.networks.runtimes.runtimes import RUNTIMES, is_installed
from lstr.extractors.prefetch import closed_after, torch_threads
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import FeatureRow, TwoStream
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import CHUNK_SECONDS, Chunk
from lstr.extractors.weights.sources import WeightSources
from lstr.kinds import presets
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.pipelines.networks.converted import remember, run_on
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.speed.chain import Chain, build, describe, filled, first_chunks, live, overlap, rendered, sized
from lstr.pipelines.speed.measuring import Measured, Measuring, counted, recorded

RECIPES = {"live": "small", "fast": "thumos14", "faithful": "thumos14"}
"""What is compared, and the size of the model that is usual with it."""
CHUNKS = 24  # of a video, on which each part is measured
SECONDS = 1.0  # of the processor, for which a network is measured at least
RUN_CHUNKS = 40  # of a whole run, twice: as from a file, and as from a camera
ROOM = 0.8  # of the processor that cameras may use, so that none waits long


@dataclass(frozen=True)
class ChoiceBench:
    """What the recipes are compared on."""

    inputs: Sequence[Path] = ()
    """Videos; without any, one is rendered."""
    device: str | None = None
    """None for the GPU, or the CPU without one."""


def bench_choices(options: ChoiceBench) -> Iterator[Progress | Notice | Measured | Finished[dict]]:
    """Compare recipes, runtimes and precisions; the result is their record. `auto` means the fastest from now on.

    Raises VideoError for a video that cannot be read or is too short.
    """
    device = choose_device(options.device)
    with TemporaryDirectory() as folder:
        inputs = list(options.inputs)
        if not inputs:
            yield Notice("measuring on a rendered video of 320×240 at 30 FPS", warning=False)
            inputs = rendered(Path(folder), 2 * RUN_CHUNKS)[:1]
        total = sum(2 + len(_variants(name, device)) + 2 * RUN_CHUNKS for name in RECIPES)
        cores = default_workers()
        about = {"device": device, "cores": cores, "input": describe(inputs[0]), "weights": "random"}
        about = about_machine() | about
        parts: dict = {}
        yield from recorded(counted(_rows(inputs[0], device, parts), total), about, parts)
    yield Finished({**about, **parts, "advice": advice(parts["recipes"], cores)})


def _variants(recipe: str, device: str) -> list[tuple[str, str]]:
    """(runtime, precision) that a recipe's networks are measured in."""
    runtimes = [runtime for runtime in RUNTIMES if is_installed(runtime)] if device == "cpu" else ["torch"]
    precisions = ["float32"]
    if recipe != "live" and fast_precision(device) == "bf16":
        precisions.append("bf16")
    return [(runtime, precision) for precision in precisions for runtime in runtimes]


def _rows(path: Path, device: str, parts: dict) -> Measuring[None]:
    """A row of each recipe into the "recipes" of `parts`, as it comes."""
    rows = parts["recipes"] = {}
    for name in RECIPES:
        rows[name] = {}
        yield from _row(name, path, device, rows[name])


def _row(name: str, path: Path, device: str, row: dict) -> Measuring[None]:
    """What a recipe costs part by part, and whole with the fastest runtime."""
    preset = PRESETS[name]
    with torch_threads(1), ExitStack() as stack:
        chunks, decode = _decoded(path, preset.long_side)
        yield
        assert preset.algorithm
        workers = stack.enter_context(FlowWorkers(default_workers(), preset.algorithm, device=device))
        start = process_time()
        fields = [workers.submit(chunk.frames).result() for chunk in chunks]
        flow = (process_time() - start) / len(chunks)
        yield
        twostream = build_twostream(preset, WeightSources(), device, "float32")
        step = _step(twostream, RECIPES[name])
        costs = {"decode_ms": decode, "flow_ms": flow, "lstr_ms": step}
        row |= {part: round(1000 * seconds, 2) for part, seconds in costs.items()}
        networks: list[dict[str, Any]] = []
        row["variants"] = networks
        opened: dict[tuple[str, str], TwoStream] = {}
        for runtime, precision in _variants(name, device):
            one = _with(twostream, runtime, precision)
            try:
                seconds = _network_seconds(one, chunks, fields)
            except NetworkRuntimeError as error:
                networks.append({"runtime": runtime, "precision": precision, "failed": str(error)})
            else:
                opened[runtime, precision] = one
                whole = (decode + flow + seconds + step) / CHUNK_SECONDS
                networks.append({"runtime": runtime, "precision": precision, **_figures(seconds, whole)})
            yield
        best = min(
            (row for row in networks if "failed" not in row), key=lambda row: row["processor_seconds_per_second"]
        )
        chosen = opened[best["runtime"], best["precision"]]
        for precision in {row["precision"] for row in networks}:
            same = [row for row in networks if row["precision"] == precision and "failed" not in row]
            fastest = min(same, key=lambda row: row["network_ms"])
            remember(replace(twostream.recipe, precision=precision), fastest["runtime"])
        model = build(sized(presets()[RECIPES[name]].model, twostream), len(THUMOS_CLASSES), device)
        chain = Chain(chosen, workers, model, filled(streaming.create(model)))
        count, seconds = yield from overlap(chain, path, RUN_CHUNKS)
        delays = yield from live(chain, path, RUN_CHUNKS)
    row["best"] = {
        **best,
        "real_time_now": round(count * CHUNK_SECONDS / seconds, 2),
        "latency_ms": {f"p{p}": round(1000 * float(np.percentile(delays, p)), 1) for p in (50, 95)},
    }


def _figures(network: float, whole: float) -> dict[str, float | int]:
    """Of a variant: `whole` processor seconds for a second of video."""
    cores = default_workers()
    return {
        "network_ms": round(1000 * network, 2),
        "processor_seconds_per_second": round(whole, 4),
        "real_time": round(cores / whole, 2),
        "cameras": math.floor(ROOM * cores / whole),
    }


def _decoded(path: Path, long_side: int) -> tuple[list[Chunk], float]:
    """Chunks of a video, and the processor seconds of each."""
    start = process_time()
    with closed_after(first_chunks(path, long_side, CHUNKS)) as source:
        chunks = list(source)
    return chunks, (process_time() - start) / len(chunks)


def _with(twostream: TwoStream, runtime: str, precision: str) -> TwoStream:
    """The same networks on another runtime, in another precision."""
    return run_on(twostream.again(replace(twostream.recipe, precision=precision)), runtime)


def _network_seconds(twostream: TwoStream, chunks: Sequence[Chunk], fields: Sequence[np.ndarray]) -> float:
    """Processor seconds of all networks for a chunk, one after the other, cropping included."""
    batch = twostream.batch
    twostream.prepare(batch)
    taken: list[float] = []
    first = True
    while first or sum(taken) < SECONDS:
        for at in range(0, len(chunks) - batch + 1, batch):
            start = process_time()
            for stream in twostream.recipe.streams:
                part = slice(at, at + batch)
                made = (
                    [twostream.rgb_input(chunk.frames) for chunk in chunks[part]]
                    if stream == "rgb"
                    else [twostream.flow_input(field) for field in fields[part]]
                )
                twostream.pooled(stream, np.stack(made))
            if not first:
                taken.append(process_time() - start)
            first = False
    return float(np.median(taken)) / batch


def _step(twostream: TwoStream, preset: str) -> float:
    """Processor seconds of a decision from features."""
    config = sized(presets()[preset].model, twostream)
    model = build(config, len(THUMOS_CLASSES), twostream.device)
    state = filled(streaming.create(model))
    taken: list[float] = []
    rows = {stream: np.zeros(getattr(config, f"{stream}_dim"), np.float32) for stream in twostream.recipe.streams}
    row = FeatureRow(0, 0.0, rows.get("rgb"), rows.get("flow"))
    for _ in range(CHUNKS):
        start = process_time()
        streaming.step(model, state, row.rgb, row.flow).numpy()
        taken.append(process_time() - start)
    return float(np.median(taken))


def advice(rows: Mapping[str, Mapping], cores: int) -> str:
    """One sentence: what to use for cameras, and which recipe of published weights keeps up here, if any does."""
    parts = []
    if "live" in rows:
        n_cameras = rows["live"]["best"]["cameras"]
        parts.append(f"for cameras learn with the recipe live: up to {n_cameras} at once on {cores} cores")
    published = {name: rows[name]["best"] for name in ("faithful", "fast") if name in rows}
    for name, best in published.items():  # the one as published first
        if best["real_time"] >= 1:
            words = f"--recipe {name} --set recipe.precision={best['precision']} --set runtime={best['runtime']}"
            parts.append(f"with published weights {words}: {best['real_time']:.1f} × real time")
            break
    else:
        if published:
            most = max(best["real_time"] for best in published.values())
            parts.append(f"no recipe of published weights keeps up with a camera: {most:.1f} × real time at most")
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}."
