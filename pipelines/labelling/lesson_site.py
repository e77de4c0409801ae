"""What the server of a labels project answers about its learnings, and their reports."""

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

from lstr.pipelines.labelling.lessons import Lessons
from lstr.pipelines.labelling.values import RefusedError
from lstr.pipelines.reports.page import embed_json

REPORT = "report.html"
DATA = re.compile('(<script type="application/json" id="data">)(.*?)(</script>)', re.DOTALL)
POLICY = {"content-security-policy": "frame-ancestors 'none'"}
"""A report has a policy of its own, which lets its script run, and cannot say this"""


@dataclass(frozen=True)
class LessonSite:
    """The routes of learnings. videos: ids in the order of their films' addresses; read_body: a request's JSON."""

    lessons: Lessons
    videos: Sequence[str]
    read_body: Callable[[Request], Awaitable[dict[str, Any]]]

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/lessons", self._lessons),
            Route("/lessons/{number:int}/report/{name:path}", self._report),
            Route("/lessons/{deed}", self._do, methods=["POST"]),
        ]

    def tell(self, queue: "asyncio.Queue[str]") -> Callable[[], None]:
        """Put the state of the learnings, and each later one, into the queue of a stream of events; call what is
        returned to end that."""
        loop = asyncio.get_running_loop()

        def put(state: dict[str, Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(queue.put_nowait, f"event: lesson\ndata: {json.dumps(state)}\n\n")

        put(self.lessons.listen(put))
        return lambda: self.lessons.leave(put)

    async def _lessons(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.lessons.describe))

    async def _do(self, request: Request) -> Response:
        body, deed = await self.read_body(request), request.path_params["deed"]
        await run_in_threadpool(self._done, deed, body)
        return JSONResponse(self.lessons.state())

    def _done(self, deed: str, body: dict[str, Any]) -> None:
        """Do what a page asks for. Raises as the method of `Lessons`, RefusedError for anything else."""
        number, seconds, name = body.get("number"), body.get("seconds"), body.get("name")
        numbered = {"go-on": self.lessons.go_on, "remove": self.lessons.remove, "use": self.lessons.use}
        if deed == "begin" and (seconds is None or (isinstance(seconds, int | float) and seconds is not True)):
            self.lessons.begin(None if seconds is None else float(seconds))
        elif deed == "stop":
            self.lessons.stop()
        elif deed == "name" and isinstance(number, int) and isinstance(name, str):
            self.lessons.call(number, name)
        elif deed in numbered and isinstance(number, int):
            numbered[deed](number)
        else:
            raise RefusedError("That cannot be done.", "reload the page.")

    async def _report(self, request: Request) -> Response:
        folder = self.lessons.files(request.path_params["number"]).report.resolve()
        path = (folder / request.path_params["name"]).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise HTTPException(404)
        if path != folder / REPORT:
            return FileResponse(path)
        text = await run_in_threadpool(self._watchable, path)
        return Response(text, media_type="text/html; charset=utf-8", headers=POLICY)

    def _watchable(self, path: Path) -> str:
        """A report whose videos come from this server: a page that is served may not open files of the disk."""
        films = {video: f"/film/{at}?wait" for at, video in enumerate(self.videos)}

        def with_films(found: re.Match[str]) -> str:
            document = json.loads(found[2])
            for model in document.get("models", ()):
                for video in model["videos"]:
                    video["video"] = films.get(video["id"])
            return found[1] + embed_json(document) + found[3]

        return DATA.sub(with_films, path.read_text("utf-8"), count=1)
