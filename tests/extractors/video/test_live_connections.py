"""Addresses and cameras that are reached over a network, lost and reached again."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest

from lstr.errors import StalledError, VideoError
from lstr.extractors.video import live
from lstr.extractors.video.inputs import parse_live
from lstr.extractors.video.reader import PyAVReader, chunks_of
from lstr.files.atomic import write_text
from tests.support.clips import SIDE, indices, read
from tests.support.http_folder import Handler, Server
from tests.support.patience import patiently
from tests.support.served import TS_HEAD, camera, served
from tests.support.videos import write_video

PLAYLIST = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n"


@pytest.fixture
def folder(clips):
    """Two segments, with frames that follow one another as in one file, and playlists of them."""
    end = "#EXT-X-ENDLIST\n"
    recording = "#EXT-X-PLAYLIST-TYPE:VOD\n#EXTINF:2.0,\nfirst.ts\n#EXTINF:2.0,\nnext.ts\n"
    (clips["folder"] / "list.m3u8").write_text(PLAYLIST + recording + end)
    (clips["folder"] / "event.m3u8").write_text(PLAYLIST + "#EXTINF:0.5,\nfirst.ts\n#EXTINF:0.5,\nnext.ts\n")
    return clips["folder"]


class Ending(Handler):
    """A live event, which is over when its playlist is asked for again: it then says so, and is a recording."""

    def do_GET(self):
        super().do_GET()
        if self.path == "/event.m3u8":
            path = Path(self.directory) / "event.m3u8"
            write_text(path, path.read_text().removesuffix("#EXT-X-ENDLIST\n") + "#EXT-X-ENDLIST\n")  # at once


@pytest.mark.parametrize("name", ["list.m3u8", "event.m3u8"])
def test_playlists_are_read_once(folder, monkeypatch, name):
    """Connected to again, an event that had ended began with its first segment."""
    monkeypatch.setattr(live, "DELAYS_S", (0.05,))
    with Server(folder, Ending) as server:
        source = parse_live(f"{server.root}/{name}")
        reader, chunks = read(source)
        again, none = read(replace(source, is_over=True))
        server.shutdown()
    assert reader.error is None and reader.reconnects == 0 and reader.frames == 120
    assert indices(chunks) == sorted({*indices(chunks)}) and indices(chunks)[-1] <= 15
    if name == "list.m3u8":
        assert indices(chunks) == list(range(16))
    else:
        assert not none and again.error is not None


@pytest.mark.long
def test_pictures_over_http(tmp_path):
    """MJPEG as cameras send it, ten pictures a second and no times: arrival is the time; FFmpeg would suppose 25."""
    path = write_video(tmp_path / "v.avi", range(0, 600, 20), codec="mjpeg", pixels="yuvj420p")
    with av.open(str(path)) as container:
        pictures = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    head = b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
    parts = [b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(p), p) for p in pictures]
    slowly = [part for p in parts for part in (p, 0.1)]

    def check(timeout: float) -> None:
        with served(slowly, head=head) as port:
            reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/video"), on_lag="wait", timeout=timeout)
        assert reader.clock == "wall" and reader.frames == 30 and indices(chunks)[-1] >= 6

    patiently(check, 2)  # connected again and refused, it is still what it was


@pytest.mark.long
def test_a_camera_by_rtsp(clips):
    """It is opened with a password, goes away after its two seconds, and comes back once."""
    from_file = chunks_of(PyAVReader(clips["folder"] / "first.ts").frames(SIDE))
    from_file = list(islice(from_file, 7))

    def check(timeout: float) -> None:
        with camera(clips["first"], clips["next"]) as port:
            camera_input = parse_live(f"rtsp://me:secret@127.0.0.1:{port}/stream")
            reader, chunks = read(camera_input, on_lag="wait", timeout=timeout)
        found = indices(chunks)
        assert reader.reconnects == 1 and isinstance(reader.error, StalledError) and "secret" not in str(reader.error)
        assert found[:7] == list(range(7)) and len(found) >= 12 and reader.unseen == found[-1] + 1 - len(found) > 0
        assert all(np.array_equal(a.frames, b.frames) for a, b in zip(chunks[:7], from_file, strict=True))

    patiently(check, 2)


@pytest.mark.long
def test_a_source_that_comes_back_goes_on_at_its_time(clips):
    with served([clips["first"]], [clips["first"]], head=TS_HEAD) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/a.ts"), on_lag="wait", timeout=3)
    # two connections of two seconds; the attempts that follow are refused until the timeout
    assert reader.reconnects == 1 and reader.frames == 120 and isinstance(reader.error, StalledError)
    found = indices(chunks)
    jump = next(b - a for a, b in zip(found, found[1:], strict=False) if b != a + 1)
    # it waits for half a second before it connects again; a chunk that begins before it is back was not seen
    assert found[:7] == list(range(7)) and reader.gaps == 1 and jump - 1 == reader.unseen >= 2
    (gap,) = reader.missing_before(found[-1])
    assert (gap.reason, gap.first, gap.end) == ("unseen", 7, 7 + reader.unseen)
    assert len(found) in (13, 14), "of each connection the chunks that it filled"


@pytest.mark.parametrize("address", ["rtsp://me:secret@127.0.0.1:1/x", "http://me:secret@127.0.0.1:1/x.m3u8"])
def test_an_address_where_nothing_is_is_tried_until_the_timeout(address):
    """And then it has failed for the reason that it had, which is reported at the first attempt."""
    reader, chunks = read(parse_live(address), timeout=1)
    assert type(reader.error) is VideoError and not chunks and "secret" not in str(reader.error)
    assert reader.error.hint and reader.error.exit_code == 3
    (told,) = reader.news()
    assert "refused" in told and "secret" not in told and reader.news() == []


@pytest.mark.parametrize("status", [b"404 Not Found", b"401 Unauthorized"])
def test_an_address_with_a_mistake_fails_at_once(status):
    with served([b"no"], [b"no"], head=b"HTTP/1.0 %s\r\n\r\n" % status) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/x"), timeout=600)
    assert type(reader.error) is VideoError and not chunks and reader.news() == []


def test_a_network_that_swallows_everything(monkeypatch):
    """It is reported as soon as an attempt is over, and the end is that of a camera that is off."""
    monkeypatch.setattr(live, "SILENCE_S", 0.2)
    with served(*[[None]] * 9) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/x"), timeout=0.9)
    assert type(reader.error) is VideoError and reader.error.exit_code == 3 and not chunks
    assert "0.9 s" in str(reader.error) and reader.error.hint and len(reader.news()) == 1
