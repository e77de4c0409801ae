"""A small web server for browsers of this machine, and the requests and responses that served pages share.

It listens on loopback with a token in the address. For any other use a reverse proxy goes in front: TLS, users, slow or
hostile clients and limits are its work.
"""

import errno
import socket
import threading
from collections.abc import AsyncIterator, Sequence

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp

from lstr.errors import ServingError
from lstr.pipelines.pages.guard import Guard, KeptAddress, new_token

# Tried first, so that the address is the same the next time
PORT = 8420
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY = ("0.0.0.0", "::")
END_TIMEOUT_S = 4.0  # a server that does not end within it ends with the process
MAX_HEADER_BYTES = 32 * 1024
POLL_S = 0.2
# A page has a policy of its own, which cannot say this.
PAGE_POLICY = {"content-security-policy": "frame-ancestors 'none'"}


class Server:
    """A web application on an address of this machine; use it as a context manager.

    Attributes:
        address: What a browser opens, token included.
        port: The port.
        ending: Set when it is to end, for responses that never end by themselves.

    Args:
        app: The application.
        host: Where it listens.
        port: None takes the port of `kept`, else PORT, else a free one.
        kept: The address that the page had before, whose token stays.
        hosts: More names by which browsers reach it, with a port if it is not the usual one.
        trusts_proxy: See Guard.
        open_paths: Paths that are answered without a token.

    Raises:
        ServingError: The port is not available, or a name is missing.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int | None = None,
        kept: KeptAddress | None = None,
        hosts: Sequence[str] = (),
        trusts_proxy: bool = False,
        open_paths: Sequence[str] = (),
    ):
        self._socket = _listen(host, port, kept)
        self.port = self._socket.getsockname()[1]
        token = kept.token if kept else new_token()
        if kept:
            kept.keep(self.port)
        names = [f"{one}:{self.port}" for one in ("127.0.0.1", "localhost", "[::1]")]
        names += names_of(host, self.port, hosts)
        shown = hosts[0].partition(":")[0] if host in ANY else f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/?token={token}"
        self.ending = threading.Event()
        config = uvicorn.Config(
            Guard(app, names, token, self.port, trusts_proxy, open_paths),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            http="h11",  # which limits headers
            ws="none",
            log_level="error",  # bytes that are not a request would fill the log
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            proxy_headers=False,  # uvicorn believes those of other programs of this machine
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        # an event, because a join that a signal interrupts takes a running thread for an ended one (Python 3.11)
        self._ended = threading.Event()
        # not the main thread, which receives signals and must not hand them to a library
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.ending.set()
        self._server.should_exit = True
        if self._ended.wait(END_TIMEOUT_S):
            self._socket.close()

    def wait(self) -> None:
        """Wait until it ends or a signal comes."""
        while not self._ended.wait(POLL_S):
            pass

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()


def names_of(host: str, port: int, hosts: Sequence[str]) -> list[str]:
    """Return what the Host header may be, in addition to loopback. Raises ServingError if a name is missing."""
    if not hosts and host in ANY:
        raise ServingError(
            f"By which names is a server on {host} reached?", "name them in `hosts`, for example cameras.example.org."
        )
    own = [] if host in LOOPBACK or host in ANY else [f"[{host}]" if ":" in host else host]
    names = [name.lower() for name in (*own, *hosts)]
    return [*names, *(f"{name}:{port}" for name in names)]


def _listen(host: str, port: int | None, kept: KeptAddress | None) -> socket.socket:
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
                f"Port {tried} of {host} is not available ({reason}).", "choose another port, or none."
            ) from error
    raise AssertionError  # port 0 is available or raises


def page_response(text: str) -> Response:
    """Return the response that is a page."""
    return Response(text, media_type="text/html; charset=utf-8", headers=PAGE_POLICY)


def event_stream(pieces: AsyncIterator[str]) -> Response:
    """Return a response of server-sent events."""
    headers = {"x-accel-buffering": "no"}  # a proxy that keeps pieces back would show them late
    return StreamingResponse(pieces, media_type="text/event-stream", headers=headers)


async def read_json(request: Request, max_bytes: int) -> bytes:
    """Return the body of a JSON request. Raises HTTPException for another content type or a longer body."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415)  # the form of a page of another site cannot send JSON
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > max_bytes:
            raise HTTPException(413)
    return data


async def refused(request: Request, error: Exception) -> Response:
    """Return the response to a request that raised an HTTPException: its status code and nothing else."""
    assert isinstance(error, HTTPException)
    return PlainTextResponse("", error.status_code)
