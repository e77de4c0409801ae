"""Which published files can still be had."""

import json
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler

from lstr.extractors.weights import published_files
from lstr.extractors.weights.published_files import read_manifest
from lstr.pipelines.weights.links import ANSWERS, ask
from tests.support.http_folder import Server


class Refusing(SimpleHTTPRequestHandler):
    """A file, a web page in its place, a server that is busy, and refusals."""

    def do_GET(self):
        code = int(self.path.rpartition("/")[2].partition(".")[0])
        self.send_response(code)
        self.send_header("Content-Type", "text/html" if self.path.endswith(".html") else "application/octet-stream")
        self.end_headers()

    def log_message(self, *_):
        pass


ANSWER = {
    "200.pth": ANSWERS,
    "200.html": "dead (a web page instead of a file)",
    "404.pth": "dead (404 Not Found)",
    "409.pth": "dead (409 Conflict)",
    "503.pth": "not reached (503 Service Unavailable)",
    "429.pth": "not reached (429 Too Many Requests)",
}


def entries(root: str) -> list:
    return [replace(read_manifest()[0], name=path, address=f"{root}/{path}") for path in ANSWER]


def test_a_server_that_refuses_is_dead_and_one_that_is_silent_is_not_reached(tmp_path):
    with Server(tmp_path, Refusing) as server:
        assert ask(entries(server.root)) == ANSWER
        server.shutdown()
    (silent,) = ask(entries(server.root)[:1]).values()
    assert silent.startswith("not reached (127.0.0.1")


def test_the_list_marks_dead_links(lstr, tmp_path, monkeypatch):
    with Server(tmp_path, Refusing) as server:
        listed = {"weights": [vars(entry) for entry in entries(server.root)]}
        (tmp_path / "manifest.json").write_text(json.dumps(listed))
        monkeypatch.setattr(published_files, "MANIFEST", tmp_path / "manifest.json")
        code, out, _ = lstr("weights", "list", "--check-links", "--json")
        assert code == 0 and {row["name"]: row["link"] for row in json.loads(out)} == ANSWER
        code, out, _ = lstr("weights", "list", "--check-links")
        assert code == 0 and out.count("\tdead (") == 3
        assert "link" not in json.loads(lstr("weights", "list", "--json")[1])[0]
        server.shutdown()
