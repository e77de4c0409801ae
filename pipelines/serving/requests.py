"""What a served page sends: JSON of a size that is not large, and how anything else is refused."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response


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
