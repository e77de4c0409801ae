"""Who is answered: a browser that was given the address with its token, and no page of another site.

A page of another site can send requests to 127.0.0.1 too. It cannot read the token; its Origin is its own; and a name
of its own that it points here (DNS rebinding) stands in Host. Each of the three alone is refused.
"""

import secrets
from collections.abc import Iterable
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
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
