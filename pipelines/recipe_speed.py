"""Speed of this machine with each recipe, and which to choose: what `lstr bench` without options measures.

Figures are processor seconds, which other work on the machine hardly changes, except those of a whole run, which are of
this machine as it is now. Networks and model have random weights, because speed does not depend on them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from lstr.errors import NetworkRuntimeError
from lstr.extractors.devices import choose_device, fast_precision
from lstr.extractors.flow.workers import default_workers, flow_workers
from lstr.extractors.networks.runtime import RUNTIMES, is_installed
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.recipe import Precision
from lstr.extractors.run import FeatureRow, TwoStream, run_on
from lstr.extractors.stages import closed_after, torch_threads
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import CHUNK_SECONDS, Chunk
from lstr.kinds import presets
from lstr.pipelines.chain_speed import (
    Chain,
    Measuring,
    describe,
    first_chunks,
    live,
    overlap,
    progress_of,
    rendered,
)
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.provenance import about_machine

# What is compared, and the size of the model that is usual with it.
RECIPES = {"live": "rnn-small", "fast": "thumos14", "faithful": "thumos14"}
CHUNKS = 24  # of a video, on which each part is measured
SECONDS = 1.0  # of the processor, for which a network is measured at least
RUN_CHUNKS = 40  # of a whole run, twice: as from a file, and as from a camera
ROOM = 0.8  # of the processor that cameras may use, so that none waits long


def bench_choices(
    inputs: Sequence[Path] = (), device: str | None = None
) -> Iterator[Progress | Notice | Finished[dict]]:
    """Compare recipes, runtimes and precisions; the result is their record.

    inputs: videos; without any, one is rendered. device: None for the GPU, or the CPU without one. Raises VideoError
    for a video that cannot be read or is too short.
    """
    device = choose_device(device)
    with TemporaryDirectory() as folder:
        if not inputs:
            yield Notice("measuring on a rendered video of 320×240 at 30 FPS", warning=False)
            inputs = rendered(Path(folder), 2 * RUN_CHUNKS)[:1]
        total = sum(2 + len(_variants(name, device)) + 2 * RUN_CHUNKS for name in RECIPES)
        cores = default_workers()
        about = {"device": device, "cores": cores, "input": describe(inputs[0]), "weights": "random"}
        about = about_machine() | about
        rows = yield from progress_of(_measure(inputs[0], device), total)
    yield Finished({**about, "recipes": rows, "advice": advice(rows, cores)})


def _measure(path: Path, device: str) -> Measuring[dict[str, dict]]:
    rows = {}
    for name in RECIPES:
        rows[name] = yield from _measure_recipe(name, path, device)
    return rows


def _variants(recipe: str, device: str) -> list[tuple[str, Precision]]:
    """Return the (runtime, precision) that a recipe's networks are measured in."""
    runtimes = [runtime for runtime in RUNTIMES if is_installed(runtime)] if device == "cpu" else ["torch"]
    precisions: list[Precision] = ["float32"]
    if recipe != "live" and fast_precision(device) == "bf16":
        precisions.append("bf16")
    return [(runtime, precision) for precision in precisions for runtime in runtimes]


def _measure_recipe(name: str, path: Path, device: str) -> Measuring[dict]:
    """Measure a recipe part by part, and as a whole with the fastest runtime."""
    preset = PRESETS[name]
    with torch_threads(1), ExitStack() as stack:
        start = process_time()
        with closed_after(first_chunks(path, preset.long_side, CHUNKS)) as source:
            chunks = list(source)
        decode = (process_time() - start) / len(chunks)
        yield
        workers = stack.enter_context(flow_workers(preset.algorithm, device=device))
        start = process_time()
        fields = [workers.submit(chunk.frames).result() if workers else None for chunk in chunks]
        flow = (process_time() - start) / len(chunks)
        yield
        twostream = build_twostream(preset, WeightSources(), device, "float32")
        chain = Chain.of(twostream, workers, presets()[RECIPES[name]].model)
        taken: list[float] = []
        zeros = {stream: np.zeros(part.dim, np.float32) for stream, part in twostream.recipe.parts.items()}
        for _ in range(CHUNKS):
            start = process_time()
            chain.decide(FeatureRow(0, 0.0, zeros))
            taken.append(process_time() - start)
        step = float(np.median(taken))
        costs = {"decode_ms": decode, "flow_ms": flow, "lstr_ms": step}
        variants: list[dict] = []
        opened: dict[tuple[str, str], TwoStream] = {}
        for runtime, precision in _variants(name, device):
            variant = run_on(twostream.copy(replace(twostream.recipe, precision=precision)), runtime)
            variants.append({"runtime": runtime, "precision": precision})
            try:
                seconds = _network_seconds(variant, chunks, fields)
            except NetworkRuntimeError as error:
                variants[-1]["failed"] = str(error)
            else:
                opened[runtime, precision] = variant
                whole = (decode + flow + seconds + step) / CHUNK_SECONDS  # of the processor, per second of video
                variants[-1] |= {
                    "network_ms": round(1000 * seconds, 2),
                    "processor_seconds_per_second": round(whole, 4),
                    "real_time": round(default_workers() / whole, 2),
                    "cameras": math.floor(ROOM * default_workers() / whole),
                }
            yield
        sound = [variant for variant in variants if "failed" not in variant]
        best = min(sound, key=lambda variant: variant["processor_seconds_per_second"])
        chain = replace(chain, twostream=opened[best["runtime"], best["precision"]])
        count, seconds = yield from overlap(chain, path, RUN_CHUNKS)
        delays = yield from live(chain, path, RUN_CHUNKS)
    latency = {f"p{p}": round(1000 * float(np.percentile(delays, p)), 1) for p in (50, 95)}
    return {
        **{part: round(1000 * seconds, 2) for part, seconds in costs.items()},
        "variants": variants,
        "best": {**best, "real_time_now": round(count * CHUNK_SECONDS / seconds, 2), "latency_ms": latency},
    }


def _network_seconds(twostream: TwoStream, chunks: Sequence[Chunk], fields: Sequence[np.ndarray | None]) -> float:
    """Return processor seconds of all networks per chunk, one after the other, cropping included."""
    batch = min(twostream.batch, len(chunks))
    twostream.prepare(batch)
    taken: list[float] = []
    first = True
    while first or sum(taken) < SECONDS:
        for at in range(0, len(chunks) - batch + 1, batch):
            start = process_time()
            for stream in twostream.recipe.streams:
                part = slice(at, at + batch)
                pairs = zip_longest(chunks[part], fields[part])
                made = [twostream.views[stream].cropped(chunk.frames, field) for chunk, field in pairs]
                twostream.pooled(stream, np.stack(made))
            if not first:
                taken.append(process_time() - start)
            first = False
    return float(np.median(taken)) / batch


def advice(rows: Mapping[str, Mapping], cores: int) -> str:
    """Say what to use for cameras, and which recipe of published weights keeps up here, if any does."""
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
