"""A stand-in for Frigate: the paths, verbs, fields and answers of its interface as it documents them, and no more.

It is not Frigate: what that does beyond its documentation, no test here knows. Facts are of the documentation and of
the declared routes of July 2026.
"""

import itertools
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

COOKIE = "frigate_token"


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    body: Any
    cookie: str


@dataclass
class StandIn:
    """A Frigate with two cameras; use it as a context manager. With a password it wants a login, as at port 8971.

    `answers` come before its own: a status; `lost` does what is asked and breaks off the answer; `never` does not
    answer until it is closed. `hides` leaves out what it has, as before it is in its database.
    """

    password: str = ""
    role: str = "admin"
    certificate: tuple[str, str] | None = None
    """PEM files of a key and a certificate."""
    cameras: tuple[str, ...] = ("hall", "front_door")
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    answers: deque[int | str] = field(default_factory=deque)
    logins: int = 0

    def person(self, event_id: str, camera: str, start: float, end: float | None = None) -> None:
        """Let it follow a person."""
        self.events[event_id] = self._event(event_id, camera, "person", start, end, {"type": "object", "score": 0.8})

    def created(self) -> list[dict[str, Any]]:
        """The events that were created by its interface, in order."""
        return [event for event in self.events.values() if event["data"]["type"] == "api"]

    def requests(self, method: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == method]

    def expire(self) -> None:
        """Let the login of everybody run out."""
        self._tokens.clear()

    def __enter__(self) -> "StandIn":
        self._tokens: set[str] = set()
        self._numbers = itertools.count(1)
        self._closing = threading.Event()
        methods = {"create": ["POST"], "end": ["PUT"], "sub_label": ["POST"]}
        routes = [
            Route("/api/login", self._login, methods=["POST"]),
            Route("/api/events", self._list, methods=["GET"]),
            Route("/api/events/{camera}/{label}/create", self._create, methods=methods["create"]),
            Route("/api/events/{event_id}/end", self._end, methods=methods["end"]),
            Route("/api/events/{event_id}/sub_label", self._sub_label, methods=methods["sub_label"]),
        ]
        key, certificate = self.certificate or (None, None)
        config = uvicorn.Config(
            Starlette(routes=routes), port=0, log_level="critical", ssl_keyfile=key, ssl_certfile=certificate
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "it does not start"
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http{'s' if key else ''}://127.0.0.1:{port}"
        return self

    def __exit__(self, *_) -> None:
        self._closing.set()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)

    def _event(self, event_id: str, camera: str, label: str, start: float, end: float | None, data: dict) -> dict:
        known = {"id": event_id, "camera": camera, "label": label, "start_time": start, "end_time": end}
        return known | {"sub_label": None, "zones": [], "has_clip": True, "has_snapshot": True, "data": data}

    async def _note(self, request: Request) -> tuple[Any, Response | None, bool]:
        """The body of a request, the answer where another one comes before its own, and whether that is lost."""
        body = await request.json() if await request.body() else None
        self.asked.append(Asked(request.method, request.url.path, body, request.headers.get("cookie", "")))
        answer = self.answers.popleft() if self.answers else None
        if answer == "never":
            await _until(self._closing)
            return body, Response(status_code=503), False
        if isinstance(answer, int):
            location = {"location": "/elsewhere"} if 300 <= answer < 400 else {}
            return body, JSONResponse({"success": False}, answer, location), False
        return body, self._refusal(request), answer == "lost"

    def _refusal(self, request: Request) -> Response | None:
        if self.password and request.cookies.get(COOKIE) not in self._tokens:
            return JSONResponse({"message": "Unauthorized"}, 401)
        if self.role != "admin" and request.method != "GET":
            return JSONResponse({"detail": "Access denied"}, 403)
        return None

    async def _login(self, request: Request) -> Response:
        body = await request.json()
        self.logins += 1
        if body != {"user": "lstr", "password": self.password}:
            return JSONResponse({"message": "Login failed"}, 401)
        token = f"token-{next(self._numbers)}"
        self._tokens.add(token)
        answer = Response(status_code=200)
        answer.set_cookie(COOKIE, token, httponly=True)
        return answer

    async def _list(self, request: Request) -> Response:
        _, other, _ = await self._note(request)
        if other:
            return other
        query = request.query_params
        found = [
            event
            for event in self.events.values()
            if event["camera"] in query["cameras"].split(",")
            and event["label"] in query["labels"].split(",")
            and ("in_progress" not in query or (event["end_time"] is None) == bool(int(query["in_progress"])))
        ]
        found.sort(key=lambda event: event["start_time"], reverse=True)
        return JSONResponse(found[: int(query.get("limit", 100))])

    async def _create(self, request: Request) -> Response:
        body, other, is_lost = await self._note(request)
        if other:
            return other
        camera, label = request.path_params["camera"], request.path_params["label"]
        if camera not in self.cameras:
            return JSONResponse({"success": False, "message": f"{camera} is not a valid camera."}, 404)
        now = time.time()
        event_id = f"{now}-{next(self._numbers):06}"
        start = now - (5 if body.get("pre_capture") is None else body["pre_capture"])
        end = None if body["duration"] is None else now + body["duration"]
        data = {"type": "api", "score": body["score"], "top_score": body["score"]}
        self.events[event_id] = self._event(event_id, camera, label, start, end, data) | {
            "sub_label": body["sub_label"],
            "has_clip": body["include_recording"],
        }
        if is_lost:
            return _BrokenOff()
        return JSONResponse({"success": True, "message": "Successfully created event.", "event_id": event_id})

    async def _end(self, request: Request) -> Response:
        body, other, is_lost = await self._note(request)
        if other:
            return other
        event = self.events.get(request.path_params["event_id"])
        if event is None:
            return JSONResponse({"success": False, "message": "Event not found."}, 404)
        if body.get("end_time") is not None and body["end_time"] < event["start_time"]:
            return JSONResponse({"success": False, "message": "end_time cannot be before start_time"}, 400)
        event["end_time"] = body.get("end_time") or time.time()
        return _BrokenOff() if is_lost else JSONResponse({"success": True, "message": "Event successfully ended."})

    async def _sub_label(self, request: Request) -> Response:
        body, other, _ = await self._note(request)
        if other:
            return other
        event = self.events.get(request.path_params["event_id"])
        if event is None:
            return JSONResponse({"success": False, "message": "Event not found."}, 404)
        if len(body["subLabel"]) > 100 or not 0 < body["subLabelScore"] <= 1:
            return JSONResponse({"detail": "validation"}, 422)
        event["sub_label"] = body["subLabel"]
        event["data"]["sub_label_score"] = body["subLabelScore"]
        return JSONResponse({"success": True, "message": "set"})


class _BrokenOff(Response):
    """Nothing, of more that was promised."""

    def __init__(self) -> None:
        super().__init__(b"{", 200, {"content-length": "100"})


async def _until(event: threading.Event) -> None:
    import asyncio

    while not event.is_set():
        await asyncio.sleep(0.02)
