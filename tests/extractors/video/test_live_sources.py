"""Live sources through real pipes and sockets: the same chunks as from a file, also after errors."""

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest

from lstr.errors import MissingPathError, StalledError, VideoError
from lstr.extractors.video import live
from lstr.extractors.video.inputs import PROMPT, Input, LiveOptions, parse_live
from lstr.extractors.video.live import LiveReader
from lstr.extractors.video.reader import PyAVReader, chunks_of
from lstr.files.atomic import write_text
from tests.support.http_servers import Handler, Server
from tests.support.served import TS_HEAD, camera, piped, served
from tests.support.videos import write_video

SIDE = 320
FINITE_HEAD = TS_HEAD[:-2] + b"Content-Length: %d\r\n\r\n"


def read(live_input: Input, first: int = 0, end: int | None = None, **options) -> tuple[LiveReader, list]:
    """Return the reader of a source that has ended, and its chunks."""
    chunks: list = []
    with LiveReader(live_input, SIDE, LiveOptions(**options), first=first, end=end) as reader:
        while True:
            with reader.changed:
                reader.changed.wait_for(lambda: reader.waiting or reader.ended)
            taken = reader.take()
            if taken is None:
                return reader, chunks
            chunks.append(taken[0])


def read_pipe(*parts, **options) -> tuple[LiveReader, list]:
    with piped(*parts) as file:
        return read(Input("stdin", file, options=PROMPT, lasting=False), **options)


def indices(chunks) -> list[int]:
    return [chunk.index for chunk in chunks]


def retry_longer(check: Callable[[float], None], seconds: float) -> None:
    """Call `check(seconds)`; if it fails, retry with 4 and 16 times the seconds, for a busy machine."""
    for factor in (1, 4, 16):
        try:
            return check(factor * seconds)
        except AssertionError:
            if factor == 16:
                raise


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> dict[str, bytes]:
    """Clips of noise as MPEG-TS that start at different times."""
    folder = tmp_path_factory.mktemp("clips")

    def clip(name: str, start: int = 0, rate: int = 30, size=(96, 64), seconds: int = 2) -> bytes:
        times, options = range(start * rate, (start + seconds) * rate), {"g": "10", "preset": "ultrafast"}
        return write_video(folder / name, times, size, options=options, noise=True, rate=rate).read_bytes()

    return {
        "first": clip("first.ts"),
        "next": clip("next.ts", 2),
        "in an hour": clip("hour.ts", 3602),
        "larger and slower": clip("larger.ts", 2, rate=15, size=(128, 96)),
        "longer": clip("longer.ts", seconds=6),
        "folder": folder,
    }


def test_chunks_equal_those_of_a_file(clips):
    from_file = list(chunks_of(PyAVReader(clips["folder"] / "first.ts").frames(SIDE)))
    data = clips["first"]
    results = [read_pipe(data[:5000], 0.05, data[5000:])]
    with served([data]) as port:
        results.append(read(parse_live(f"tcp://127.0.0.1:{port}"), on_lag="wait"))
    with served([data], head=FINITE_HEAD % len(data)) as port:
        results.append(read(parse_live(f"http://127.0.0.1:{port}/a.ts")))
    for reader, chunks in results:
        assert indices(chunks) == [chunk.index for chunk in from_file] == list(range(8))
        assert all(np.array_equal(a.frames, b.frames) for a, b in zip(chunks, from_file, strict=True))
        assert reader.dropped == reader.unseen == 0 and reader.frames == 60 and reader.error is None


def test_a_source_waits_for_a_full_queue():
    camera = Input("camera", "testsrc=size=96x64:rate=30", demuxer="lavfi")
    reader, chunks = read(camera, first=4, end=20, on_lag="wait")
    assert indices(chunks) == list(range(4, 20)) and reader.dropped == reader.unseen == 0


def test_a_truncated_recording_is_read_once(clips):
    with served([clips["first"]], [clips["first"]], head=FINITE_HEAD % 10**7) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/a.ts"), timeout=60)
    assert type(reader.error) is VideoError and reader.reconnects == 0 and indices(chunks) == list(range(7))


def test_a_silent_source_stalls(clips):
    def check(timeout: float) -> None:
        with served([clips["first"], None]) as port:
            reader, chunks = read(parse_live(f"tcp://me:secret@127.0.0.1:{port}"), timeout=timeout)
        assert isinstance(reader.error, StalledError) and reader.error.exit_code == 1 and reader.error.hint
        assert f"{timeout:g} s" in str(reader.error) and "secret" not in str(reader.error)
        assert indices(chunks) == list(range(len(chunks))) and len(chunks) >= 6
        reader, chunks = read_pipe(clips["first"], None, timeout=timeout)
        assert isinstance(reader.error, StalledError) and len(chunks) >= 6
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("live")]

    retry_longer(check, 0.5)


def test_streams_may_contain_garbage_and_change_size_and_rate(clips):
    noise = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8).tobytes()
    reader, chunks = read_pipe(clips["first"], noise, clips["next"])
    assert reader.error is None and 100 < reader.frames <= 120 and 13 <= len(chunks) <= 16
    assert indices(chunks)[-1] == 15, "the clock continues"
    reader, chunks = read_pipe(clips["first"], clips["larger and slower"])
    assert reader.error is None and reader.frames == 90 and indices(chunks) == list(range(16))
    assert {chunk.frames.shape for chunk in chunks} == {(6, 64, 96, 3)}


@pytest.mark.long
def test_silence_of_datagrams_which_have_no_end_is_a_stall(clips):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address, data = free.getsockname(), clips["first"] + clips["next"]

    def check(timeout: float) -> None:
        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for i in range(0, len(data), 1316):
                    if not is_over.wait(0.002):
                        sender.sendto(data[i : i + 1316], address)

        is_over, thread = threading.Event(), threading.Thread(target=send)
        thread.start()
        reader, chunks = read(parse_live(f"udp://127.0.0.1:{address[1]}"), timeout=timeout, on_lag="wait")
        is_over.set()
        thread.join()
        assert isinstance(reader.error, StalledError) and chunks and indices(chunks) == sorted({*indices(chunks)})

    retry_longer(check, 1.5)


def test_live_addresses():
    assert parse_live("game.mp4") is parse_live("folder") is parse_live(Path("a/b.mp4")) is None
    camera = parse_live("rtsp://me:secret@10.0.0.5:554/Streaming/Channels/101?token=abc")
    assert camera.id == "10.0.0.5-554-Streaming-Channels-101" and camera.lasting
    assert "secret" not in repr(camera) and camera.options["rtsp_transport"] == "tcp"
    assert parse_live("http://h/user=admin&password=x/a.m3u8").id == "h-a.m3u8"
    assert parse_live("udp://@:1234").id == "1234" and not parse_live("tcp://h:1").lasting
    for text in ("camera:7777", "/dev/video7777", "camera:front", "gopher://host/x", "file:///etc/x"):
        with pytest.raises(MissingPathError) as caught:
            parse_live(text)
        assert caught.value.exit_code == 2


def test_sources_that_fail_before_the_first_decision(clips):
    """Not a camera, a pipe that is too short, and a pipe that ends before the requested start."""
    for reader, chunks in (
        read(Input("camera-0", "/dev/null", demuxer="v4l2")),
        read_pipe(clips["first"][: 188 * 100]),
        read_pipe(clips["first"], first=400),
    ):
        assert chunks == [] and type(reader.error) is VideoError
        assert reader.error.exit_code == 3 and reader.error.hint


PLAYLIST = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n"


class EndingEvent(Handler):
    """Serves a live event that ends, and so becomes a recording, when its playlist is requested again."""

    def do_GET(self):
        super().do_GET()
        if self.path == "/event.m3u8":
            path = Path(self.directory) / "event.m3u8"
            write_text(path, path.read_text().removesuffix("#EXT-X-ENDLIST\n") + "#EXT-X-ENDLIST\n")


@pytest.mark.parametrize("name", ["list.m3u8", "event.m3u8"])
def test_playlists_are_read_once(clips, monkeypatch, name):
    """An event that has ended is not read again from its first segment."""
    monkeypatch.setattr(live, "DELAYS_S", (0.05,))
    segments = "#EXTINF:0.5,\nfirst.ts\n#EXTINF:0.5,\nnext.ts\n"
    recording = "#EXT-X-PLAYLIST-TYPE:VOD\n" + segments.replace("0.5", "2.0") + "#EXT-X-ENDLIST\n"
    (clips["folder"] / name).write_text(PLAYLIST + (recording if name == "list.m3u8" else segments))
    with Server(clips["folder"], EndingEvent) as server:
        source = parse_live(f"{server.root}/{name}")
        reader, chunks = read(source)
        second_reader, second_chunks = read(replace(source, is_over=True))
        server.shutdown()
    assert reader.error is None and reader.reconnects == 0 and reader.frames == 120
    assert indices(chunks) == sorted({*indices(chunks)}) and indices(chunks)[-1] <= 15
    if name == "list.m3u8":
        assert indices(chunks) == list(range(16))
    else:
        assert not second_chunks and second_reader.error is not None


@pytest.mark.long
def test_mjpeg_over_http_uses_the_time_of_arrival(tmp_path):
    """Ten images per second without timestamps, as cameras send them; FFmpeg would assume 25."""
    path = write_video(tmp_path / "v.avi", range(0, 600, 20), codec="mjpeg", pixels="yuvj420p")
    with av.open(str(path)) as container:
        images = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    head = b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
    parts = [b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(i), i) for i in images]

    def check(timeout: float) -> None:
        with served([item for part in parts for item in (part, 0.1)], head=head) as port:
            reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/video"), on_lag="wait", timeout=timeout)
        assert reader.clock == "wall" and reader.frames == 30 and indices(chunks)[-1] >= 6

    retry_longer(check, 1)


@pytest.mark.long
def test_an_rtsp_camera_reconnects(clips):
    """The camera needs a password and closes each of two connections after two seconds."""
    from_file = list(islice(chunks_of(PyAVReader(clips["folder"] / "first.ts").frames(SIDE)), 7))

    def check(timeout: float) -> None:
        with camera(clips["first"], clips["next"]) as port:
            camera_input = parse_live(f"rtsp://me:secret@127.0.0.1:{port}/stream")
            reader, chunks = read(camera_input, on_lag="wait", timeout=timeout)
        numbers = indices(chunks)
        assert reader.reconnects == 1 and isinstance(reader.error, StalledError) and "secret" not in str(reader.error)
        assert all(np.array_equal(a.frames, b.frames) for a, b in zip(chunks[:7], from_file, strict=True))
        # half a second passes before the second connection; a chunk that starts in it is not seen
        assert numbers[:7] == list(range(7)) and len(numbers) >= 12 and reader.frames > 110
        assert reader.gaps == 1 and reader.unseen == numbers[-1] + 1 - len(numbers) > 0
        (gap,) = reader.missing_before(numbers[-1])
        assert (gap.reason, gap.first, gap.end) == ("unseen", 7, 7 + reader.unseen)

    retry_longer(check, 2)


@pytest.mark.parametrize("scheme", ["rtsp", "http"])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
def test_an_unreachable_address(scheme, host):
    """The reason is reported at the first attempt, and is the error after the timeout."""
    reader, chunks = read(parse_live(f"{scheme}://me:secret@{host}/x"), timeout=0.5)
    assert type(reader.error) is VideoError and reader.error.hint and reader.error.exit_code == 3 and not chunks
    (notice,) = reader.news()
    reason = "refused" if host == "127.0.0.1:1" else host
    assert reason in notice and reason in str(reader.error) and "secret" not in f"{notice} {reader.error}"
    assert reader.news() == []


def test_a_rejected_request_fails_at_once():
    with served([b"no"], [b"no"], head=b"HTTP/1.0 401 Unauthorized\r\n\r\n") as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/x"), timeout=600)
    assert type(reader.error) is VideoError and not chunks and reader.news() == []


def test_a_server_that_never_answers(monkeypatch):
    """A notice comes after the first attempt; the final error is the same as for a camera that is off."""
    monkeypatch.setattr(live, "SILENCE_S", 0.2)
    with served(*[[None]] * 9) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/x"), timeout=0.9)
    assert type(reader.error) is VideoError and reader.error.exit_code == 3 and not chunks
    assert "0.9 s" in str(reader.error) and reader.error.hint and len(reader.news()) == 1


PACKET, TICKS = 188, 90_000
WRAP = 2**33  # ticks of a time stamp in MPEG-TS
MARKERS = 0xF1_0001_0001  # bits of a time stamp's five bytes that hold no time


def restamped(data: bytes, stamp: Callable[[int, float], float]) -> bytes:
    """Replace the time of each frame, in seconds, by `stamp(number, time)` in MPEG-TS of one stream."""
    changed, number = bytearray(data), 0
    for start in range(0, len(changed), PACKET):
        begins, control = changed[start + 1] & 0x40, changed[start + 3] >> 4 & 3
        at = start + 4 + (changed[start + 4] + 1 if control & 2 else 0)
        if not begins or not control & 1 or bytes(changed[at : at + 3]) != b"\0\0\1":
            continue
        for place in range(at + 9, at + 9 + 5 * (changed[at + 7] >> 6 & 3).bit_count(), 5):  # of display, of decoding
            bits = int.from_bytes(changed[place : place + 5])
            time = ((bits >> 33 & 7) << 30 | (bits >> 17 & 0x7FFF) << 15 | bits >> 1 & 0x7FFF) / TICKS
            ticks = round(stamp(number, time) * TICKS) % WRAP
            bits = bits & MARKERS | ticks >> 30 << 33 | (ticks >> 15 & 0x7FFF) << 17 | (ticks & 0x7FFF) << 1
            changed[place : place + 5] = bits.to_bytes(5)
        number += 1
    return bytes(changed)


STAMPS = {
    "equal": lambda i, time: 5.0,
    "falling": lambda i, time: 100 - time,
    "back and forth": lambda i, time: 10 + time + (5 if i % 2 else -5),
    "sometimes": lambda i, time: 10 + time + (5 if i % 10 == 0 else 0),
}


def test_a_clock_that_jumps_by_an_hour_and_back(clips):
    reader, chunks = read_pipe(clips["first"], clips["in an hour"], clips["first"])
    numbers = indices(chunks)
    assert reader.error is None and numbers == sorted(set(numbers)) and numbers[:8] == list(range(8))
    assert reader.unseen == numbers[8] - 8 and abs(numbers[8] - 4 * 3602) <= 1 and reader.gaps == 1
    assert numbers[8:] == list(range(numbers[8], numbers[-1] + 1)), "after the step back the clock continues"
    assert len(numbers) >= 22


@pytest.mark.parametrize("stamp", STAMPS.values(), ids=STAMPS)
def test_unusable_timestamps(clips, stamp):
    """Frames of a pipe are counted instead, with one warning; at most the first 48 frames are lost."""
    reader, chunks = read_pipe(restamped(clips["longer"], stamp))
    assert reader.error is None and reader.clock == "average rate" and reader.frames == 180
    assert reader.news() == reader.warnings and len(reader.warnings) == 1
    numbers = indices(chunks)
    assert numbers[-14:] == list(range(numbers[-1] - 13, numbers[-1] + 1)) and len(numbers) >= 16
    for chunk in chunks[-12:]:  # as from a video of 30 frames per second
        assert len({frame.tobytes() for frame in chunk.frames}) == 6


def test_a_clock_that_wraps_at_33_bits(clips):
    """Timestamps of MPEG-TS start over every 26.5 hours: soon after the start here, and later."""
    end = WRAP / TICKS
    near = restamped(clips["longer"], lambda i, time: end - 3 + time)
    later = restamped(clips["longer"], lambda i, time: 90_000 + time if i < 60 else end - 3 + time)
    for data, n_unseen in ((near, 0), (later, 21763)):
        reader, chunks = read_pipe(data)
        assert reader.error is None and reader.clock == "stream" and reader.warnings == []
        assert reader.frames == 180 and len(chunks) in (23, 24) and abs(reader.unseen - n_unseen) <= 1
        assert len(np.flatnonzero(np.diff(indices(chunks)) != 1)) == bool(n_unseen)
