"""Loopback servers that send bytes as a test says, for sources that are read while they happen."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import sleep

TS_HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n"
Part = bytes | float | Callable[[], object]
"""Bytes to send, seconds to sleep, or something to wait for."""


@contextmanager
def served(*connections: list[Part], head: bytes | None = None) -> Iterator[int]:
    """A port of which each connection in turn gets its parts and is closed; later ones are refused.

    With `head` it answers a request. A connection whose last part is None stays open.
    """
    server = socket.create_server(("127.0.0.1", 0))
    ended, kept = threading.Event(), []

    def work() -> None:
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

    thread = threading.Thread(target=work, name="served", daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        ended.set()
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        for connection in kept:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
                connection.close()
        thread.join(5)
        server.close()


@contextmanager
def piped(*parts: Part):
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


def _send(send: Callable[[bytes], object], parts, ended: threading.Event) -> None:
    for part in parts:
        if ended.is_set():
            return
        if isinstance(part, bytes):
            send(part)
        elif callable(part):
            part()
        elif part is not None:
            sleep(part)
