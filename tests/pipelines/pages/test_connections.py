"""Clients that open connections and do not get on with what they ask."""

import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lstr.pipelines.pages import server as serving
from lstr.pipelines.pages.server import Server
from tests.support.requests import Visitor

LONG = 20.0  # seconds that a busy machine may take


@pytest.fixture
def server():
    async def hello(request):
        await request.body()
        return PlainTextResponse("hello")

    with Server(Starlette(routes=[Route("/", hello, methods=["GET", "POST"])]), port=0) as opened:
        yield opened


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=LONG)


def is_closed(opened: socket.socket) -> bool:
    """Whether the other end closes it, now or within LONG."""
    try:
        while opened.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def drip(opened: socket.socket, until: threading.Event) -> None:
    with suppress(OSError):
        while not until.wait(0.05):
            opened.sendall(b"a")


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ",
        b"POST / HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\ncontent-length: 1000\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n\r\nGET / HTTP/1.1\r\nx: ",
    ],
)
def test_a_request_that_never_ends_is_cut_off(server, monkeypatch, begun):
    """Slowloris: a byte now and then keeps a connection for ever."""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.4)
    visitor, ended = Visitor(server.address), threading.Event()
    begun = begun.replace(b"{host}", f"127.0.0.1:{server.port}".encode()).replace(b"{cookie}", visitor.cookie.encode())
    with connect(server) as opened:
        opened.sendall(begun)
        thread = threading.Thread(target=drip, args=(opened, ended), daemon=True)
        if begun:
            thread.start()
        assert visitor.ask("/").status == 200
        assert is_closed(opened)
        ended.set()


def test_connections_are_bounded(server, monkeypatch):
    """A new one takes the place of one that asks nothing, so that a page is answered while others hold all places."""
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 8)
    visitor = Visitor(server.address)
    until = time.monotonic() + LONG
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connect(server)).sendall(b"GET / HTTP/1.1\r\n")
        while server.connections > 8:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert [visitor.ask("/").status for _ in range(20)] == [200] * 20 and server.connections <= 9


def test_what_is_no_request_is_not_logged(server, capfd):
    for sent in (b"\x16\x03\x01\x02\x00" * 20, b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"):
        with connect(server) as opened:
            opened.sendall(sent)
            assert b" 400 " in opened.recv(4096) or is_closed(opened)
    assert capfd.readouterr().err == ""


def test_an_upgrade_is_a_request_like_others(server):
    visitor = Visitor(server.address)
    assert visitor.ask("/", connection="upgrade", upgrade="websocket").body == b"hello"
    assert visitor.ask("/", connection="upgrade", upgrade="websocket", cookie="").status == 403
