"""An MP4 through a pipe: with its index first it streams, with its index last it is kept until it is whole."""

import pytest

from lstr.errors import VideoError
from lstr.extractors.video import containers
from lstr.extractors.video.reader import PyAVReader
from tests.support.served import piped
from tests.support.videos import write_video

TIMES = range(0, 1200, 20)  # 2 s


@pytest.fixture
def mp4(tmp_path):
    """An MP4 by where its index is: bytes."""
    last = write_video(tmp_path / "last.mp4", TIMES)
    first = write_video(tmp_path / "first.mp4", TIMES, container={"movflags": "+faststart"})
    return {"last": last.read_bytes(), "first": first.read_bytes()}


def times_of(reader: PyAVReader) -> list[float]:
    return [float(frame.time) for frame in reader.frames(64)]


def test_the_index_may_be_first_or_last(mp4, tmp_path):
    expected = times_of(PyAVReader(tmp_path / "first.mp4"))
    assert len(expected) == 60
    for place in mp4:
        with piped(mp4[place]) as pipe:
            reader = PyAVReader(pipe, "skip", True)
            assert times_of(reader) == expected and ("faststart" in reader.note) == (place == "last")


def test_what_is_no_whole_video(mp4, monkeypatch):
    for content in (b"", b"text\n" * 100, mp4["last"][: mp4["last"].index(b"moov") - 100]):
        with piped(content) as pipe, pytest.raises(VideoError):
            times_of(PyAVReader(pipe))
    monkeypatch.setattr(containers, "MAX_COPY", 1000)  # what is kept is bounded
    with piped(mp4["last"]) as pipe, pytest.raises(VideoError) as caught:
        times_of(PyAVReader(pipe))
    assert caught.value.hint


def test_boxes(mp4):
    """What is looked at is never lost, and a box that lies about its size does not lead astray."""
    for content in (*mp4.values(), b"", b"short", b"\0\0\0\0ftyp" * 9, b"\xff\xff\xff\xffftypisom" + bytes(99)):
        left = [content]

        def read(size: int, left=left) -> bytes:
            block, left[0] = left[0][:size], left[0][size:]
            return block

        head, last = containers.look(read)
        assert head + left[0] == content and last == (content == mp4["last"])
