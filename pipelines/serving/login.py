"""How people come in and leave: a form without script, a cookie that holds the id of a visit."""

from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from lstr.pipelines.serving.users import ATTEMPT_SECONDS, Attempts, Users, Visits

MOST_BYTES = 4096
"""Bytes that the form may have."""
MOST_CHECKS = 8
"""Passwords that are checked or wait for it; each takes memory and tens of milliseconds, and a thread until then."""
FORM = "application/x-www-form-urlencoded"


class Login:
    """The door for users. `page` makes the markup of the form, with a sentence about what went wrong."""

    def __init__(self, users: Users, page: Callable[[str], str], cookie: str):
        self._users, self._page, self.cookie = users, page, cookie
        self._attempts, self._visits = Attempts(), Visits()
        self._checks = 0

    def knows(self, cookies: dict[str, str]) -> bool:
        """Whether somebody with these cookies is on a visit."""
        return self._visits.goes_on(cookies.get(self.cookie, ""))

    def lasts(self, cookies: dict[str, str]) -> bool:
        """Whether the visit with these cookies has not ended, for what is sent without a further request."""
        return self._visits.lasts(cookies.get(self.cookie, ""))

    async def answer(self, request: Request, address: str, is_secure: bool) -> Response:
        """What one who is not on a visit gets: the form, the way to it, or a refusal."""
        if request.url.path == "/login":
            return await self._enter(request, address, is_secure)
        if request.url.path == "/" and request.method == "GET":
            return RedirectResponse("login", 303)  # relative, for a proxy may have put a path before it
        return PlainTextResponse("Sign in first.\n", 401)

    def leave(self, cookies: dict[str, str]) -> Response:
        """End a visit."""
        self._visits.end(cookies.get(self.cookie, ""))
        left = RedirectResponse("login", 303)
        left.delete_cookie(self.cookie, httponly=True, samesite="strict")
        return left

    async def _enter(self, request: Request, address: str, is_secure: bool) -> Response:
        if request.method != "POST":
            return self._form("")
        if request.headers.get("content-type", "").partition(";")[0].strip() != FORM:
            return PlainTextResponse("", 415)
        data = b""
        async for piece in request.stream():
            data += piece
            if len(data) > MOST_BYTES:
                return PlainTextResponse("", 413)
        if not self._attempts.allow(address):
            tried = self._form(f"Too many attempts: try again in {ATTEMPT_SECONDS:.0f} seconds.", 429)
            tried.headers["retry-after"] = f"{ATTEMPT_SECONDS:.0f}"
            return tried
        try:
            given = parse_qs(data.decode("ascii"), max_num_fields=10)
        except ValueError:
            return PlainTextResponse("", 400)
        name, password = (given.get(key, [""])[0] for key in ("name", "password"))
        if self._checks >= MOST_CHECKS:
            return self._form("Too many people sign in at once: try again in a second.", 503)
        self._checks += 1
        try:
            is_right = await run_in_threadpool(self._users.check, name, password)
        finally:
            self._checks -= 1
        if not is_right:
            return self._form("That is not the name and the password of a user.", 401)
        entered = RedirectResponse("./", 303)
        visit = self._visits.begin()
        entered.set_cookie(self.cookie, visit, httponly=True, samesite="strict", secure=is_secure)
        return entered

    def _form(self, told: str, status: int = 200) -> Response:
        # the page has a policy of its own, which cannot say this
        headers = {"content-security-policy": "frame-ancestors 'none'", "referrer-policy": "same-origin"}
        return Response(self._page(told), status, headers, "text/html; charset=utf-8")
