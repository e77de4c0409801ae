"""Clips of received packets: a bounded buffer, and files with the received frames."""

from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.extractors.video.clips import OVERHEAD, TICKS, ClipFile, PacketRing, image_at
from lstr.extractors.video.inputs import PROMPT
from tests.support.videos import write_video

RATE = 10


def write_clip(path, codec: str = "libx264", size=(64, 48), noise=True, pixels="yuv420p", g="20", bf="2"):
    """Write five seconds of noise or of greys at 10 frames per second, with a key frame every two seconds."""
    options = {"g": g, "bf": bf, "preset": "ultrafast", "x265-params": "log-level=none:bframes=2"}
    options = {"g": "1"} if codec in ("mjpeg", "wmv2") else options
    return write_video(path, range(0, 3000, 60), size, codec, options, noise=noise, pixels=pixels)


def ring_of(path, seconds: float = 100.0) -> tuple[PacketRing, list[np.ndarray]]:
    """Return a buffer of a file's packets, received at the rate of the frames, and all frames."""
    ring, images, arrival = PacketRing(2**26, seconds), [], 0.0
    with av.open(str(path), options=dict(PROMPT)) as container:
        stream = container.streams.video[0]
        for packet in container.demux(stream):
            ring.take(packet, stream, arrival)
            images += [frame.to_ndarray(format="rgb24") for frame in packet.decode()]
            arrival += 1 / RATE if packet.size else 0
    return ring, images


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """Open streams of two sizes, and the first one of a second connection."""
    folder = tmp_path_factory.mktemp("streams")
    paths = [write_clip(folder / f"{side}.ts", size=(side, side)) for side in (32, 64)]
    containers = [av.open(str(path)) for path in (*paths, paths[0])]
    return [container.streams.video[0] for container in containers]


PACKETS = st.tuples(
    st.booleans(),  # key frame
    st.integers(1, 4000),  # bytes
    st.sampled_from([0.0, 0.01, 0.04, 1.0, 30.0]),  # seconds after the one before
    st.sampled_from([None, -(10**9), -40, 0, 40, 40, 40, 40, 10**9]),  # step of the timestamp, in milliseconds
    st.sampled_from([0, 0, 0, 0, 1, 2]),  # the stream
)


@given(st.lists(PACKETS, max_size=60), st.integers(0, 20_000), st.sampled_from([0.0, 0.5, 5.0]))
def test_the_buffer_is_bounded_and_in_order(streams, received, max_bytes, max_seconds):
    ring, now, stamp = PacketRing(max_bytes, max_seconds), 0.0, 0
    for key, size, wait, step, stream in received:
        now += wait
        stamp += step or 0
        packet = av.Packet(bytes(size))
        packet.time_base, packet.is_keyframe = Fraction(1, 1000), key
        packet.dts = packet.pts = None if step is None else stamp
        ring.take(packet, streams[stream], now)
        packets = ring.after(0)
        assert sum(len(packet.data) + OVERHEAD for packet in packets) == ring.size <= max_bytes
        assert not packets or packets[0].is_key
        assert all(a.number < b.number and a.dts < b.dts for a, b in pairwise(packets))
        assert all(packet.pts >= packet.dts for packet in packets)
        assert all(b.is_key for a, b in pairwise(packets) if a.coding is not b.coding)
        keys = [packet.dts for packet in packets if packet.is_key]
        assert len(keys) < 2 or packets[-1].dts - keys[1] < max_seconds * TICKS, "the oldest group is needed"


@pytest.mark.parametrize(
    ("name", "codec", "tag", "pixels", "size"),
    [
        ("a.ts", "libx264", b"avc1", "yuv420p", (64, 48)),
        ("a.flv", "libx264", b"avc1", "yuv420p", (64, 48)),
        ("a.ts", "libx265", b"hvc1", "yuv420p", (64, 48)),
        ("a.mkv", "libx265", b"hvc1", "yuv420p", (64, 48)),
        ("a.ts", "mpeg4", b"mp4v", "yuv420p", (64, 48)),
        ("a.mkv", "libvpx-vp9", b"vp09", "yuv420p", (64, 48)),
        ("a.mkv", "mjpeg", None, "yuvj420p", (64, 48)),
        ("a.mkv", "rawvideo", None, "yuyv422", (66, 48)),
        ("a.mkv", "mjpeg", None, "yuvj422p", (65, 49)),
        ("a.asf", "wmv2", None, "yuv420p", (64, 48)),
    ],
)
def test_clips_contain_the_received_frames(tmp_path, name, codec, tag, pixels, size):
    """Codecs that MP4 cannot contain, here without a tag, are transcoded."""
    ring, received = ring_of(write_clip(tmp_path / name, codec, size, noise=bool(tag), pixels=pixels))
    packets = ring.since(3.25, 0.45)
    assert packets[0].is_key and len(packets) < 50
    clip = ClipFile(tmp_path / "clip", packets[0])
    for packet in packets:
        clip.write(packet)
    clip.close()
    with av.open(str(tmp_path / "clip")) as container:
        context, frames = container.streams.video[0].codec_context, list(container.decode(video=0))
        times, images = [frame.time for frame in frames], [frame.to_ndarray(format="rgb24") for frame in frames]
    assert times[0] == 0 and all(0.05 < b - a < 0.15 for a, b in pairwise(times))
    data = (tmp_path / "clip").read_bytes()
    assert 0 < data.index(b"moov") < data.index(b"mdat") and context.name == clip.codec
    assert abs(clip.seconds - len(images) / RATE) < 0.11
    if tag:
        assert tag in data and len(images) >= 20 and all(map(np.array_equal, images, received[-len(images) :]))
    else:
        assert (clip.codec, context.pix_fmt, len(images)) == ("h264", "yuv420p", 50 - 27)
        assert all(abs(a[20, 30].mean() - b[20, 30].mean()) < 6 for a, b in zip(images, received[27:], strict=True))


def test_the_image_at_a_time_keeps_to_its_time_limit(tmp_path):
    packets = ring_of(write_clip(tmp_path / "a.ts", noise=False, g="100", bf="0"))[0].after(0)
    clock = iter(range(100))
    exact = image_at(packets, packets[30].pts, 32, 100)
    limited = image_at(packets, packets[30].pts, 32, 4.5, lambda: next(clock))
    assert exact.shape == (24, 32, 3) and abs(int(exact[5, 5, 0]) - 30 * 7) < 6
    assert abs(int(limited[5, 5, 0]) - 4 * 7) < 6, "the last frame that was decoded in time"
    assert image_at(packets[1:], TICKS, 32, 1) is None and image_at([], 0, 32, 1) is None
