"""A file over a real HTTP server that cuts, refuses and lies."""

import hashlib
import re
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from lstr.errors import WeightsError
from lstr.extractors.networks import download as module
from lstr.extractors.networks.download import download
from tests.support.http_folder import Server

CONTENT = np.random.default_rng(0).bytes(1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PREFIX = SHA256[:8]
QUIET = lambda *_: None  # noqa: E731


class Handler(BaseHTTPRequestHandler):
    """Serves `server.content` at every path, with the faults the server was given."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):  # noqa: N802
        server, content = self.server, self.server.content
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and server.ranges else 0
        server.starts.append(int(asked[1]) if asked else 0)
        if server.statuses:
            self.answer(server.statuses.pop(0), b"sorry", {})
        elif start >= len(content):
            self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        else:
            headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
            self.answer(206 if start else 200, content[start:], headers)

    def answer(self, status: int, body: bytes, headers: dict) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": self.server.content_type, "Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[:cut])
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    """Running on a free port; `starts` are the offsets asked for, `cuts` the bytes each answer may send."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.content, running.content_type = CONTENT, "application/octet-stream"
        running.ranges, running.starts, running.cuts, running.statuses = True, [], [], []
        running.address = f"http://127.0.0.1:{running.server_port}/weights.pth"
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0)


def names(folder) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    ("ranges", "cuts", "starts"),
    [
        (True, [], [0]),
        (True, [300_000, 1, 0], [0, 300_000, 300_001, 300_001]),  # cut connections are resumed
        (False, [300_000], [0, 300_000]),  # a server without ranges sends all of it again
    ],
)
def test_a_file_arrives_whole(server, tmp_path, ranges, cuts, starts):
    server.ranges, server.cuts, seen = ranges, cuts, []
    target = tmp_path / "new folder" / "weights.pth"
    assert download(server.address, target, PREFIX, lambda *call: seen.append(call)) == SHA256
    assert target.read_bytes() == CONTENT and names(target.parent) == ["weights.pth"]
    assert seen[-1] == ("weights.pth", len(CONTENT), len(CONTENT)) and server.starts == starts


@pytest.mark.parametrize(
    ("part", "prefix", "starts"),
    [
        (CONTENT[:300_000], PREFIX, [300_000]),
        (CONTENT, PREFIX, [1_000_000]),  # a run that was killed before it could rename
        (b"another file" * 10, PREFIX, [120, 0]),
        (CONTENT + b"more", PREFIX, [1_000_004, 0]),
        (CONTENT[:1000], None, [0]),  # not trusted where no hash is known
    ],
)
def test_what_an_earlier_run_left(server, tmp_path, part, prefix, starts):
    (tmp_path / ".weights.pth.part").write_bytes(part)
    assert download(server.address, tmp_path / "weights.pth", prefix, QUIET) == SHA256
    assert server.starts == starts and (tmp_path / "weights.pth").read_bytes() == CONTENT
    assert names(tmp_path) == ["weights.pth"]


def test_a_wrong_hash_leaves_nothing(server, tmp_path):
    server.content = CONTENT[:-1] + b"!"
    (tmp_path / "weights.pth").write_text("what was there")
    with pytest.raises(WeightsError, match=PREFIX) as caught:
        download(server.address, tmp_path / "weights.pth", PREFIX, QUIET)
    assert caught.value.exit_code == 4
    assert names(tmp_path) == ["weights.pth"] and (tmp_path / "weights.pth").read_text() == "what was there"


def test_refusals(server, tmp_path):
    server.statuses = [503, 429]  # a busy server is asked again
    download(server.address, tmp_path / "weights.pth", PREFIX, QUIET)
    assert (tmp_path / "weights.pth").read_bytes() == CONTENT
    for statuses, tries in (([404], 1), ([403], 1), ([500] * module.MAX_CUTS, module.MAX_CUTS)):
        server.statuses, server.starts = [*statuses], []
        with pytest.raises(WeightsError, match=str(statuses[0])):
            download(server.address, tmp_path / "x.pth", PREFIX, QUIET)
        assert len(server.starts) == tries
    server.content_type = "text/html; charset=utf-8"
    for address in (server.address, "http://no-such-host.invalid/w.pth", str(tmp_path / "none.bin")):
        with pytest.raises(WeightsError) as caught:
            download(address, tmp_path / "x.pth", PREFIX, QUIET)
        assert caught.value.hint
    assert names(tmp_path) == ["weights.pth"]
    server.content_type, server.cuts = "application/octet-stream", [300_000] + [0] * module.MAX_CUTS
    with pytest.raises(WeightsError, match="300000"):
        download(server.address, tmp_path / "x.pth", PREFIX, QUIET)
    assert names(tmp_path) == [".x.pth.part", "weights.pth"], "kept for a later run"


def test_redirects_go_to_other_hosts_and_not_to_weaker_protocols(server, tmp_path):
    """Published weights are on hosts of content networks; the result is checked against the known hash."""
    (tmp_path / "redirecting").mkdir()
    redirecting = Server(tmp_path / "redirecting")
    download(f"{redirecting.root}/to/{server.address}", tmp_path / "w.pth", PREFIX, QUIET)
    assert (tmp_path / "w.pth").read_bytes() == CONTENT
    for target in ("ftp://127.0.0.1/w.pth", "file:///etc/passwd"):
        with pytest.raises(WeightsError):
            download(f"{redirecting.root}/to/{target}", tmp_path / "x.pth", PREFIX, QUIET)
    redirecting.shutdown()
    secure = urllib.request.Request("https://published.example/w.pth")
    with pytest.raises(WeightsError, match="http://"):
        module.Redirects().redirect_request(secure, None, 302, "Found", {}, "http://elsewhere.example/w.pth")
    assert not (tmp_path / "x.pth").exists()
