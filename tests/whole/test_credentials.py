"""Users, passwords and tokens of an address are in no message, file, file name, log or result."""

import base64
import json
from pathlib import Path

import pytest

from tests.support.http_servers import Handler, Server
from tests.support.processes import LSTR, run_process
from tests.support.videos import remux, write_video

SECRETS = ("someone", "hunter2", "abc123")
UNREACHABLE = "rtsp://someone:hunter2@127.0.0.1:9/live?token=abc123"


class Guarded(Handler):
    """Requires the password and the token."""

    def do_GET(self):
        password = "Basic " + base64.b64encode(b"someone:hunter2").decode()
        if self.headers.get("Authorization") == password and "token=abc123" in self.path:
            return super().do_GET()
        self.send_response(401, "not hunter2")
        self.send_header("WWW-Authenticate", 'Basic realm="hunter2"')
        self.end_headers()


@pytest.fixture
def address(tmp_path):
    """A working address with all the secrets in it."""
    (tmp_path / "served").mkdir()
    remux(write_video(tmp_path / "v.mp4", range(0, 1200, 25)), tmp_path / "served" / "live.ts")
    with Server(tmp_path / "served", Guarded) as running:
        yield f"http://someone:hunter2@127.0.0.1:{running.server_address[1]}/live.ts?token=abc123"
        running.shutdown()


def assert_no_secrets(*texts: str, folder: Path) -> list[Path]:
    """Check the texts, and names and contents of the files of a folder; return these files."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for text in (*texts, *(path.name for path in files), *(path.read_bytes().decode("latin-1") for path in files)):
        assert not [secret for secret in SECRETS if secret in text], text
    return files


@pytest.mark.slow
def test_a_working_address_leaves_no_secrets(small_set, address, tmp_path):
    """In every output format, and in what FFmpeg writes to standard error."""
    words = ("detect", address, "-c", small_set.checkpoint, "-o", tmp_path / "out", "-f", "all")
    code, out, err = run_process(*LSTR, *words, env={"LSTR_DEBUG": "1"})
    assert code == 0, err
    assert len(assert_no_secrets(out, err, folder=tmp_path / "out")) > 10
    (timeline,) = (tmp_path / "out").glob("*-live.ts_*[0-9].json")
    assert json.loads(timeline.read_text())["source"].endswith("/live.ts?token=…")


@pytest.mark.long
def test_a_failing_address_is_named_without_its_secrets(lstr, small_set, address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = address.replace("live.ts", "gone.ts")
    for command in (
        ("detect", wrong, "-c", small_set.checkpoint, "-o", "o", "--set", "timeout=1s"),
        ("detect", "gopher://someone:hunter2@h/?token=abc123", "-c", small_set.checkpoint),
        ("detect", small_set.features, "-c", wrong),
        ("info", UNREACHABLE),
        ("bench", "--input", wrong),
        ("train", wrong, "--labels", wrong, "-o", "run"),
        ("labels", "convert", wrong, "--to", "csv"),
        ("detect", wrong, "--no-such-option"),
    ):
        code, out, err = lstr(*command)
        assert code in (2, 3, 4) and "error: " in err, command
        assert_no_secrets(out, err, folder=tmp_path)


@pytest.mark.long
def test_a_traceback_has_no_secrets(lstr, small_set, tmp_path, monkeypatch):
    monkeypatch.setenv("LSTR_DEBUG", "1")
    code, out, err = lstr("detect", UNREACHABLE, "-c", small_set.checkpoint, "--set", "timeout=1s")
    assert code == 3 and "Traceback" in err
    assert_no_secrets(out, err, folder=tmp_path)
