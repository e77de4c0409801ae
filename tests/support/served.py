"""Loopback servers, pipes and RTSP cameras that send what a test lists, for live sources."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import sleep
from typing import BinaryIO

TS_HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n"
SDP = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nt=0 0\r\nm=video 0 RTP/AVP 33\r\na=control:track1\r\n"
RTP_BYTES = 7 * 188  # MPEG-TS in an RTP packet
Part = bytes | float | Callable[[], object]
"""Bytes to send, seconds to sleep, or a function that waits for something."""


def free_port() -> int:
    """Return a free port; a server that starts again may not get the default one, which other tests take too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def _thread(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` in a thread; wait up to 5 s for its end."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(5)


@contextmanager
def _listening(answer: Callable[[socket.socket, object], None], parts: Sequence, port: int = 0) -> Iterator[int]:
    """Yield the port of a server that answers one connection for each of `parts`; port 0 is a free one."""

    def work() -> None:
        for part in parts:
            with suppress(OSError):
                answer(server.accept()[0], part)
        server.close()

    server = socket.create_server(("127.0.0.1", port))
    with _thread(work):
        try:
            yield server.getsockname()[1]
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()


@contextmanager
def served(*connections: list[Part | None], head: bytes | None = None) -> Iterator[int]:
    """Yield a port where each connection in turn gets its parts and is closed; later ones are refused.

    With `head` it answers a request. With None as the last part, a connection stays open.
    """
    ended, accepted = threading.Event(), []

    def answer(connection: socket.socket, parts: list[Part | None]) -> None:
        accepted.append(connection)
        with suppress(OSError):
            if head:
                connection.recv(65536)
                connection.sendall(head)
            _send(connection.sendall, parts, ended)
        if not parts or parts[-1] is not None:
            connection.close()

    with _listening(answer, connections) as port:
        try:
            yield port
        finally:
            ended.set()
            for connection in accepted:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                    connection.close()


@contextmanager
def piped(*parts: Part | None) -> Iterator[BinaryIO]:
    """Yield the reading end of a pipe that gets the parts; None as the last part keeps it open."""
    end, start = os.pipe()
    ended = threading.Event()

    def work() -> None:
        with suppress(OSError), os.fdopen(start, "wb", buffering=0) as file:
            _send(file.write, parts, ended)
            if parts[-1] is None:
                ended.wait()

    with _thread(work), os.fdopen(end, "rb") as file:
        try:
            yield file
        finally:
            ended.set()


def _send(send: Callable[[bytes], object], parts: Sequence[Part | None], ended: threading.Event) -> None:
    for part in parts:
        if ended.is_set():
            return
        if isinstance(part, bytes):
            send(part)
        elif callable(part):
            part()
        elif part is not None:
            sleep(part)


@contextmanager
def camera(*plays: bytes, port: int = 0) -> Iterator[int]:
    """Yield the port of an RTSP camera that plays MPEG-TS over its connection (RFC 2326, 10.12), once per client."""

    def answer(connection: socket.socket, data: bytes) -> None:
        with connection, connection.makefile("rb") as lines:
            while request := lines.readline().decode().split():
                headers = dict(line.split(": ", 1) for line in iter(lambda: lines.readline().decode().strip(), ""))
                body = SDP if request[0] == "DESCRIBE" else b""
                reply = {"CSeq": headers["CSeq"], "Session": "1", "Content-Length": str(len(body))}
                if body:
                    reply["Content-Type"] = "application/sdp"
                elif request[0] == "SETUP":
                    reply["Transport"] = "RTP/AVP/TCP;unicast;interleaved=0-1"
                head = "".join(f"{name}: {value}\r\n" for name, value in reply.items())
                connection.sendall(f"RTSP/1.0 200 OK\r\n{head}\r\n".encode() + body)
                if request[0] == "PLAY":
                    break
            for number, start in enumerate(range(0, len(data), RTP_BYTES)):
                header = struct.pack(">BBHII", 0x80, 33, number % 65536, number * 900, 1)
                packet = header + data[start : start + RTP_BYTES]
                connection.sendall(b"$\0" + struct.pack(">H", len(packet)) + packet)

    with _listening(answer, plays, port) as port:
        yield port
