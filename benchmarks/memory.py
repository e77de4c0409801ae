"""Peak memory of extraction on long videos against a ten-second one, in processes of their own; writes the record.

python benchmarks/memory.py LONG_1080P_VIDEO [--every 40]

Makes, without encoding again, a ten-second cut of the video and an hour of repetitions of it. The cut and the
video itself go through `lstr extract`. The hour is thinned: all of it is decoded, but only one chunk in so many has
its flow computed and goes through both networks; it is held against the cut in the same program, with every chunk, so
that batches are as large. Flow is DIS, the networks are random. The peak is the most that a job and the processes it
starts held together, sampled ten times a second.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import av

from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.file_reader import open_chunks
from lstr.extractors.video.probe import probe
from lstr.extractors.weights.sources import WeightSources
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

ALLOWED_MB = 300
SAMPLE_SECONDS = 0.1


def repeat(source: Path, target: Path, seconds: float) -> None:
    """Copy the packets of a video's first video stream, again and again, until `seconds` are full."""
    with av.open(str(target), "w") as output:
        stream, offset = None, 0
        while True:
            with av.open(str(source)) as container:
                source_stream = container.streams.best("video")
                stream = stream or output.add_stream_from_template(source_stream)
                length = 0
                for packet in container.demux(source_stream):
                    if packet.dts is None:
                        continue
                    length = max(length, packet.dts + packet.duration)
                    if (offset + packet.dts) * packet.time_base >= seconds:
                        return
                    packet.pts += offset
                    packet.dts += offset
                    packet.stream = stream
                    output.mux(packet)
            offset += length


def resident_mb(pid: int) -> float:
    """Megabytes that a process and its children hold now; 0 when it is gone."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 2**20


def watch(command: list[str]) -> dict:
    """Run a command to its end: its seconds, and the peak of what it held."""
    start, peak = time.monotonic(), 0.0
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, resident_mb(process.pid))
        time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        sys.exit(f"{' '.join(command)} left with {process.returncode}")
    return {"seconds": round(time.monotonic() - start, 1), "peak_mb": round(peak, 1)}


def whole(video: Path, output: Path) -> list[str]:
    """The command that extracts a video."""
    job = [sys.executable, "-m", "lstr_cli.main", "extract", str(video), "-o", str(output)]
    return [*job, "--recipe", "fast", "--flow", "dis"]


def thin(video: Path, every: int) -> None:
    """Decode a video whole; one chunk in `every` has its flow computed and goes through the networks."""
    twostream = build_twostream(replace(PRESETS["fast"], flow_algorithm="dis"), WeightSources(), "cpu", "float32")
    chunks = open_chunks(video, twostream.recipe.long_side)[2]
    with FlowWorkers(2, "dis") as workers:
        for _ in twostream.rows((chunk for chunk in chunks if chunk.index % every == 0), workers):
            pass


def main() -> None:
    """Measure the three lengths and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("--every", type=int, default=40, help="chunks of the hour, one of which has features")
    parser.add_argument("--thin", action="store_true", help="only do what is measured on the hour, on VIDEO")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("extract-memory.json"))
    options = parser.parse_args()
    if options.thin:
        return thin(options.video, options.every)
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        cut, hour = Path(folder, "cut.mp4"), Path(folder, "hour.mp4")
        repeat(options.video, cut, 10)
        repeat(options.video, hour, 3600)
        thinned = [sys.executable, __file__, "--thin", "--every"]
        for name, video, command in (
            ("ten seconds", cut, whole(cut, Path(folder, "a"))),
            ("as given", options.video, whole(options.video, Path(folder, "b"))),
            ("ten seconds, float32", cut, [*thinned, "1", str(cut)]),
            ("one hour, float32, thinned", hour, [*thinned, str(options.every), str(hour)]),
        ):
            seen = probe(video)
            facts = {"seconds_of_video": round(seen.duration, 2), "source_frames": len(seen.ticks)}
            measured[name] = {**facts, "chunks": seen.n_chunks, **watch(command)}
            print(name, measured[name], flush=True)
    peak = {name: entry["peak_mb"] for name, entry in measured.items()}
    record = {
        "what": "lstr extract --recipe fast --flow dis: decoding, flow, both networks, writing",
        "thinned": f"every frame decoded; DIS flow and both networks, float32, on one chunk in {options.every}",
        "video": f"{options.video.name}, {seen.width}x{seen.height}",
        "hour": "the same packets repeated, not encoded again",
        "measured": measured,
        "more_than_ten_seconds_mb": {
            "as given": round(peak["as given"] - peak["ten seconds"], 1),
            "one hour, thinned": round(peak["one hour, float32, thinned"] - peak["ten seconds, float32"], 1),
        },
        "allowed_mb": ALLOWED_MB,
        **about_machine(av=av.__version__),
        "note": "peaks in units of 2**20 bytes",
    }
    write_json(options.output, record)


if __name__ == "__main__":
    main()
