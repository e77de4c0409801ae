"""An endless stream on loopback, sent as fast as it is taken, detected for half an hour; writes the record.

python benchmarks/endless.py -c CHECKPOINT VIDEO [--minutes 30]

A second process repeats the packets of VIDEO, its clock going on, as MPEG-TS over TCP. Whole chunks that the networks
have no time for are dropped. Memory, threads and open files of the detecting process are looked at each second; memory
may grow by GROWTH_MB after the first minute, and each chunk of the stream must be decided or accounted for.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic

import av
import numpy as np

from lstr.extractors.video.live_input import parse_live
from lstr.extractors.video.live_reader import LiveOptions
from lstr.pipelines.detection.checkpoint import load_checkpoint
from lstr.pipelines.detection.events import Decided, Ended
from lstr.pipelines.detection.files import OutputOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

GROWTH_MB = 20


def send(video: Path, port: int) -> None:
    """Send a video again and again, until nobody listens."""
    with suppress(OSError, av.error.FFmpegError), av.open(f"tcp://127.0.0.1:{port}", "w", format="mpegts") as output:
        stream, offset, length = None, 0, 0
        while True:
            with av.open(str(video)) as container:
                source = container.streams.video[0]
                stream = stream or output.add_stream_from_template(source)
                first = None
                for packet in container.demux(source):
                    if packet.dts is None:
                        continue
                    first = packet.dts if first is None else first
                    length = packet.dts + packet.duration - first
                    packet.pts += offset
                    packet.dts += offset
                    packet.stream = stream
                    output.mux(packet)
            offset += length


class Watch(threading.Thread):
    """Memory (MB), threads and open files of this process, once a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float, int, int]] = []
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look until stopped."""
        start, page = monotonic(), resource.getpagesize()
        while not self._stopped.wait(1):
            held = int(Path("/proc/self/statm").read_text().split()[1]) * page / 2**20
            self.samples.append((monotonic() - start, held, threading.active_count(), len(os.listdir("/proc/self/fd"))))

    def stop(self) -> np.ndarray:
        """The samples (n, 4): seconds, MB, threads, files."""
        self._stopped.set()
        self.join()
        return np.array(self.samples)


def detect(checkpoint: str, video: Path, seconds: float, output: Path) -> tuple[dict, np.ndarray]:
    """The timeline of that much of an endless stream, and what was seen of the process meanwhile."""
    loaded = load_checkpoint(checkpoint)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listening = parse_live(f"tcp://127.0.0.1:{port}?listen")
    written = OutputOptions(output, ("json", "jsonl", "npy"))
    with Session(loaded, live=LiveOptions(on_lag="drop"), output=written) as session:
        name = session.add(listening)
        sender = subprocess.Popen([sys.executable, __file__, str(video), "--send", str(port)])
        try:
            watch, end, samples = Watch(), None, np.empty((0, 4))
            for event in session.events():
                if isinstance(event, Ended):
                    return event.timeline, samples
                if not isinstance(event, Decided):
                    continue
                if end is None:
                    watch.start()
                    end = monotonic() + seconds
                if monotonic() > end and watch.is_alive():
                    samples = watch.stop()
                    session.remove(name)
            raise RuntimeError("the stream ended without a timeline")
        finally:
            sender.kill()
            sender.wait()


def account(timeline: dict, output: Path, name: str) -> dict:
    """Chunks by what became of them, counted in each of the files."""
    lines = [json.loads(line) for line in (output / f"{name}.jsonl").read_text().splitlines()]
    decided = [line["chunk"] for line in lines if "chunk" in line]
    missing = sum(line["chunks"] for line in lines if "gap" in line)
    live = timeline["live"]
    assert timeline["decided"] == len(decided) == len(set(decided))
    assert timeline["chunks"] == decided[-1] + 1 == len(decided) + missing
    assert np.isnan(np.load(output / f"{name}.scores.npy")[:, 0]).sum() == missing
    gaps = sum(round((gap["end"] - gap["start"]) / timeline["seconds_per_chunk"]) for gap in timeline["gaps"])
    assert gaps == missing
    return {"chunks": timeline["chunks"], "decided": len(decided), "dropped_or_unseen": missing, **live}


def main() -> None:
    """Parse, run, write the record, and print whether the promise holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("-c", "--checkpoint")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--record", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--conditions", help="what else the machine was doing, for the record")
    parser.add_argument("--send", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send:
        return send(options.video, options.send)
    with tempfile.TemporaryDirectory() as folder:
        timeline, samples = detect(options.checkpoint, options.video, options.minutes * 60, Path(folder))
        (name,) = (path.stem for path in Path(folder).glob("*.jsonl"))
        counts = account(timeline, Path(folder), name)
    later = samples[samples[:, 0] >= 60]
    growth = float(later[:, 1].max() - later[0, 1])
    minutes = samples[:: max(1, len(samples) // round(max(1, options.minutes)))]
    write_json(
        options.record,
        {
            **about_machine(pyav=av.__version__),
            "weights": "random",
            **({"conditions": options.conditions} if options.conditions else {}),
            "minutes": options.minutes,
            "chunks": counts,
            "speed": timeline["speed"],
            "after_the_first_minute": {
                "growth_mb": round(growth, 1),
                "threads": [int(later[:, 2].min()), int(later[:, 2].max())],
                "open_files": [int(later[:, 3].min()), int(later[:, 3].max())],
            },
            "each_minute_mb": [round(float(sample), 1) for sample in minutes[:, 1]],
        },
    )
    print(f"memory grew by {growth:.1f} MB after the first minute, of {GROWTH_MB} allowed")
    if growth > GROWTH_MB:
        sys.exit(1)


if __name__ == "__main__":
    main()
