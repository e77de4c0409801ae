"""Measure size, start-up, speed and memory of a model with torch and exported without it; writes exported.json.

For each runtime: megabytes of a small environment, seconds from the start of `lstr detect` to its first decision on a
file, the real-time factor, and peak memory; then the same for cameras played in real time, with lag and cores
(many_streams.py). Models are named files, or have random weights at the cost of a recipe and the size of the paper.

    python benchmarks/exported.py --small SMALL/bin/python [--model live=FILE.lstr] [--recipes fast live]
    python benchmarks/exported.py --small SMALL/bin/python --small-openvino OTHER/bin/python

SMALL is an environment with `lstr-video[run]` only; OTHER also has OpenVINO. --full names the environment of
`make install` (default: this one); its size is in install.json. Runtimes are measured in turns, so that other load on
the machine affects all of them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import numpy as np
from install import megabytes
from many_streams import FPS, SETTLING, Film, make_film, random_checkpoint
from many_streams import run as watch

from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.files.content import write_json
from lstr.pipelines.bench import rendered
from lstr.pipelines.provenance import about_machine, peak_memory_mb


@dataclass(frozen=True)
class Way:
    """One way to run a model: environment, file and options."""

    name: str
    python: str
    exported: bool
    options: tuple[str, ...] = ()

    def command(self, files: dict[bool, Path], video: Path) -> list[str]:
        """Return the `lstr detect` command for a video."""
        model = str(files[self.exported])
        return [self.python, "-m", "lstr_cli", "detect", str(video), "-m", model, *self.options]

    def scores(self, files: dict[bool, Path], video: Path, folder: Path) -> np.ndarray:
        """Return probabilities (chunks, classes) of a video."""
        output = folder / self.name
        subprocess.run([*self.command(files, video), "-f", "npy", "-o", str(output)], check=True, capture_output=True)
        (path,) = output.glob("*.scores.npy")
        scores = np.load(path)
        path.unlink()
        return scores


@dataclass
class Run:
    """The measurements of one detection of a file."""

    first: float = 0.0
    """Seconds from the start of the command to the first decision."""
    decided: int = 0
    seconds: float = 0.0
    """From the first decision to the last."""
    processor_seconds: float = 0.0
    peak_megabytes: float = 0.0


def detect(command: list[str]) -> Run:
    """Detect on one file and measure it."""
    found, start = Run(), monotonic()
    process = subprocess.Popen([*command, "-f", "jsonl"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout
    for text in process.stdout:
        line = json.loads(text)
        if "chunk" not in line:
            continue
        now = monotonic() - start
        found.first, found.seconds = found.first or now, now - (found.first or now)
        found.decided += 1
        if found.decided % 20 == 0:
            found.peak_megabytes = peak_memory_mb(Path(f"/proc/{process.pid}/status"))
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"lstr detect ended with exit code {os.waitstatus_to_exitcode(status)}")
    found.processor_seconds = usage.ru_utime + usage.ru_stime
    return found


def row(runs: list[Run]) -> dict:
    """Return the medians of the runs on a file."""
    median = {
        name: statistics.median(getattr(run, name) for run in runs)
        for name in ("first", "seconds", "processor_seconds", "peak_megabytes")
    }
    length = runs[0].decided * CHUNK_SECONDS
    return {
        "seconds_to_first_decision": round(median["first"], 2),
        "real_time": round((length - CHUNK_SECONDS) / median["seconds"], 1),
        "processor_seconds_per_video_second": round(median["processor_seconds"] / length, 4),
        "peak_memory_mb": round(median["peak_megabytes"]),
        "runs": len(runs),
    }


def models_of(options: argparse.Namespace, folder: Path) -> dict[str, dict[bool, Path]]:
    """Return by name the model file (False) and its export (True)."""
    found = {name: {False: Path(path)} for name, _, path in (word.partition("=") for word in options.model)}
    for recipe in options.recipes:
        if recipe not in found:
            random = random_checkpoint(recipe, folder / f"{recipe}.pt")
            packed = folder / f"{recipe}.lstr"
            subprocess.run([sys.executable, "-m", "lstr_cli", "pack", random, "-o", packed], check=True)
            found[recipe] = {False: packed}
    for name, files in found.items():
        files[True] = folder / f"{name}-run.lstr"
        command = [sys.executable, "-m", "lstr_cli", "export", files[False], "-o", files[True]]
        subprocess.run(command, check=True)
    return found


def measure(ways: list[Way], files: dict[bool, Path], video: Path, films: list[Film], o: argparse.Namespace) -> dict:
    """Measure one model in all environments, in turns; compare scores with those of the first."""
    runs: dict[str, list[Run]] = {way.name: [] for way in ways}
    for _ in range(o.turns):
        for way in ways:
            runs[way.name].append(detect(way.command(files, video)))
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        scores = [way.scores(files, video, Path(folder)) for way in ways]
    for way, mine in zip(ways, scores, strict=True):
        live = watch(files[way.exported], films, o.seconds, list(way.options), way.python)
        far = float(f"{np.abs(mine - scores[0]).max():.1e}")
        found[way.name] = {"file": row(runs[way.name]), "furthest_score": far, "cameras": live}
        print(way.name, json.dumps(found[way.name]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", required=True, metavar="PYTHON")
    parser.add_argument("--small-openvino", metavar="PYTHON")
    parser.add_argument("--full", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--recipes", nargs="+", default=["fast", "live"])
    parser.add_argument("--cameras", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="that the cameras are watched for")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--video-seconds", type=int, default=120)
    parser.add_argument("--conditions", help="what else the machine was doing, for the record")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("exported.json"))
    options = parser.parse_args()
    ways = [
        Way("torch", options.full, False, ("--set", "runtime=torch")),
        Way("openvino", options.full, False, ("--set", "runtime=openvino")),
        Way("exported", options.small, True),
    ]
    if options.small_openvino:
        ways.append(Way("exported, openvino", options.small_openvino, True, ("--set", "runtime=openvino")))
    known = json.loads(options.output.read_text())["models"] if options.output.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        drawn = rendered(folder, 2 * round(options.video_seconds / CHUNK_SECONDS))
        films = [make_film(video, options.seconds + SETTLING, FPS) for video in drawn]
        films = [films[i % len(films)] for i in range(options.cameras)]
        for name, files in models_of(options, folder).items():
            weights = "trained" if any(word.startswith(f"{name}=") for word in options.model) else "random"
            known[name] = {"weights": weights, "ways": measure(ways, files, drawn[0], films, options)}
            small = {way.name: megabytes(Path(way.python).absolute().parents[1]) for way in ways if way.exported}
            about = {"megabytes": small, "models": known}
            if options.conditions:
                about["conditions"] = options.conditions
            write_json(options.output, about_machine() | about)


if __name__ == "__main__":
    main()
