"""Users of a server for other machines: who comes in, how often may be tried, and how a visit ends."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lstr.pipelines.serving import login
from lstr.pipelines.serving.access import Access
from lstr.pipelines.serving.event_stream import Streams
from lstr.pipelines.serving.guard import LASTS
from lstr.pipelines.serving.server import Server, ServingError
from lstr.pipelines.serving.users import MOST_ATTEMPTS, Attempts, Users, UsersError, Visits, hash_password
from lstr.pipelines.watching.page import build_login_page

FORM = "application/x-www-form-urlencoded"
NAME, PASSWORD = "ada", "correct horse"


async def hello(request):
    return PlainTextResponse("hello")


APPLICATION = Starlette(routes=[Route("/", hello, methods=["GET", "POST"]), Route("/state", hello)])


@pytest.fixture(scope="module")
def users():
    return Users({NAME: hash_password(PASSWORD)})


@pytest.fixture
def server(users):
    access = Access(("cameras.example.org",), users, build_login_page, trusted_proxy=True)
    with Server(APPLICATION, port=0, access=access) as opened:
        yield opened


class Stranger:
    """Asks a server as a proxy before it does; the proxy says from where and by what."""

    def __init__(self, server: Server, address: str = "203.0.113.7", scheme: str = "https"):
        self.server, self.cookie = server, ""
        self.own = {"host": "cameras.example.org", "x-forwarded-for": f"10.1.1.1, {address}"}
        self.own |= {"x-forwarded-proto": scheme}

    def ask(self, path: str, body: str | None = None, **headers: str):
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        sent = self.own | ({"cookie": self.cookie} if self.cookie else {})
        sent |= {"content-type": FORM} if body is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET" if body is None else "POST", path, body, sent)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def sign_in(self, name: str = NAME, password: str = PASSWORD):
        status, headers, text = self.ask("/login", f"name={name}&password={password.replace(' ', '+')}")
        if cookie := headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return status, headers, text


def test_a_user_comes_in_and_leaves(server):
    stranger = Stranger(server)
    status, headers, _ = stranger.ask("/")
    assert (status, headers["location"]) == (303, "login"), "relative: it may stand under a path"
    assert stranger.ask("/state")[0] == 401 and "token" not in server.address
    status, headers, page = stranger.ask("/login")
    assert status == 200 and 'action="login"' in page and "form-action 'self'" in page and "<script" not in page
    status, headers, _ = stranger.sign_in()
    cookie = headers["set-cookie"].lower()
    assert (status, headers["location"]) == (303, "./")
    assert all(word in cookie for word in ("httponly", "samesite=strict", "secure"))
    assert stranger.ask("/state")[2] == "hello" == stranger.ask("/")[2]
    assert stranger.ask("/logout", "")[0] == 303 and stranger.ask("/state")[0] == 401, "the cookie is worth nothing now"
    assert Stranger(server, scheme="http").sign_in()[1]["set-cookie"].lower().count("secure") == 0


def test_wrong_passwords_are_limited(server):
    stranger = Stranger(server)
    for wrong in range(MOST_ATTEMPTS):
        status, headers, page = stranger.sign_in(["ada", "nobody"][wrong % 2], "<b>wrong")
        assert status == 401 and "set-cookie" not in headers and "<b>" not in page
    status, headers, page = stranger.sign_in()
    assert status == 429 and headers["retry-after"] == "60" and "set-cookie" not in headers
    other = Stranger(server, "203.0.113.8")
    assert other.sign_in()[0] == 303, "others are let in"
    assert stranger.ask("/login", "name=x", x_forwarded_for="203.0.113.99, 203.0.113.7")[0] == 429, "not as it says"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ("name=a&password=b", {"content_type": "text/plain"}, 415),
        ("x" * 5000, {}, 413),
        ("&".join(f"a{k}=1" for k in range(50)), {}, 400),
        ("", {}, 401),
        ("name=ada&password=" + "x" * 2000, {}, 401),
        ("name=ada&password=correct+horse", {"origin": "http://evil.example"}, 403),
        ("name=ada&password=correct+horse", {"origin": "http://cameras.example.org"}, 403),
        ("name=ada&password=correct+horse", {"origin": "https://cameras.example.org"}, 303),
        ("name=ada&password=correct+horse", {"host": "evil.example"}, 403),
    ],
)
def test_what_the_form_may_not_hold(server, body, headers, status):
    assert Stranger(server).ask("/login", body, **headers)[0] == status


def test_a_visit_that_somebody_else_named_is_nobodys(server):
    """Session fixation: an id that was planted before is not the one that counts afterwards."""
    stranger = Stranger(server)
    planted = stranger.cookie = f"lstr-visit-{server.port}=planted"
    assert stranger.sign_in()[0] == 303 and stranger.cookie != planted
    assert stranger.ask("/state")[0] == 200
    stranger.cookie = planted
    assert stranger.ask("/state")[0] == 401


def test_a_flood_of_passwords_leaves_threads_for_others(users, monkeypatch):
    """From as many addresses as there are requests: each check takes a thread, of which there are forty."""
    monkeypatch.setattr(login, "MOST_CHECKS", 2)
    turn = threading.Event()
    monkeypatch.setattr(users, "check", lambda name, password: turn.wait(20) and False)
    access = Access(("cameras.example.org",), users, build_login_page, trusted_proxy=True)
    with Server(APPLICATION, port=0, access=access) as server, ThreadPoolExecutor(20) as pool:
        tries = [pool.submit(Stranger(server, f"203.0.113.{k}").sign_in) for k in range(20)]
        until = time.monotonic() + 20
        while sum(one.done() for one in tries) < 18:
            assert time.monotonic() < until
            time.sleep(0.01)
        turn.set()
        assert sorted(one.result()[0] for one in tries) == [401] * 2 + [503] * 18


def test_a_stream_ends_with_the_visit(users):
    """One that was opened before signing out told what happened for as long as it was open."""
    streams = Streams()

    async def stream(request):
        async def pieces():
            while request.scope[LASTS]():
                yield "data: x\n\n"
                await asyncio.sleep(0.05)

        return streams.stream(pieces)

    application = Starlette(routes=[Route("/stream", stream)])
    with Server(application, port=0, access=Access(("cameras.example.org",), users, build_login_page)) as server:
        ada = Stranger(server)
        ada.sign_in()
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as opened:
            opened.sendall(
                f"GET /stream HTTP/1.1\r\nhost: cameras.example.org\r\ncookie: {ada.cookie}\r\n\r\n".encode()
            )
            assert b"200 OK" in opened.recv(100)
            assert ada.ask("/logout", "")[0] == 303
            until = time.monotonic() + 20
            while streams.open:
                assert time.monotonic() < until
                time.sleep(0.02)


def test_a_token_and_a_foreign_cookie_let_nobody_in(server):
    stranger = Stranger(server)
    for cookie in (f"lstr-{server.port}=x", f"lstr-visit-{server.port}=x", f"lstr-visit-{server.port}="):
        stranger.cookie = cookie
        assert stranger.ask("/state")[0] == 401 == stranger.ask("/state?token=x")[0]


def test_a_proxy_is_not_believed_unless_it_is_trusted(users):
    with Server(APPLICATION, port=0, access=Access(("cameras.example.org",), users, build_login_page)) as server:
        answers = [Stranger(server, f"203.0.113.{k}").sign_in("ada", "wrong")[0] for k in range(MOST_ATTEMPTS + 1)]
        assert answers == [401] * MOST_ATTEMPTS + [429]
        assert "secure" not in Stranger(server).ask("/login")[1].get("set-cookie", "")


def test_other_hosts_need_a_name_and_a_way_in():
    with pytest.raises(ServingError, match="no address of this machine alone"):
        Server(APPLICATION, "0.0.0.0", 0)
    with pytest.raises(ServingError, match="names"):
        Server(APPLICATION, "0.0.0.0", 0, access=Access())
    with Server(APPLICATION, "0.0.0.0", 0, access=Access(("cameras.example.org",))) as server:
        assert server.address.startswith(f"http://cameras.example.org:{server.port}/?token=")
        stranger = Stranger(server)
        assert stranger.ask("/")[0] == 403 and socket.gethostname() not in stranger.own["host"]
        path = server.address.partition(str(server.port))[2]
        assert stranger.ask(path)[0] == 303 and stranger.ask(path, host="evil.example")[0] == 403


def test_attempts_are_forgotten_in_time_and_bounded():
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    assert [attempts.allow("2001:db8:1:2::1") for _ in range(MOST_ATTEMPTS)] == [True] * MOST_ATTEMPTS
    assert not attempts.allow("2001:db8:1:2:ffff::9"), "of the same network"
    assert attempts.allow("2001:db8:1:3::1")
    now[0] = 61
    assert attempts.allow("2001:db8:1:2::1")
    for k in range(10000):
        attempts.allow(str(k))
    assert len(attempts._tried) == 4096


def test_visits_end_and_are_bounded():
    now = [0.0]
    visits = Visits(lambda: now[0])
    first = visits.begin()
    now[0] = 13 * 86400
    assert visits.goes_on(first)
    now[0] += 14 * 86400
    assert not visits.goes_on(first) and not visits.goes_on("") and not visits.goes_on("guess")
    begun = [visits.begin() for _ in range(300)]
    assert [visits.goes_on(visit) for visit in begun].count(True) == 256 and visits.goes_on(begun[-1])


def test_passwords_that_are_no_hash_and_too_short():
    whole = hash_password(PASSWORD)
    for text in ("hunter2", "$argon2id$v=19$…", whole[:-30], whole.rpartition("$")[0], f"{whole}…"):
        with pytest.raises(UsersError, match="The password of ada is no whole argon2 hash") as refused:
            Users({"ada": text})
        assert text not in str(refused.value)
    with pytest.raises(UsersError, match="from 8"):
        hash_password("short")
