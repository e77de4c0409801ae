"""How many live streams one machine decides on: N cameras played in real time, `lstr detect` on all; writes the record.

python benchmarks/many_streams.py --model live=MODEL.lstr [--streams 1,2,4,8,16] [--seconds 60] [VIDEO…]
python benchmarks/many_streams.py --model live=MODEL.lstr --streams 8 --seconds 600      ten minutes of eight
python benchmarks/many_streams.py --recipe fast          networks and model with random weights, at the recipe's cost

The cameras send 320×240 at 30 FPS from a server in this process (`playing.py`), on the same cores as the detection; all
begin at once, so that their chunks close together, which is harder than cameras of one's own are. The lag of a decision
is from the moment at which the frame that closes its chunk is sent to the moment at which its line arrives here.
Decisions of the first seconds, while everything starts, are left out of it and of the processor time.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, process_time

import av
import numpy as np
import torch
from playing import Film, Server, make_film, playing

from lstr.checkpoints import checkpoint
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.extractors.weights.sources import WeightSources
from lstr.kinds import configure, make_model
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine, peak_memory_of
from lstr.pipelines.speed.chain import rendered

FPS = 30
SETTLING = 5.0  # seconds of each stream, from its first frame on
N_CLASSES = 22
TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Streams:
    """What came of one run: lags by stream in seconds, chunks by what became of them."""

    lags: dict[int, list[float]] = field(default_factory=dict)
    missing: Counter = field(default_factory=Counter)
    decided: int = 0
    window: list[tuple[float, float, int]] = field(default_factory=list)
    """Once a second from the first settled decision on: wall time, processor time of the detection, decisions."""
    first: float | None = None
    """Seconds from the start of the command to the first line."""
    peak_memory_mb: float = 0.0


def random_checkpoint(recipe: str, path: Path) -> Path:
    """A model of the paper's size and networks of a recipe, all with random weights: they cost what trained ones do."""
    torch.manual_seed(0)
    twostream = build_twostream(PRESETS[recipe], WeightSources(), "cpu")
    model = make_model(configure(), N_CLASSES)
    classes = ["Background", *(f"action {c}" for c in range(1, N_CLASSES))]
    checkpoint.save(path, model, classes, twostream.recipe.to_dict(), {})
    return path


def follow(process: subprocess.Popen, server: Server, films: list[Film]) -> Streams:
    """Read a detection's lines as they come."""
    streams, start = Streams(), monotonic()
    assert process.stdout
    for text in process.stdout:
        now, line = monotonic(), json.loads(text)
        number = int(line.get("source", "-0").rpartition("-")[2])  # a stream alone is not named
        streams.first = streams.first or now - start
        if "gap" in line:
            streams.missing[line["gap"]] += line["chunks"]
        if "chunk" not in line:
            continue
        streams.decided += 1
        due = server.began[number] + films[number].closing(line["chunk"])
        if due < server.began[number] + SETTLING:
            continue
        streams.lags.setdefault(number, []).append(now - due)
        if not streams.window or now - streams.window[-1][0] > 1:
            streams.window.append((now, processor_seconds(process.pid), streams.decided))
            streams.peak_memory_mb = peak_memory_of(Path(f"/proc/{process.pid}/status"))
    return streams


def processor_seconds(pid: int) -> float:
    """What a running process has used so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICK


def percentiles(lags: list[float]) -> dict[str, float]:
    """In milliseconds."""
    return {name: round(float(np.percentile(lags, q)) * 1000, 1) for name, q in (("p50", 50), ("p95", 95), ("p99", 99))}


def run(model: Path, films: list[Film], seconds: float, options: list[str], python: str = sys.executable) -> dict:
    """One detection on so many streams for so long: the row of the record."""
    own = process_time()
    with playing(films) as server:
        addresses = [server.address(number) for number in range(len(films))]
        command = [python, "-m", "lstr_cli.main", "detect", *addresses, "-m", str(model), "-f", "jsonl"]
        command += ["--duration", f"{seconds}s", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            streams = follow(process, server, films)
        except BaseException:
            process.kill()
            raise
        finally:
            _, status, usage = os.wait4(process.pid, 0)
    if status or len(streams.window) < 2:
        sys.exit(f"lstr detect ended with exit code {os.waitstatus_to_exitcode(status)}")
    (begun, before, first), (ended, after, last) = streams.window[0], streams.window[-1]
    used, decided = after - before, (last - first) * CHUNK_SECONDS
    lags = [lag for some in streams.lags.values() for lag in some]
    return {
        "streams": len(films),
        "decided": streams.decided,
        "dropped": streams.missing["dropped"],
        "unseen": streams.missing["unseen"],
        "lag_ms": {**percentiles(lags), "most": round(max(lags) * 1000, 1)},
        "lag_ms_p95_by_stream": [percentiles(streams.lags[number])["p95"] for number in sorted(streams.lags)],
        "cores": round(used / (ended - begun), 3),
        "cores_per_stream": round(used / (ended - begun) / len(films), 4),
        "processor_seconds_per_video_second": round(used / decided, 4),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "seconds_to_first_line": round(streams.first or 0, 1),
        "peak_memory_mb": round(streams.peak_memory_mb),
        "server": {
            "cores": round((process_time() - own) / seconds, 3),
            "latest_frame_ms": round(server.late * 1000, 1),
            "reconnected": sum(server.visits.values()) - len(films),
        },
    }


def table(name: str, rows: list[dict]) -> str:
    """What a person reads of it."""
    head = f"{name:12} streams  p50 ms  p95 ms  p99 ms  dropped  processor s a video s  memory MB"
    lines = [
        f"{'':12} {row['streams']:7} "
        + " ".join(f"{row['lag_ms'][q]:7.0f}" for q in ("p50", "p95", "p99"))
        + f" {row['dropped']:8} "
        f"{row['processor_seconds_per_video_second']:22.4f} {row['peak_memory_mb']:10}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def choose(options: argparse.Namespace, folder: Path) -> tuple[str, Path, str]:
    """Name, file and weights of what decides."""
    if options.recipe:
        return options.recipe, random_checkpoint(options.recipe, folder / "random.pt"), "random"
    name, _, path = options.model.partition("=")
    return name, Path(path), "trained"


def merged(record: Path, name: str, about: dict, rows: list[dict]) -> dict:
    """The record with these rows in the place of those of the same name, streams and seconds."""
    runs = json.loads(record.read_text())["runs"] if record.exists() else {}
    new = {(row["seconds"], row["streams"]) for row in rows}
    kept = [row for row in runs.get(name, {}).get("rows", []) if (row["seconds"], row["streams"]) not in new]
    rows = sorted([*kept, *rows], key=lambda row: (row["seconds"], row["streams"]))
    return {**about_machine(pyav=av.__version__), "runs": {**runs, name: {**about, "rows": rows}}}


def main() -> None:
    """Parse, run, print the table, and write the record after each row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("videos", nargs="*", type=Path, metavar="VIDEO", help="else some are drawn")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", metavar="NAME=FILE", help="a model file, and what the record calls it")
    source.add_argument("--recipe", choices=PRESETS, help="random weights, model of the paper's size")
    parser.add_argument("--streams", default="1,2,4,8,16")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--record", type=Path, default=Path(__file__).with_name("many-streams.json"))
    parser.add_argument("--conditions", help="what else the machine was doing, for the record")
    parser.add_argument("--detect", default="", metavar="WORDS", help="more options of `lstr detect`")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        name, model, weights = choose(options, Path(folder))
        videos = options.videos or rendered(Path(folder), 240)
        made = [make_film(video, options.seconds + SETTLING, FPS) for video in videos]
        about = {"weights": weights, "videos": [video.name for video in videos] if options.videos else "drawn"}
        if options.conditions:
            about["conditions"] = options.conditions
        for n in map(int, options.streams.split(",")):
            films = [made[i % len(made)] for i in range(n)]
            rows.append({"seconds": options.seconds, **run(model, films, options.seconds, shlex.split(options.detect))})
            write_json(options.record, merged(options.record, name, about, rows))
            print(table(name, rows[-1:]), flush=True)


if __name__ == "__main__":
    main()
