"""What is served before a project can begin: a form that asks what the columns of a table are, and shows what follows.

Then it is the project's page, at the same address.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lstr.errors import LstrError
from lstr.labels.label_set import Labels
from lstr.pipelines.labelling.columns import ROLES, UNITS, Choice, UnnamedTable, described, rows_shown
from lstr.pipelines.pages.page import Script, build_page
from lstr.pipelines.pages.responses import page_response, read_json, refused

MOST_BYTES = 2**16
"""Bytes that a request may have."""


@dataclass
class ColumnSite:
    """The application of the form; `begin` makes the project's application of the labels, once, and serves it then."""

    table: UnnamedTable
    videos: Mapping[str, Any]
    begin: Callable[[Labels, Choice], ASGIApp]
    _begun: ASGIApp | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def app(self) -> ASGIApp:
        """The application."""
        routes = [
            Route("/", self._page),
            Route("/columns/try", self._try, methods=["POST"]),
            Route("/columns/begin", self._begin, methods=["POST"]),
        ]
        handlers: Any = {LstrError: _told, HTTPException: refused}
        form = Starlette(routes=routes, exception_handlers=handlers)

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            await (self._begun or form)(scope, receive, send)

        return application

    async def _page(self, request: Request) -> Response:
        guess = await run_in_threadpool(self.table.guess, self.videos)
        document = {
            "file": self.table.path.name,
            "header": [*self.table.header, *[""] * (self.table.width - len(self.table.header))],
            "rows": rows_shown(self.table),
            "count": len(self.table.rows) - 1,
            "videos": len(self.videos),
            "roles": ROLES,
            "units": list(UNITS),
            "guess": asdict(guess),
        }
        script = Script(("columns.js",), document, is_served=True)
        text = build_page("app.html", "Which column is what?", ("report.css", "columns.css"), script)
        return page_response(text)

    async def _try(self, request: Request) -> Response:
        choice = await _choice(request)
        labels = await run_in_threadpool(self.table.read, choice, self.videos)
        return JSONResponse(await run_in_threadpool(described, labels, self.videos))

    async def _begin(self, request: Request) -> Response:
        choice = await _choice(request)
        await run_in_threadpool(self._begin_with, choice)
        return JSONResponse({})

    def _begin_with(self, choice: Choice) -> None:
        labels = self.table.read(choice, self.videos)
        with self._lock:  # a second click, or a second tab
            if self._begun is None:
                self._begun = self.begin(labels, choice)


async def _choice(request: Request) -> Choice:
    """The choice in a request. Raises HTTPException where it is none."""
    data = await read_json(request, MOST_BYTES)
    try:
        return msgspec.json.decode(data, type=Choice)
    except msgspec.DecodeError as error:
        raise HTTPException(400) from error


async def _told(request: Request, error: Exception) -> Response:
    hint = getattr(error, "hint", "")  # one of a command is no help on the page
    return JSONResponse({"error": str(error), "hint": "" if "`" in hint or "--" in hint else hint}, 400)
