"""Who is answered: a browser of this machine that was given the address with its token, and no page of another site.

A page of another site can send requests to 127.0.0.1 too. It cannot read the token; its Origin is its own; and a name
of its own that it points here (DNS rebinding) stands in Host. Each of the three alone is refused.
"""

import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "HEAD", "POST")
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every answer, unless it has others of its own."""
UNKNOWN = "Open the address that the command has printed, with all that follows the question mark.\n"


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


class Guard:
    """An application behind the checks. hosts: what Host may be, as 127.0.0.1:8420; token: what the address ends with.

    The first request with the token gets it as a cookie of this port, and all others are known by that.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str, port: int):
        self._app, self._hosts, self._token = app, frozenset(hosts), token
        self._cookie = f"lstr-{port}"  # cookies of one host are shared by its ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        answer = self._app if refused is None else refused

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
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self._hosts}:
            return PlainTextResponse("Another site's pages are not answered.\n", 403)
        if scope["method"] not in METHODS:
            return PlainTextResponse("", 405)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and self._is_token(given):
            if scope["method"] != "GET":
                return PlainTextResponse("", 405)
            entered = RedirectResponse(scope["path"], 303)
            entered.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return entered
        if not self._is_token(_cookie(headers, self._cookie)):
            return PlainTextResponse(UNKNOWN, 403)
        return None

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _cookie(headers: Headers, name: str) -> str:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""
