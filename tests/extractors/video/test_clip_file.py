"""Clips of received packets: the same pictures as were received, in a file that begins at 0 with its index first."""

from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
import pytest

from lstr.extractors.video.clips import TICKS, ClipFile, PacketRing, image_at
from lstr.extractors.video.inputs import PROMPT
from tests.support.videos import write_video

RATE = 10
ENDINGS = {"wmv2": "a.asf"}


def film(path, codec: str, size=(64, 48), noise=True, pixels="yuv420p", g="20", bf="2"):
    """Five seconds of noise or of greys, with a key frame every two."""
    options = {"g": g, "bf": bf, "preset": "ultrafast", "x265-params": "log-level=none:bframes=2"}
    if codec in ("mjpeg", "wmv2"):
        options = {"g": "1"}
    return write_video(path, range(0, 3000, 60), size, codec, options, noise=noise, pixels=pixels)


def ring_of(*paths) -> tuple[PacketRing, list[np.ndarray]]:
    """All packets of files, each as one connection, as fast as they are shown; and their pictures."""
    ring, shown, arrival = PacketRing(2**26, 100.0), [], 0.0
    for path in paths:
        with av.open(str(path), options=dict(PROMPT)) as container:
            stream = container.streams.video[0]
            for packet in container.demux(stream):
                ring.take(packet, stream, arrival)
                shown += [frame.to_ndarray(format="rgb24") for frame in packet.decode()]
                arrival += 1 / RATE if packet.size else 0
    return ring, shown


def written(path, packets) -> ClipFile:
    clip = ClipFile(path, packets[0])
    for packet in packets:
        clip.write(packet)
    clip.close()
    return clip


def decoded(path) -> tuple[av.VideoStream, list[av.VideoFrame], list[np.ndarray]]:
    container = av.open(str(path))
    stream = container.streams.video[0]
    frames = list(container.decode(stream))
    return stream, frames, [frame.to_ndarray(format="rgb24") for frame in frames]


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
def test_its_pictures_are_those_received(tmp_path, name, codec, tag):
    ring, shown = ring_of(film(tmp_path / name, codec))
    packets = ring.since(3.25, 0.45)
    assert packets[0].is_key and len(packets) < 50
    clip = written(tmp_path / "clip", packets)
    data = (tmp_path / "clip").read_bytes()
    assert 0 < data.index(b"moov") < data.index(b"mdat") and tag in data
    stream, frames, pictures = decoded(tmp_path / "clip")
    assert stream.codec_context.name == clip.codec
    assert len(pictures) >= 20, "two seconds are between key frames"
    assert all(np.array_equal(a, b) for a, b in zip(pictures, shown[-len(pictures) :], strict=True))
    times = [Fraction(frame.pts) * frame.time_base for frame in frames]
    assert times[0] == 0 and all(0.05 < b - a < 0.15 for a, b in pairwise(times))
    assert abs(clip.seconds - len(pictures) / RATE) < 0.11


@pytest.mark.parametrize(
    ("codec", "pixels", "size"),
    [
        ("mjpeg", "yuvj420p", (64, 48)),
        ("rawvideo", "yuyv422", (66, 48)),
        ("mjpeg", "yuvj422p", (65, 49)),
        ("wmv2", "yuv420p", (64, 48)),
    ],
)
def test_what_mp4_does_not_hold_is_encoded_anew(tmp_path, codec, pixels, size):
    ring, shown = ring_of(film(tmp_path / ENDINGS.get(codec, "a.mkv"), codec, size, noise=False, pixels=pixels))
    clip = written(tmp_path / "clip", ring.since(3.25, 0.45))
    stream, frames, pictures = decoded(tmp_path / "clip")
    assert clip.codec == stream.codec_context.name == "h264" and stream.codec_context.pix_fmt == "yuv420p"
    assert len(frames) == 50 - 27 and frames[0].pts == 0
    middles = [(a[20, 30].mean(), b[20, 30].mean()) for a, b in zip(pictures, shown[27:], strict=True)]
    assert max(abs(a - b) for a, b in middles) < 6


def test_two_connections_of_one_coding_are_one_clip(tmp_path):
    """The clock goes on over a reconnection by the time that it took."""
    ring, shown = ring_of(*[film(tmp_path / "a.ts", "libx264")] * 2)
    packets = ring.since(5.5, 2)
    assert packets[0].number == 21
    written(tmp_path / "clip", packets)
    _, frames, pictures = decoded(tmp_path / "clip")
    assert all(np.array_equal(a, b) for a, b in zip(pictures, shown[-len(pictures) :], strict=True))
    times = [float(frame.pts * frame.time_base) for frame in frames]
    assert all(0 < b - a < 0.41 for a, b in pairwise(times)) and 7.5 < times[-1] < 8.5


def test_a_size_that_changes_within_a_connection_is_declared(tmp_path):
    """The second clip's index is of its own pictures, though the connection declared others."""
    small, large = (film(tmp_path / f"{side}.ts", "libx264", (side, side)) for side in (32, 96))
    ring, shown = PacketRing(2**26, 100.0), []
    with av.open(str(small)) as one, av.open(str(large)) as other:
        packets = [p for p in (*one.demux(video=0), *other.demux(video=0)) if p.size]
        for number, packet in enumerate(packets):
            ring.take(packet, one.streams.video[0], number / RATE)
    with av.open(str(large)) as other:
        shown = [frame.to_ndarray(format="rgb24") for frame in other.decode(video=0)]
    last = ring.after(0)[-1].coding
    written(tmp_path / "clip", [packet for packet in ring.after(0) if packet.coding is last])
    stream, _, pictures = decoded(tmp_path / "clip")
    assert stream.codec_context.width == 96 and len(pictures) == 50
    assert all(np.array_equal(a, b) for a, b in zip(pictures, shown, strict=True))


def test_a_size_that_rtmp_changes_is_encoded_anew(tmp_path):
    """The second sequence header of an FLV: no container can be told of it."""
    files = [film(tmp_path / f"{side}.flv", "libx264", (side, side), noise=False, bf="0") for side in (32, 96)]
    (tmp_path / "both.flv").write_bytes(files[0].read_bytes() + files[1].read_bytes()[13:])
    ring, _ = ring_of(tmp_path / "both.flv")
    kept = ring.after(0)
    assert [p.coding is kept[-1].coding for p in kept] == [False] * 50 + [True] * 50
    for packets, side in ((kept[:50], 32), (kept[50:], 96)):
        clip = written(tmp_path / "clip", packets)
        stream, frames, _ = decoded(tmp_path / "clip")
        assert clip.frame_size == (stream.codec_context.width, stream.codec_context.height) == (side, side)
        assert len(frames) == 50 and image_at(packets, packets[20].pts, 200, 9).shape == (side, side, 3)


def test_the_image_at_a_moment_takes_no_longer_than_it_may(tmp_path):
    ring, _ = ring_of(film(tmp_path / "a.ts", "libx264", noise=False, g="100", bf="0"))
    packets = ring.after(0)
    ticking = iter(range(100))
    whole = image_at(packets, packets[30].pts, 32, 100)
    hasty = image_at(packets, packets[30].pts, 32, 4.5, lambda: next(ticking))
    assert whole.shape == (24, 32, 3) and abs(int(whole[5, 5, 0]) - 30 * 7) < 6
    assert abs(int(hasty[5, 5, 0]) - 4 * 7) < 6, "of the frames decoded in that time the newest"
    assert image_at(packets[1:], TICKS, 32, 1) is None and image_at([], 0, 32, 1) is None
