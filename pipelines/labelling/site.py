"""What the server of a labels project answers: the page, frames and films, changes, and what others change."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lstr.errors import ConflictError, LstrError, RequestError
from lstr.extractors.video.probe import DIGITS
from lstr.pipelines.labelling.history import Entry
from lstr.pipelines.labelling.page import build_label_page
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import ORDERS, Decision, accepted, rejected, waiting
from lstr.pipelines.labelling.proposer import Proposer
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.training_site import TrainingSite
from lstr.pipelines.labelling.values import Label, change_of
from lstr.pipelines.labelling.watched import Watched
from lstr.pipelines.pages.responses import page_response, read_json, refused

MOST_BYTES = 2**22
"""Bytes that a request may have."""
BEAT = 15.0  # seconds after which a silent stream of events shows that it is there
GLANCE = 0.3  # seconds between two looks at whether the server ends
MEDIA = {".webm": "video/webm"}


@dataclass(frozen=True)
class Site:
    """The application of a project and its videos; `ending` is set when streams of events are to end."""

    project: Project
    watched: Watched
    proposer: Proposer
    ending: Callable[[], Event]
    training: Training

    @property
    def _training(self) -> TrainingSite:
        return TrainingSite(self.training, list(self.watched.videos), self._body_here)

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/", self._page),
            Route("/times/{at:int}", self._times),
            Route("/frame/{at:int}", self._frame),
            Route("/film/{at:int}", self._film),
            Route("/plays/{at:int}", self._plays),
            Route("/events", self._events),
            Route("/change", self._change, methods=["POST"]),
            Route("/turn", self._turn, methods=["POST"]),
            Route("/proposals", self._proposals),
            Route("/decide", self._decide, methods=["POST"]),
            *self._training.routes(),
        ]
        handlers: Any = {LstrError: self._told, HTTPException: refused}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _page(self, request: Request) -> Response:
        text = await run_in_threadpool(build_label_page, self.project, list(self.watched.videos))
        return page_response(text)

    def _video(self, request: Request) -> str:
        """The id of the video at the place that an address names: no path comes from outside."""
        ids, at = list(self.watched.videos), request.path_params["at"]
        if not 0 <= at < len(ids):
            raise HTTPException(404)
        return ids[at]

    async def _times(self, request: Request) -> Response:
        video = self._video(request)
        index = await run_in_threadpool(self.watched.index, video)
        duration = round(index.duration, DIGITS)
        await run_in_threadpool(self.project.tell_duration, video, duration)
        headers = {"x-duration": repr(duration), "x-start": repr(index.start)}
        return Response(index.times.astype("<f8").tobytes(), media_type="application/octet-stream", headers=headers)

    async def _frame(self, request: Request) -> Response:
        video, asked = self._video(request), request.query_params
        try:
            number, long_side = int(asked["number"]), int(asked.get("side", "1280"))
            data = await run_in_threadpool(self.watched.picture, video, number, long_side)
        except (KeyError, ValueError, IndexError) as error:
            raise HTTPException(404) from error
        index = self.watched.index(video)
        headers = {"x-time": repr(float(index.times[number])), "cache-control": "private, max-age=600"}
        return Response(data, media_type="image/jpeg", headers=headers)

    async def _film(self, request: Request) -> Response:
        video, waits = self._video(request), "wait" in request.query_params
        path = await run_in_threadpool(self.watched.playing, video)
        while waits and path is None and self.watched.plays(video) != "never" and not self.ending().is_set():
            await asyncio.sleep(GLANCE)
            path = self.watched.playing(video)
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=MEDIA.get(path.suffix.lower(), "video/mp4"))

    async def _plays(self, request: Request) -> Response:
        video = self._video(request)
        return JSONResponse({"plays": await run_in_threadpool(self.watched.plays, video)})

    async def _events(self, request: Request) -> Response:
        self._check_project(request.query_params.get("project"))
        try:
            revision = int(request.headers.get("last-event-id") or request.query_params.get("since", "0"))
        except ValueError as error:
            raise HTTPException(400) from error
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue()

        def listen(entry: Entry) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(queue.put_nowait, _event(entry))

        try:
            missed = await run_in_threadpool(self.project.listen, revision, listen)
        except ConflictError:
            return StreamingResponse(_once("event: anew\ndata: \n\n"), media_type="text/event-stream")
        return StreamingResponse(self._stream(missed, queue, listen), media_type="text/event-stream")

    async def _stream(
        self, missed: list[Entry], queue: "asyncio.Queue[str]", listen: Callable[[Entry], None]
    ) -> AsyncIterator[str]:
        silent, leave_training = 0.0, self._training.listen(queue)
        try:
            yield "retry: 500\n\n" + "".join(map(_event, missed))
            while not self.ending().is_set():
                try:
                    yield await asyncio.wait_for(queue.get(), GLANCE)
                    silent = 0.0
                except TimeoutError:
                    silent += GLANCE
                if silent > BEAT:
                    silent = 0.0
                    yield ": still here\n\n"
        finally:
            self.project.leave(listen)
            leave_training()

    async def _change(self, request: Request) -> Response:
        body = await self._body_here(request)
        changes = body.get("changes")
        if not isinstance(changes, list):
            raise RequestError("That is no change.", "reload the page.")
        entry = await run_in_threadpool(self.project.change, _id(body), [change_of(one) for one in changes])
        return self._taken(entry)

    async def _turn(self, request: Request) -> Response:
        body = await self._body_here(request)
        if body.get("deed") not in ("undo", "redo") or body.get("video") not in self.watched.videos:
            raise RequestError("That can be neither undone nor redone.", "reload the page.")
        entry = await run_in_threadpool(self.project.turn, _id(body), body["video"], body["deed"])
        return self._taken(entry)

    async def _proposals(self, request: Request) -> Response:
        order = request.query_params.get("order", "")
        return JSONResponse(await run_in_threadpool(proposals_in_order, self.project, self.proposer, order))

    async def _decide(self, request: Request) -> Response:
        body = await self._body_here(request)
        decision = decision_of(body, self.watched.videos)
        return self._taken(await run_in_threadpool(self.project.decide, _id(body), decision))

    async def _body_here(self, request: Request) -> dict[str, Any]:
        body = await _body(request)
        self._check_project(body.get("project"))
        return body

    def _check_project(self, name: Any) -> None:
        """Refuse a tab of another project that was served here before, whose browser has the cookies of both."""
        if name not in (None, self.project.id):
            raise HTTPException(403)

    def _taken(self, entry: Entry | None) -> Response:
        return JSONResponse({"entry": entry.to_dict() if entry else None, "trouble": self.project.trouble})

    async def _told(self, request: Request, error: Exception) -> Response:
        status = 409 if isinstance(error, ConflictError) else 400 if isinstance(error, RequestError) else 500
        told = {"error": str(error), "hint": getattr(error, "hint", ""), "revision": self.project.revision}
        return JSONResponse(told, status)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request, which is not large. Raises HTTPException or RequestError."""
    data = await read_json(request, MOST_BYTES)
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RequestError("That is no JSON.", "reload the page.") from error
    if not isinstance(body, dict):
        raise RequestError("That is no change.", "reload the page.")
    return body


def _id(body: dict[str, Any]) -> str:
    name = body.get("id")
    if not isinstance(name, str) or not 8 <= len(name) <= 100:
        raise RequestError("A change has an id.", "reload the page.")
    return name


def _event(entry: Entry) -> str:
    return f"id: {entry.revision}\ndata: {json.dumps(entry.to_dict())}\n\n"


async def _once(text: str) -> AsyncIterator[str]:
    yield text


def proposals_in_order(project: Project, proposer: Proposer, order: str) -> dict[str, Any]:
    """The open proposals, as the places of their videos and their ids, and how far the search for more is.

    order: one of ORDERS; the first one where it is none.
    """
    places = {video: at for at, video in enumerate(proposer.videos)}
    revision, state = project.snapshot()
    chosen = ORDERS.get(order) or next(iter(ORDERS.values()))
    placed = sorted(waiting(state, places), key=chosen)
    return {
        "revision": revision,
        "order": [[places[one.video], one.key] for one in placed],
        "search": proposer.searched().to_dict(),
    }


def decision_of(body: Mapping[str, Any], videos: Collection[str]) -> Decision:
    """The decision that a request is: to `accept` a proposal, with a `label` that it is corrected to, or to `reject`.

    Raises RequestError where it is none.
    """
    deed, video, key, made = (body.get(name) for name in ("decision", "video", "key", "label_key"))
    sound = isinstance(key, str) and isinstance(made, str) and 8 <= len(made) <= 100
    if deed not in ("accept", "reject") or video not in videos or not sound:
        raise RequestError("That is no decision.", "reload the page.")
    assert isinstance(video, str) and isinstance(key, str) and isinstance(made, str)
    if deed == "reject":
        return rejected(video, key, made)
    wanted = body.get("label")
    change = change_of({"kind": "label", "video": video, "key": made, "before": None, "after": wanted})
    return accepted(video, key, made, change.after if isinstance(change.after, Label) else None)
