"""Measure how many live streams one machine can process: `lstr detect` on N simulated cameras in real time.

python benchmarks/many_streams.py --model live=MODEL.lstr [--streams 1,2,4,8,16] [--seconds 60] [VIDEO…]
python benchmarks/many_streams.py --model live=MODEL.lstr --streams 8 --seconds 600      eight for ten minutes
python benchmarks/many_streams.py --recipe fast          networks and model with random weights, at the recipe's cost

A server in this process sends 320×240 at 30 FPS as MPEG-TS, each frame on time, from the same cores. All cameras start
together, so their chunks are complete at the same time, which is harder than with real cameras. The lag of a decision
is the time from sending the last frame of its chunk to the arrival of its line. The first seconds, in which the
processes start, count neither for lag nor for processor time.
"""

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from io import BytesIO
from itertools import islice
from pathlib import Path
from time import monotonic, process_time, sleep

import av
import numpy as np
import torch

from lstr import checkpoint
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import CHUNK, CHUNK_SECONDS, n_frames_until
from lstr.files.content import write_json
from lstr.kinds import configure, make_model
from lstr.pipelines.bench import rendered
from lstr.pipelines.provenance import about_machine, peak_memory_mb

FPS = 30
SETTLING = 5.0  # seconds of each stream, from its first frame on
N_CLASSES = 22
TICK = os.sysconf("SC_CLK_TCK")
HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n"
CAMERA = {"preset": "veryfast", "tune": "zerolatency", "g": "60"}  # no frame waits for a later one
SIZE = (320, 240)  # pixels


@dataclass(frozen=True)
class Film:
    """A stream that is ready to be sent: MPEG-TS packets, one per frame, at a constant rate."""

    fps: int
    packets: list[bytes]

    def schedule(self) -> Iterator[tuple[float, bytes]]:
        """Yield packets with the seconds from the connection at which each is due."""
        return ((i / self.fps, packet) for i, packet in enumerate(self.packets))

    def closing(self, chunk: int) -> float:
        """Return the seconds from the first frame to the one that completes a chunk, the first of a later chunk."""
        frame = (chunk + 1) * CHUNK * self.fps // 24 - 2
        while n_frames_until(Fraction(frame, self.fps)) < (chunk + 1) * CHUNK:
            frame += 1
        return frame / self.fps


class PacketBuffer(BytesIO):
    """A stream that returns what was written since the last call of `take`."""

    def take(self) -> bytes:
        """Return the written bytes and clear the buffer."""
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        return data

    def seekable(self) -> bool:
        """Return False: a stream is sent once."""
        return False


def make_film(video: Path, seconds: float, fps: int) -> Film:
    """Return a video as a camera sends it, repeated until it lasts `seconds`."""
    count = round(seconds * fps)
    once = _encoded(video, count, fps)
    written, packets = PacketBuffer(), []
    with av.open(once) as source, av.open(written, "w", format="mpegts", options={"flush_packets": "1"}) as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        while len(packets) < count:
            source.seek(0)
            for packet in islice(source.demux(video=0), count - len(packets)):
                if packet.dts is None:
                    continue
                packet.time_base = Fraction(1, fps)
                packet.pts = packet.dts = len(packets)
                packet.duration = 1
                packet.stream = stream
                output.mux(packet)
                packets.append(written.take())
    return Film(fps, packets)


def _encoded(video: Path, most: int, fps: int) -> BytesIO:
    """Encode up to `most` frames of a video at the size and with the settings of a camera."""
    file = BytesIO()
    with av.open(str(video)) as source, av.open(file, "w", format="matroska") as output:
        stream = output.add_stream("libx264", rate=fps, options=CAMERA)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, fps)
        for number, picture in enumerate(islice(source.decode(video=0), most)):
            frame = picture.reformat(*SIZE, format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, fps)
            frame.pict_type = av.video.frame.PictureType.NONE
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    file.seek(0)
    return file


@dataclass
class Server:
    """Films by number, at http://127.0.0.1:PORT/NUMBER; `began` has the start of each playback.

    Times are monotonic. A film that is requested again starts over, and counts in `visits`.
    """

    port: int
    began: dict[int, float] = field(default_factory=dict)
    visits: dict[int, int] = field(default_factory=dict)
    late: float = 0.0
    """Seconds after its time at which a frame was handed to the network, at most: the server's own lateness, or that of
    a client which takes nothing."""

    def address(self, number: int) -> str:
        """Return the address that a client opens."""
        return f"http://127.0.0.1:{self.port}/{number}"


@contextmanager
def playing(films: Sequence[Film]) -> Iterator[Server]:
    """Serve films until the end of the context; each plays from its first frame to whatever client connects."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = Server(listening.getsockname()[1])
    ended = threading.Event()

    def play(connection: socket.socket) -> None:
        with connection, suppress(OSError, ConnectionError):
            number = int(connection.recv(65536).split()[1].strip(b"/"))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(HEAD)
            server.began[number] = start = monotonic()
            server.visits[number] = server.visits.get(number, 0) + 1
            for due, packet in films[number].schedule():
                if (wait := start + due - monotonic()) > 0:
                    sleep(wait)
                connection.sendall(packet)
                server.late = max(server.late, monotonic() - start - due)
                if ended.is_set():
                    return
            ended.wait()

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=play, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        ended.set()
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()


@dataclass
class Streams:
    """The measurements of one run: lags by stream in seconds, and missing chunks by reason."""

    lags: dict[int, list[float]] = field(default_factory=dict)
    missing: Counter = field(default_factory=Counter)
    decided: int = 0
    window: list[tuple[float, float, int]] = field(default_factory=list)
    """Once a second from the first settled decision on: wall time, processor time of the detection, decisions."""
    first: float | None = None
    """Seconds from the start of the command to the first line."""
    peak_memory_mb: float = 0.0


def random_checkpoint(recipe: str, path: Path) -> Path:
    """Write a model of the paper's size and networks of a recipe with random weights, which cost the same."""
    torch.manual_seed(0)
    twostream = build_twostream(PRESETS[recipe], WeightSources(), "cpu")
    model = make_model(configure(), N_CLASSES)
    classes = ["Background", *(f"action {c}" for c in range(1, N_CLASSES))]
    checkpoint.save(path, model, classes, twostream.recipe.to_dict(), {})
    return path


def follow(process: subprocess.Popen, server: Server, films: list[Film]) -> Streams:
    """Read the lines of a detection as they are written."""
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
            streams.peak_memory_mb = peak_memory_mb(Path(f"/proc/{process.pid}/status"))
    return streams


def processor_seconds(pid: int) -> float:
    """Return the processor time of a running process."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICK


def percentiles(lags: list[float]) -> dict[str, float]:
    """Return the percentiles of lags in milliseconds."""
    return {name: round(float(np.percentile(lags, q)) * 1000, 1) for name, q in (("p50", 50), ("p95", 95), ("p99", 99))}


def run(model: Path, films: list[Film], seconds: float, options: list[str], python: str = sys.executable) -> dict:
    """Detect on these films for some seconds; return the row of the record."""
    own = process_time()
    with playing(films) as server:
        addresses = [server.address(number) for number in range(len(films))]
        command = [python, "-m", "lstr_cli", "detect", *addresses, "-m", str(model), "-f", "jsonl"]
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
    """Return the rows as a text table."""
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
    """Return the name, file and kind of weights of the model."""
    if options.recipe:
        return options.recipe, random_checkpoint(options.recipe, folder / "random.pt"), "random"
    name, _, path = options.model.partition("=")
    return name, Path(path), "trained"


def merged(record: Path, name: str, about: dict, rows: list[dict]) -> dict:
    """Return the record with these rows; they replace rows with the same name, streams and seconds."""
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
