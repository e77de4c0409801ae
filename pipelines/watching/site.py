"""The server of a service: its page with a stream of what happens, what people change, and its health."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import date, datetime, time, timedelta
from time import monotonic
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
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
from lstr.pipelines.pages.page import build_page
from lstr.pipelines.pages.palette import CLASSES
from lstr.pipelines.pages.server import event_stream, page_response, read_body, refused
from lstr.pipelines.watching.clips import EVENT_ID
from lstr.pipelines.watching.config import NAME
from lstr.pipelines.watching.dashboard import FULL_SCALE, NO_SCORE, Dashboard

SCRIPTS = ("lanes.js", "served.js", "watch-sources.js", "zone-editor.js", "watch-events.js", "watch.js")
MAX_REQUEST_BYTES = 2**14
MAX_EVENTS = 200  # in one answer
STREAM_INTERVAL_S = 0.25  # between two pieces of a stream, as between two decisions
# A page connects again after 12 s without a message.
HEARTBEAT_S = 5.0
# A line break in an address would add a request of its own to the host.
NOT_IN_ADDRESS = re.compile(r"[\x00-\x20\x7f-\x9f]")
OPEN_PATHS = ("/healthz",)  # without a token: it contains names of sources, but no address and no event
SILENT_S = 60.0  # without a decision on a source, after which the service is unhealthy

Text = Annotated[str, Meta(max_length=200)]


# The bodies of requests with one value: a verdict on an event, and the zones of a source, null for those of the file.
VerdictBody: Any = Annotated[dict[Literal["verdict"], Literal["right", "wrong", ""]], Meta(min_length=1)]
ZonesBody: Any = Annotated[dict[Literal["zones"], Any], Meta(min_length=1)]


class SourceBody(Struct, forbid_unknown_fields=True):
    """A source to add."""

    name: Annotated[str, Meta(max_length=64)]
    address: Annotated[str, Meta(max_length=2000)]


class SnoozeBody(Struct, forbid_unknown_fields=True):
    """A snooze, which ends an earlier one with 0 seconds."""

    source: Text | None = None
    action: Text | None = None
    seconds: Annotated[float, Meta(ge=0, le=7 * 86400)] = 3600.0


class EventQuery(Struct, forbid_unknown_fields=True):
    """The query of a list of events."""

    action: str | None = None
    source: str | None = None
    day: date | None = None  # on this machine's clock
    score: float | None = None
    before: Annotated[str, Meta(pattern=f"^{EVENT_ID.pattern}$")] | None = None
    limit: int = 50


class WatchSite:
    """The application of a service: its page, a stream of what happens, changes by people, and health.

    Args:
        service: The service; its methods raise LstrError, which the page shows.
    """

    def __init__(self, service: Any):
        self.service = service
        self.dashboard: Dashboard = service.dashboard
        document = {  # the content comes by the stream
            "colours": {},
            "palette": CLASSES,
            "undecidable": [BACKGROUND, AMBIGUOUS],
            "full_scale": FULL_SCALE,
            "no_score": NO_SCORE,
            "most_zones": MOST_ZONES,
            "most_corners": MOST_CORNERS,
        }
        page = build_page("watch", "Watch", SCRIPTS, document, is_served=True)
        routes = [
            Route("/", lambda request: page_response(page)),
            Route("/state", lambda request: JSONResponse(self.dashboard.state())),
            Route("/stream", lambda request: event_stream(self._pieces())),
            Route("/frame/{name}", self._frame),
            Route("/events", self._events),
            Route("/clip/{id}", self._file),
            Route("/thumb/{id}", self._file),
            Route("/event/{id}/verdict", self._verdict, methods=["POST"]),
            Route("/source/{name}/zones", self._draw, methods=["POST"]),
            Route("/source/{name}/{operation}", self._source, methods=["POST"]),
            Route("/sources", self._add, methods=["POST"]),
            Route("/snooze", self._snooze, methods=["POST"]),
            Route("/healthz", self._healthz),
        ]
        handlers: Any = {LstrError: self._refuse, HTTPException: refused}
        self.app = Starlette(routes=routes, exception_handlers=handlers)

    async def _pieces(self) -> AsyncIterator[str]:
        """Yield messages as they come, all messages of an interval together."""
        sent, found = monotonic(), self.dashboard.messages()
        yield "retry: 1000\n\n"
        while not self.service.ended.is_set():
            messages = await run_in_threadpool(next, found)
            if messages:
                yield f"data: {json.dumps(messages, separators=(',', ':'))}\n\n"
                sent = monotonic()
            elif monotonic() - sent > HEARTBEAT_S:
                yield "event: beat\ndata: \n\n"
                sent = monotonic()
            else:
                yield ""
            await asyncio.sleep(STREAM_INTERVAL_S)

    def _frame(self, request: Request) -> Response:
        found = self.dashboard.image(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return Response(found, media_type="image/jpeg")

    def _events(self, request: Request) -> Response:
        since = until = None
        try:
            given = {name: value for name, value in request.query_params.items() if value}
            query = msgspec.convert(given, EventQuery, strict=False)
            if query.day:
                days = query.day, query.day + timedelta(days=1)
                since, until = (datetime.combine(day, time()).astimezone() for day in days)
        except (ValueError, OverflowError) as error:
            raise HTTPException(400) from error
        limit = min(MAX_EVENTS, max(1, query.limit))
        wanted = {"source": query.source, "action": query.action, "min_score": query.score, "before": query.before}
        found = self.dashboard.history.events(limit, since=since, until=until, **wanted)
        return JSONResponse({"events": [event.to_dict() for event in found]})

    def _file(self, request: Request) -> Response:
        event_id, clips, path = request.path_params["id"], self.service.clips, None
        if clips:
            path = (clips.path if request.url.path.startswith("/clip/") else clips.image)(event_id)
        if path is None:
            raise HTTPException(404)
        return FileResponse(path)

    async def _verdict(self, request: Request) -> Response:
        event_id, body = request.path_params["id"], await read_body(request, VerdictBody, MAX_REQUEST_BYTES)
        if not await run_in_threadpool(self.dashboard.history.judge, event_id, body["verdict"]):
            raise HTTPException(404)
        event = await run_in_threadpool(self.dashboard.refresh_event, event_id)
        return JSONResponse({"event": event and event.to_dict()})

    async def _source(self, request: Request) -> Response:
        if await read_body(request, dict[str, None], MAX_REQUEST_BYTES):
            raise RequestError("The request is not valid.", "reload the page.")
        name, operation = self._source_name(request), request.path_params["operation"]
        if operation == "remove":
            await run_in_threadpool(self.service.remove, name)
        elif operation in ("pause", "resume"):
            await run_in_threadpool(self.service.pause, name, operation == "pause")
        else:
            raise HTTPException(404)
        return JSONResponse({})

    async def _draw(self, request: Request) -> Response:
        name, body = self._source_name(request), await read_body(request, ZonesBody, MAX_REQUEST_BYTES)
        try:
            zones = None if body["zones"] is None else parse_zones(body["zones"])
        except ValueError as error:
            raise RequestError(f"The zones are not valid: {error}", "draw them again.") from error
        await run_in_threadpool(self.service.draw, name, zones)
        return JSONResponse({})

    async def _add(self, request: Request) -> Response:
        body = await read_body(request, SourceBody, MAX_REQUEST_BYTES)
        name, address = body.name.strip(), body.address.strip()
        if not NAME.fullmatch(name):
            hint = "use letters, digits, spaces, points and hyphens."
            raise RequestError("The name of the source is not valid.", hint)
        if not address or NOT_IN_ADDRESS.search(address):
            raise RequestError("The address is not valid.", "enter one such as rtsp://camera/stream; %20 is a space.")
        await run_in_threadpool(self.service.add, name, address)
        return JSONResponse({})

    async def _snooze(self, request: Request) -> Response:
        body = await read_body(request, SnoozeBody, MAX_REQUEST_BYTES)
        dashboard = self.dashboard
        is_known = body.source in (None, *dashboard.names) and body.action in (None, *dashboard.actions)
        if body.seconds and not is_known:  # a snooze of a removed source can be ended
            raise RequestError("Unknown source or action.", "reload the page.")
        await run_in_threadpool(self.service.snooze, body.source, body.action, body.seconds)
        return JSONResponse({})

    def _source_name(self, request: Request) -> str:
        name = str(request.path_params["name"])
        if name not in self.dashboard.names:
            raise HTTPException(404)
        return name

    def _healthz(self, request: Request) -> Response:
        with self.dashboard.lock:
            last = {name: source.changed for name, source in self.dashboard.sources.items() if not source.paused}
        silent = {name: round(monotonic() - time) for name, time in last.items() if monotonic() - time > SILENT_S}
        return JSONResponse({"status": "silent" if silent else "ok", "silent": silent}, 503 if silent else 200)

    async def _refuse(self, request: Request, error: Exception) -> Response:
        shown = {"error": without_credentials(str(error)), "hint": without_credentials(getattr(error, "hint", ""))}
        return JSONResponse(shown, 500 if isinstance(error, HistoryError) else 400)
