"""A small server, for this machine's own browsers unless others are let in; it ends within seconds of being told to."""

import asyncio
import errno
import socket
import threading
from collections.abc import Sequence
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from lstr.errors import ServingError
from lstr.pipelines.pages.guard import Guard, KeptAddress, new_token

# Tried first, so that the address is the same the next time.
PORT = 8420
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY = ("0.0.0.0", "::")
# After which a server that does not end by itself is left to end with the process.
END_SECONDS = 4.0
# Milliseconds after which a connection is closed whose other end takes nothing of what was sent to it.
UNREAD_MS = 30_000
MOST_HEADER_BYTES = 32 * 1024
# Connections that are accepted at once, before any of them can be closed again.
BACKLOG = 64
GLANCE = 0.2  # seconds between two looks at whether the server still runs
# Open at once; each is a file of this process, which has others to open.
MAX_CONNECTIONS = 256
# Within which all of a request has come, from the connection or from its first byte on.
REQUEST_SECONDS = 20.0
COMING = (h11.IDLE, h11.SEND_BODY)


class Server:
    """An application on an address of this machine; `address` is what a browser opens, token included.

    port: None takes that of `kept`, else PORT, else another that is free. kept: the address that the page had before,
    whose token stays. hosts: names by which browsers reach it beside those of loopback and `host`, with a port if that
    is another one than the server's and the usual ones. trusts_proxy: see Guard. is_impatient: connections whose other
    end takes nothing for UNREAD_MS are closed; not for long films, which browsers read as they play. `ending` is set
    when it is to end, for answers that never end by themselves. open_paths: what is answered without a token. Raises
    ServingError.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int | None = None,
        kept: KeptAddress | None = None,
        hosts: Sequence[str] = (),
        trusts_proxy: bool = False,
        is_impatient: bool = False,
        open_paths: Sequence[str] = (),
    ):
        self._socket = _listening(host, port, kept)
        if is_impatient and hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from their listener
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
        self.port = self._socket.getsockname()[1]
        token = kept.token if kept else new_token()
        if kept:
            kept.keep(self.port)
        names = [f"{one}:{self.port}" for one in ("127.0.0.1", "localhost", "[::1]")]
        names += names_of(host, self.port, hosts)
        self.address = f"http://{_shown(host, hosts)}:{self.port}/?token={token}"
        self.ending = threading.Event()
        config = uvicorn.Config(
            Guard(app, names, token, self.port, trusts_proxy, open_paths),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            http=Connection,  # of h11, whose headers are limited
            ws="none",
            backlog=BACKLOG,
            log_level="error",  # whoever sends what is no request would fill the log
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            proxy_headers=False,  # which are believed of this machine's other programs otherwise
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

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.server_state.connections)

    def wait(self) -> None:
        """Until it ends, or a signal comes."""
        while not self._ended.wait(GLANCE):
            pass

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()


def names_of(host: str, port: int, hosts: Sequence[str]) -> list[str]:
    """What Host may be beside the names of loopback. Raises ServingError where nothing says so."""
    own = [] if host in LOOPBACK or host in ANY else [f"[{host}]" if ":" in host else host]
    if not hosts and host in ANY:
        raise ServingError(
            f"By which names is a server on {host} reached?", "name them in `hosts`, for example cameras.example.org."
        )
    names = [name.lower() for name in (*own, *hosts)]
    return [*names, *(f"{name}:{port}" for name in names)]


def _shown(host: str, hosts: Sequence[str]) -> str:
    """The name in the address that is told."""
    if host in ANY:
        return hosts[0].partition(":")[0]
    return f"[{host}]" if ":" in host else host


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
            raise ServingError(
                f"Port {tried} of {host} cannot be had ({reason}).", "choose another port, or none."
            ) from error
    raise AssertionError  # port 0 is had or raises


class Connection(H11Protocol):
    """One of them. It is closed where its request does not come to an end, and sooner where there are too many."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > MAX_CONNECTIONS:  # the one that has asked nothing for longest makes room
            waiting = [one for one in self.connections if isinstance(one, Connection) and one._limit]
            min(waiting, key=lambda one: one._limit.when() if one._limit else 0.0)._cut_off()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        """What is asked is there, or has a limit. While nothing is asked, uvicorn closes what was used before."""
        if self.conn.their_state not in COMING:
            self._forget()
        elif self._limit is None and not self.transport.is_closing():
            self._limit = self.loop.call_later(REQUEST_SECONDS, self._cut_off)

    def _cut_off(self) -> None:
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        if self._limit:
            self._limit.cancel()
            self._limit = None
