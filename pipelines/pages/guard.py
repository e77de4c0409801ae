"""Checks of each request: a browser that was given the address with its token is answered, no page of another site.

A page of another site can send requests to 127.0.0.1 too. It cannot read the token; its Origin header is its own; and a
name of its own that it resolves to 127.0.0.1 (DNS rebinding) is in the Host header. Each of the three is refused.

Token and port of a page stay the same when its server is started again, so that an open tab continues: with a new token
what the tab had not sent would be lost. They are kept in $LSTR_HOME, in a file that only its owner can read, neither in
the labels file nor next to it, which people send to each other. Deleting the file makes the next address a new one. No
two labels files share a port: a tab of the one would send its changes to the other.
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
UNKNOWN = "Open the address that the command has printed, with everything after the question mark.\n"


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Guard:
    """An application behind the checks. The first request with the token gets it as a cookie, which later ones send.

    Args:
        app: The application.
        hosts: Allowed Host headers, for example 127.0.0.1:8420.
        token: The token at the end of the address.
        port: The port, in the name of the cookie: the ports of one host share their cookies.
        trusts_proxy: Believe the X-Forwarded-Proto header, which a proxy before it sets for https.
        open_paths: Paths that need no token.
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
        self._app, self._hosts, self._token = app, frozenset(hosts), token
        self._cookie, self._trusts_proxy, self._open_paths = f"lstr-{port}", trusts_proxy, frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

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
        if headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("This server has another name.\n", 403)
        is_secure = self._trusts_proxy and headers.get("x-forwarded-proto", "").lower() == "https"
        origin, scheme = headers.get("origin"), "https" if is_secure else "http"
        if origin is not None and origin.lower() not in {f"{scheme}://{host}" for host in self._hosts}:
            return PlainTextResponse("Pages of other sites are refused.\n", 403)
        if scope["method"] not in METHODS:
            return PlainTextResponse("", 405)
        if scope["path"] in self._open_paths and scope["method"] in ("GET", "HEAD"):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and self._is_token(given):
            if scope["method"] != "GET":
                return PlainTextResponse("", 405)
            # relative, because a proxy may have put a path before it
            entered = RedirectResponse("./" + scope["path"].rpartition("/")[2], 303)
            entered.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", secure=is_secure)
            return entered
        # other programs of this machine set cookies for the same host that Python's own parser gives up at
        cookies = cookie_parser(headers.get("cookie", ""))
        return None if self._is_token(cookies.get(self._cookie, "")) else PlainTextResponse(UNKNOWN, 403)

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


@dataclass(frozen=True)
class KeptAddress:
    """The token and the port of the page of the file `of`, kept in `path`; `others` are ports of other pages."""

    path: Path
    of: Path
    token: str
    port: int | None
    others: frozenset[int]

    def keep(self, port: int) -> None:
        """Write it for the next time; if the folder cannot be written, the next address is a new one."""
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary_for(self.path) as temporary:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                with open(descriptor, "w", encoding="utf-8") as file:
                    os.fchmod(descriptor, 0o600)  # before the token is in it
                    json.dump({"file": str(self.of), "token": self.token, "port": port}, file)


def kept_address(of: Path, folder: Path) -> KeptAddress:
    """Return the address that the page of the file `of` had last, or one with a new token."""
    of = of.absolute().resolve()
    path = folder / f"{hashlib.sha256(os.fsencode(of)).hexdigest()[:32]}.json"
    token, port = _read(path)
    others = [_read(other)[1] for other in folder.glob("*.json") if other != path]
    return KeptAddress(path, of, token or new_token(), port, frozenset(filter(None, others)))


def _read(path: Path) -> tuple[str, int | None]:
    """Return a kept token and port; none if others could have read or written the file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077 or not stat.S_ISREG(about.st_mode):
                return "", None
            content: Any = json.load(file)
        token, port = content["token"], content["port"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return "", None
    is_token = isinstance(token, str) and TOKEN.fullmatch(token)
    return token if is_token else "", port if isinstance(port, int) and 0 < port < 2**16 else None
