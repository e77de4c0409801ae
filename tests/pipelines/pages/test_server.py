"""The server of pages: which requests it answers, how it ends, and the saved address of a file."""

import asyncio
import json
import socket
import stat
import time
from functools import partial

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from lstr.errors import ServingError
from lstr.pipelines.labelling.label import label
from lstr.pipelines.pages.server import SavedAddress, Server
from tests.support.requests import Visitor


def application(ending=None) -> Starlette:
    async def stream(request):
        async def pieces():
            while not ending().is_set():
                yield "piece\n"
                await asyncio.sleep(0.1)

        return StreamingResponse(pieces(), media_type="text/event-stream")

    hello = Route("/", lambda request: PlainTextResponse("hello"), methods=["GET", "POST"])
    return Starlette(routes=[hello, Route("/stream", stream)])


@pytest.fixture(scope="module")
def server():
    with Server(application()) as opened:
        yield opened


@pytest.fixture
def visitor(server):
    return Visitor(server.address)


def test_a_request_needs_the_token_or_its_cookie(server, visitor):
    assert visitor.ask("/").body == b"hello"
    assert visitor.ask("/", {}).status == 200
    for cookie in ("", "lstr=1", f"lstr-{server.port}=wrong", f"lstr-{server.port}="):
        assert visitor.ask("/", cookie=cookie).status == 403
    assert visitor.ask("/?token=wrong", cookie="").status == 403
    assert visitor.ask(visitor.entry, {}, cookie="").status == 405, "the token is for reading only"
    for foreign in ('prefs={"dark":true}', 'a="', "a b=c", "bare", "é=1", "=", ";;"):  # of other programs
        for cookie in (f"{foreign}; {visitor.cookie}", f"{visitor.cookie}; {foreign}"):
            assert visitor.ask("/", cookie=cookie).status == 200, cookie


def test_other_hosts_origins_and_methods_are_refused(server, visitor):
    port = server.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", f"0.0.0.0:{port}"):
        for path, cookie in (("/", visitor.cookie), (visitor.entry, "")):
            assert visitor.ask(path, cookie=cookie, host=host).status == 403
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{port}"):
        assert visitor.ask("/", {}, origin=origin).status == 403
    assert visitor.ask("/", {}, origin=f"http://127.0.0.1:{port}").status == 200
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert visitor.ask("/", method=method).status == 405


def test_security_headers_of_every_answer(visitor):
    for answer in (visitor.ask("/"), visitor.ask("/nowhere"), visitor.ask("/", cookie="")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert answer.headers["referrer-policy"] == "no-referrer" and "server" not in answer.headers
    cookie = visitor.ask(visitor.entry, cookie="").headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie


def test_the_server_ends_while_a_client_reads_a_stream():
    with Server(application(lambda: server.ending)) as server:
        visitor = Visitor(server.address)
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            head = f"GET /stream HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\ncookie: {visitor.cookie}\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
            start = time.monotonic()
            server.__exit__()
    assert time.monotonic() - start < 60


def test_a_used_port(server, tmp_path):
    with Server(application()) as second:
        assert second.port != server.port and Visitor(second.address).ask("/").status == 200
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with pytest.raises(ServingError), label([str(tmp_path)], port=server.port):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"], "no new project"


def test_an_address_beyond_loopback_needs_a_name_and_the_token():
    with pytest.raises(ServingError):
        Server(application(), "0.0.0.0", 0)
    with Server(application(), "0.0.0.0", 0, hosts=("cameras.example.org",)) as server:
        assert server.address.startswith(f"http://cameras.example.org:{server.port}/?token=")
        visitor = Visitor(server.address.replace("cameras.example.org", "127.0.0.1"))
        for host in ("cameras.example.org", f"cameras.example.org:{server.port}"):
            assert visitor.ask("/", host=host).status == 200
            assert visitor.ask("/", host=host, cookie="").status == 403
        for host in ("evil.example", f"0.0.0.0:{server.port}"):
            assert visitor.ask("/", host=host).status == 403


@pytest.mark.parametrize(("trusted", "https_status", "http_status"), [(False, 403, 200), (True, 200, 403)])
def test_a_proxy_with_https_must_be_trusted(trusted, https_status, http_status):
    host = "cameras.example.org"
    with Server(application(), port=0, hosts=(host,), trusts_proxy=trusted) as server:
        visitor = Visitor(server.address)
        ask = partial(visitor.ask, host=host, x_forwarded_proto="https")
        entered = ask(visitor.entry, cookie="")
        assert entered.status == 303 and ("secure" in entered.headers["set-cookie"].lower()) is trusted
        assert ask("/", {}, origin=f"https://{host}").status == https_status
        assert ask("/", {}, origin=f"http://{host}").status == http_status


def serve(path, folder):
    return Server(Starlette(), saved=SavedAddress(path, folder))


def test_a_file_keeps_an_address_of_its_own_over_restarts(tmp_path):
    file, pages = tmp_path / "a.json", tmp_path / "pages"
    with serve(file, pages) as server:
        address, port = server.address, server.port
    (saved,) = pages.iterdir()
    assert (stat.S_IMODE(saved.stat().st_mode), stat.S_IMODE(pages.stat().st_mode)) == (0o600, 0o700)
    assert address.endswith(json.loads(saved.read_text())["token"])
    with serve(tmp_path / "sub" / ".." / "a.json", pages) as server:
        assert server.address == address
        assert Visitor(address).ask("/").status == 404, "the cookie is valid"
    for other in (SavedAddress(tmp_path / "b.json", pages), SavedAddress(file, tmp_path / "else")):
        assert other.token not in address and len(other.token) >= 32
    with serve(tmp_path / "b.json", pages) as server:
        assert server.port != port


@pytest.mark.parametrize("damage", ["", "[]", '{"token": "", "port": 1}', '{"token": 5}', "readable", "link"])
def test_a_damaged_or_readable_saved_address_is_replaced(tmp_path, damage):
    with serve(tmp_path / "a.json", tmp_path / "pages") as server:
        address = server.address
    (saved,) = (tmp_path / "pages").iterdir()
    if damage == "readable":
        saved.chmod(0o644)
    elif damage == "link":
        saved.rename(tmp_path / "elsewhere.json")
        saved.symlink_to(tmp_path / "elsewhere.json")
    else:
        saved.write_text(damage)
    with serve(tmp_path / "a.json", tmp_path / "pages") as server:
        assert server.address != address and stat.S_IMODE(saved.stat().st_mode) == 0o600
