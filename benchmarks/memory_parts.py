"""Where the memory of an extraction goes: what a process holds after each step; writes benchmarks/memory-parts.json.

    python benchmarks/memory_parts.py VIDEO… [--model MODEL.lstr]

Networks of `fast` carry random weights: memory does not depend on them. The last figure of each run is the most that
`lstr extract` of the videos held at once, its decoding process included, pages that both share counted once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).with_name("memory-parts.json")
STEPS = """
import json, sys
def held(name):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    steps[name] = round(int(lines["VmRSS"].split()[0]) / 1024)
steps = {}
import cv2, numpy as np
held("Python, NumPy, OpenCV")
import torch
torch.set_num_threads(1)
held("and torch")
import lstr_cli.main, av
from lstr.extractors.weights.sources import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.pipelines.networks.converted import run_on
held("and lstr, PyAV")
twostream = build_twostream(PRESETS["fast"], WeightSources(), "cpu")
for stream in twostream.networks:
    twostream.networks[stream]
held("and both networks, built by mmaction2")
twostream = run_on(twostream, sys.argv[1])
twostream.prepare(twostream.batch)
held("and made ready to compute")
for stream, channels in (("rgb", 3), ("flow", 10)):
    twostream.pooled(stream, np.zeros((twostream.batch, 1, 224, 224, channels), np.uint8))
held("and having computed once")
print(json.dumps(steps))
"""


def most_held(command: list[str]) -> int:
    """Megabytes that a command and its children held at most, what they share counted once."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0.0
    while process.poll() is None:
        most = max(most, _held(process.pid))
        time.sleep(0.2)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return round(most)


def _held(pid: int) -> float:
    """Their own memory, and the files of the one that has mapped most: other programs may have mapped the same."""
    own, files, waiting = 0.0, [0.0], [pid]
    while waiting:
        one = waiting.pop()
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()[1:]
            held = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
            own += held["Pss_Anon"]
            files.append(held["Rss"] - held["Anonymous"])
            for task in os.listdir(f"/proc/{one}/task"):
                waiting += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except (OSError, KeyError):  # it has ended
            continue
    return own + max(files)


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("videos", nargs="+", type=Path, metavar="VIDEO")
    parser.add_argument("--model", metavar="FILE", help="a model file, whose networks extract too")
    options = parser.parse_args()
    rows: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        extract = [sys.executable, "-m", "lstr_cli", "extract", *map(str, options.videos)]
        for runtime in ("torch", "openvino"):
            steps = json.loads(subprocess.check_output([sys.executable, "-c", STEPS, runtime]))
            words = ["--recipe", "fast", "--flow", "dis", "--set", f"runtime={runtime}", "-o", f"{folder}/{runtime}"]
            rows[f"fast, {runtime}"] = {**steps, "whole extraction, at most": most_held([*extract, *words])}
        words = ["--recipe", "fast", "--stream", "rgb", "-o", f"{folder}/rgb"]
        rows["fast, RGB alone"] = {"whole extraction, at most": most_held([*extract, *words])}
        if options.model:
            words = ["--recipe", options.model, "-o", f"{folder}/model"]
            rows["a model file"] = {"whole extraction, at most": most_held([*extract, *words])}
    videos = [path.name for path in options.videos]
    write_json(RECORD, {"megabytes": rows, "unit": "2**20 bytes", "videos": videos} | about_machine())
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
