"""The web application of a labels project: the page, frames and films, changes by any tab, training."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from lstr.errors import ConflictError, LstrError, RequestError
from lstr.extractors.video.probe import DIGITS
from lstr.labels.label_set import BACKGROUND
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import ORDERS, accept, find_open, reject
from lstr.pipelines.labelling.search import Proposer
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.values import MAX_COMMENT, NOTHING, RESERVED, Label, change_of
from lstr.pipelines.labelling.videos import Videos
from lstr.pipelines.pages.page import Script, build_page, embed_json
from lstr.pipelines.pages.palette import CLASSES
from lstr.pipelines.pages.server import event_stream, page_response, read_json, refused

STYLES = ("lanes.css", "report.css", "label.css")
SCRIPTS = (
    "lanes.js", "served.js", "label-project.js", "label-marks.js", "label-frames.js", "label-lanes.js",
    "label-lists.js", "label-proposals.js", "label-training.js", "label.js",
)  # fmt: skip
MAX_BYTES = 2**22  # of a request
BEAT_S = 15.0  # after which a silent stream of events sends a comment, so that the browser keeps the connection
POLL_S = 0.1  # between two looks for changes, for progress and for the end of the server
MEDIA_TYPES = {".webm": "video/webm"}
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
    label: Label | None = None


class TrainRequest(Posted, kw_only=True):
    """A training begins; `seconds` is its time limit."""

    seconds: float | None = None


PostedT = TypeVar("PostedT", bound=Posted)


@dataclass(frozen=True)
class Site:
    """The application of a project and its videos; `ending` is set when streams of events are to end."""

    project: Project
    videos: Videos
    proposer: Proposer
    training: Training
    ending: Callable[[], Event]

    def app(self) -> Starlette:
        """Return the application."""
        get = {
            "/": self._page,
            "/times/{at:int}": self._times,
            "/frame/{at:int}": self._frame,
            "/film/{at:int}": self._film,
            "/plays/{at:int}": self._plays,
            "/events": self._events,
            "/proposals": self._proposals,
            "/training/{number:int}/report/{name:path}": self._report,
        }
        post = {
            "/change": self._change,
            "/turn": self._turn,
            "/decide": self._decide,
            "/training/begin": self._begin,
            "/training/stop": self._stop,
        }
        routes = [Route(path, answer) for path, answer in get.items()]
        routes += [Route(path, answer, methods=["POST"]) for path, answer in post.items()]
        handlers: Any = {LstrError: self._explain, HTTPException: refused}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _page(self, request: Request) -> Response:
        return page_response(await run_in_threadpool(self._build_page))

    def _build_page(self) -> str:
        """Return the page with all values as they are now; times, frames and films are asked for later."""
        revision, state = self.project.snapshot()
        document = {
            **msgspec.to_builtins(state),
            "videos": [{"id": video, "duration": self.project.durations.get(video)} for video in self.videos.paths],
            "file": str(self.project.path),
            "project": self.project.id,
            "revision": revision,
            "orders": list(ORDERS),
            "nothing": NOTHING,
            "background": BACKGROUND,
            "reserved": sorted(RESERVED),
            "longest": MAX_COMMENT,
            "palette": CLASSES,
            "colours": {},
        }
        return build_page("label.html", "Labels", STYLES, Script(SCRIPTS, document, is_served=True))

    def _video(self, request: Request) -> str:
        """Return the id of the video at the place that an address names: no path comes from outside."""
        ids, at = list(self.videos.paths), request.path_params["at"]
        if not 0 <= at < len(ids):
            raise HTTPException(404)
        return ids[at]

    async def _times(self, request: Request) -> Response:
        video = self._video(request)
        index = await run_in_threadpool(self.videos.index, video)
        duration = round(index.duration, DIGITS)
        await run_in_threadpool(self.project.set_duration, video, duration)
        headers = {"x-duration": repr(duration), "x-start": repr(index.start)}
        return Response(index.times.astype("<f8").tobytes(), media_type="application/octet-stream", headers=headers)

    async def _frame(self, request: Request) -> Response:
        video, query = self._video(request), request.query_params
        try:
            number, long_side = int(query["number"]), int(query.get("side", "1280"))
            data = await run_in_threadpool(self.videos.jpeg, video, number, long_side)
        except (KeyError, ValueError, IndexError) as error:
            raise HTTPException(404) from error
        headers = {"x-time": repr(float(self.videos.index(video).times[number]))}
        headers["cache-control"] = "private, max-age=600"
        return Response(data, media_type="image/jpeg", headers=headers)

    async def _film(self, request: Request) -> Response:
        video = self._video(request)
        plays, path = self.videos.playable(video)
        while plays == "soon" and "wait" in request.query_params and not self.ending().is_set():
            await asyncio.sleep(POLL_S)
            plays, path = self.videos.playable(video)
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=MEDIA_TYPES.get(path.suffix.lower(), "video/mp4"))

    async def _plays(self, request: Request) -> Response:
        return JSONResponse({"plays": self.videos.playable(self._video(request))[0]})

    async def _events(self, request: Request) -> Response:
        """Stream the entries after a revision and the state of training, by any tab."""
        self._check_project(request.query_params.get("project"))
        try:
            revision = int(request.headers.get("last-event-id") or request.query_params.get("since", "0"))
        except ValueError as error:
            raise HTTPException(400) from error
        try:
            self.project.since(revision)
        except ConflictError:
            return Response("event: anew\ndata: \n\n", media_type="text/event-stream")
        return event_stream(self._stream(revision))

    async def _stream(self, revision: int) -> AsyncIterator[str]:
        shown, silent = "", 0.0
        yield "retry: 500\n\n"
        while not self.ending().is_set():
            texts = []
            for entry in self.project.since(revision):
                revision = entry.revision
                texts.append(f"id: {revision}\ndata: {json.dumps(msgspec.to_builtins(entry))}\n\n")
            training = json.dumps(self.training.describe())
            if training != shown:
                shown = training
                texts.append(f"event: training\ndata: {training}\n\n")
            silent = 0.0 if texts else silent + POLL_S
            if silent > BEAT_S:
                silent = 0.0
                texts.append(": still here\n\n")
            for text in texts:
                yield text
            await asyncio.sleep(POLL_S)

    async def _change(self, request: Request) -> Response:
        posted = await self._read(request, ChangeRequest)
        changes = [change_of(one) for one in posted.changes]
        return await self._answer(self.project.change, posted.id, changes)

    async def _turn(self, request: Request) -> Response:
        posted = await self._read(request, TurnRequest)
        self._check_video(posted.video)
        return await self._answer(self.project.turn, posted.id, posted.video, posted.deed)

    async def _decide(self, request: Request) -> Response:
        posted = await self._read(request, DecideRequest)
        self._check_video(posted.video)
        place = posted.video, posted.key, posted.label_key
        if posted.decision == "reject":
            return await self._answer(self.project.decide, posted.id, lambda state: reject(state, *place))
        return await self._answer(self.project.decide, posted.id, lambda state: accept(state, *place, posted.label))

    async def _proposals(self, request: Request) -> Response:
        order = ORDERS.get(request.query_params.get("order", "")) or next(iter(ORDERS.values()))
        return JSONResponse(await run_in_threadpool(self._list_proposals, order))

    def _list_proposals(self, order: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the open proposals as [place of the video, id] in an order, and how far the search is."""
        places = {video: at for at, video in enumerate(self.videos.paths)}
        revision, state = self.project.snapshot()
        found = [[places[one.video], one.key] for one in sorted(find_open(state, places), key=order)]
        return {"revision": revision, "order": found, "search": asdict(self.proposer.status)}

    async def _begin(self, request: Request) -> Response:
        posted = await self._read(request, TrainRequest)
        await run_in_threadpool(self.training.begin, posted.seconds)
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
        return page_response(await run_in_threadpool(self._link_films, path))

    def _link_films(self, report: Path) -> str:
        """Return a report whose videos come from this server: a served page may not open files of the disk."""
        films = {video: f"/film/{at}?wait" for at, video in enumerate(self.videos.paths)}

        def link(found: re.Match[str]) -> str:
            document = json.loads(found[2])
            for model in document.get("models", ()):
                for video in model["videos"]:
                    video["video"] = films.get(video["id"])
            return found[1] + embed_json(document) + found[3]

        return DATA.sub(link, report.read_text("utf-8"), count=1)

    async def _read(self, request: Request, kind: type[PostedT]) -> PostedT:
        """Return what a page has sent. Raises HTTPException or RequestError."""
        data = await read_json(request, MAX_BYTES)
        try:
            posted = msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestError(f"Not a request of this page ({error}).", "reload the page.") from error
        self._check_project(posted.project)
        return posted

    def _check_project(self, name: str | None) -> None:
        """Refuse a tab of another project that this port served before: the browser has the cookies of both."""
        if name not in (None, self.project.id):
            raise HTTPException(403)

    def _check_video(self, video: str) -> None:
        if video not in self.videos.paths:
            raise RequestError("The page has no such video.", "reload the page.")

    async def _answer(self, act: Callable[..., Any], *arguments: Any) -> Response:
        """Change the project in a thread; return its entry, and why the file could not be written."""
        entry = await run_in_threadpool(act, *arguments)
        return JSONResponse({"entry": msgspec.to_builtins(entry), "trouble": self.project.trouble})

    async def _explain(self, request: Request, error: Exception) -> Response:
        status = 409 if isinstance(error, ConflictError) else 400 if isinstance(error, RequestError) else 500
        content = {"error": str(error), "hint": getattr(error, "hint", ""), "revision": self.project.revision}
        return JSONResponse(content, status)
