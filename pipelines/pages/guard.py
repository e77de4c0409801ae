"""Who is answered: a browser that was given the address with its token, and no page of another site.

A page of another site can send requests to 127.0.0.1 too. It cannot read the token; its Origin is its own; and a name
of its own that it points here (DNS rebinding) stands in Host. Each of the three alone is refused.

Token and port of a page stay the same when its server is started again, so that an open tab goes on.
A tab sends its changes with a cookie that holds the token. Were the token new with each start, a tab that was open
when the server was killed would be refused for ever, and what it had not sent would be lost. So the token of a labels
file is kept where $LSTR_HOME is, in a file that its owner alone reads (mode 0600, in a folder of mode 0700), and
neither in the labels file nor beside it, which people send to each other. It is as long as a new one and as hard to
guess, each labels file has its own, and Host and Origin are checked as before. What it costs: who reads that file, or
an old address in the history of the browser, can open the page again while the command runs. The owner of the labels
file could do so anyway. Deleting the file makes the next address a new one.

The port is kept too, for the address of a tab has it. No two labels files share one: a tab of the one would send its
changes to the other.
"""

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lstr.files.atomic import temporary_for

TOKEN = re.compile(r"[A-Za-z0-9_-]{32,64}")
METHODS = ("GET", "HEAD", "POST")
# Headers of every answer, unless it has others of its own.
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
UNKNOWN = "Open the address that the command has printed, with all that follows the question mark.\n"


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


class Guard:
    """An application behind the checks. hosts: what Host may be, as 127.0.0.1:8420; token: what the address ends with.

    trusts_proxy: whether a proxy before it says truly that a request came by https (X-Forwarded-Proto). open_paths:
    what anybody may read who reaches this machine by one of the hosts.

    The first request with the token gets it as a cookie of this port, and all others are known by that.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        token: str,
        port: int,
        trusts_proxy: bool = False,
        open_paths: Iterable[str] = (),
    ):
        self._open_paths = frozenset(open_paths)
        self._app, self._hosts, self._token = app, frozenset(hosts), token
        self._cookie = f"lstr-{port}"  # cookies of one host are shared by its ports
        self._trusts_proxy = trusts_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        answer = self._refusal(scope, Headers(scope=scope)) or self._app

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    own.setdefault(name, value)
            await send(message)

        await answer(scope, receive, send_safely)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("This server has another name.\n", 403)
        origin = headers.get("origin")
        scheme = "https" if self._is_secure(headers) else "http"
        if origin is not None and origin.lower() not in {f"{scheme}://{host}" for host in self._hosts}:
            return PlainTextResponse("Another site's pages are not answered.\n", 403)
        if scope["method"] not in METHODS:
            return PlainTextResponse("", 405)
        if scope["path"] in self._open_paths and scope["method"] in ("GET", "HEAD"):
            return None
        return self._unknown(scope, headers)

    def _is_secure(self, headers: Headers) -> bool:
        return self._trusts_proxy and headers.get("x-forwarded-proto", "").lower() == "https"

    def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to one without the token, or with it in the address; None where a cookie has it."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and self._is_token(given):
            if scope["method"] != "GET":
                return PlainTextResponse("", 405)
            # relative, for a proxy may have put a path before it
            entered = RedirectResponse("./" + scope["path"].rpartition("/")[2], 303)
            entered.set_cookie(
                self._cookie, self._token, httponly=True, samesite="strict", secure=self._is_secure(headers)
            )
            return entered
        if not self._is_token(_cookie(headers, self._cookie)):
            return PlainTextResponse(UNKNOWN, 403)
        return None

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _cookie(headers: Headers, name: str) -> str:
    # other programs of this machine have cookies of the same host, in forms that Python's own reader gives up at
    return cookie_parser(headers.get("cookie", "")).get(name, "")


@dataclass(frozen=True)
class KeptAddress:
    """What the page of one file was served with, kept in `path`."""

    path: Path
    of: Path
    token: str
    port: int | None
    """None where it had none yet."""
    others: frozenset[int]
    """Ports of other files' pages."""

    def keep(self, port: int) -> None:
        """Remember it for the next time; where the folder cannot be written, the next address is a new one."""
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary_for(self.path) as temporary:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                with open(descriptor, "w", encoding="utf-8") as file:
                    os.fchmod(descriptor, 0o600)  # before the token is in it
                    json.dump({"file": str(self.of), "token": self.token, "port": port}, file)


def kept_address(of: Path, folder: Path) -> KeptAddress:
    """The address that the page of the file `of` had the last time; with a new token where it had none."""
    of = of.absolute().resolve()
    path = folder / f"{hashlib.sha256(os.fsencode(of)).hexdigest()[:32]}.json"
    own = _read(path)
    others = [_read(other) for other in folder.glob("*.json") if other != path]
    taken = frozenset(port for port in map(_port, others) if port)
    token = own.get("token", "")
    if not (isinstance(token, str) and TOKEN.fullmatch(token)):
        token = new_token()
    return KeptAddress(path, of, token, _port(own), taken)


def _port(content: dict[str, Any]) -> int | None:
    port = content.get("port")
    return port if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 2**16 else None


def _read(path: Path) -> dict[str, Any]:
    """What a file holds; nothing where others could have read or written it."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077 or not stat.S_ISREG(about.st_mode):
                return {}
            content = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
