"""An MP4 through a pipe: with its index first it streams, with its index last it is kept until it is whole."""

import os
import threading
from contextlib import contextmanager

import pytest

from lstr.errors import VideoError
from lstr.extractors.video import containers
from lstr.extractors.video.reader import PyAVReader
from tests.support.videos import write_video

TIMES = range(0, 1200, 20)  # 2 s


@pytest.fixture
def mp4(tmp_path):
    """An MP4 by where its index is: bytes."""
    last = write_video(tmp_path / "last.mp4", TIMES)
    first = write_video(tmp_path / "first.mp4", TIMES, container={"movflags": "+faststart"})
    return {"last": last.read_bytes(), "first": first.read_bytes()}


@contextmanager
def piped(content: bytes):
    """The reading end of a pipe through which `content` comes."""
    reading, writing = os.pipe()

    def write():
        with open(writing, "wb") as file, open(os.devnull, "wb"):
            try:
                file.write(content)
            except BrokenPipeError:
                pass

    thread = threading.Thread(target=write)
    thread.start()
    with open(reading, "rb") as file:
        yield file
    thread.join()


def times_of(reader: PyAVReader) -> list[float]:
    return [float(frame.time) for frame in reader.frames(64)]


def test_the_index_may_be_first_or_last(mp4, tmp_path):
    expected = times_of(PyAVReader(tmp_path / "first.mp4"))
    assert len(expected) == 60
    for place, said in (("first", False), ("last", True)):
        with piped(mp4[place]) as pipe:
            reader = PyAVReader(pipe, "skip", True)
            assert times_of(reader) == expected
        assert ("index at the end" in reader.note and "faststart" in reader.note) == said


def test_one_that_is_cut_is_no_damaged_video(mp4):
    with piped(mp4["last"][: mp4["last"].index(b"moov") - 100]) as pipe:
        with pytest.raises(VideoError, match="ended before its index came"):
            times_of(PyAVReader(pipe))


def test_nothing_and_what_is_no_video(mp4):
    with piped(b"") as pipe, pytest.raises(VideoError, match="Nothing came from"):
        times_of(PyAVReader(pipe))
    with piped(b"text\n" * 100) as pipe, pytest.raises(VideoError):
        times_of(PyAVReader(pipe))


def test_what_is_kept_is_bounded(mp4, monkeypatch):
    monkeypatch.setattr(containers, "MAX_COPY", 1000)
    with piped(mp4["last"]) as pipe, pytest.raises(VideoError, match="index at the end, and larger") as caught:
        times_of(PyAVReader(pipe))
    assert "name the file" in caught.value.hint


def test_boxes(mp4):
    """What is looked at is never lost, and a box that lies about its size does not lead astray."""
    for content in (*mp4.values(), b"", b"short", b"\0\0\0\0ftyp" * 9, b"\xff\xff\xff\xffftypisom" + bytes(99)):
        left = [content]

        def read(size: int, left=left) -> bytes:
            block, left[0] = left[0][:size], left[0][size:]
            return block

        head, last = containers.look(read)
        assert head + left[0] == content and last == (content == mp4["last"])
