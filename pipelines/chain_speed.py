"""Speed of this machine from video to decision, by stage and as a whole: what `lstr bench --recipe` records.

Networks and LSTR have random weights and a full random memory: speed does not depend on them. The video is real.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import TypeVar

import numpy as np

from lstr import streaming
from lstr.config import WindowConfig
from lstr.errors import VideoError
from lstr.extractors.devices import choose_device
from lstr.extractors.flow.workers import PAIRS, FlowWorkers, flow_workers
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import Preset
from lstr.extractors.run import FeatureRow, TwoStream, run_on
from lstr.extractors.stages import closed_after, torch_threads
from lstr.extractors.streams import STREAMS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import CHUNK, CHUNK_SECONDS, Chunk, SourceFrame, chunks_of
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.probe import Video, probe
from lstr.extractors.video.reader import FrameReader
from lstr.kinds import configure, make_model
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.models.kind import Model
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.provenance import about_machine, peak_memory_mb
from lstr.pipelines.scenes import SceneConfig, render_scenes
from lstr.streaming import StreamState

Result = TypeVar("Result")
# A measurement that yields after each of its parts, and returns its result.
Measuring = Generator[None, None, Result]
# The paper's runtime table; its unit is the chunk, for the rates add up to the last row.
PAPER = {
    "device": "V100",
    "flow": 8.1,
    "rgb_features": 70.5,
    "flow_features": 14.6,
    "lstr": 91.6,
    "serial": 4.6,
    "unit": "decisions per second",
}
# What the rate of each stage counts, and how many of it a chunk has.
STAGES = {
    "decode": ("24 FPS frames", CHUNK),
    "flow": ("flow fields", PAIRS),
    **{f"{stream}_features": ("features", 1) for stream in STREAMS},
    "lstr": ("decisions", 1),
}
SHORTEST_SCENE = 5.0  # seconds
WARM_UP = 4  # chunks before the clock starts: weights are laid out, the processor wakes


class Paced(FrameReader):
    """The frames of a video as a camera would deliver them, none before its time.

    `before` is when, on the clock of perf_counter, the newest frame but one came: a chunk closes with the frame after
    its last, which is the next one in a live stream.
    """

    def __init__(self, video: Video):
        super().__init__(video)
        self.before = self._newest = 0.0

    def frames(self, long_side: int) -> Generator[SourceFrame, None, None]:
        """The frames of `FrameReader.frames`, each at its time."""
        start = perf_counter()
        for frame in super().frames(long_side):
            due = start + float(frame.time)
            sleep(max(0.0, due - perf_counter()))
            self.before, self._newest = self._newest, due
            yield frame


@dataclass(frozen=True)
class Chain:
    """What is measured: networks, flow, and a stream of a model."""

    twostream: TwoStream
    workers: FlowWorkers | None
    """None for networks that see no flow"""
    model: Model
    state: StreamState

    @classmethod
    def of(cls, twostream: TwoStream, workers: FlowWorkers | None, config: WindowConfig) -> "Chain":
        """Return a chain with a model of random weights whose memory is full."""
        rgb, flow = twostream.recipe.dims
        model = build(config.replace(rgb_dim=rgb, flow_dim=flow), len(THUMOS_CLASSES), twostream.device)
        return cls(twostream, workers, model, filled(streaming.create(model)))

    def decide(self, row: FeatureRow) -> None:
        """Run one step of the stream, with its scores on the CPU, where sinks need them."""
        streaming.step(self.model, self.state, row.rgb, row.flow).numpy()


def bench_chain(
    preset: Preset,
    inputs: Sequence[Path] = (),
    n_chunks: int = 80,
    device: str | None = None,
    flow_threads: int | None = None,
    flow_backend: str = "auto",
    runtime: str = "auto",
) -> Iterator[Progress | Notice | Finished[dict]]:
    """Measure the whole chain on the first `n_chunks` chunks of each video; the result is its record.

    Serial: one chunk at a time, one stage after the other, each with all of the machine, as in the paper's table.
    Overlapped: as `lstr detect` reads a file. Live: as it would a camera, each frame at its time.

    inputs: videos; without any, some are rendered. device: None for the GPU, or the CPU without one. flow_threads: None
    for as many as suit this machine. runtime: what computes the networks. Raises VideoError for a video that cannot be
    read or is too short.
    """
    device = choose_device(device)
    with (
        TemporaryDirectory() as folder,
        flow_workers(preset.algorithm, flow_threads, flow_backend, device) as workers,
    ):
        if not inputs:
            yield Notice("measuring on rendered videos of 320×240 at 30 FPS", warning=False)
            inputs = rendered(Path(folder), n_chunks)
        twostream = run_on(build_twostream(preset, WeightSources(), device), runtime)
        twostream.prepare(1, twostream.batch)
        chain = Chain.of(twostream, workers, configure())
        total = sum(min(probe(path).n_chunks, n_chunks) for path in inputs) * 3
        recipe = twostream.recipe
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
            "runtimes": twostream.runtimes,
            "weights": "random",
        }
        parts = yield from progress_of(measure(chain, inputs, n_chunks), total)
        memory = {"peak_memory_mb": round(peak_memory_mb())}
        yield Finished({**about, **parts, **memory, "paper": PAPER})


def progress_of(measurement: Measuring[Result], total: int) -> Generator[Progress, None, Result]:
    """Run a measurement of `total` parts."""
    for done in count(1):
        try:
            next(measurement)
        except StopIteration as over:
            return over.value
        yield Progress("measuring", done, total)
    raise AssertionError


def measure(chain: Chain, inputs: Sequence[Path], n_chunks: int) -> Measuring[dict]:
    """Measure each stage and the whole, over all videos; yields after each chunk."""
    stages: list[list[float]] = []
    latency: list[float] = []
    overlapped, decisions = 0.0, 0
    for path in inputs:
        stages += yield from serial(chain, path, n_chunks)
        made, seconds = yield from overlap(chain, path, n_chunks)
        decisions, overlapped = decisions + made, overlapped + seconds
        latency += yield from live(chain, path, n_chunks)
    each = np.mean(stages, axis=0)  # seconds of a chunk, by stage
    features = [f"{stream}_features" for stream in chain.twostream.recipe.streams]
    there = ["decode", *(["flow"] if chain.workers else []), *features, "lstr"]
    p50, p95, p99 = (round(1000 * float(np.percentile(latency, p)), 1) for p in (50, 95, 99))
    return {
        "stages": {
            name: {
                "per_second": round(STAGES[name][1] / seconds, 2),
                "unit": STAGES[name][0],
                "decisions_per_second": round(1 / seconds, 2),
                "share": round(seconds / each.sum(), 3),
            }
            for name, seconds in zip(there, each, strict=True)
        },
        "end_to_end": {
            "serial": {"decisions_per_second": round(1 / each.sum(), 2), "decisions": len(stages)},
            "overlapped": {
                "decisions_per_second": round(decisions / overlapped, 2),
                "realtime_factor": round(decisions * CHUNK_SECONDS / overlapped, 3),
                "decisions": decisions,
                "latency_ms": {"p50": p50, "p95": p95, "p99": p99, "decisions": len(latency)},
            },
        },
    }


def rendered(folder: Path, n_chunks: int) -> list[Path]:
    """Render videos of 320×240 at 30 FPS with about n_chunks chunks in all, if no real ones are named."""
    render_scenes(folder, SceneConfig(2, 1, max(SHORTEST_SCENE, n_chunks * CHUNK_SECONDS / 2), 320, 240))
    return list(find_videos([folder / "videos"]).values())


def describe(path: Path) -> dict:
    """Return what a reader of the record must know about a video."""
    video = probe(path)
    rate = len(video.ticks) / video.duration
    return {"name": path.name, "width": video.width, "height": video.height, "fps": round(rate, 2)}


def first_chunks(path: Path, long_side: int, n: int) -> Iterator[Chunk]:
    """Return the first n chunks. Raises VideoError if none is left to measure after the warm-up."""
    video = probe(path)
    if min(video.n_chunks, n) <= WARM_UP:
        raise VideoError(f"{path} has {video.n_chunks} chunks, too few to measure.", "give a longer --input.")
    return islice(chunks_of(FrameReader(video).frames(long_side)), n)


def serial(chain: Chain, path: Path, n: int) -> Measuring[list[list[float]]]:
    """Return seconds of each stage for each chunk after the warm-up; only the flow fields of a chunk overlap."""
    twostream = chain.twostream
    taken: list[list[float]] = []
    with closed_after(first_chunks(path, twostream.recipe.long_side, n)) as chunks:
        while True:
            marks = [perf_counter()]
            chunk = next(chunks, None)
            if chunk is None:
                return taken[WARM_UP:]
            marks.append(perf_counter())
            fields = None
            if chain.workers:
                fields = chain.workers.submit(chunk.frames).result()
                marks.append(perf_counter())
            rows = {}
            for stream in twostream.recipe.streams:
                images = twostream.views[stream].cropped(chunk.frames, fields)
                rows[stream] = twostream.pooled(stream, images[None])[0]
                marks.append(perf_counter())
            chain.decide(FeatureRow(chunk.index, chunk.end_time, rows))
            marks.append(perf_counter())
            taken.append([end - start for start, end in pairwise(marks)])
            yield


def overlap(chain: Chain, path: Path, n: int) -> Measuring[tuple[int, float]]:
    """Return the chunks, and seconds from opening the file to the last decision."""
    start, made = perf_counter(), 0
    chunks = first_chunks(path, chain.twostream.recipe.long_side, n)
    with torch_threads(1), closed_after(chain.twostream.rows(chunks, chain.workers)) as rows:
        for row in rows:
            chain.decide(row)
            made += 1
            yield
    return made, perf_counter() - start


def live(chain: Chain, path: Path, n: int) -> Measuring[list[float]]:
    """Return seconds from the last frame of each chunk to its decision, with frames in real time, after the warm-up."""
    frames = Paced(probe(path))
    delays: list[float] = []
    due: dict[int, float] = {}

    def timed() -> Iterator[Chunk]:
        for chunk in islice(chunks_of(frames.frames(chain.twostream.recipe.long_side)), n):
            due[chunk.index] = frames.before
            yield chunk

    rows = chain.twostream.rows(timed(), chain.workers, live=True)
    with torch_threads(1), closed_after(rows) as source:
        for row in source:
            chain.decide(row)
            delays.append(perf_counter() - due.pop(row.index))
            yield
    return delays[WARM_UP:]


def build(config: WindowConfig, n_classes: int, device: str) -> Model:
    """Return a model with random weights, ready to score."""
    return make_model(config, n_classes).eval().to(device)


def full_age(config: WindowConfig) -> int:
    """Return chunks after which both memories are full; a multiple of the stride, so an update comes next."""
    return 2 * (config.long_length + config.work_length * config.long_stride)


def filled(state: StreamState, offset: int = 0) -> StreamState:
    """Return the state with its memory full: random numbers instead of thousands of steps.

    Stream b has seen full_age + offset + b chunks, so of several one in `long_stride` updates its long memory at each
    step. Its scores are finite and mean nothing.
    """
    for tensor in state.tensors.values():
        if tensor.is_floating_point():  # masks stay: everything is visible
            tensor.normal_()
    state.chunks[:] = full_age(state.config) + offset + np.arange(len(state.chunks))
    return state
