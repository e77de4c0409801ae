"""What the server of a labels project answers: the page, frames and films, changes by any tab, training."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lstr.errors import ConflictError, LstrError, RequestError
from lstr.extractors.video.probe import DIGITS
from lstr.labels.label_set import BACKGROUND
from lstr.pipelines.labelling.journal import Entry
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import ORDERS, accepted, rejected, waiting
from lstr.pipelines.labelling.proposer import Proposer
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.values import (
    LONGEST_COMMENT,
    NOTHING,
    RESERVED,
    Label,
    change_of,
)
from lstr.pipelines.labelling.watched import Watched
from lstr.pipelines.pages.page import Script, build_page, embed_json
from lstr.pipelines.pages.palette import CLASSES
from lstr.pipelines.pages.responses import page_response, read_json, refused

STYLES = ("lanes.css", "report.css", "label.css")
SCRIPTS = (
    "lanes.js", "served.js", "label-project.js", "label-marks.js", "label-frames.js", "label-lanes.js",
    "label-lists.js", "label-proposals.js", "label-training.js", "label.js",
)  # fmt: skip
# Bytes that a request may have.
MAX_BYTES = 2**22
BEAT_S = 15.0  # after which a silent stream of events shows that it is there
POLL_S = 0.3  # between two looks at whether the server ends
MEDIA = {".webm": "video/webm"}
REPORT = "report.html"
DATA = re.compile('(<script type="application/json" id="data">)(.*?)(</script>)', re.DOTALL)

Id = Annotated[str, msgspec.Meta(min_length=8, max_length=100)]


class Posted(msgspec.Struct, kw_only=True):
    """What a page sends; `project` is the id of the one that it shows."""

    project: str | None = None


class ChangeRequest(Posted, kw_only=True):
    """Changes, each as of `change_of`."""

    id: Id
    changes: list[Any]


class TurnRequest(Posted, kw_only=True):
    """Undo or redo in one video."""

    id: Id
    deed: Literal["undo", "redo"]
    video: str


class DecideRequest(Posted, kw_only=True):
    """A proposal is accepted, with a `label` that it is corrected to, or rejected."""

    id: Id
    decision: Literal["accept", "reject"]
    video: str
    key: str
    label_key: Id
    label: Any = None


class TrainRequest(Posted, kw_only=True):
    """A training begins; `seconds` is its time limit."""

    seconds: float | None = None


PostedT = TypeVar("PostedT", bound=Posted)


@dataclass(frozen=True)
class Site:
    """The application of a project and its videos; `ending` is set when streams of events are to end."""

    project: Project
    watched: Watched
    proposer: Proposer
    ending: Callable[[], Event]
    training: Training

    def app(self) -> Starlette:
        """Return the application."""
        asked = {
            "/": self._page,
            "/times/{at:int}": self._times,
            "/frame/{at:int}": self._frame,
            "/film/{at:int}": self._film,
            "/plays/{at:int}": self._plays,
            "/events": self._events,
            "/proposals": self._proposals,
            "/training/{number:int}/report/{name:path}": self._report,
        }
        sent = {
            "/change": self._change,
            "/turn": self._turn,
            "/decide": self._decide,
            "/training/begin": self._begin,
            "/training/stop": self._stop,
        }
        routes = [Route(path, answer) for path, answer in asked.items()]
        routes += [Route(path, answer, methods=["POST"]) for path, answer in sent.items()]
        handlers: Any = {LstrError: self._told, HTTPException: refused}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _page(self, request: Request) -> Response:
        return page_response(await run_in_threadpool(self._build_page))

    def _build_page(self) -> str:
        """Return the page as the project is now: everything but times, frames and films of its videos."""
        revision, state = self.project.snapshot()
        document: dict[str, Any] = {
            "videos": [{"id": video, "duration": self.project.durations.get(video)} for video in self.watched.videos],
            "file": str(self.project.path),
            "project": self.project.id,
            "revision": revision,
            "labels": {v: {key: asdict(label) for key, label in held.items()} for v, held in state.labels.items()},
            "proposals": {v: {key: asdict(one) for key, one in held.items()} for v, held in state.proposals.items()},
            "orders": list(ORDERS),
            "abouts": {video: asdict(about) for video, about in state.abouts.items()},
            "actions": {key: asdict(action) for key, action in state.actions.items()},
            "subjects": {name: asdict(subject) for name, subject in state.subjects.items()},
            "nothing": NOTHING,
            "background": BACKGROUND,
            "reserved": sorted(RESERVED),
            "longest": LONGEST_COMMENT,
            "palette": CLASSES,
            "colours": {},
        }
        return build_page("label.html", "Labels", STYLES, Script(SCRIPTS, document, is_served=True))

    def _video(self, request: Request) -> str:
        """Return the id of the video at the place that an address names: no path comes from outside."""
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
            await asyncio.sleep(POLL_S)
            path = self.watched.playing(video)
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=MEDIA.get(path.suffix.lower(), "video/mp4"))

    async def _plays(self, request: Request) -> Response:
        video = self._video(request)
        return JSONResponse({"plays": await run_in_threadpool(self.watched.plays, video)})

    async def _events(self, request: Request) -> Response:
        """Stream what other tabs change and how a training goes on, from a revision on."""
        self._check_project(request.query_params.get("project"))
        try:
            revision = int(request.headers.get("last-event-id") or request.query_params.get("since", "0"))
        except ValueError as error:
            raise HTTPException(400) from error
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue()

        def put(text: str) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(queue.put_nowait, text)

        def hear_entry(entry: Entry) -> None:
            put(_event(entry))

        def hear_training(state: dict[str, Any]) -> None:
            put(f"event: training\ndata: {json.dumps(state)}\n\n")

        async def stream(missed: list[Entry]) -> AsyncIterator[str]:
            silent = 0.0
            try:
                hear_training(self.training.listen(hear_training))
                yield "retry: 500\n\n" + "".join(map(_event, missed))
                while not self.ending().is_set():
                    try:
                        yield await asyncio.wait_for(queue.get(), POLL_S)
                        silent = 0.0
                    except TimeoutError:
                        silent += POLL_S
                    if silent > BEAT_S:
                        silent = 0.0
                        yield ": still here\n\n"
            finally:
                self.project.leave(hear_entry)
                self.training.leave(hear_training)

        try:
            missed = await run_in_threadpool(self.project.listen, revision, hear_entry)
        except ConflictError:
            return Response("event: anew\ndata: \n\n", media_type="text/event-stream")
        return StreamingResponse(stream(missed), media_type="text/event-stream")

    async def _change(self, request: Request) -> Response:
        asked = await self._read(request, ChangeRequest)
        changes = [change_of(one) for one in asked.changes]
        return self._taken(await run_in_threadpool(self.project.change, asked.id, changes))

    async def _turn(self, request: Request) -> Response:
        asked = await self._read(request, TurnRequest)
        if asked.video not in self.watched.videos:
            raise RequestError("That can be neither undone nor redone.", "reload the page.")
        return self._taken(await run_in_threadpool(self.project.turn, asked.id, asked.video, asked.deed))

    async def _proposals(self, request: Request) -> Response:
        order = request.query_params.get("order", "")
        return JSONResponse(await run_in_threadpool(self._in_order, order))

    def _in_order(self, order: str) -> dict[str, Any]:
        """Return the open proposals by one of ORDERS, as places of videos and ids, and how far the search is."""
        places = {video: at for at, video in enumerate(self.proposer.videos)}
        revision, state = self.project.snapshot()
        placed = sorted(waiting(state, places), key=ORDERS.get(order) or next(iter(ORDERS.values())))
        found = [[places[one.video], one.key] for one in placed]
        return {"revision": revision, "order": found, "search": self.proposer.searched().to_dict()}

    async def _decide(self, request: Request) -> Response:
        asked = await self._read(request, DecideRequest)
        video, key, made = asked.video, asked.key, asked.label_key
        if video not in self.watched.videos:
            raise RequestError("That is no decision.", "reload the page.")
        if asked.decision == "reject":
            decision = rejected(video, key, made)
        else:
            change = change_of({"kind": "label", "video": video, "key": made, "before": None, "after": asked.label})
            decision = accepted(video, key, made, change.after if isinstance(change.after, Label) else None)
        return self._taken(await run_in_threadpool(self.project.decide, asked.id, decision))

    async def _begin(self, request: Request) -> Response:
        asked = await self._read(request, TrainRequest)
        await run_in_threadpool(self.training.begin, asked.seconds)
        return JSONResponse(self.training.describe())

    async def _stop(self, request: Request) -> Response:
        await self._read(request, Posted)
        await run_in_threadpool(self.training.stop)
        return JSONResponse(self.training.describe())

    async def _report(self, request: Request) -> Response:
        """Send a file of the report of a model."""
        folder = self.training.report(request.path_params["number"]).resolve()
        path = (folder / request.path_params["name"]).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise HTTPException(404)
        if path != folder / REPORT:
            return FileResponse(path)
        return page_response(await run_in_threadpool(self._with_films, path))

    def _with_films(self, path: Path) -> str:
        """Return a report whose videos come from this server: a served page may not open files of the disk."""
        films = {video: f"/film/{at}?wait" for at, video in enumerate(self.watched.videos)}

        def replaced(found: re.Match[str]) -> str:
            document = json.loads(found[2])
            for model in document.get("models", ()):
                for video in model["videos"]:
                    video["video"] = films.get(video["id"])
            return found[1] + embed_json(document) + found[3]

        return DATA.sub(replaced, path.read_text("utf-8"), count=1)

    async def _read(self, request: Request, kind: type[PostedT]) -> PostedT:
        """Return what a page has sent. Raises HTTPException or RequestError."""
        data = await read_json(request, MAX_BYTES)
        try:
            asked = msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestError(f"That is not a request of this page ({error}).", "reload the page.") from error
        self._check_project(asked.project)
        return asked

    def _check_project(self, name: str | None) -> None:
        """Refuse a tab of another project that was served here before, whose browser has the cookies of both."""
        if name not in (None, self.project.id):
            raise HTTPException(403)

    def _taken(self, entry: Entry | None) -> Response:
        return JSONResponse({"entry": entry.to_dict() if entry else None, "trouble": self.project.trouble})

    async def _told(self, request: Request, error: Exception) -> Response:
        status = 409 if isinstance(error, ConflictError) else 400 if isinstance(error, RequestError) else 500
        told = {"error": str(error), "hint": getattr(error, "hint", ""), "revision": self.project.revision}
        return JSONResponse(told, status)


def _event(entry: Entry) -> str:
    return f"id: {entry.revision}\ndata: {json.dumps(entry.to_dict())}\n\n"
