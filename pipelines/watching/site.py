"""What the server of a watching service answers: its page, what happens while it is open, and what a person changes."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from threading import Event
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from lstr.errors import HistoryError, LstrError, RequestError
from lstr.extractors.video.zones import MOST_CORNERS, MOST_ZONES, parse_zones
from lstr.files.names import without_credentials
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.pages.page import Script, build_page
from lstr.pipelines.pages.palette import CLASSES
from lstr.pipelines.pages.responses import Streams, page_response, read_json, refused
from lstr.pipelines.watching.board import Board
from lstr.pipelines.watching.config_file import NAME
from lstr.pipelines.watching.history import Wanted
from lstr.pipelines.watching.shown_source import FULL_SCALE, NO_SCORE

STYLES = ("lanes.css", "watch.css")
SCRIPTS = (
    *("lanes.js", "served.js"),
    *("watch-sources.js", "zone-editor.js", "watch-events.js", "watch.js"),
)
# Bytes that a request may have.
MOST_BYTES = 2**14
# Events in one answer.
MOST_EVENTS = 200
TURN = 0.25  # seconds between two pieces of a stream, as between two decisions
BEAT = 5.0  # seconds after which a silent stream shows that it is there
SNOOZE_SECONDS = (0.0, 7 * 86400.0)
EVENT_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}")
# With a line break in it, an address would be a request of its own to the host that it names.
NO_ADDRESS = re.compile(r"[\x00-\x20\x7f-\x9f]")
MEDIA = {".mp4": "video/mp4", ".webm": "video/webm", ".jpg": "image/jpeg", ".png": "image/png"}


@dataclass(frozen=True)
class WatchSite:
    """The application that shows a board and hands what a person wants to `controls`.

    `ending` is set when streams are to end.
    """

    board: Board
    controls: Any
    """The service; each call may raise an LstrError, which the page shows."""
    ending: Callable[[], Event]
    streams: Streams = field(default_factory=Streams)

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/", self._page),
            Route("/state", self._state),
            Route("/stream", self._stream),
            Route("/picture/{name}", self._picture),
            Route("/events", self._events),
            Route("/clip/{id}", self._clip),
            Route("/thumb/{id}", self._thumb),
            Route("/event/{id}/verdict", self._verdict, methods=["POST"]),
            Route("/source/{name}/zones", self._draw, methods=["POST"]),
            Route("/source/{name}/{deed}", self._source, methods=["POST"]),
            Route("/sources", self._add, methods=["POST"]),
            Route("/snooze", self._snooze, methods=["POST"]),
        ]
        handlers: Any = {LstrError: self._told, HTTPException: refused}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _page(self, request: Request) -> Response:
        text = await run_in_threadpool(build_watch_page, self.board.state())
        return page_response(text)

    async def _state(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.board.state))

    async def _stream(self, request: Request) -> Response:
        mark = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return self.streams.stream(lambda: self._pieces(mark))

    async def _pieces(self, mark: str) -> AsyncIterator[str]:
        """Messages as they come, those of a turn together; `anew` where the browser has to read the state first."""
        silent = 0.0
        yield "retry: 1000\n\n"
        while not self.ending().is_set():
            found = self.board.after(mark)
            if found is None:
                yield "event: anew\ndata: \n\n"
                return
            mark, texts = found
            if texts:
                yield f"id: {mark}\ndata: [{','.join(texts)}]\n\n"
                silent = 0.0
            elif silent > BEAT:
                yield "event: beat\ndata: \n\n"
                silent = 0.0
            else:
                yield ""
            await asyncio.sleep(TURN)
            silent += TURN

    async def _picture(self, request: Request) -> Response:
        found = await run_in_threadpool(self.board.picture, request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return Response(found[1], media_type="image/jpeg")

    async def _events(self, request: Request) -> Response:
        wanted = _wanted(dict(request.query_params))
        events = await run_in_threadpool(self.board.history.events, wanted)
        return JSONResponse({"events": [event.to_dict() for event in events]})

    async def _clip(self, request: Request) -> Response:
        return await self._file(request, self.controls.clip)

    async def _thumb(self, request: Request) -> Response:
        return await self._file(request, self.controls.picture)

    async def _file(self, request: Request, find: Callable[[str], Path | None]) -> Response:
        path = await run_in_threadpool(find, _event_id(request))
        if path is None or not await run_in_threadpool(path.is_file):
            raise HTTPException(404)
        return FileResponse(path, media_type=MEDIA.get(path.suffix.lower(), "application/octet-stream"))

    async def _verdict(self, request: Request) -> Response:
        event_id, body = _event_id(request), await _body(request, "verdict")
        if body.get("verdict") not in ("right", "wrong", ""):
            raise RequestError("That is no verdict.", "reload the page.")
        history = self.board.history
        if not await run_in_threadpool(history.judge, event_id, body["verdict"]):
            raise HTTPException(404)
        event = await run_in_threadpool(history.find, event_id)
        if event:
            self.board.tell(event, "update")
        return JSONResponse({"event": event and event.to_dict()})

    async def _source(self, request: Request) -> Response:
        await _body(request)
        name, deeds = request.path_params["name"], self.controls
        deed = {"pause": deeds.pause, "resume": deeds.resume, "remove": deeds.remove}.get(request.path_params["deed"])
        if deed is None or name not in self.board.names:
            raise HTTPException(404)
        await run_in_threadpool(deed, name)
        return JSONResponse({})

    async def _draw(self, request: Request) -> Response:
        name, given = request.path_params["name"], (await _body(request, "zones")).get("zones", "")
        if name not in self.board.names:
            raise HTTPException(404)
        try:
            zones = None if given is None else parse_zones(given)
        except ValueError as error:
            raise RequestError(f"These are no zones: {error}", "draw them anew.") from error
        await run_in_threadpool(self.controls.draw, name, zones)
        return JSONResponse({})

    async def _add(self, request: Request) -> Response:
        body = await _body(request, "name", "address")
        name, address = _text(body, "name", 64), _text(body, "address", 2000)
        if not name or not NAME.fullmatch(name):
            raise RequestError("That is no name of a source.", "use letters, digits, spaces, points and hyphens.")
        if not address:
            raise RequestError("A source has an address.", "enter one, as in rtsp://camera/stream.")
        if NO_ADDRESS.search(address):
            raise RequestError("There is a blank in that address.", "write %20 for it.")
        if name in self.board.names:
            raise RequestError(f"There is a source {name} already.", "take another name.")
        await run_in_threadpool(self.controls.add, name, address)
        return JSONResponse({})

    async def _snooze(self, request: Request) -> Response:
        body = await _body(request, "source", "action", "seconds")
        seconds, (least, most) = body.get("seconds", 3600), SNOOZE_SECONDS
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= most:
            raise RequestError("That is no time to snooze.", "it is from 0 to 604800 seconds.")
        source, action = _text(body, "source", 200), _text(body, "action", 200)
        is_known = source in (None, *self.board.names) and action in (None, *self.board.actions)
        if seconds and not is_known:  # one of a source that has gone can be ended
            raise RequestError("That is neither a source nor an action here.", "reload the page.")
        await run_in_threadpool(self.controls.snooze, source, action, float(seconds))
        return JSONResponse({})

    async def _told(self, request: Request, error: Exception) -> Response:
        told = {"error": without_credentials(str(error)), "hint": without_credentials(getattr(error, "hint", ""))}
        return JSONResponse(told, 500 if isinstance(error, HistoryError) else 400)


def _event_id(request: Request) -> str:
    name = request.path_params["id"]
    if not EVENT_ID.fullmatch(name):
        raise HTTPException(404)
    return str(name)


async def _body(request: Request, *known: str) -> dict[str, Any]:
    """The JSON object of a request of this page. Raises HTTPException and RequestError, of unknown keys too."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403)
    try:
        body = json.loads(await read_json(request, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise RequestError("That is no JSON.", "reload the page.") from error
    if not isinstance(body, dict):
        raise RequestError("That is no JSON object.", "reload the page.")
    if unknown := [key for key in body if key not in known]:
        raise RequestError(f"{unknown[0][:40]!r} is not known here.", "reload the page.")
    return body


def _text(body: dict[str, Any], key: str, most: int) -> str | None:
    value = body.get(key)
    if value is not None and not (isinstance(value, str) and len(value) <= most):
        raise RequestError(f"That is no {key}.", "reload the page.")
    return (value or "").strip() or None


def _wanted(query: dict[str, str]) -> Wanted:
    """Which events a query wants: action, source, day (2026-05-31, on this machine's clock), score, before, limit."""
    since = until = None
    try:
        if unknown := set(query) - {"action", "source", "day", "score", "before", "limit"}:
            raise ValueError(unknown)
        if query.get("day"):
            day = date.fromisoformat(query["day"])
            since, until = (datetime.combine(one, time()).astimezone() for one in (day, day + timedelta(days=1)))
        score = float(query["score"]) if query.get("score") else None
        limit = min(MOST_EVENTS, max(1, int(query.get("limit", "50"))))
        before = query.get("before") or None
        if before and not EVENT_ID.fullmatch(before):
            raise ValueError(before)
    except (ValueError, OverflowError) as error:
        raise HTTPException(400) from error
    source, action = query.get("source") or None, query.get("action") or None
    return Wanted(since, until, source, action, min_score=score, before=before, limit=limit)


def build_watch_page(state: Mapping[str, Any]) -> str:
    """The page of a board's state."""
    document = {
        "state": state,
        "colours": state["colours"],
        "palette": CLASSES,
        "undecidable": [BACKGROUND, AMBIGUOUS],
        "full_scale": FULL_SCALE,
        "no_score": NO_SCORE,
        "most_zones": MOST_ZONES,
        "most_corners": MOST_CORNERS,
    }
    return build_page("watch.html", "Watch", STYLES, Script(SCRIPTS, document, is_served=True))
