"""Addresses and cameras that are reached over a network, lost and reached again."""

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from time import sleep

import av
import numpy as np
import pytest

from lstr.errors import StalledError, VideoError
from lstr.extractors.video import live
from lstr.extractors.video.inputs import LiveOptions, parse_live
from lstr.extractors.video.live import LiveReader
from lstr.extractors.video.reader import PyAVReader, chunks_of
from lstr.files.atomic import write_text
from tests.support.clips import SIDE, indices, read
from tests.support.patience import patiently
from tests.support.served import TS_HEAD, camera, served
from tests.support.videos import write_video


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def serving(handler) -> Iterator[int]:
    """The port of a server of files."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_a_playlist_of_segments_over_http(clips):
    """HLS: two segments, whose frames follow one another as in one file."""
    folder = clips["folder"]
    (folder / "list.m3u8").write_text(
        "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n#EXT-X-PLAYLIST-TYPE:VOD\n"
        "#EXTINF:2.0,\nfirst.ts\n#EXTINF:2.0,\nnext.ts\n#EXT-X-ENDLIST\n"
    )
    with serving(partial(Quiet, directory=folder)) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/list.m3u8"))
    assert reader.error is None and reader.frames == 120 and indices(chunks) == list(range(16))


class Ending(Quiet):
    """A live event, which is over when its playlist is asked for again: it then says so, and is a recording."""

    def do_GET(self):
        super().do_GET()
        if self.path == "/event.m3u8":
            path = Path(self.directory) / "event.m3u8"
            write_text(path, path.read_text().removesuffix("#EXT-X-ENDLIST\n") + "#EXT-X-ENDLIST\n")  # at once


def test_an_event_that_ends_is_not_read_again(clips, monkeypatch):
    """Connected to again, it began with its first segment, and all its actions were told a second time."""
    monkeypatch.setattr(live, "DELAYS_S", (0.05,))
    folder = clips["folder"]
    (folder / "event.m3u8").write_text(
        "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXTINF:0.5,\nfirst.ts\n#EXTINF:0.5,\nnext.ts\n"
    )
    with serving(partial(Ending, directory=folder)) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/event.m3u8"))
        again, none = read(replace(parse_live(f"http://127.0.0.1:{port}/event.m3u8"), is_over=True))
    assert reader.error is None and reader.reconnects == 0 and reader.on_lag == "drop"
    assert reader.frames == 120 and indices(chunks) == sorted({*indices(chunks)}) and indices(chunks)[-1] <= 15
    assert not none and "has ended, and is a recording since" in str(again.error)


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


@pytest.mark.slow
def test_a_source_that_is_away_is_told_of_once_and_again_when_it_is_back(clips, monkeypatch):
    """The log of a service said nothing, however long a camera was away."""
    monkeypatch.setattr(live, "GAP_SECONDS", Fraction(1, 5))
    with served([clips["first"]], [], [], [clips["first"]], head=TS_HEAD) as port:
        reader, _ = read(parse_live(f"http://127.0.0.1:{port}/a.ts"), on_lag="wait", timeout=6)
    away, back, again = reader.news()
    assert away.startswith("connection lost: ")
    assert back.startswith("connected again, after ") and again.startswith("connection lost")
    assert reader.news() == [] and reader.reconnects == 1


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
    """And then it has failed for the reason that it had, which is told at the first attempt."""
    reader, chunks = read(parse_live(address), timeout=1)
    assert type(reader.error) is VideoError and not chunks and "secret" not in str(reader.error)
    assert "address" in reader.error.hint and reader.error.exit_code == 3
    (told,) = reader.news()
    assert "Connection refused" in told and "tried again for 1 s" in told and "secret" not in told
    assert reader.news() == [], "it is told once"


@pytest.mark.parametrize("status", [b"404 Not Found", b"401 Unauthorized"])
def test_an_address_with_a_mistake_fails_at_once(status):
    with served([b"no"], [b"no"], head=b"HTTP/1.0 %s\r\n\r\n" % status) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/x"), timeout=600)
    assert type(reader.error) is VideoError and not chunks and reader.news() == []


def test_a_network_that_swallows_everything(monkeypatch):
    """A line says so as soon as an attempt is over, and the end is that of a camera that is off."""
    monkeypatch.setattr(live, "SILENCE_S", 0.2)
    with served(*[[None]] * 9) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/x"), timeout=0.9)
    assert type(reader.error) is VideoError and reader.error.exit_code == 3 and not chunks
    assert "sent no frame for 0.9 s" in str(reader.error) and "check that it is on" in reader.error.hint
    (told,) = reader.news()
    assert "sent nothing for too long. It is tried again for 0.9 s." in told


def test_a_camera_that_is_off_at_first(clips):
    """Its port is refused, then it is busy starting, then it plays."""

    def check(timeout: float) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # nobody listens yet
            port = taken.getsockname()[1]
            reader = LiveReader(parse_live(f"rtsp://127.0.0.1:{port}/stream"), SIDE, LiveOptions(timeout=timeout))
            with reader:
                while not (told := reader.news()):
                    sleep(0.01)
                assert reader.link == "connecting" and "Connection refused" in told[0]
                taken.close()
                with camera(clips["first"], port=port), reader.changed:
                    assert reader.changed.wait_for(lambda: reader.waiting or reader.ended, 60)
                    assert reader.waiting and reader.reconnects == 0 and reader.error is None

    patiently(check, 5)
