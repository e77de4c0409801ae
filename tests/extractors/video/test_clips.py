"""Clips of received packets: a bounded ring on one clock, and files with the same frames as were received."""

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
ENDINGS = {"wmv2": "a.asf"}


def film(path, codec: str = "libx264", size=(64, 48), noise=True, pixels="yuv420p", g="20", bf="2"):
    """Five seconds of noise or of greys at 10 frames a second, with a key frame every two."""
    options = {"g": g, "bf": bf, "preset": "ultrafast", "x265-params": "log-level=none:bframes=2"}
    if codec in ("mjpeg", "wmv2"):
        options = {"g": "1"}
    return write_video(path, range(0, 3000, 60), size, codec, options, noise=noise, pixels=pixels)


def ring_of(path, seconds: float = 100.0) -> tuple[PacketRing, list[np.ndarray]]:
    """All packets of a file as fast as they are shown, and their frames."""
    ring, shown, arrival = PacketRing(2**26, seconds), [], 0.0
    with av.open(str(path), options=dict(PROMPT)) as container:
        stream = container.streams.video[0]
        for packet in container.demux(stream):
            ring.take(packet, stream, arrival)
            shown += [frame.to_ndarray(format="rgb24") for frame in packet.decode()]
            arrival += 1 / RATE if packet.size else 0
    return ring, shown


def written(path, packets) -> tuple[ClipFile, av.VideoStream, list[Fraction], list[np.ndarray]]:
    """A clip, and the stream, times and frames of its file."""
    clip = ClipFile(path, packets[0])
    for packet in packets:
        clip.write(packet)
    clip.close()
    stream = av.open(str(path)).streams.video[0]
    frames = list(stream.container.decode(stream))
    times = [Fraction(frame.pts) * frame.time_base for frame in frames]
    return clip, stream, times, [frame.to_ndarray(format="rgb24") for frame in frames]


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """Streams of two sizes, and the first of another connection, which stay open."""
    folder = tmp_path_factory.mktemp("streams")
    paths = [film(folder / f"{side}.ts", size=(side, side)) for side in (32, 64)]
    containers = [av.open(str(path)) for path in (*paths, paths[0])]
    return [container.streams.video[0] for container in containers]


COMING = st.tuples(
    st.booleans(),  # whether it is a key frame
    st.integers(1, 4000),  # bytes
    st.sampled_from([0.0, 0.01, 0.04, 1.0, 30.0]),  # seconds after the one before
    st.sampled_from([None, -(10**9), -40, 0, 40, 40, 40, 40, 10**9]),  # how far its stamp moves, in milliseconds
    st.sampled_from([0, 0, 0, 0, 1, 2]),  # the stream
)


@given(st.lists(COMING, max_size=60), st.integers(0, 20_000), st.sampled_from([0.0, 0.5, 5.0]))
def test_it_is_bounded_and_in_order_whatever_comes(streams, coming, most_bytes, most_seconds):
    ring, now, stamp = PacketRing(most_bytes, most_seconds), 0.0, 0
    for key, size, wait, moved, which in coming:
        now += wait
        stamp += moved or 0
        packet = av.Packet(bytes(size))
        packet.time_base, packet.is_keyframe = Fraction(1, 1000), key
        packet.dts = packet.pts = None if moved is None else stamp
        ring.take(packet, streams[which], now)
        kept = ring.after(0)
        assert sum(len(one.data) + OVERHEAD for one in kept) == ring.size <= most_bytes
        assert not kept or kept[0].is_key
        assert all(a.number < b.number and a.dts < b.dts for a, b in pairwise(kept))
        assert all(one.pts >= one.dts for one in kept)
        assert all(b.is_key for a, b in pairwise(kept) if a.coding is not b.coding)
        keys = [one.dts for one in kept if one.is_key]
        assert len(keys) < 2 or kept[-1].dts - keys[1] < most_seconds * TICKS, "the oldest group is of use"


@pytest.mark.parametrize(
    ("name", "codec", "tag"),
    [
        ("a.ts", "libx264", b"avc1"),
        ("a.flv", "libx264", b"avc1"),
        ("a.ts", "libx265", b"hvc1"),
        ("a.mkv", "libx265", b"hvc1"),
        ("a.ts", "mpeg4", b"mp4v"),
        ("a.mkv", "libvpx-vp9", b"vp09"),
    ],
)
def test_its_frames_are_those_received(tmp_path, name, codec, tag):
    ring, shown = ring_of(film(tmp_path / name, codec))
    packets = ring.since(3.25, 0.45)
    assert packets[0].is_key and len(packets) < 50
    clip, stream, times, frames = written(tmp_path / "clip", packets)
    data = (tmp_path / "clip").read_bytes()
    assert 0 < data.index(b"moov") < data.index(b"mdat") and tag in data and stream.codec_context.name == clip.codec
    assert len(frames) >= 20 and all(map(np.array_equal, frames, shown[-len(frames) :]))
    assert times[0] == 0 and all(0.05 < b - a < 0.15 for a, b in pairwise(times))
    assert abs(clip.seconds - len(frames) / RATE) < 0.11


@pytest.mark.parametrize(
    ("codec", "pixels", "size"),
    [
        ("mjpeg", "yuvj420p", (64, 48)),
        ("rawvideo", "yuyv422", (66, 48)),
        ("mjpeg", "yuvj422p", (65, 49)),
        ("wmv2", "yuv420p", (64, 48)),
    ],
)
def test_what_mp4_does_not_hold_is_encoded_again(tmp_path, codec, pixels, size):
    ring, shown = ring_of(film(tmp_path / ENDINGS.get(codec, "a.mkv"), codec, size, noise=False, pixels=pixels))
    clip, stream, times, frames = written(tmp_path / "clip", ring.since(3.25, 0.45))
    assert clip.codec == stream.codec_context.name == "h264" and stream.codec_context.pix_fmt == "yuv420p"
    assert len(frames) == 50 - 27 and times[0] == 0
    assert all(abs(a[20, 30].mean() - b[20, 30].mean()) < 6 for a, b in zip(frames, shown[27:], strict=True))


def test_the_image_at_a_moment_takes_no_longer_than_it_may(tmp_path):
    packets = ring_of(film(tmp_path / "a.ts", noise=False, g="100", bf="0"))[0].after(0)
    ticking = iter(range(100))
    whole = image_at(packets, packets[30].pts, 32, 100)
    hasty = image_at(packets, packets[30].pts, 32, 4.5, lambda: next(ticking))
    assert whole.shape == (24, 32, 3) and abs(int(whole[5, 5, 0]) - 30 * 7) < 6
    assert abs(int(hasty[5, 5, 0]) - 4 * 7) < 6, "of the frames decoded in that time the last"
    assert image_at(packets[1:], TICKS, 32, 1) is None and image_at([], 0, 32, 1) is None
