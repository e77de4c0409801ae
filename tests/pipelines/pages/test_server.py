"""Who is answered and who is not, that the server ends, and that a file keeps its token and port."""

import asyncio
import json
import socket
import stat
import time

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from lstr.errors import ServingError
from lstr.pipelines.pages.server import SavedAddress, Server
from tests.support.requests import Visitor


def application(ending) -> Starlette:
    async def hello(request):
        return PlainTextResponse("hello")

    async def stream(request):
        async def pieces():
            while not ending().is_set():
                yield "piece\n"
                await asyncio.sleep(0.1)

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return Starlette(routes=[Route("/", hello, methods=["GET", "POST"]), Route("/stream", stream)])


@pytest.fixture(scope="module")
def server():
    with Server(application(lambda: opened.ending), port=None) as opened:
        yield opened


@pytest.fixture
def visitor(server):
    return Visitor(server.address)


def test_the_address_lets_in_and_nothing_else_does(server, visitor):
    assert visitor.ask("/").body == b"hello"
    assert visitor.ask("/", {}).status == 200
    for cookie in ("", "lstr=1", f"lstr-{server.port}=wrong", f"lstr-{server.port}="):
        assert visitor.ask("/", cookie=cookie).status == 403
    assert visitor.ask("/?token=wrong", cookie="").status == 403
    assert visitor.ask(visitor.entry, {}, cookie="").status == 405, "the token lets in who reads, not who changes"


@pytest.mark.parametrize("foreign", ['prefs={"dark":true}', 'a="', "a b=c", "bare", "é=1", "=", ";;"])
def test_a_cookie_of_another_program_of_this_machine_locks_nobody_out(visitor, foreign):
    for cookie in (f"{foreign}; {visitor.cookie}", f"{visitor.cookie}; {foreign}"):
        assert visitor.ask("/", cookie=cookie).status == 200


def test_another_name_a_page_of_another_site_and_other_methods_are_refused(server, visitor):
    port = server.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", f"0.0.0.0:{port}"):
        for path, cookie in (("/", visitor.cookie), (visitor.entry, "")):
            assert visitor.ask(path, cookie=cookie, host=host).status == 403
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{port}"):
        assert visitor.ask("/", {}, origin=origin).status == 403
    assert visitor.ask("/", {}, origin=f"http://127.0.0.1:{port}").status == 200
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert visitor.ask("/", method=method).status == 405


def test_each_answer_says_what_a_browser_may_do_with_it(visitor):
    for answer in (visitor.ask("/"), visitor.ask("/nowhere"), visitor.ask("/", cookie="")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert answer.headers["referrer-policy"] == "no-referrer" and "server" not in answer.headers
    entered = visitor.ask(visitor.entry, cookie="").headers["set-cookie"].lower()
    assert "httponly" in entered and "samesite=strict" in entered


def test_it_ends_while_somebody_listens():
    with Server(application(lambda: opened.ending)) as opened:
        visitor = Visitor(opened.address)
        with socket.create_connection(("127.0.0.1", opened.port)) as open_stream:
            head = f"GET /stream HTTP/1.1\r\nhost: 127.0.0.1:{opened.port}\r\ncookie: {visitor.cookie}\r\n\r\n"
            open_stream.sendall(head.encode())
            assert open_stream.recv(1000).startswith(b"HTTP/1.1 200")
            began = time.monotonic()
            opened.ending.set()
            opened._server.should_exit = True
            opened.wait()
    assert time.monotonic() - began < 60


def test_a_port_that_is_taken(server):
    with Server(application(lambda: other.ending)) as other:
        assert other.port != server.port and Visitor(other.address).ask("/").status == 200
    with pytest.raises(ServingError):
        Server(application(lambda: None), port=server.port)


def test_another_address_than_loopback_needs_a_name_and_the_token():
    with pytest.raises(ServingError):
        Server(application(lambda: None), "0.0.0.0", 0)
    with Server(application(lambda: None), "0.0.0.0", 0, hosts=("cameras.example.org",)) as server:
        assert server.address.startswith(f"http://cameras.example.org:{server.port}/?token=")
        visitor = Visitor(server.address.replace("cameras.example.org", "127.0.0.1"))
        for host in ("cameras.example.org", f"cameras.example.org:{server.port}"):
            assert visitor.ask("/", host=host).status == 200
            assert visitor.ask("/", host=host, cookie="").status == 403
        for host in ("evil.example", f"0.0.0.0:{server.port}"):
            assert visitor.ask("/", host=host).status == 403


@pytest.mark.parametrize("trusted", [False, True])
def test_a_proxy_that_speaks_https_is_believed_where_it_is_trusted(trusted):
    """Then pages of https may ask, none of http may, and the cookie is for https alone."""
    origin, https = "https://cameras.example.org", {"x-forwarded-proto": "https"}
    hosts = ("cameras.example.org",)
    with Server(application(lambda: None), port=0, hosts=hosts, trusts_proxy=trusted) as server:
        visitor = Visitor(server.address)
        entered = visitor.ask(visitor.entry, cookie="", host=hosts[0], **https)
        assert entered.status == 303 and ("secure" in entered.headers["set-cookie"].lower()) is trusted
        secure, plain = (
            visitor.ask("/", {}, host=hosts[0], origin=one, **https).status
            for one in (origin, origin.replace("https", "http"))
        )
        assert (secure, plain) == ((200, 403) if trusted else (403, 200))


def served(of, folder):
    return Server(Starlette(), saved=SavedAddress(of, folder))


def test_a_file_has_one_address_which_only_its_owner_reads(tmp_path):
    """Over restarts, and of no other file: neither its token nor its port."""
    with served(tmp_path / "a.json", tmp_path / "pages") as first:
        pass
    (path,) = (tmp_path / "pages").iterdir()
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert first.address.endswith(json.loads(path.read_text())["token"])
    with served(tmp_path / "sub" / ".." / "a.json", tmp_path / "pages") as again:
        assert again.address == first.address
        assert Visitor(first.address).ask("/").status == 404, "no page, but it is let in"
    others = [
        SavedAddress(tmp_path / "b.json", tmp_path / "pages"),
        SavedAddress(tmp_path / "a.json", tmp_path / "else"),
    ]
    assert all(other.token not in first.address and len(other.token) >= 32 for other in others)
    with served(tmp_path / "b.json", tmp_path / "pages") as other:
        assert other.port != first.port


@pytest.mark.parametrize("damage", ["", "[]", '{"token": "", "port": 1}', '{"token": 5}', "open to others", "a link"])
def test_a_saved_address_that_is_damaged_or_open_to_others_is_replaced(tmp_path, damage):
    with served(tmp_path / "a.json", tmp_path / "pages") as first:
        pass
    (path,) = (tmp_path / "pages").iterdir()
    if damage == "open to others":
        path.chmod(0o644)
    elif damage == "a link":
        path.rename(tmp_path / "elsewhere.json")
        path.symlink_to(tmp_path / "elsewhere.json")
    else:
        path.write_text(damage)
    with served(tmp_path / "a.json", tmp_path / "pages") as again:
        assert again.address != first.address and stat.S_IMODE(path.stat().st_mode) == 0o600
