"""Files elsewhere: listing, bringing, putting, and what a URL must not tell."""

import os
import tempfile
import time
from contextlib import nullcontext

import fsspec
import pytest

from lstr.errors import MissingPathError, OutputError, VideoError
from lstr.extractors.video.inputs import fetch, find_sources
from lstr.files import remote
from lstr.files.atomic import SCRATCH_PREFIX, scratch
from lstr.files.remote import RemoteFile, place
from tests.support.http_folder import Handler, Server


@pytest.fixture
def memory():
    """An empty file system in this process, and the URL of a folder in it."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield RemoteFile("memory://videos")
    fs.store.clear()


class Answering(Handler):
    """Gives what a test chooses: path → answers, the last of which is given ever after.

    An answer is a body, a body and the length that it claims, or a status.
    """

    def do_HEAD(self):
        self.answer(self.answers()[0], body=False)

    def do_GET(self):
        self.server.requested.append(self.path)
        answers = self.answers()
        self.answer(answers.pop(0) if len(answers) > 1 else answers[0])

    def answers(self):
        return self.server.answers.get(self.path.partition("?")[0], [404])

    def answer(self, answer, body: bool = True):
        content, length = answer if isinstance(answer, tuple) else (answer, None)
        if isinstance(content, int):
            self.send_error(content)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(length or len(content)))
        self.send_header("ETag", '"one"')
        self.end_headers()
        if body:
            self.wfile.write(content)


@pytest.fixture
def site(monkeypatch, tmp_path):
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    server = Server(tmp_path, Answering)
    server.answers = {}
    server.secret = server.root.replace("//", "//me:secret@") + "/v.mp4?key=secret"
    yield server
    server.shutdown()
    server.server_close()


def test_a_place_is_a_path_or_elsewhere():
    assert place("videos/a b.mp4").as_posix() == "videos/a b.mp4"
    assert place("file:///srv/a%20b.mp4").as_posix() == "/srv/a b.mp4"
    assert place("C:videos").name == "C:videos"
    assert str(place("s3://bucket/videos/")) == "s3://bucket/videos"


@pytest.mark.parametrize(
    "url, name",
    [
        ("https://me:secret@host/v.mp4?sig=secret#secret", "https://host/v.mp4"),
        ("sftp://me:secret@host/v.mp4", "sftp://host/v.mp4"),
        ("ftp://me:sec/ret@host/v.mp4", "ftp://host/v.mp4"),
        ("s3://bucket/a#1?.mp4", "s3://bucket/a#1?.mp4"),
        ("gs://bucket/user=me/v.mp4", "gs://bucket/user=me/v.mp4"),
    ],
)
def test_what_a_url_may_hold_is_not_told(url, name):
    file = RemoteFile(url)
    assert str(file) == repr(file) == f"{file}" == name and file.url == url


def test_sources_here_and_elsewhere(memory, tmp_path):
    for path in ("b/x y.mp4", "b/c/ü.MKV", "-a.mp4", "b/notes.txt", "c/x y.mp4"):
        memory.joinpath(path).write(b"123")
    assert memory.below()["b/c/ü.MKV"].read() == b"123" and memory.joinpath("none").below() == {}
    assert sorted(RemoteFile("memory://videos/*/*.mp4").below()) == ["b/x y.mp4", "c/x y.mp4"]
    (tmp_path / "here.mp4").touch()
    found = find_sources([tmp_path, f"{memory}/b", f"{memory}/-a.mp4"])
    assert list(found) == ["here", "c/ü", "x y", "-a"]
    assert (found["here"], str(found["c/ü"])) == (tmp_path / "here.mp4", "memory://videos/b/c/ü.MKV")
    assert list(find_sources([f"{memory}/b"], root=memory.url)) == ["b/c/ü", "b/x y"]
    assert list(find_sources([memory.url], [".mkv"])) == ["b/c/ü"]
    memory.joinpath("b/../../x.mp4").write(b"123")  # leads out of its folder
    for sources, root in (
        ([f"{memory}/none"], None),
        ([memory.url], f"{memory}/b"),
        ([tmp_path, f"{memory}/b"], memory.url),
        ([f"{memory}/b/x y.mp4", f"{memory}/c/x y.mp4"], None),  # which would have one name
        ([memory.url], None),
    ):
        with pytest.raises(MissingPathError):
            find_sources(sources, root=root)


def test_what_is_put_is_there(memory, tmp_path):
    file, there = tmp_path / "v.mp4", memory.joinpath("deep", "er", "v.mp4")
    file.write_bytes(b"0123456789")
    there.put(file)
    assert there.read() == b"0123456789" and there.stat().st_size == 10 and there.stat().st_mtime > 1e9
    assert there.ranges((0, 2), (8, 12)) == [b"01", b"89"]
    there.unlink()
    there.unlink()
    assert there.read() is None
    with pytest.raises(FileNotFoundError):
        there.stat()


@pytest.mark.parametrize("protocol, package", [("abfs", "pip install adlfs"), ("sss", "")])
def test_a_package_that_is_missing_is_named(protocol, package):
    with pytest.raises(MissingPathError) as caught:
        place(f"{protocol}://box/v.mp4").stat()
    assert package in caught.value.hint


def test_a_short_answer_is_asked_for_again(site, tmp_path):
    site.answers["/v.mp4"] = [(b"01234", 10), 503, b"0123456789"]
    file = RemoteFile(site.secret)
    copy, stat = fetch(file, tmp_path)
    assert copy.read_bytes() == b"0123456789" and stat == (10, '"one"') and copy.name == "v.mp4"
    assert site.requested == ["/v.mp4?key=secret"] * 3


@pytest.mark.parametrize("answer, asked", [(404, 1), (403, 1), (500, 3), ((b"01234", 10), 3), (None, 0)])
def test_what_cannot_be_brought(site, tmp_path, answer, asked):
    site.answers["/v.mp4"] = [answer]
    if answer is None:  # nobody answers
        site.shutdown()
        site.server_close()
    with pytest.raises(VideoError) as caught:
        fetch(RemoteFile(site.secret), tmp_path)
    told = f"{caught.value} {caught.value.hint}"
    assert f"{site.root}/v.mp4" in told and "secret" not in told and caught.value.hint
    assert len(site.requested) == asked


@pytest.mark.long
def test_a_password_is_not_in_what_a_run_leaves(site, lstr, tmp_path):
    site.answers |= {"/text.mp4": [b"this is no video"], "/v.mp4": [403]}
    videos = [site.secret.replace("/v.", "/text."), site.secret]
    code, out, err = lstr(
        "extract", *videos, "-o", tmp_path / "features", "--recipe", "fast", "--set", "recipe.flow_algorithm=dis"
    )
    left = [path.read_bytes() for path in (tmp_path / "features").rglob("*") if path.is_file()]
    assert code == 3 and out == "" and err.count("failed: ") == 2 and f"{site.root}/text.mp4" in err, err
    assert f'"source": "{site.root}/v.mp4"' in (tmp_path / "features" / "failed.jsonl").read_text()
    assert "secret" not in err and not [content for content in left if b"secret" in content]


@pytest.mark.parametrize("cuts", [remote.ATTEMPTS - 1, remote.ATTEMPTS])
def test_a_connection_that_breaks_is_tried_again(memory, tmp_path, monkeypatch, cuts):
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    (tmp_path / "v.npy").write_bytes(b"0123456789")
    whole, left = fsspec.filesystem("memory").put_file, [ConnectionResetError("reset by peer")] * cuts

    def put(*arguments):
        if left:
            raise left.pop()
        whole(*arguments)

    monkeypatch.setattr(fsspec.filesystem("memory"), "put_file", put)
    with pytest.raises(OutputError) if cuts == remote.ATTEMPTS else nullcontext():
        memory.joinpath("v.npy").put(tmp_path / "v.npy")
        assert memory.joinpath("v.npy").read() == b"0123456789"


def test_scratch_of_killed_processes_is_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old = tmp_path / f"{SCRATCH_PREFIX}killed"
    old.mkdir()
    (old / "v.mp4").write_text("half")
    os.utime(old, (time.time() - 600,) * 2)
    with scratch() as used:
        assert not old.exists() and used.parent == tmp_path
        (used / "v.mp4").write_text("whole")
        os.utime(used, (time.time() - 600,) * 2)
        with scratch():
            assert used.exists(), "it is locked by its owner"
    assert list(tmp_path.iterdir()) == []
