"""A small server for this machine's own browsers, which ends within seconds of being told to."""

import errno
import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from lstr.errors import LstrError
from lstr.pipelines.serving.guard import Guard, new_token
from lstr.pipelines.serving.kept_address import KeptAddress

PORT = 8420
"""Tried first, so that the address is the same the next time."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
END_SECONDS = 4.0
"""After which a server that does not end by itself is left to end with the process."""
GLANCE = 0.2  # seconds between two looks at whether the server still runs


class ServingError(LstrError):
    """An address that cannot be served on."""

    exit_code = 2


class Server:
    """An application on a loopback address; `address` is what a browser opens, token included.

    host: one of LOOPBACK. port: None takes that of `kept`, else PORT, else another that is free. kept: the address that
    the page had before, whose token stays. `ending` is set when it is to end, for answers that never end by themselves.
    Raises ServingError.
    """

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", port: int | None = None, kept: KeptAddress | None = None):
        if host not in LOOPBACK:
            raise ServingError(
                f"{host} is no address of this machine alone.", "leave out [[host]]; only 127.0.0.1 and ::1 are served."
            )
        self._socket = _listening(host, port, kept)
        self.port = self._socket.getsockname()[1]
        token = kept.token if kept else new_token()
        if kept:
            kept.keep(self.port)
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self.port}/?token={token}"
        self.ending = threading.Event()
        hosts = [f"{one}:{self.port}" for one in ("127.0.0.1", "localhost", "[::1]")]
        config = uvicorn.Config(
            Guard(app, hosts, token, self.port),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        # an event, for a join that a signal interrupts takes a thread that runs for one that has ended (Python 3.11)
        self._ended = threading.Event()
        # not in the main thread, which hears signals and must not hand them to a library
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.ending.set()
        self._server.should_exit = True
        if self._ended.wait(END_SECONDS):
            self._socket.close()

    def wait(self) -> None:
        """Until it ends, or a signal comes."""
        while not self._ended.wait(GLANCE):
            pass

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()


def _listening(host: str, port: int | None, kept: KeptAddress | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    usual = [kept.port] if kept and kept.port else []
    usual += [] if kept and PORT in kept.others else [PORT]
    for tried in (*usual, 0) if port is None else (port,):
        try:
            return socket.create_server((host, tried), family=family)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None and tried:
                continue
            reason = error.strerror or str(error)
            raise ServingError(f"Port {tried} of {host} cannot be had ({reason}).", "leave out [[port]].") from error
    raise AssertionError  # port 0 is had or raises
