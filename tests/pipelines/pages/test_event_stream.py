"""A browser that does not read what it is sent."""

import asyncio
import socket
import time

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from lstr.pipelines.pages import responses
from lstr.pipelines.pages.server import Server
from tests.support.requests import Visitor


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system cannot close what nobody reads")
def test_it_is_cut_off(monkeypatch):
    """Its place is free within the patience, and its connection closed by the system soon after."""
    monkeypatch.setattr(responses, "READ_TIMEOUT_S", 0.3)
    monkeypatch.setattr("lstr.pipelines.pages.server.UNREAD_MS", 600)
    streams, sent = responses.Streams(1), []

    async def pieces():
        while True:
            sent.append(1)
            yield "data: " + "x" * 60000 + "\n\n"
            await asyncio.sleep(0)

    async def stream(request):
        return streams.stream(pieces)

    with Server(Starlette(routes=[Route("/stream", stream)]), port=0, is_impatient=True) as server:
        visitor = Visitor(server.address)
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((visitor.host, visitor.port))
        lines = ["GET /stream HTTP/1.1", f"Host: {visitor.host}:{visitor.port}", f"Cookie: {visitor.cookie}", "", ""]
        slow.sendall("\r\n".join(lines).encode())
        until = time.monotonic() + 10
        while not sent or streams.open:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert len(sent) < 400, "what waits for it is bounded"
        while server.connections:
            assert time.monotonic() < until
            time.sleep(0.05)
        slow.close()
