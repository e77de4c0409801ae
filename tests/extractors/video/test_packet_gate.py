"""A gate before the decoder: what is decoded is what an ungated reader decodes of the same packets."""

import io
import threading
from collections.abc import Iterator
from fractions import Fraction
from itertools import count
from pathlib import Path

import av
import numpy as np
import pytest

from lstr.extractors.errors import StalledError
from lstr.extractors.video import packet_gate
from lstr.extractors.video.gaps import RESTING
from lstr.extractors.video.live_input import PROMPT, Input, parse_live
from lstr.extractors.video.live_reader import LiveOptions, LiveReader
from lstr.extractors.video.moment import Moment
from lstr.extractors.video.packet_gate import Gate, PacketGate
from tests.support.patience import until
from tests.support.served import TS_HEAD, piped, served

SIDE, RATE, KEYS = 320, 30, 10
WAIT = LiveOptions(on_lag="wait")


def film(path: Path, seconds: int = 8, rate: int = RATE, **options: str) -> bytes:
    """Noise as MPEG-TS, with a key frame every ten pictures."""
    random = np.random.default_rng(0)
    with av.open(str(path), "w") as output:
        known = {"g": str(KEYS), "sc_threshold": "0", "preset": "ultrafast"}
        stream = output.add_stream("libx264", rate=rate, options=known | options)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for i in range(seconds * rate):
            frame = av.VideoFrame.from_ndarray(random.integers(0, 256, (64, 96, 3), np.uint8), format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return path.read_bytes()


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> bytes:
    return film(tmp_path_factory.mktemp("film") / "plain.ts")


def stdin(file) -> Input:
    return Input("stdin", file, options=PROMPT, lasting=False, drops=False)


def while_in(*stretches: range):
    """Wants the packets of these numbers: it is asked once for each."""
    numbers = count()

    def is_wanted() -> bool:
        number = next(numbers)
        return any(number in stretch for stretch in stretches)

    return is_wanted


def taken(reader: LiveReader) -> Iterator[tuple]:
    """Chunks with their moments; what rests is let go on once all before it is taken."""
    with reader:
        while True:
            with reader.changed:
                reader.changed.wait_for(lambda: reader.waiting or reader.ended or reader.is_to_rest)
            if found := reader.take():
                yield found
            elif reader.is_to_rest:
                reader.rested()
            elif reader.ended:
                return


def read(data: bytes, gate: Gate | None = None, **more) -> tuple[LiveReader, dict]:
    with piped(data) as file:
        reader = LiveReader(stdin(file), SIDE, WAIT, gate=gate, **more)
        return reader, {chunk.index: chunk.frames for chunk, _ in taken(reader)}


def test_after_it_opens_chunks_are_those_of_an_ungated_reader(data):
    """From the key frame before on: 0 seconds are kept, and to the second before that is the pictures since 120."""
    whole, all_chunks = read(data)
    gate = Gate(while_in(range(30), range(125, 10**6)), 0.0, 2**24)
    reader, chunks = read(data, gate)
    assert whole.error is reader.error is None and whole.frames == 8 * RATE
    first = 120 * 4 // RATE
    assert [*chunks] == [*range(30 * 4 // RATE), *range(first, 32)]
    assert all(np.array_equal(frames, all_chunks[index]) for index, frames in chunks.items())
    assert 8 * RATE - 90 - 2 <= reader.frames <= 8 * RATE - 90, "but for what a decoder holds back as it closes"
    assert reader.unseen == reader.gaps == reader.dropped == reader.decode_errors == 0
    (gap,) = reader.missing_before(first)
    assert (gap.first, gap.end, gap.reason) == (4, first, RESTING)


def test_with_pictures_that_refer_to_later_ones(tmp_path):
    """Those before the key frame need what came before it, and are left out."""
    data = film(tmp_path / "b.ts", bf="2", x264opts="open-gop=1:bframes=2:b-adapt=0", preset="fast")
    _, all_chunks = read(data)
    reader, chunks = read(data, Gate(while_in(range(30), range(125, 10**6)), 0.0, 2**24))
    later = {index for index in chunks if index > 4}
    assert reader.error is None and min(later) <= 17 and later == {*range(min(later), 32)}
    assert all(np.array_equal(frames, all_chunks[index]) for index, frames in chunks.items())


def test_what_is_not_cut_goes_on_in_the_middle_of_a_group(data):
    """It closes for less than is kept: not a picture is lost, and no key frame is waited for."""
    _, all_chunks = read(data)
    reader, chunks = read(data, Gate(while_in(range(33), range(38, 10**6)), 60.0, 2**24))
    assert reader.error is None and reader.frames == 8 * RATE and reader.decode_errors == 0
    assert {*range(32)} - {*chunks} <= {4}, "but for the chunk in which it closed"
    assert all(np.array_equal(frames, all_chunks[index]) for index, frames in chunks.items())


class Door:
    """A gate that a test opens, when the first half of a film has come; the rest comes then."""

    def __init__(self, data: bytes, seconds: float):
        self.is_wanted, self.asked, self.rest = False, 0, threading.Event()
        half = len(data) // 376 * 188
        self.parts = [TS_HEAD, data[:half], self.rest.wait, data[half:], None]
        self.n_first = len(packets_of(data[:half])) - 2  # the last one is whole when more comes
        self.gate = Gate(self._ask, seconds, 2**24)

    def _ask(self) -> bool:
        self.asked += 1
        return self.is_wanted

    def fill(self, reader: LiveReader) -> None:
        """Wait until the first half has come, and nothing of it was decoded."""
        until(lambda: reader.is_to_rest, 60)
        reader.rested()
        until(lambda: self.asked >= self.n_first and reader.link == RESTING, 60)
        assert reader.frames == reader.waiting == reader.opened == 0

    def open(self) -> None:
        self.is_wanted = True
        self.rest.set()


def test_nothing_is_decoded_while_it_is_closed(data):
    """Then what came before is, at the time at which it came, and none of it is dropped: it waits to be taken."""
    door = Door(data, 60.0)
    with served(door.parts) as port:
        reader = LiveReader(parse_live(f"http://127.0.0.1:{port}/a.ts"), SIDE, LiveOptions(timeout=60), gate=door.gate)
        with reader:
            door.fill(reader)
            opened = Moment()
            door.open()
            until(lambda: reader.waiting == 4, 60)
            chunks = []
            while len(chunks) < 12:
                until(lambda: reader.waiting, 60)
                chunk, moment = reader.take()
                chunks.append(chunk.index)
                assert moment.wall < opened.wall, "when its frames came"
                assert moment.monotonic > reader.opened > opened.monotonic, "nobody could have decided it before"
            assert chunks == [*range(12)] and reader.dropped == 0 and reader.link == "reading"
    with served(door.parts[:2] + [None]) as port:
        door.is_wanted = False
        reader = LiveReader(parse_live(f"http://127.0.0.1:{port}/a.ts"), SIDE, LiveOptions(timeout=1), gate=door.gate)
        with reader:
            until(lambda: reader.is_to_rest, 60)
            reader.rested()
            until(lambda: reader.ended, 60)
        assert isinstance(reader.error, StalledError), "one of which nothing comes does not rest"


def packets_of(data: bytes) -> list[av.Packet]:
    container = av.open(io.BytesIO(data), format="mpegts")
    return [packet for packet in container.demux(video=0) if packet.size]


def numbers(given, packets) -> list[int]:
    return [packets.index(one.packet) for one in given]


def test_it_keeps_seconds_from_a_key_frame_on(data):
    packets, wanted = packets_of(data), [False]
    gate = PacketGate(Gate(lambda: wanted[0], 1.0, 2**24))
    for number, packet in enumerate(packets[:100]):
        assert gate.take(packet, "h264", number / RATE) == []
    assert gate.is_cut and not gate.is_open
    wanted[0] = True
    given = gate.take(packets[100], "h264", 100 / RATE)
    assert numbers(given, packets) == [*range(60, 101)], "a second and the rest of its group"
    assert [one.arrival for one in given] == [*(number / RATE for number in range(60, 100)), None]
    gate.passed()
    assert numbers(gate.take(packets[101], "h264", 0.0), packets) == [101] and not gate.is_cut


def test_it_is_bounded_in_bytes(data, monkeypatch):
    packets, wanted = packets_of(data), [False]
    group = sum(packet.size + packet_gate.OVERHEAD for packet in packets[:KEYS])
    gate = PacketGate(Gate(lambda: wanted[0], 1000.0, 3 * group))
    for packet in packets:
        gate.take(packet, "h264", 0.0)
        assert gate._size <= 3 * group
    wanted[0] = True
    given = gate.take(packets[0], "h264", 0.0)
    assert KEYS < len(given) <= 3 * KEYS + 1 and given[0].packet.is_keyframe
    small = PacketGate(Gate(lambda: False, 1000.0, group // 3))
    for packet in packets:
        small.take(packet, "h264", 0.0)
        assert small._size <= group // 3, "a group that is larger is not kept"
