"""Live sources, read through real pipes and sockets: the same chunks as from a file, and every fault survived."""

import socket
import threading
from fractions import Fraction
from pathlib import Path
from time import sleep

import av
import numpy as np
import pytest

from lstr.errors import MissingPathError, StalledError, VideoError
from lstr.extractors.video.inputs import Input, LiveOptions, parse_live
from lstr.extractors.video.live import LiveReader
from lstr.extractors.video.reader import PyAVReader, chunks_of
from tests.support.clips import SIDE, clip, drained, indices, read, stdin
from tests.support.patience import patiently
from tests.support.served import TS_HEAD, piped, served


def test_the_same_bytes_give_the_same_chunks_however_they_come(clips):
    from_file = list(chunks_of(PyAVReader(clips["folder"] / "first.ts").frames(SIDE)))
    data = clips["first"]
    with piped(data[:5000], 0.05, data[5000:]) as file:
        results = [read(stdin(file))]
    with served([data]) as port:
        results.append(read(parse_live(f"tcp://127.0.0.1:{port}"), on_lag="wait"))
    head = TS_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(data))
    with served([data], head=head) as port:
        results.append(read(parse_live(f"http://127.0.0.1:{port}/a.ts")))
    for reader, chunks in results:
        assert indices(chunks) == [chunk.index for chunk in from_file] == list(range(8))
        assert all(np.array_equal(a.frames, b.frames) for a, b in zip(chunks, from_file, strict=True))
        assert reader.dropped == reader.unseen == 0 and reader.frames == 60 and reader.error is None


def test_a_slow_taker_misses_the_oldest_chunks_and_each_is_counted():
    """FFmpeg's test pictures stand in for a camera that never waits."""
    camera = Input("camera", "testsrc=size=96x64:rate=30", demuxer="lavfi")
    reader = LiveReader(camera, SIDE, LiveOptions(on_lag="drop", waiting=3), end=200)
    taken, gaps = [], []
    with reader:
        while not (reader.ended and not reader.waiting):
            with reader.changed:
                reader.changed.wait_for(lambda: reader.waiting or reader.ended)
            sleep(0.01)
            if chunk := reader.take():
                taken.append(chunk[0].index)
                gaps += reader.missing_before(taken[-1])
    assert taken[-1] == 199 and taken == sorted(set(taken)) and reader.dropped > 0
    assert taken[-3:] == [197, 198, 199], "what came last was dropped"
    assert {gap.reason for gap in gaps} == {"dropped"}
    missing = [k for gap in gaps for k in range(gap.first, gap.end)]
    assert sorted(taken + missing) == list(range(200)) and len(missing) == reader.dropped


def test_a_source_can_be_made_to_wait():
    camera = Input("camera", "testsrc=size=96x64:rate=30", demuxer="lavfi")
    reader = LiveReader(camera, SIDE, LiveOptions(on_lag="wait", waiting=2), first=4, end=20)
    assert indices(drained(reader)) == list(range(4, 20)) and reader.dropped == reader.unseen == 0


def test_a_recording_that_breaks_off_does_not_begin_anew(clips):
    head = TS_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 10000000\r\n\r\n")
    with served([clips["first"]], [clips["first"]], head=head) as port:
        reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/a.ts"), timeout=5)
    assert type(reader.error) is VideoError and reader.reconnects == 0 and indices(chunks) == list(range(7))


def test_a_source_that_falls_silent_has_stalled(clips):
    def check(timeout: float) -> None:
        with served([clips["first"], None]) as port:
            reader, chunks = read(parse_live(f"tcp://me:secret@127.0.0.1:{port}"), timeout=timeout)
        assert isinstance(reader.error, StalledError) and reader.error.exit_code == 1 and reader.error.hint
        assert f"{timeout:g} s" in str(reader.error) and "secret" not in str(reader.error)
        assert indices(chunks) == list(range(len(chunks))) and len(chunks) >= 6
        with piped(clips["first"], None) as file:
            reader, chunks = read(stdin(file), timeout=timeout)
        assert isinstance(reader.error, StalledError) and len(chunks) >= 6
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("live")]

    patiently(check, 0.5)


def test_pictures_that_stop_while_the_sound_goes_on(tmp_path):
    with av.open(str(tmp_path / "v.ts"), "w") as output:
        video, audio = output.add_stream("mpeg2video", rate=30), output.add_stream("mp2", rate=44100)
        video.width, video.height, video.pix_fmt = 96, 64, "yuv420p"
        for _ in range(30):
            output.mux(video.encode(av.VideoFrame.from_ndarray(np.zeros((64, 96, 3), np.uint8), format="rgb24")))
        output.mux(video.encode())
        for i in range(20):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 44100), np.int16), format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 44100, i * 44100, Fraction(1, 44100)
            output.mux(audio.encode(frame))
    data = (tmp_path / "v.ts").read_bytes()
    cut = len(data) // 188 // 3 * 188
    drops = [part for i in range(cut, len(data), 1880) for part in (data[i : i + 1880], 0.05)]

    def check(timeout: float) -> None:
        with piped(data[:cut], *drops, None) as file:
            reader, chunks = read(stdin(file), timeout=timeout)
        assert isinstance(reader.error, StalledError) and reader.frames >= 20 and chunks

    patiently(check, 0.6)


def test_garbage_is_left_out(clips):
    noise = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8).tobytes()
    with piped(clips["first"], noise, clips["next"]) as file:
        reader, chunks = read(stdin(file))
    assert reader.error is None and 100 < reader.frames <= 120 and 13 <= len(chunks) <= 16
    assert indices(chunks)[-1] == 15, "its time went on"


def test_size_and_rate_may_change(clips):
    with piped(clips["first"], clips["larger and slower"]) as file:
        reader, chunks = read(stdin(file))
    assert reader.error is None and reader.frames == 90 and indices(chunks) == list(range(16))
    assert {chunk.frames.shape for chunk in chunks} == {(6, 64, 96, 3)}


def test_datagrams(clips):
    """MPEG-TS over UDP: it never ends, so that silence is a stall."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stopped = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            data = clips["first"] + clips["next"]
            for i in range(0, len(data), 1316):
                if stopped.wait(0.002):
                    return
                sender.sendto(data[i : i + 1316], ("127.0.0.1", port))

    def check(timeout: float) -> None:
        thread = threading.Thread(target=send)
        reader = LiveReader(parse_live(f"udp://127.0.0.1:{port}"), SIDE, LiveOptions(timeout=timeout, on_lag="wait"))
        stopped.clear()
        thread.start()
        try:
            chunks = drained(reader)
        finally:
            stopped.set()
            thread.join()
        assert isinstance(reader.error, StalledError) and chunks and indices(chunks) == sorted({*indices(chunks)})

    patiently(check, 1.5)


def test_what_is_live():
    assert parse_live("game.mp4") is parse_live("folder") is parse_live(Path("a/b.mp4")) is None
    camera = parse_live("rtsp://me:secret@10.0.0.5:554/Streaming/Channels/101?token=abc")
    assert camera.id == "10.0.0.5-554-Streaming-Channels-101" and camera.lasting
    assert "secret" not in repr(camera) and camera.options["rtsp_transport"] == "tcp"
    assert parse_live("http://h/user=admin&password=x/a.m3u8").id == "h-a.m3u8"
    assert parse_live("udp://@:1234").id == "1234" and not parse_live("tcp://h:1").lasting


@pytest.mark.parametrize("text", ["camera:7777", "/dev/video7777", "camera:front", "gopher://host/x", "file:///etc/x"])
def test_what_is_no_source(text):
    with pytest.raises(MissingPathError) as caught:
        parse_live(text)
    assert caught.value.hint and caught.value.exit_code == 2


def test_sources_that_fail_before_the_first_decision(clips):
    """A device that is no camera, a pipe that is too short, and one that ends before the start asked for."""
    short = clip(clips["folder"] / "short.ts", rate=4, seconds=1)[: 188 * 20]
    with piped(short) as one, piped(clips["first"]) as other:
        for source, first in (
            (Input("camera-0", "/dev/null", demuxer="v4l2"), 0),
            (stdin(one), 0),
            (stdin(other), 400),
        ):
            reader = LiveReader(source, SIDE, first=first)
            assert drained(reader) == [] and type(reader.error) is VideoError
            assert reader.error.exit_code == 3 and reader.error.hint
