"""What a served page sends and gets: JSON of a limited size, pages, refusals, and streams of server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

# Streams that are open at once.
MAX_STREAMS = 64
# Seconds that a browser may take to read a piece.
READ_TIMEOUT_S = 10.0
# A page has a policy of its own, which cannot say this.
PAGE_POLICY = {"content-security-policy": "frame-ancestors 'none'"}


def page_response(text: str) -> Response:
    """Return the response that is a page."""
    return Response(text, media_type="text/html; charset=utf-8", headers=PAGE_POLICY)


async def read_json(request: Request, most_bytes: int) -> bytes:
    """The text of a request that calls itself JSON. Raises HTTPException for another kind, and for a larger one."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415)  # what a form of another page can send is no JSON
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > most_bytes:
            raise HTTPException(413)
    return data


async def refused(request: Request, error: Exception) -> Response:
    """The answer to a request that has met an HTTPException: its code and nothing else."""
    assert isinstance(error, HTTPException)
    return PlainTextResponse("", error.status_code)


class Streams:
    """The streams of one server."""

    def __init__(self, most: int = MAX_STREAMS):
        self.most, self.open = most, 0

    def stream(self, pieces: Callable[[], AsyncIterator[str]]) -> Response:
        """The answer that sends `pieces` as they come. Raises HTTPException (503) where too many are open.

        Where there is nothing to send, an empty piece now and then lets it see whether the browser has left.
        """
        if self.open >= self.most:
            raise HTTPException(503, headers={"retry-after": "30"})
        return _Stream(self, pieces)


class _Stream(Response):
    media_type = "text/event-stream"

    def __init__(self, streams: Streams, pieces: Callable[[], AsyncIterator[str]]):
        super().__init__()
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"  # a proxy that kept pieces back would show them late
        self._streams, self._pieces = streams, pieces
        streams.open += 1  # from now on: between this and the call no other request is answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_left(receive))
        pieces = self._pieces()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for text in pieces:
                if gone.done():
                    return
                if not text:
                    continue
                # one that does not read holds what it was sent until now, and no more
                message = {"type": "http.response.body", "body": text.encode(), "more_body": True}
                await asyncio.wait_for(send(message), READ_TIMEOUT_S)
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return  # without an end, so that the connection is closed
        finally:
            self._streams.open -= 1
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
