"""Files at URLs: listing, downloads, uploads, and names without secrets."""

import os
import tempfile
import time
from contextlib import nullcontext

import fsspec
import pytest

from lstr.errors import MissingPathError, OutputError, VideoError
from lstr.extractors.video.inputs import find_sources, local_copy
from lstr.files import remote
from lstr.files.atomic import SCRATCH_PREFIX, scratch
from lstr.files.remote import RemoteFile, place
from tests.support.http_servers import Handler, Server


@pytest.fixture
def memory():
    """An empty folder in a file system in memory."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield RemoteFile("memory://videos")
    fs.store.clear()


class AnswerHandler(Handler):
    """Sends the answers of the server's table `answers`, path to list; repeats the last one.

    An answer is a body, a body and the length in the header, or a status code.
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
    with Server(tmp_path, AnswerHandler) as server:
        server.answers = {}
        server.secret = server.root.replace("//", "//me:secret@") + "/v.mp4?key=secret"
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://me:secret@host/v.mp4?sig=secret#secret", "https://host/v.mp4"),
        ("sftp://me:secret@host/v.mp4", "sftp://host/v.mp4"),
        ("ftp://me:sec/ret@host/v.mp4", "ftp://host/v.mp4"),
        ("s3://bucket/a#1?.mp4", "s3://bucket/a#1?.mp4"),
        ("gs://bucket/user=me/v.mp4", "gs://bucket/user=me/v.mp4"),
    ],
)
def test_the_name_of_a_remote_file_has_no_secrets(url, name):
    file = RemoteFile(url)
    assert str(file) == repr(file) == f"{file}" == name and file.url == url


def test_find_sources_lists_local_and_remote_videos(memory, tmp_path):
    for path in ("b/x y.mp4", "b/c/ü.MKV", "-a.mp4", "b/notes.txt", "c/x y.mp4"):
        memory.joinpath(path).write(b"123")
    assert memory.below()["b/c/ü.MKV"].read() == b"123" and memory.joinpath("none").below() == {}
    assert sorted(RemoteFile("memory://videos/*/*.mp4").below()) == ["b/x y.mp4", "c/x y.mp4"]
    (tmp_path / "here.mp4").touch()
    sources = find_sources([tmp_path, f"{memory}/b", f"{memory}/-a.mp4"])
    assert list(sources) == ["here", "c/ü", "x y", "-a"]
    assert (sources["here"], str(sources["c/ü"])) == (tmp_path / "here.mp4", "memory://videos/b/c/ü.MKV")
    assert list(find_sources([f"{memory}/b"], root=memory.url)) == ["b/c/ü", "b/x y"]
    memory.joinpath("b/../../x.mp4").write(b"123")  # outside of its folder
    for names, root in (
        ([f"{memory}/none"], None),
        ([memory.url], f"{memory}/b"),
        ([tmp_path, f"{memory}/b"], memory.url),
        ([f"{memory}/b/x y.mp4", f"{memory}/c/x y.mp4"], None),  # the same id
        ([memory.url], None),
    ):
        with pytest.raises(MissingPathError):
            find_sources(names, root=root)


def test_an_uploaded_file_can_be_read_and_removed(memory, tmp_path):
    (tmp_path / "v.mp4").write_bytes(b"0123456789")
    file = memory.joinpath("deep", "er", "v.mp4")
    file.put(tmp_path / "v.mp4")
    assert file.read() == b"0123456789" and file.stat().st_size == 10 and file.stat().st_mtime > 1e9
    assert file.ranges((0, 2), (8, 12)) == [b"01", b"89"]
    file.unlink()
    file.unlink()
    assert file.read() is None
    with pytest.raises(FileNotFoundError):
        file.stat()


@pytest.mark.parametrize(("protocol", "package"), [("abfs", "pip install adlfs"), ("sss", "")])
def test_a_missing_package_is_named(protocol, package):
    with pytest.raises(MissingPathError) as caught:
        place(f"{protocol}://box/v.mp4").stat()
    assert package in caught.value.hint


def test_an_incomplete_download_is_repeated(site):
    site.answers["/v.mp4"] = [(b"01234", 10), 503, b"0123456789"]
    with local_copy(RemoteFile(site.secret)) as (copy, origin):
        assert copy.read_bytes() == b"0123456789" and copy.name == "v.mp4"
    assert (origin["bytes"], origin["mtime"]) == (10, '"one"') and not copy.exists()
    assert site.requested == ["/v.mp4?key=secret"] * 3


@pytest.mark.parametrize(("answer", "n_requests"), [(404, 1), (403, 1), (500, 3), ((b"01234", 10), 3), (None, 0)])
def test_a_failed_download_is_reported_without_secrets(site, answer, n_requests):
    site.answers["/v.mp4"] = [answer]
    if answer is None:  # no server
        site.shutdown()
        site.server_close()
    with pytest.raises(VideoError) as caught, local_copy(RemoteFile(site.secret)):
        pass
    message = f"{caught.value} {caught.value.hint}"
    assert f"{site.root}/v.mp4" in message and "secret" not in message
    assert len(site.requested) == n_requests


@pytest.mark.parametrize("failures", [remote.ATTEMPTS - 1, remote.ATTEMPTS])
def test_an_interrupted_upload_is_repeated(memory, tmp_path, monkeypatch, failures):
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    (tmp_path / "v.npy").write_bytes(b"0123456789")
    put_file, errors = fsspec.filesystem("memory").put_file, [ConnectionResetError("reset by peer")] * failures

    def fail_first(*arguments):
        if errors:
            raise errors.pop()
        put_file(*arguments)

    monkeypatch.setattr(fsspec.filesystem("memory"), "put_file", fail_first)
    with pytest.raises(OutputError) if failures == remote.ATTEMPTS else nullcontext():
        memory.joinpath("v.npy").put(tmp_path / "v.npy")
        assert memory.joinpath("v.npy").read() == b"0123456789"


def test_scratch_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
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
            assert used.exists(), "its owner has locked it"
    assert list(tmp_path.iterdir()) == []
