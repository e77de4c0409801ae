"""Users, passwords and tokens of an address come out nowhere: no message, file, file name, log or result."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lstr.files.names import shown
from tests.support.http_folder import Handler, Server
from tests.support.videos import remux, write_video

SECRETS = ("someone", "hunter2", "abc123")


class Guarded(Handler):
    """Gives files to who knows the password and the token."""

    def do_GET(self):
        known = self.headers.get("Authorization") == "Basic " + base64.b64encode(b"someone:hunter2").decode()
        if known and "token=abc123" in self.path:
            return super().do_GET()
        self.send_response(401, "not hunter2")
        self.send_header("WWW-Authenticate", 'Basic realm="hunter2"')
        self.end_headers()


@pytest.fixture
def address(tmp_path):
    """An address that works, with all that is secret in it."""
    (tmp_path / "served").mkdir()
    remux(write_video(tmp_path / "v.mp4", range(0, 1200, 25)), tmp_path / "served" / "live.ts")
    with Server(tmp_path / "served", Guarded) as running:
        yield f"http://someone:hunter2@127.0.0.1:{running.server_address[1]}/live.ts?token=abc123"
        running.shutdown()


def assert_secret(*texts: str, folder: Path) -> list[Path]:
    """No secret is in a text, nor in the name or the content of a file of a folder, which are returned."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for text in (*texts, *(path.name for path in files), *(path.read_bytes().decode("latin-1") for path in files)):
        assert not [secret for secret in SECRETS if secret in text], text
    return files


@pytest.mark.slow
def test_an_address_that_works_leaves_no_secret(small_set, address, tmp_path):
    """Everything that a run leaves, in every format, and all that FFmpeg may write to standard error."""
    command = ["-m", "lstr_cli", "detect", address, "-c", small_set.checkpoint, "-o", tmp_path / "out", "-f", "all"]
    environment = {**os.environ, "LSTR_DEBUG": "1"}
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert len(assert_secret(ran.stdout, ran.stderr, folder=tmp_path / "out")) > 10
    (timeline,) = (tmp_path / "out").glob("*-live.ts_*[0-9].json")
    assert json.loads(timeline.read_text())["source"].endswith("/live.ts?token=…")


@pytest.mark.long
def test_an_address_that_fails_is_named_without_its_secrets(lstr, small_set, address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = address.replace("live.ts", "gone.ts")
    nobody = "rtsp://someone:hunter2@127.0.0.1:9/live?token=abc123"
    texts = []
    for command in (
        ("detect", wrong, "-c", small_set.checkpoint, "-o", "o", "--set", "timeout=5s"),
        ("detect", "gopher://someone:hunter2@h/?token=abc123", "-c", small_set.checkpoint),
        ("detect", small_set.features, "-c", wrong),
        ("info", nobody),
        ("bench", "--input", wrong),
        ("train", wrong, "--labels", wrong, "-o", "run"),
        ("labels", "convert", wrong, "--to", "csv"),
        ("detect", wrong, "--no-such-option"),
    ):
        code, out, err = lstr(*command)
        assert code in (2, 3, 4) and "error: " in err, command
        texts += [out, err]
    monkeypatch.setenv("LSTR_DEBUG", "1")
    code, out, err = lstr("detect", nobody, "-c", small_set.checkpoint, "--set", "timeout=5s")
    assert code == 3 and "Traceback" in err
    assert_secret(*texts, out, err, folder=tmp_path)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("rtsp://admin:a b/c@cam/live", "rtsp://cam/live"),
        ("rtsp://admin:12/34", "rtsp://admin:12/34"),
        ("rtsp://admin:p/ss@cam:554/a@b", "rtsp://cam:554/a@b"),
        ("http://cam:80/a@b.ts", "http://cam:80/a@b.ts"),
        ("clips/me@home.mp4", "clips/me@home.mp4"),
    ],
)
def test_names_of_sources(address, name):
    assert shown(address) == name
