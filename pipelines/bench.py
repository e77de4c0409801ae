"""Measure the speed of this machine: of all recipes (`lstr bench`), or of one recipe's stages (`lstr bench --recipe`).

Networks and models have random weights, because speed does not depend on them. The video is real, or rendered.
"""

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count, islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep

import numpy as np

from lstr import streaming
from lstr.config import WindowConfig
from lstr.errors import NetworkRuntimeError, VideoError
from lstr.extractors.devices import choose_device, fast_precision
from lstr.extractors.flow.workers import PAIRS, FlowWorkers, default_workers, flow_workers
from lstr.extractors.networks.crops import frames_seen
from lstr.extractors.networks.runtime import RUNTIMES, is_installed
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS, Preset
from lstr.extractors.recipe import Precision, Recipe
from lstr.extractors.run import FeatureRow, TwoStream, run_on
from lstr.extractors.stages import closed_after, torch_threads
from lstr.extractors.streams import PICTURES, STREAMS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import CHUNK, CHUNK_SECONDS, Chunk
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, SourceFrame, chunks_of
from lstr.kinds import configure, presets
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.pipelines.models import build, filled
from lstr.pipelines.progress import ProgressCallback
from lstr.pipelines.provenance import about_machine, peak_memory_mb
from lstr.pipelines.scenes import SceneConfig, render_scenes

Tick = Callable[[], None]  # is called after each part of a measurement
# The paper's runtime table. Its unit must be the chunk, because only then do its rates add up to its last row.
PAPER = {"device": "V100", "unit": "decisions per second", "serial": 4.6}
PAPER |= {"flow": 8.1, "rgb_features": 70.5, "flow_features": 14.6, "lstr": 91.6}
# Unit of the rate of each stage, and the number of units per chunk.
STAGES = {
    "decode": ("24 FPS frames", CHUNK),
    "flow": ("flow fields", PAIRS),
    **{f"{stream}_features": ("features", 1) for stream in STREAMS},
    "lstr": ("decisions", 1),
}
SHORTEST_SCENE = 5.0  # seconds
WARM_UP = 4  # chunks before the measurement: torch reorders weights, and the CPU raises its clock frequency
# Recipes to compare, each with the usual model preset for it.
RECIPES = {"live": "rnn-small", "fast": "thumos14", "faithful": "thumos14"}
CHUNKS = 24  # chunks of a video for measuring each part of a recipe
SECONDS = 1.0  # minimum CPU time for measuring a network
RUN_CHUNKS = 40  # chunks of a complete run, which is measured as a file and as a camera
ROOM = 0.8  # share of the CPU that cameras may use; above it, some chunks wait long in queues


def count_parts(progress: ProgressCallback, total: int) -> Tick:
    """Return a function that reports the number of its calls, of `total`."""
    done = count(1)
    return lambda: progress("measuring", next(done), total)


def rendered(folder: Path, n_chunks: int) -> list[Path]:
    """Render videos of 320×240 at 30 FPS with about `n_chunks` chunks in total."""
    render_scenes(folder, SceneConfig(2, 1, max(SHORTEST_SCENE, n_chunks * CHUNK_SECONDS / 2), 320, 240))
    return list(find_videos([folder / "videos"]).values())


def describe(path: Path) -> dict:
    """Return name, size and frame rate of a video, for the result."""
    video = probe(path)
    rate = len(video.ticks) / video.duration
    return {"name": path.name, "width": video.width, "height": video.height, "fps": round(rate, 2)}


class Chain:
    """Networks, threads of flow (None without flow), and a stream of a random model with full memories."""

    def __init__(self, twostream: TwoStream, workers: FlowWorkers | None, config: WindowConfig):
        self.twostream, self.workers = twostream, workers
        rgb, flow = twostream.recipe.dims
        self.model = build(config.replace(rgb_dim=rgb, flow_dim=flow), len(THUMOS_CLASSES), twostream.device)
        self.state = filled(streaming.create(self.model))

    def decide(self, row: FeatureRow) -> None:
        """Run one step of the stream and copy its scores to the CPU, as a real run does."""
        pictures = [row.features[stream] for stream in PICTURES if stream in row.features]
        rgb = np.concatenate(pictures) if pictures else None
        streaming.step(self.model, self.state, rgb, row.features.get("flow")).numpy()


def first_chunks(path: Path, recipe: Preset | Recipe, n: int) -> Generator[Chunk, None, None]:
    """Yield the first n chunks for a recipe. Raises VideoError if the video ends during the warm-up."""
    video = probe(path)
    if min(video.n_chunks, n) <= WARM_UP:
        raise VideoError(f"{path} has {video.n_chunks} chunks, too few to measure.", "use a longer --input.")
    seen = frames_seen(recipe.streams, recipe.rgb_frame)
    yield from islice(chunks_of(FrameReader(video).frames(recipe.long_side), seen=seen), n)


def serial(chain: Chain, path: Path, n: int, tick: Tick) -> list[list[float]]:
    """Measure the seconds of each stage for each chunk after the warm-up; only flow fields of one chunk overlap."""
    twostream = chain.twostream
    measured: list[list[float]] = []
    start = perf_counter()
    for chunk in first_chunks(path, twostream.recipe, n):
        marks = [start, perf_counter()]
        fields = None
        if chain.workers:
            fields = chain.workers.submit(chunk.frames).result()
            marks.append(perf_counter())
        rows = {}
        for stream in twostream.recipe.streams:
            images = twostream.views[stream].cropped(chunk.frames, fields)
            rows[stream] = twostream.pooled(stream, images[None])[0][: twostream.recipe.parts[stream].dim]
            marks.append(perf_counter())
        chain.decide(FeatureRow(chunk.index, chunk.end_time, rows))
        marks.append(perf_counter())
        measured.append([end - start for start, end in pairwise(marks)])
        tick()
        start = perf_counter()
    return measured[WARM_UP:]


def overlap(chain: Chain, path: Path, n: int, tick: Tick) -> tuple[int, float]:
    """Return the number of chunks, and the seconds from opening the file to the last decision."""
    start, n_decided = perf_counter(), 0
    chunks = first_chunks(path, chain.twostream.recipe, n)
    with torch_threads(1), closed_after(chain.twostream.rows(chunks, chain.workers)) as rows:
        for row in rows:
            chain.decide(row)
            n_decided += 1
            tick()
    return n_decided, perf_counter() - start


def live(chain: Chain, path: Path, n: int, tick: Tick) -> list[float]:
    """Measure the seconds from each chunk's last frame to its decision after the warm-up, with real-time frames."""
    long_side, seen = chain.twostream.recipe.long_side, chain.twostream.frames_seen
    arrivals = [0.0, 0.0]  # arrival times of the two latest frames
    closed: dict[int, float] = {}

    def paced_frames() -> Iterator[SourceFrame]:
        start = perf_counter()
        for frame in FrameReader(probe(path)).frames(long_side):
            due = start + float(frame.time)
            sleep(max(0.0, due - perf_counter()))
            arrivals[:] = arrivals[1], due
            yield frame

    def timed_chunks() -> Iterator[Chunk]:
        for chunk in islice(chunks_of(paced_frames(), seen=seen), n):
            closed[chunk.index] = arrivals[0]  # a chunk is complete when the frame after its last one arrives
            yield chunk

    delays: list[float] = []
    with torch_threads(1), closed_after(chain.twostream.rows(timed_chunks(), chain.workers, live=True)) as rows:
        for row in rows:
            chain.decide(row)
            delays.append(perf_counter() - closed.pop(row.index))
            tick()
    return delays[WARM_UP:]


def bench_chain(
    preset: Preset,
    inputs: Sequence[Path],
    n_chunks: int,
    flow_threads: int | None,
    runtime: str,
    progress: ProgressCallback,
) -> dict:
    """Measure all stages on the first `n_chunks` chunks of each video; return a JSON object.

    There are three measurements. Serial: one chunk at a time and one stage at a time with all cores, as in the paper's
    table. Overlapped: as `lstr detect` processes a file. Live: as it processes a camera, with frames in real time.

    Args:
        preset: The settings of the recipe.
        inputs: Videos; without any, some are rendered.
        n_chunks: Number of chunks of each video.
        flow_threads: Number of threads for flow; None for one per core.
        runtime: The runtime of the networks.
        progress: Is called after each chunk of a measurement.

    Raises:
        VideoError: A video cannot be read or is too short.
    """
    device = choose_device(None)
    with TemporaryDirectory() as folder, flow_workers(preset.algorithm, flow_threads, device=device) as workers:
        inputs = inputs or rendered(Path(folder), n_chunks)
        twostream = run_on(build_twostream(preset, WeightSources(), device), runtime)
        twostream.prepare(1, twostream.batch)
        chain, recipe = Chain(twostream, workers, configure()), twostream.recipe
        about = {
            **about_machine(),
            "device": twostream.device,
            "input": [describe(path) for path in inputs],
            "recipe": {
                "id": recipe.id,
                "crops": {stream: part.crops for stream, part in recipe.parts.items()},
                "flow_algorithm": recipe.flow_algorithm,
                "precision": recipe.precision,
            },
            "flow": {"backend": workers.backend, "workers": workers.workers} if workers else None,
            "weights": "random",
        }
        tick = count_parts(progress, 3 * sum(min(probe(path).n_chunks, n_chunks) for path in inputs))
        parts = measure_chain(chain, inputs, n_chunks, tick)
    return {**about, **parts, "peak_memory_mb": round(peak_memory_mb()), "paper": PAPER}


def measure_chain(chain: Chain, inputs: Sequence[Path], n_chunks: int, tick: Tick) -> dict:
    """Return the speed of each stage and of all together."""
    stages: list[list[float]] = []
    latency: list[float] = []
    seconds, n_decided = 0.0, 0
    for path in inputs:
        stages += serial(chain, path, n_chunks, tick)
        n, of_video = overlap(chain, path, n_chunks, tick)
        n_decided, seconds = n_decided + n, seconds + of_video
        latency += live(chain, path, n_chunks, tick)
    means = np.mean(stages, axis=0)  # seconds per chunk, by stage
    features = [f"{stream}_features" for stream in chain.twostream.recipe.streams]
    names = ["decode", *(["flow"] if chain.workers else []), *features, "lstr"]
    percentiles = {f"p{p}": round(1000 * float(np.percentile(latency, p)), 1) for p in (50, 95, 99)}
    return {
        "stages": {
            name: {
                "per_second": round(STAGES[name][1] / mean, 2),
                "unit": STAGES[name][0],
                "decisions_per_second": round(1 / mean, 2),
                "share": round(mean / means.sum(), 3),
            }
            for name, mean in zip(names, means, strict=True)
        },
        "end_to_end": {
            "serial": {"decisions_per_second": round(1 / means.sum(), 2), "decisions": len(stages)},
            "overlapped": {
                "decisions_per_second": round(n_decided / seconds, 2),
                "realtime_factor": round(n_decided * CHUNK_SECONDS / seconds, 3),
                "decisions": n_decided,
                "latency_ms": {**percentiles, "decisions": len(latency)},
            },
        },
    }


def bench_recipes(inputs: Sequence[Path], progress: ProgressCallback) -> dict:
    """Compare recipes, runtimes and precisions; return a JSON object.

    Values are CPU seconds, because other processes hardly affect them; only a complete run is measured in wall time.
    Inputs (only the first is used) and errors are as for `bench_chain`.
    """
    device = choose_device(None)
    with TemporaryDirectory() as folder:
        path, cores = (inputs or rendered(Path(folder), 2 * RUN_CHUNKS))[0], default_workers()
        about = {"device": device, "cores": cores, "input": describe(path), "weights": "random"}
        total = sum(2 + len(_variants(name, device)) + 2 * RUN_CHUNKS for name in RECIPES)
        tick = count_parts(progress, total)
        rows = {name: measure_recipe(name, path, device, tick) for name in RECIPES}
    return {**about_machine(), **about, "recipes": rows, "advice": advice(rows, cores)}


def _variants(recipe: str, device: str) -> list[tuple[str, Precision]]:
    """Return the (runtime, precision) pairs to measure for a recipe's networks."""
    runtimes = [runtime for runtime in RUNTIMES if is_installed(runtime)] if device == "cpu" else ["torch"]
    precisions: list[Precision] = ["float32"]
    if recipe != "live" and fast_precision(device) == "bf16":
        precisions.append("bf16")
    return [(runtime, precision) for precision in precisions for runtime in runtimes]


def measure_recipe(name: str, path: Path, device: str, tick: Tick) -> dict:
    """Measure the parts of a recipe, and a complete run with the fastest runtime."""
    preset = PRESETS[name]
    with torch_threads(1), ExitStack() as stack:
        start = process_time()
        chunks = list(first_chunks(path, preset, CHUNKS))
        decode = (process_time() - start) / len(chunks)
        tick()
        workers = stack.enter_context(flow_workers(preset.algorithm, device=device))
        start = process_time()
        fields = [workers.submit(chunk.frames).result() if workers else None for chunk in chunks]
        flow = (process_time() - start) / len(chunks)
        tick()
        twostream = build_twostream(preset, WeightSources(), device, "float32")
        chain = Chain(twostream, workers, presets()[RECIPES[name]].model)
        steps: list[float] = []
        zeros = {stream: np.zeros(part.dim, np.float32) for stream, part in twostream.recipe.parts.items()}
        for _ in range(CHUNKS):
            start = process_time()
            chain.decide(FeatureRow(0, 0.0, zeros))
            steps.append(process_time() - start)
        step = float(np.median(steps))
        variants: list[dict] = []
        networks: dict[tuple[str, str], TwoStream] = {}
        for runtime, precision in _variants(name, device):
            variant = run_on(twostream.copy(replace(twostream.recipe, precision=precision)), runtime)
            variants.append({"runtime": runtime, "precision": precision})
            try:
                seconds = network_seconds(variant, chunks, fields)
            except NetworkRuntimeError as error:
                variants[-1]["failed"] = str(error)
            else:
                networks[runtime, precision] = variant
                whole = (decode + flow + seconds + step) / CHUNK_SECONDS  # CPU seconds per second of video
                variants[-1] |= {
                    "network_ms": round(1000 * seconds, 2),
                    "processor_seconds_per_second": round(whole, 4),
                    "real_time": round(default_workers() / whole, 2),
                    "cameras": math.floor(ROOM * default_workers() / whole),
                }
            tick()
        working = [variant for variant in variants if "failed" not in variant]
        best = min(working, key=lambda variant: variant["processor_seconds_per_second"])
        chain.twostream = networks[best["runtime"], best["precision"]]
        n_decided, seconds = overlap(chain, path, RUN_CHUNKS, tick)
        delays = live(chain, path, RUN_CHUNKS, tick)
    costs = {"decode_ms": decode, "flow_ms": flow, "lstr_ms": step}
    latency = {f"p{p}": round(1000 * float(np.percentile(delays, p)), 1) for p in (50, 95)}
    return {
        **{part: round(1000 * seconds, 2) for part, seconds in costs.items()},
        "variants": variants,
        "best": {**best, "real_time_now": round(n_decided * CHUNK_SECONDS / seconds, 2), "latency_ms": latency},
    }


def network_seconds(twostream: TwoStream, chunks: Sequence[Chunk], fields: Sequence[np.ndarray | None]) -> float:
    """Measure the CPU seconds per chunk of all networks in sequence, including cropping."""
    # a GPU's batch of 64 images may be larger than the number of measured chunks
    batch = min(twostream.batch, len(chunks))
    twostream.prepare(batch)

    def run(at: int) -> None:
        for stream in twostream.recipe.streams:
            pairs = zip(chunks[at : at + batch], fields[at : at + batch], strict=True)
            images = [twostream.views[stream].cropped(chunk.frames, field) for chunk, field in pairs]
            twostream.pooled(stream, np.stack(images))

    run(0)  # not counted, because torch reorders weights in it
    measured: list[float] = []
    while sum(measured) < SECONDS:
        for at in range(0, len(chunks) - batch + 1, batch):
            start = process_time()
            run(at)
            measured.append(process_time() - start)
    return float(np.median(measured)) / batch


def advice(rows: Mapping[str, Mapping], cores: int) -> str:
    """Return a sentence with the recipe for cameras, and a recipe with published weights that runs in real time."""
    parts = []
    if "live" in rows:
        n_cameras = rows["live"]["best"]["cameras"]
        parts.append(f"for cameras, learn with the recipe `live`: up to {n_cameras} at once on {cores} cores")
    # in order of closeness to the published recipe
    published = {name: rows[name]["best"] for name in ("faithful", "fast") if name in rows}
    for name, best in published.items():
        if best["real_time"] >= 1:
            words = f"--recipe {name} --set recipe.precision={best['precision']} --set runtime={best['runtime']}"
            parts.append(f"with published weights {words}: {best['real_time']:.1f} × real time")
            break
    else:
        if published:
            fastest = max(best["real_time"] for best in published.values())
            parts.append(f"no recipe with published weights keeps up with a camera: {fastest:.1f} × real time at most")
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}."
