"""Videos played in real time to whoever connects, as cameras with an HTTP address do: MPEG-TS, each frame at its time.

Encoding and muxing are done before anybody connects, so that playing costs next to nothing.
"""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from io import BytesIO
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

import av

from lstr.extractors.video.frames import CHUNK, n_frames_until

HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n"
CAMERA = {"preset": "veryfast", "tune": "zerolatency", "g": "60"}  # no frame waits for a later one
SIZE = (320, 240)  # pixels


class Playable(Protocol):
    """What is played to whoever connects."""

    closes: bool
    """Whether the connection ends with it."""

    def sent(self) -> Iterator[tuple[float, bytes]]:
        """Seconds from the connection to when a piece is due, and it."""
        ...


@dataclass(frozen=True)
class Film:
    """A stream that is ready to be sent: packets of MPEG-TS, a frame each, at an even rate."""

    fps: int
    packets: list[bytes]
    closes = False

    def sent(self) -> Iterator[tuple[float, bytes]]:
        """Seconds from the connection to when a frame is due, and it."""
        return ((i / self.fps, packet) for i, packet in enumerate(self.packets))

    def closing(self, chunk: int) -> float:
        """Seconds from the first frame to the one that closes a chunk, which is the first of a later chunk."""
        frame = (chunk + 1) * CHUNK * self.fps // 24 - 2
        while n_frames_until(Fraction(frame, self.fps)) < (chunk + 1) * CHUNK:
            frame += 1
        return frame / self.fps


class Taken(BytesIO):
    """What was written since the last look."""

    def take(self) -> bytes:
        """It, which is then gone."""
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        return data

    def seekable(self) -> bool:
        """A stream is sent once."""
        return False


def make_film(video: Path, seconds: float, fps: int) -> Film:
    """A video as a camera would send it, from its beginning again and again until the seconds are full."""
    count = round(seconds * fps)
    once = _encoded(video, count, fps)
    written, packets = Taken(), []
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
    """At most so many frames of a video, at the size and in the manner of a camera."""
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
    """Films by their numbers, at http://127.0.0.1:PORT/NUMBER; `began` has the time at which each one's play began.

    On the monotonic clock; a film that is requested twice begins anew, and counts in `visits`.
    """

    port: int
    began: dict[int, float] = field(default_factory=dict)
    visits: dict[int, int] = field(default_factory=dict)
    late: float = 0.0
    """Seconds after its time at which a frame was handed to the network, at most: the server's own lateness, or that of
    a client which takes nothing."""

    def address(self, number: int) -> str:
        """What a client opens."""
        return f"http://127.0.0.1:{self.port}/{number}"


@contextmanager
def playing(films: Sequence[Playable] | Mapping[int, Playable]) -> Iterator[Server]:
    """A server that plays until the end of the context: each film from its first frame on to whoever connects."""
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
            for due, packet in films[number].sent():
                if (wait := start + due - monotonic()) > 0:
                    sleep(wait)
                connection.sendall(packet)
                server.late = max(server.late, monotonic() - start - due)
                if ended.is_set():
                    return
            if not films[number].closes:
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
