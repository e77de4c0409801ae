"""What networks that see videos or many pixels cost, from frames to features: benchmarks/video_networks.json.

Each runs as its recipe has it, on chunks of noise of 320 × 240 pixels that are in memory: decoding is left out,
resizing is in. Weights are random, which cost the same. One stream on one core gives milliseconds a frame and processor
seconds for a second of video, the median of several runs; as many streams as cores, each in a thread of its own, give
how many times real time all cores make together. `load` is that of the machine before: what else it had to do.

    python benchmarks/video_networks.py [--recipes NAME ...] [--cores N] [--runs N] [--seconds S]
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lstr.extractors.memory import StreamMemory
from lstr.extractors.networks.runtimes.runtimes import AUTO
from lstr.extractors.prefetch import torch_threads
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import RunOptions, TwoStream
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import CHUNK, CHUNK_SECONDS, Chunk
from lstr.extractors.weights.sources import WeightSources
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).with_name("video_networks.json")
RECIPES = ("movinet-a0", "movinet-a1", "movinet-a2", "tsm", "dinov2", "streamformer")
SIZE = (240, 320)
WARM = 2  # chunks


def chunks(n: int) -> list[Chunk]:
    """Chunks of noise."""
    frames = np.random.default_rng(0).integers(0, 256, (CHUNK, *SIZE, 3), np.uint8)
    return [Chunk(at, (at + 1) * CHUNK_SECONDS, frames) for at in range(n)]


def spent(twostream: TwoStream, pool: ThreadPoolExecutor, streams: int, seen: list[Chunk]) -> tuple[float, float]:
    """Wall and processor seconds in which each of so many streams takes its chunks, one after the other."""
    memories = [StreamMemory() for _ in range(streams)]
    start, processor = time.perf_counter(), time.process_time()
    for chunk in seen:
        for made in [twostream.submit(pool, [chunk], None, [memory]) for memory in memories]:
            made.result()
    return time.perf_counter() - start, time.process_time() - processor


def measure(name: str, cores: int, runs: int, seconds: float) -> dict[str, Any]:
    """The row of a recipe."""
    twostream = build_twostream(PRESETS[name], WeightSources(), "cpu").again(options=RunOptions(AUTO, threads=cores))
    part, seen = twostream.recipe.rgb, chunks(max(1, round(seconds / CHUNK_SECONDS)))
    assert part is not None, "these recipes see frames"
    found: dict[int, list[tuple[float, float]]] = {}
    with torch_threads(1), ThreadPoolExecutor(cores, "networks", twostream.begin_thread) as pool:
        twostream.prepare(1)
        for streams in (1, cores):
            spent(twostream, pool, streams, chunks(WARM))
            found[streams] = [spent(twostream, pool, streams, seen) for _ in range(runs)]
    video = len(seen) * CHUNK_SECONDS
    alone, processor = (median(one[at] for one in found[1]) for at in (0, 1))
    together = median(one[0] for one in found[cores])
    return {
        "network": part.network,
        "runtime": twostream.runtimes["rgb"],
        "size": list(twostream.recipe.size_of("rgb")),
        "frames_a_chunk": part.segments,
        "features": part.dim,
        "ms_a_frame": 1000 * alone / (len(seen) * part.segments),
        "processor_seconds_a_video_second": processor / video,
        "realtime_factor": cores * video / together,
        "runs": runs,
        "video_seconds": video,
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of video in each run")
    options = parser.parse_args()
    rows, load = {}, os.getloadavg()[0]
    for name in options.recipes:
        rows[name] = measure(name, options.cores, options.runs, options.seconds)
        print(name, rows[name], flush=True)
    write_json(RECORD, {"recipes": rows, "cores": options.cores, "weights": "random", "load": load} | about_machine())


if __name__ == "__main__":
    main()
