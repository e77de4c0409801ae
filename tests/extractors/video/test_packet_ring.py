"""The ring of packets: bounded whatever comes, from a key frame on, on one clock whatever connections say."""

from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.extractors.video.clips import OVERHEAD, TICKS, PacketRing, parameter_units, time_at
from lstr.extractors.video.inputs import Input
from lstr.extractors.video.live import LiveReader
from tests.support.served import piped
from tests.support.videos import write_video

SECOND = 600  # units of write_video
OPTIONS = {"g": "10", "preset": "ultrafast", "x265-params": "log-level=none"}


def film(path, seconds: int = 4, size=(64, 48), codec: str = "libx264", **more):
    """A film of 10 frames a second, with a key frame each second."""
    return write_video(path, range(0, seconds * SECOND, 60), size, codec, OPTIONS | more)


def demuxed(path):
    """A container, its stream, and its packets."""
    container = av.open(str(path))
    stream = container.streams.video[0]
    return container, stream, [packet for packet in container.demux(stream) if packet.size]


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """Two streams of other sizes, which stay open."""
    folder = tmp_path_factory.mktemp("streams")
    return [demuxed(film(folder / f"{side}.ts", 1, (side, side))) for side in (32, 64)]


COMING = st.tuples(
    st.booleans(),  # whether it is a key frame
    st.integers(1, 4000),  # bytes
    st.sampled_from([0.0, 0.01, 0.04, 1.0, 30.0]),  # seconds after the one before
    st.sampled_from([None, -(10**9), -40, 0, 40, 40, 40, 40, 10**9]),  # how far its stamp moves, in milliseconds
    st.sampled_from([0, 0, 0, 0, 1, 2]),  # the stream; 2 is the first one, of another connection
)


@given(st.lists(COMING, max_size=60), st.integers(0, 20_000), st.sampled_from([0.0, 0.5, 5.0]))
def test_it_is_bounded_and_in_order_whatever_comes(streams, coming, most_bytes, most_seconds):
    ring, now, stamp = PacketRing(most_bytes, most_seconds), 0.0, 0
    with av.open(streams[0][0].name) as again:
        those = [streams[0][1], streams[1][1], again.streams.video[0]]
        for key, size, wait, moved, which in coming:
            now += wait
            stamp += moved or 0
            packet = av.Packet(bytes(size))
            packet.time_base, packet.is_keyframe = Fraction(1, 1000), key
            packet.dts = packet.pts = None if moved is None else stamp
            ring.take(packet, those[which], now)
            kept = ring.after(0)
            assert sum(len(one.data) + OVERHEAD for one in kept) == ring.size <= most_bytes
            assert not kept or kept[0].is_key
            assert all(a.number < b.number and a.dts < b.dts for a, b in pairwise(kept))
            assert all(one.pts >= one.dts for one in kept)
            assert all(b.is_key for a, b in pairwise(kept) if a.coding is not b.coding)
            keys = [one.dts for one in kept if one.is_key]
            assert len(keys) < 2 or kept[-1].dts - keys[1] < most_seconds * TICKS, "the oldest group is of use"


def test_it_holds_the_seconds_and_no_more(tmp_path):
    container, stream, packets = demuxed(film(tmp_path / "a.ts", 8))
    ring = PacketRing(2**20, 2.5)
    for number, packet in enumerate(packets):
        ring.take(packet, stream, number / 10)
    container.close()
    kept = ring.after(0)
    assert len(kept) in range(30, 36) and kept[0].is_key and kept[-1].number == 80
    assert bytes(kept[0].data) == bytes(packets[kept[0].number - 1])
    from_then = ring.since(7.45, 1.2)
    assert from_then[0].number == 61, "the key frame before 6.2 s"
    assert time_at(from_then, 7.45) == kept[-1].dts - 5 * TICKS // 10
    assert ring.since(0.0, 5)[0] is kept[0]


def test_stamps_that_jump_or_stand_still_go_on_by_arrival(streams):
    ring = PacketRing(2**20, 100.0)
    for arrival, stamp in [(0, 0), (1, 1), (2, 5000), (3, 5001), (4, 7), (5, 7), (9, 11), (9.01, 11.5), (9.02, 12)]:
        packet = av.Packet(b"x")
        packet.pts = packet.dts = stamp * 10
        packet.time_base, packet.is_keyframe = Fraction(1, 10), True
        ring.take(packet, streams[0][1], float(arrival))
    found = [one.dts / TICKS for one in ring.after(0)]
    assert found == [0, 1, 2, 3, 4, 5, 9, 9.5, 10], "of two that come at once each has its own time"


def test_another_size_begins_anew_and_the_same_goes_on(streams):
    ring = PacketRing(2**20, 100.0)
    with av.open(streams[0][0].name) as again:
        connections = [streams[0][1], again.streams.video[0], streams[1][1]]
        for number, (stream, source) in enumerate(zip(connections, (0, 0, 1), strict=True)):
            for packet in streams[source][2]:
                ring.take(packet, stream, float(number))
    codings = [one.coding for one in ring.after(0)]
    assert len({*codings[:20]}) == 1 and len({*codings[20:]}) == 1 and codings[0] is not codings[-1]
    assert codings[-1].size == (64, 64)


@pytest.mark.parametrize(("codec", "types"), [("h264", (7, 8)), ("hevc", (32, 33, 34))])
def test_what_a_key_frame_says_of_its_decoding(tmp_path, codec, types):
    container, stream, packets = demuxed(film(tmp_path / "a.ts", 1, codec=f"libx{codec.replace('hevc', 'h265')[1:]}"))
    units = parameter_units(codec, bytes(packets[0]))
    assert len(units) == len(types) and all(unit in stream.codec_context.extradata for unit in units)
    assert parameter_units("mjpeg", bytes(packets[0])) == () == parameter_units(codec, b"\xff\xd8")
    container.close()


def test_a_live_reader_hands_over_each_packet_and_decodes_the_same(tmp_path):
    data, kept, found = film(tmp_path / "a.ts").read_bytes(), [], []
    for packets in (None, lambda packet, stream, arrival: kept.append((bytes(packet), arrival)), (1).__add__):
        with piped(data) as file:
            source = Input("stdin", file, lasting=False)
            reader = LiveReader(source, 64, packets=packets)
            with reader:
                chunks = []
                while True:
                    with reader.changed:
                        reader.changed.wait_for(lambda reader=reader: reader.waiting or reader.ended)
                    if (taken := reader.take()) is None:
                        break
                    chunks.append(taken[0].frames)
            found.append(chunks)
            assert reader.error is None
            told = [text for text in reader.news() if "not kept for clips" in text]
            assert bool(told) == (packets is not None and not isinstance(packets, type(lambda: 0)))
    assert len(found[0]) == 15 and all(np.array_equal(found[0], other) for other in found[1:])
    container, _, packets = demuxed(tmp_path / "a.ts")
    container.close()
    assert [one for one, _ in kept if one] == [bytes(packet) for packet in packets]
    assert all(a <= b for (_, a), (_, b) in pairwise(kept))


def test_packets_that_only_point_at_pictures_are_not_kept():
    """What FFmpeg's own test pictures come as: a copy would outlive what it points at."""
    ring = PacketRing(2**20, 1.0)
    with av.open("testsrc=size=64x48:rate=5", format="lavfi") as container:
        packet = next(container.demux(video=0))
        with pytest.raises(ValueError, match="cannot be kept"):
            ring.take(packet, packet.stream, 0.0)
    assert ring.after(0) == []
