"""A small web server for browsers of this machine, and the requests and responses that served pages share.

It listens on loopback with a token in the address. For any other use a reverse proxy goes in front: TLS, users, slow or
hostile clients and limits are its work.

A page of another site can send requests to 127.0.0.1 too. It cannot read the token; the Origin header names that site;
and so does the Host header if its name resolves to 127.0.0.1 (DNS rebinding). Each of the three is refused.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs

import msgspec
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lstr.errors import RequestError, ServingError
from lstr.files.atomic import temporary_for

# Tried first, so that the address is the same the next time
PORT = 8420
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY = ("0.0.0.0", "::")
END_TIMEOUT_S = 4.0  # a server that does not end within it ends with the process
MAX_HEADER_BYTES = 32 * 1024
POLL_S = 0.2
TOKEN = re.compile(r"[A-Za-z0-9_-]{32,64}")
# Headers of every response that does not set its own
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
# A page has a policy of its own, which cannot say this.
PAGE_POLICY = {"content-security-policy": "frame-ancestors 'none'"}
UNKNOWN = "Open the address that the command has printed, with everything after the question mark.\n"
Body = TypeVar("Body")


class SavedAddress:
    """The token and the port of the page of a file, which stay the same when its server is started again.

    With a new token an open tab would lose its unsent changes. Both are saved in `folder`, in a file that only its
    owner can read, not next to the labels, which people send to each other. Deleting it makes the next address a new
    one. No two files share a port: a tab of one would send its changes to the other.
    """

    def __init__(self, of: Path, folder: Path):
        self.of = of.absolute().resolve()
        self.path = folder / f"{hashlib.sha256(os.fsencode(self.of)).hexdigest()[:32]}.json"
        token, self.port = _read_address(self.path)
        self.token = token or secrets.token_urlsafe(24)
        self.others = {_read_address(other)[1] for other in folder.glob("*.json") if other != self.path}

    def save(self, port: int) -> None:
        """Write it for the next time; if the folder cannot be written, the next address is a new one."""
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary_for(self.path) as temporary:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                with open(descriptor, "w", encoding="utf-8") as file:
                    os.fchmod(descriptor, 0o600)  # before the token is in it
                    json.dump({"file": str(self.of), "token": self.token, "port": port}, file)


def _read_address(path: Path) -> tuple[str, int | None]:
    """Return a saved token and port; none if others could have read or written the file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077 or not stat.S_ISREG(about.st_mode):
                return "", None
            content = json.load(file)
        token, port = content["token"], content["port"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return "", None
    is_token = isinstance(token, str) and TOKEN.fullmatch(token)
    return token if is_token else "", port if isinstance(port, int) and 0 < port < 2**16 else None


class Server:
    """A web application on an address of this machine; use it as a context manager.

    The first request with the token gets it as a cookie, which later requests send.

    Attributes:
        address: What a browser opens, token included.
        port: The port.
        ending: Set when it is to end, for responses that never end by themselves.

    Args:
        app: The application.
        host: Where it listens.
        port: None takes the port of `saved`, else PORT, else a free one.
        saved: The address that the page had before; its token stays the same.
        hosts: More names by which browsers reach it, with a port if it is not the usual one.
        trusts_proxy: Believe the X-Forwarded-Proto header, which a proxy before it sets for https.
        open_paths: Paths that are answered without a token.

    Raises:
        ServingError: The port is not available, or a name is missing.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int | None = None,
        saved: SavedAddress | None = None,
        hosts: Sequence[str] = (),
        trusts_proxy: bool = False,
        open_paths: Sequence[str] = (),
    ):
        self._app, self._trusts_proxy, self._open_paths = app, trusts_proxy, open_paths
        usual = [saved.port] if saved and saved.port else []
        usual += [] if saved and PORT in saved.others else [PORT]
        for tried in (*usual, 0) if port is None else (port,):
            try:
                self._socket = socket.create_server(
                    (host, tried), family=socket.AF_INET6 if ":" in host else socket.AF_INET
                )
                break
            except OSError as error:
                # another page may have the usual port: then a free one
                if error.errno != errno.EADDRINUSE or port is not None or not tried:
                    reason = os.strerror(error.errno) if error.errno else str(error)  # strerror names Python's call
                    hint = "choose another port, or none."
                    raise ServingError(f"Port {tried} of {host} is not available ({reason}).", hint) from error
        self.port = self._socket.getsockname()[1]
        self._token, self._saved = saved.token if saved else secrets.token_urlsafe(24), saved
        self._cookie = f"lstr-{self.port}"  # the ports of one host share their cookies
        self._names = {f"{one}:{self.port}" for one in ("127.0.0.1", "localhost", "[::1]")}
        self._names.update(names_of(host, self.port, hosts))
        shown = hosts[0].partition(":")[0] if host in ANY else f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/?token={self._token}"
        self.ending = threading.Event()
        # an event, because a join that a signal interrupts takes a running thread for an ended one (Python 3.11)
        self._ended = threading.Event()

    def __enter__(self) -> "Server":
        if self._saved:
            self._saved.save(self.port)
        config = uvicorn.Config(
            self,
            lifespan="off",
            log_config=None,
            # addresses contain the token
            access_log=False,
            server_header=False,
            date_header=False,
            http="h11",  # which limits headers
            ws="none",
            log_level="error",  # bytes that are not a request would fill the log
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            proxy_headers=False,  # uvicorn would believe the headers of any program of this machine
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)

        def run() -> None:
            try:
                self._server.run(sockets=[self._socket])
            finally:
                self._ended.set()

        # not the main thread, which receives signals and must not hand them to a library
        threading.Thread(target=run, name="server", daemon=True).start()
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request as an ASGI application."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    own.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope, Headers(scope=scope)) or self._app
        await answer(scope, receive, send_safely)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response to a request that the application must not see, else None."""
        if headers.get("host", "").lower() not in self._names:
            return PlainTextResponse("Unknown host name.\n", 403)
        is_secure = self._trusts_proxy and headers.get("x-forwarded-proto", "").lower() == "https"
        origin, scheme = headers.get("origin"), "https" if is_secure else "http"
        if origin is not None and origin.lower() not in {f"{scheme}://{name}" for name in self._names}:
            return PlainTextResponse("Requests of other sites are refused.\n", 403)
        if scope["path"] in self._open_paths and scope["method"] in ("GET", "HEAD"):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        # in constant time, so that the response time reveals nothing about the token
        if secrets.compare_digest(given.encode(), self._token.encode()):
            if scope["method"] != "GET":
                return PlainTextResponse("", 405)
            # relative, because a proxy may have put a path before it
            entered = RedirectResponse("./" + scope["path"].rpartition("/")[2], 303)
            entered.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", secure=is_secure)
            return entered
        # other programs of this machine set cookies for the same host that Python's own parser gives up at
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        is_known = secrets.compare_digest(cookie.encode(), self._token.encode())
        return None if is_known else PlainTextResponse(UNKNOWN, 403)


def names_of(host: str, port: int, hosts: Sequence[str]) -> list[str]:
    """Return what the Host header may be, in addition to loopback. Raises ServingError if a name is missing."""
    if not hosts and host in ANY:
        hint = "add them to `hosts`, for example cameras.example.org."
        raise ServingError(f"A server on {host} needs the names by which browsers reach it.", hint)
    own = [] if host in LOOPBACK or host in ANY else [f"[{host}]" if ":" in host else host]
    names = [name.lower() for name in (*own, *hosts)]
    return [*names, *(f"{name}:{port}" for name in names)]


def page_response(text: str) -> Response:
    """Return the response that is a page."""
    return Response(text, media_type="text/html; charset=utf-8", headers=PAGE_POLICY)


def event_stream(pieces: AsyncIterator[str]) -> Response:
    """Return a response of server-sent events."""
    headers = {"x-accel-buffering": "no"}  # a proxy that keeps pieces back would show them late
    return StreamingResponse(pieces, media_type="text/event-stream", headers=headers)


async def read_body(request: Request, kind: type[Body], max_bytes: int) -> Body:
    """Return the JSON body of a request of this page. Raises HTTPException, and RequestError for invalid values."""
    # browsers state where a request comes from; programs send no such header
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415)  # the form of a page of another site cannot send JSON
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > max_bytes:
            raise HTTPException(413)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RequestError(f"The request is not valid ({error}).", "reload the page.") from error


async def refused(request: Request, error: Exception) -> Response:
    """Return the response to a request that raised an HTTPException: its status code and nothing else."""
    assert isinstance(error, HTTPException)
    return PlainTextResponse("", error.status_code)
