"""Loopback servers that send what a test lists, for sources that are read while they happen."""

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
PACKETS = 7 * 188  # bytes of MPEG-TS in an RTP packet
Part = bytes | float | Callable[[], object]
"""Bytes to send, seconds to sleep, or something to wait for."""


@contextmanager
def served(*connections: list[Part | None], head: bytes | None = None) -> Iterator[int]:
    """A port of which each connection in turn gets its parts and is closed; later ones are refused.

    With `head` it answers a request. A connection whose last part is None stays open.
    """
    ended, kept = threading.Event(), []

    def work(server: socket.socket) -> None:
        for parts in connections:
            with suppress(OSError):
                connection, _ = server.accept()
                kept.append(connection)
                if head:
                    connection.recv(65536)
                    connection.sendall(head)
                _send(connection.sendall, parts, ended)
                if not parts or parts[-1] is not None:
                    connection.close()
        server.close()

    with _listening(work) as port:
        try:
            yield port
        finally:
            ended.set()
            for connection in kept:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                    connection.close()


@contextmanager
def _listening(work: Callable[[socket.socket], None], port: int = 0) -> Iterator[int]:
    """The port of a server that a thread works for; both end with the context. Port 0 is a free one."""
    server = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=work, args=(server,), name="server", daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


@contextmanager
def piped(*parts: Part | None) -> Iterator[BinaryIO]:
    """The reading end of a pipe that gets the parts; closed at the end unless the last part is None."""
    end, start = os.pipe()
    ended = threading.Event()

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(start, view) :]

    def work() -> None:
        with suppress(OSError):
            _send(write, parts, ended)
        if parts[-1] is None:
            ended.wait()
        os.close(start)

    thread = threading.Thread(target=work, name="piped", daemon=True)
    thread.start()
    file = os.fdopen(end, "rb")
    try:
        yield file
    finally:
        ended.set()
        file.close()
        thread.join(5)


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
    """The port of an RTSP camera, which plays MPEG-TS over its connection (RFC 2326, 10.12), once for each visitor."""

    def visit(connection: socket.socket, data: bytes) -> None:
        lines = connection.makefile("rb")
        while request := lines.readline().decode().split():
            headers = dict(line.split(": ", 1) for line in iter(lambda: lines.readline().decode().strip(), ""))
            reply, body = {"CSeq": headers["CSeq"], "Session": "1"}, b""
            if request[0] == "DESCRIBE":
                body = SDP
                reply["Content-Type"] = "application/sdp"
            elif request[0] == "SETUP":
                reply["Transport"] = "RTP/AVP/TCP;unicast;interleaved=0-1"
            reply["Content-Length"] = str(len(body))
            head = "".join(f"{name}: {value}\r\n" for name, value in reply.items())
            connection.sendall(f"RTSP/1.0 200 OK\r\n{head}\r\n".encode() + body)
            if request[0] == "PLAY":
                break
        for number, start in enumerate(range(0, len(data), PACKETS)):
            header = struct.pack(">BBHII", 0x80, 33, number % 65536, number * 900, 1)
            packet = header + data[start : start + PACKETS]
            connection.sendall(b"$\0" + struct.pack(">H", len(packet)) + packet)

    def work(server: socket.socket) -> None:
        for data in plays:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    visit(connection, data)
        server.close()

    with _listening(work, port) as port:
        yield port
