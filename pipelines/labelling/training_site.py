"""What the server of a labels project answers about training, and the reports of its models."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from lstr.errors import RequestError
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.pages.page import embed_json
from lstr.pipelines.pages.responses import page_response

REPORT = "report.html"
DATA = re.compile('(<script type="application/json" id="data">)(.*?)(</script>)', re.DOTALL)


@dataclass(frozen=True)
class TrainingSite:
    """The routes of training. videos: ids in the order of their films' addresses; read_body: a request's JSON."""

    training: Training
    videos: Sequence[str]
    read_body: Callable[[Request], Awaitable[dict[str, Any]]]

    def routes(self) -> list[Route]:
        """Return all of them."""
        return [
            Route("/training/begin", self._begin, methods=["POST"]),
            Route("/training/stop", self._stop, methods=["POST"]),
            Route("/training/{number:int}/report/{name:path}", self._report),
        ]

    def listen(self, queue: "asyncio.Queue[str]") -> Callable[[], None]:
        """Put the state of the training, and each later one, into the queue of a stream of events.

        Returns what ends that.
        """
        loop = asyncio.get_running_loop()

        def put(state: dict[str, Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(queue.put_nowait, f"event: training\ndata: {json.dumps(state)}\n\n")

        put(self.training.listen(put))
        return lambda: self.training.leave(put)

    async def _begin(self, request: Request) -> Response:
        seconds = (await self.read_body(request)).get("seconds")
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
            raise RequestError("The time limit is not a number.", "reload the page.")
        await run_in_threadpool(self.training.begin, seconds)
        return JSONResponse(self.training.describe())

    async def _stop(self, request: Request) -> Response:
        await self.read_body(request)
        await run_in_threadpool(self.training.stop)
        return JSONResponse(self.training.describe())

    async def _report(self, request: Request) -> Response:
        folder = self.training.report(request.path_params["number"]).resolve()
        path = (folder / request.path_params["name"]).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise HTTPException(404)
        if path != folder / REPORT:
            return FileResponse(path)
        text = await run_in_threadpool(self._watchable, path)
        return page_response(text)

    def _watchable(self, path: Path) -> str:
        """Return a report whose videos come from this server: a served page may not open files of the disk."""
        films = {video: f"/film/{at}?wait" for at, video in enumerate(self.videos)}

        def with_films(found: re.Match[str]) -> str:
            document = json.loads(found[2])
            for model in document.get("models", ()):
                for video in model["videos"]:
                    video["video"] = films.get(video["id"])
            return found[1] + embed_json(document) + found[3]

        return DATA.sub(with_films, path.read_text("utf-8"), count=1)
