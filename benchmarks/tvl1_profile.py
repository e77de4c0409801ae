"""Where the compiled TV-L1 spends its time on real pairs, by `perf` (Linux); writes tvl1-profile.json.

python benchmarks/tvl1_profile.py VIDEO... [--pairs 7]
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
from tvl1 import read_pairs

from lstr.extractors.flow import tvl1
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

SIZE = (320, 240)
PARTS = {"iterate_u": "primal_row", "iterate_p": "dual_row", "median": "median_", "warp": "warp_row"}


def work(videos: list[Path], pairs: int) -> None:
    """The flow of every pair, which perf watches."""
    for video in videos:
        for pair in read_pairs(video, pairs):
            small = (cv2.resize(frame, SIZE, interpolation=cv2.INTER_AREA) for frame in pair)
            before, after = (cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in small)
            for _ in range(5):  # so that the kernel, not decoding, is what is sampled
                tvl1.flow(before, after)


def shares(report: str) -> dict[str, float]:
    """Each part's share of the kernel's samples, from the text of `perf report`."""
    samples = re.findall(r"([\d.]+)%\s+_tvl1\S*\s+\[\.\]\s+(\S+)", report)
    whole = sum(float(share) for share, _ in samples)
    found = {
        part: sum(float(share) for share, symbol in samples if symbol.startswith(prefix)) / whole
        for part, prefix in PARTS.items()
    }
    return {part: round(share, 3) for part, share in {**found, "other": 1 - sum(found.values())}.items()}


def main() -> None:
    """Run the work under perf and write the shares."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("videos", type=Path, nargs="+")
    parser.add_argument("--pairs", type=int, default=7, help="pairs a video")
    parser.add_argument("--watched", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("tvl1-profile.json"))
    options = parser.parse_args()
    cv2.setNumThreads(1)
    if options.watched:
        work(options.videos, options.pairs)
        return
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/perf.data"
        again = [sys.executable, __file__, *map(str, options.videos), f"--pairs={options.pairs}", "--watched"]
        subprocess.run(["perf", "record", "-e", "cpu-clock", "-F", "2000", "-o", data, *again], check=True)
        command = ["perf", "report", "-i", data, "--stdio", "--sort", "dso,symbol"]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = shares(report)
    print(found)
    write_json(
        options.output,
        {
            "size": list(SIZE),
            "instruction_set": tvl1.variants()[-1],
            "shares": found,
            "videos": [video.name for video in options.videos],
            **about_machine(),
        },
    )


if __name__ == "__main__":
    main()
