"""The web application of a labels project: the page, frames and films, changes by any tab, training.

Starlette runs the handlers that are not `async` in threads.
"""

import asyncio
import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import cv2
import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from lstr.errors import ConflictError, LstrError, RequestError, brief
from lstr.extractors.video.exact_frames import ExactFrames, index_frames
from lstr.extractors.video.probe import DIGITS, Video
from lstr.files.home import home
from lstr.pipelines.labelling.proposals import ORDERS, accept, find_open, reject
from lstr.pipelines.labelling.search import Proposer
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.values import MAX_COMMENT, NOTHING, RESERVED, Label, change_of
from lstr.pipelines.pages.page import MEDIA_TYPES, build_page, embed_json
from lstr.pipelines.pages.palette import CLASSES
from lstr.pipelines.pages.proxy import find_playable
from lstr.pipelines.pages.server import Body, Server, event_stream, page_response, read_body, refused

SCRIPTS = (
    "lanes.js", "served.js", "label-project.js", "label-marks.js", "label-frames.js", "label-lanes.js",
    "label-lists.js", "label-proposals.js", "label-training.js", "label.js",
)  # fmt: skip
# Of a request: 10,000 changes of 400 bytes each
MAX_BYTES = 2**22
BEAT_S = 15.0  # after which a silent stream of events sends a comment, so that the browser keeps the connection
POLL_S = 0.1  # between two looks for changes, for progress and for the end of the server
DATA = re.compile('<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
MAX_OPEN = 3  # videos with an open decoder and its latest frames; a person labels one at a time
JPEG_QUALITY = 92  # percent
MIN_SIDE, MAX_SIDE = 16, 4096  # pixels


class Videos(AbstractContextManager["Videos"]):
    """Videos by id; everything is computed when it is first asked for, from any thread. Use it as a context manager."""

    def __init__(self, paths: Mapping[str, Path]):
        self.paths = dict(paths)
        self._lock = threading.Lock()
        self._frames: OrderedDict[str, ExactFrames] = OrderedDict()
        self._threads = ThreadPoolExecutor(2, "videos")
        self._started = cache(self._threads.submit)  # the same task is done once

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for frames in self._frames.values():
            frames.close()

    def index(self, video: str) -> Video:
        """Return the times of a video's frames. Raises as `index_frames`."""
        with self._lock:
            indexed = self._started(index_frames, self.paths[video])
        return indexed.result()

    def jpeg(self, video: str, number: int, long_side: int) -> bytes:
        """Return a frame as JPEG. Raises IndexError if the frame does not exist, VideoError."""
        index = self.index(video)
        with self._lock:
            frames = self._frames.setdefault(video, ExactFrames(index))
            self._frames.move_to_end(video)
            closed = [self._frames.popitem(last=False)[1] for _ in range(len(self._frames) - MAX_OPEN)]
        for others in closed:
            others.close()
        image = frames.image(number, max(MIN_SIDE, min(long_side, MAX_SIDE)))
        return np.asarray(cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]).tobytes()

    def playable(self, video: str) -> tuple[str, Path | None]:
        """Return how a browser plays a video and the file: `video` or `copy`, or without a file `soon` or `never`."""
        path = self.paths[video]
        name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
        with self._lock:
            future = self._started(find_playable, path, home() / "copies", name)
        if not future.done():
            return "soon", None
        found = future.result()
        return ("never" if found is None else "video" if found == path else "copy"), found


Id = Annotated[str, msgspec.Meta(min_length=8, max_length=100)]
TimeLimit = Annotated[float, msgspec.Meta(ge=60, le=7 * 86400)] | None  # of a training, in seconds


class Posted(msgspec.Struct):
    """A change of the project; it is made once, however often a page sends it with the same id."""

    id: Id


class ChangeRequest(Posted):
    """Changes, each as of `change_of`."""

    changes: list[Any]


class TurnRequest(Posted):
    """Undo or redo in one video."""

    deed: Literal["undo", "redo"]
    video: str


class DecideRequest(Posted):
    """A decision on a proposal; `label` is the correction of an accepted one."""

    decision: Literal["accept", "reject"]
    video: str
    key: str
    label_key: Id
    label: Label | None = None


class Site:
    """The application of a project and its videos, which `server` serves."""

    def __init__(self, videos: Videos, proposer: Proposer, training: Training, server: Server):
        self.videos, self.proposer, self.training, self.server = videos, proposer, training, server
        self.project = training.project
        post: Any = {"methods": ["POST"]}
        routes = [
            Route("/", self.page),
            Route("/times/{at:int}", self.times),
            Route("/frame/{at:int}", self.frame),
            Route("/film/{at:int}", self.film),
            Route(
                "/plays/{at:int}", lambda request: JSONResponse({"plays": self.videos.playable(self.video(request))[0]})
            ),
            Route("/events", self.events),
            Route("/proposals", self.proposals),
            Route("/training/{number:int}/report/{name:path}", self.report),
            Route("/change", self.change, **post),
            Route("/turn", self.turn, **post),
            Route("/decide", self.decide, **post),
            Route("/training/begin", self.train, **post),
            Route("/training/stop", self.train, **post),
        ]
        handlers: Any = {LstrError: self.explain, HTTPException: refused}
        self.app = Starlette(routes=routes, exception_handlers=handlers)

    def page(self, request: Request) -> Response:
        """Send the page with all values as they are now; it asks for times, frames and films later."""
        revision, state = self.project.snapshot()
        document = {
            **msgspec.to_builtins(state),
            "videos": [{"id": video, "duration": self.project.durations.get(video)} for video in self.videos.paths],
            "file": str(self.project.path),
            "project": self.project.id,
            "revision": revision,
            "orders": list(ORDERS),
            "nothing": NOTHING,
            "reserved": sorted(RESERVED),
            "longest": MAX_COMMENT,
            "palette": CLASSES,
            "colours": {},
        }
        return page_response(build_page("label", "Labels", SCRIPTS, document, is_served=True))

    def video(self, request: Request) -> str:
        """Return the id of the video at the place that an address names: no path comes from outside."""
        ids, at = list(self.videos.paths), request.path_params["at"]
        if not 0 <= at < len(ids):
            raise HTTPException(404)
        return ids[at]

    def times(self, request: Request) -> Response:
        """Send the times of a video's frames in seconds, float64; its duration and its start are in the headers."""
        video = self.video(request)
        index = self.videos.index(video)
        duration = round(index.duration, DIGITS)
        self.project.set_duration(video, duration)
        headers = {"x-duration": repr(duration), "x-start": repr(index.start)}
        return Response(index.times.astype("<f8").tobytes(), media_type="application/octet-stream", headers=headers)

    def frame(self, request: Request) -> Response:
        """Send a frame by its number, as JPEG."""
        video, query = self.video(request), request.query_params
        try:
            number, long_side = int(query["number"]), int(query.get("side", "1280"))
            data = self.videos.jpeg(video, number, long_side)
        except (KeyError, ValueError, IndexError) as error:
            raise HTTPException(404) from error
        headers = {"x-time": repr(float(self.videos.index(video).times[number]))}
        # so that stepping back and forth loads no frame twice
        headers["cache-control"] = "private, max-age=600"
        return Response(data, media_type="image/jpeg", headers=headers)

    async def film(self, request: Request) -> Response:
        """Send a file that browsers play; with `?wait` once there is one."""
        video = self.video(request)
        # the player of a report asks once, perhaps before the copy is made; the page to label asks again itself
        waits = "wait" in request.query_params
        while (found := self.videos.playable(video))[0] == "soon" and waits and not self.server.ending.is_set():
            await asyncio.sleep(POLL_S)
        path = found[1]
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=MEDIA_TYPES.get(path.suffix.lower(), "video/mp4"))

    async def events(self, request: Request) -> Response:
        """Stream the entries after a revision and the state of training, by any tab."""
        self.check_project(request)
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")
        if not since.isdecimal():
            raise HTTPException(400)
        return event_stream(self.stream(int(since)))

    async def stream(self, revision: int) -> AsyncIterator[str]:
        """Yield the events after a revision, until the server ends or the project does not reach back to it."""
        shown, silent = "", 0.0
        piece = "retry: 500\n\n"
        while not self.server.ending.is_set():
            try:
                entries = self.project.since(revision)
            except ConflictError:
                yield "event: restart\ndata: \n\n"
                return
            for entry in entries:
                revision = entry.revision
                piece += f"id: {revision}\ndata: {json.dumps(msgspec.to_builtins(entry))}\n\n"
            training = json.dumps(self.training.describe())
            if training != shown:
                shown = training
                piece += f"event: training\ndata: {training}\n\n"
            silent = 0.0 if piece else silent + POLL_S
            if silent > BEAT_S:
                silent, piece = 0.0, ": still here\n\n"
            if piece:
                yield piece
            piece = ""
            await asyncio.sleep(POLL_S)

    async def change(self, request: Request) -> Response:
        posted = await self.read(request, ChangeRequest)
        changes = [change_of(one) for one in posted.changes]
        return await self.answer(self.project.change, posted.id, changes)

    async def turn(self, request: Request) -> Response:
        posted = await self.read(request, TurnRequest)
        return await self.answer(self.project.turn, posted.id, posted.video, posted.deed)

    async def decide(self, request: Request) -> Response:
        posted = await self.read(request, DecideRequest)
        place = posted.video, posted.key, posted.label_key
        if posted.decision == "reject":
            return await self.answer(self.project.change, posted.id, lambda state: reject(state, *place))
        return await self.answer(self.project.change, posted.id, lambda state: accept(state, *place, posted.label))

    def proposals(self, request: Request) -> Response:
        """Send the open proposals as [place of the video, id] in an order, and how far the search is."""
        order = ORDERS.get(request.query_params.get("order", "")) or next(iter(ORDERS.values()))
        places = {video: at for at, video in enumerate(self.videos.paths)}
        revision, state = self.project.snapshot()
        ordered = sorted(find_open(state, places), key=lambda one: order(one[2]))
        found = [[places[video], key] for video, key, _ in ordered]
        return JSONResponse({"revision": revision, "order": found, "search": asdict(self.proposer.status)})

    async def train(self, request: Request) -> Response:
        posted = await self.read(request, dict[str, TimeLimit])
        if request.url.path == "/training/begin":
            await run_in_threadpool(self.training.begin, posted.get("seconds"))
        else:
            await run_in_threadpool(self.training.stop)
        return JSONResponse(self.training.describe())

    def report(self, request: Request) -> Response:
        """Send a file of the report of a model; on its page, which may not open files, videos come from this server."""
        folder = self.training.report(request.path_params["number"]).resolve()
        path = (folder / request.path_params["name"]).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise HTTPException(404)
        if path != folder / "report.html":
            return FileResponse(path)
        films = {video: f"/film/{at}?wait" for at, video in enumerate(self.videos.paths)}
        page = path.read_text("utf-8")
        if data := DATA.search(page):
            document = json.loads(data[1])
            for model in document.get("models", ()):
                for video in model["videos"]:
                    video["video"] = films.get(video["id"])
            page = page[: data.start(1)] + embed_json(document) + page[data.end(1) :]
        return page_response(page)

    async def read(self, request: Request, kind: type[Body]) -> Body:
        """Return what a page has sent. Raises HTTPException or RequestError."""
        self.check_project(request)
        body = await read_body(request, kind, MAX_BYTES)
        if isinstance(body, TurnRequest | DecideRequest) and body.video not in self.videos.paths:
            raise RequestError(f"Unknown video: {brief(body.video)}.", "reload the page.")
        return body

    def check_project(self, request: Request) -> None:
        """Refuse a tab of another project that this port served before: the browser has the cookies of both."""
        if request.query_params.get("project", self.project.id) != self.project.id:
            raise HTTPException(403)

    async def answer(self, act: Callable[..., Any], *arguments: Any) -> Response:
        """Change the project in a thread; return its entry, and why the file could not be written."""
        entry = await run_in_threadpool(act, *arguments)
        return JSONResponse({"entry": msgspec.to_builtins(entry), "trouble": self.project.trouble})

    async def explain(self, request: Request, error: Exception) -> Response:
        status = 409 if isinstance(error, ConflictError) else 400 if isinstance(error, RequestError) else 500
        content = {"error": str(error), "hint": getattr(error, "hint", ""), "revision": self.project.revision}
        return JSONResponse(content, status)
