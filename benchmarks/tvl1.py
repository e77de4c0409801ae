"""Compare the compiled TV-L1 kernel with OpenCV on the same real frame pairs, one thread each; writes tvl1.json.

python benchmarks/tvl1.py VIDEO... [--pairs 7] [--before KERNEL.so]
"""

import argparse
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from statistics import median
from time import process_time
from types import ModuleType

import cv2
import numpy as np

from lstr.extractors.flow import workers
from lstr.extractors.flow.workers import opencv_flow
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, chunks_of
from lstr.files.content import write_json
from lstr.pipelines.provenance import about_machine

SIZES = ((320, 180), (320, 240), (340, 256))


def read_pairs(video: Path, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return n pairs of adjacent RGB frames, spread over a video."""
    chunks = [chunk.frames[:2] for chunk in chunks_of(FrameReader(probe(video)).frames(1920))]
    return [tuple(chunks[i]) for i in np.linspace(0, len(chunks) - 1, n).astype(int)]


def timed(function, pairs) -> tuple[list[np.ndarray], float]:
    """Return the flows and the processor seconds."""
    start = process_time()
    flows = [function(a, b) for a, b in pairs]
    return flows, process_time() - start


def grey_pairs(pairs, size: tuple[int, int]) -> list[tuple[np.ndarray, ...]]:
    """Convert pairs of RGB frames to grey at one size (width, height)."""
    return [
        tuple(cv2.cvtColor(cv2.resize(f, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY) for f in pair)
        for pair in pairs
    ]


def load_kernel(path: Path) -> ModuleType:
    """Load another build of the compiled kernel."""
    loader = ExtensionFileLoader("_tvl1", str(path.resolve()))
    module = module_from_spec(spec_from_loader("_tvl1", loader))
    loader.exec_module(module)
    return module


def against(before: ModuleType, grey, variant: str) -> dict:
    """Compare the current kernel with another build on the same pairs, in turns: the median ratio of processor time."""
    now, ratios, equal = workers._tvl1, [], 0
    for number, pair in enumerate(grey):
        kernels = (before, now) if number % 2 else (now, before)
        flows, seconds = {}, {}
        for kernel in kernels:
            workers._tvl1 = kernel
            workers._spare.clear()  # their memory differs in size
            workers.native_flow(*pair, variant)
            (flows[kernel],), seconds[kernel] = timed(lambda a, b: workers.native_flow(a, b, variant), [pair])
        ratios.append(seconds[now] / seconds[before])
        equal += np.array_equal(flows[now], flows[before])
    workers._tvl1 = now
    workers._spare.clear()
    return {"time_of_before": round(median(ratios), 3), "equal": equal, "of": len(ratios)}


def measure(pairs, size: tuple[int, int]) -> dict:
    """Measure both kernels on grey pairs of one size (width, height)."""
    grey = grey_pairs(pairs, size)
    theirs, slow = timed(opencv_flow, grey)
    ours, fast = timed(workers.native_flow, grey)
    difference = [np.hypot(*(a - b).transpose(2, 0, 1)) for a, b in zip(theirs, ours, strict=True)]
    return {
        "size": list(size),
        "pairs": len(pairs),
        "threads": 1,
        "native_pairs_per_second": round(len(pairs) / fast, 2),
        "opencv_pairs_per_second": round(len(pairs) / slow, 2),
        "ratio": round(slow / fast, 2),
        "mean_epe_px": float(np.mean([d.mean() for d in difference])),
        "bit_equal_pairs": sum(not d.any() for d in difference),
    }


def main() -> None:
    """Measure each size on pairs of every video and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("videos", type=Path, nargs="+")
    parser.add_argument("--pairs", type=int, default=7, help="pairs a video")
    parser.add_argument("--before", type=Path, help="another build of the kernel, to be compared in turns")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("tvl1.json"))
    options = parser.parse_args()
    cv2.setNumThreads(1)
    pairs = [pair for video in options.videos for pair in read_pairs(video, options.pairs)]
    rows = [measure(pairs, size) for size in SIZES]
    for row in rows:
        print(row)
    changes = {}
    if options.before:
        before = load_kernel(options.before)
        for size in SIZES:
            grey = grey_pairs(pairs, size)
            changes[f"{size[0]}x{size[1]}"] = {v: against(before, grey, v) for v in workers.variants()}
        print(changes)
    write_json(
        options.output,
        {
            "tvl1": rows,
            **({"against_before": changes} if changes else {}),
            "unit": "pairs a second of processor time",
            **about_machine(opencv=cv2.__version__),
            "instruction_set": workers.variants()[-1],
            "videos": [video.name for video in options.videos],
        },
    )


if __name__ == "__main__":
    main()
