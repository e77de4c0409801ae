"""Clocks of live sources: jumps, wraps, and time stamps that are of no use."""

import numpy as np
import pytest

from lstr.errors import StalledError
from lstr.extractors.video.inputs import parse_live
from tests.support.clips import indices, read, stdin
from tests.support.patience import patiently
from tests.support.served import TS_HEAD, piped, served
from tests.support.stamps import TICKS, WRAP, restamped

JITTER = np.random.default_rng(0).uniform(-5, 5, 1000)


STAMPS = {
    "equal": lambda i, time: 5.0,
    "falling": lambda i, time: 100 - time,
    "falling slowly": lambda i, time: 100 - i / 1000,
    "to and fro": lambda i, time: 10 + time + (5 if i % 2 else -5),
    "at random": lambda i, time: 10 + time + JITTER[i],
    "at times": lambda i, time: 10 + time + (5 if i % 10 == 0 else 0),
}


def test_a_clock_that_jumps_by_an_hour_and_back(clips):
    with piped(clips["first"], clips["in an hour"], clips["first"]) as file:
        reader, chunks = read(stdin(file))
    found = indices(chunks)
    assert reader.error is None and found == sorted(set(found)) and found[:8] == list(range(8))
    assert reader.unseen == found[8] - 8 and abs(found[8] - 4 * 3602) <= 1 and reader.gaps == 1
    assert found[8:] == list(range(found[8], found[-1] + 1)), "stepping back, it went on from where it was"
    assert len(found) >= 22


@pytest.mark.long
def test_the_wall_clock_is_of_arrival(clips):
    """Two seconds of pictures in two bursts, a second apart: by their own clock they end before chunk 8."""
    half = len(clips["first"]) // 376 * 188
    with piped(clips["first"][:half], 1.2, clips["first"][half:], 1.2, clips["next"]) as file:
        reader, chunks = read(stdin(file), clock="wall")
    assert reader.error is None and reader.frames == 120 and indices(chunks)[-1] >= 4
    assert [chunk.end_time for chunk in chunks] == [0.25 * (chunk.index + 1) for chunk in chunks]


@pytest.mark.parametrize("stamp", STAMPS.values(), ids=STAMPS)
def test_time_stamps_that_are_of_no_use(clips, stamp):
    """A pipe is then counted, and told of once: 48 frames that stood still are lost, no more."""
    with piped(restamped(clips["longer"], stamp)) as file:
        reader, chunks = read(stdin(file))
    assert reader.error is None and reader.clock == "average rate" and reader.frames == 180
    (told,) = reader.news()
    assert reader.warnings == [told]
    found = indices(chunks)
    assert found[-14:] == list(range(found[-1] - 13, found[-1] + 1)) and len(found) >= 16
    for chunk in chunks[-12:]:  # each has the frames that a video of 30 frames a second has
        assert len({frame.tobytes() for frame in chunk.frames}) == 6


@pytest.mark.long
@pytest.mark.parametrize("name", ["equal", "to and fro"])
def test_a_camera_whose_time_stamps_are_of_no_use(clips, name):
    """It goes on by itself, so that its frames have the times at which they came."""
    data = restamped(clips["longer"], STAMPS[name])
    slowly = [part for i in range(0, len(data), 7 * 188) for part in (data[i : i + 7 * 188], 0.005)]

    def check(timeout: float) -> None:
        with served(slowly, head=TS_HEAD) as port:
            reader, chunks = read(parse_live(f"http://127.0.0.1:{port}/a.ts"), timeout=timeout, on_lag="wait")
        assert reader.clock == "wall" and isinstance(reader.error, StalledError) and len(chunks) >= 3
        assert len(reader.warnings) == 1 and reader.warnings[0] in reader.news()

    patiently(check, 1)


def test_a_clock_that_wraps_at_33_bits_goes_on(clips):
    """MPEG-TS begins anew every 26.5 hours; when that is near at the start, and when it comes later."""
    end = WRAP / TICKS
    near = restamped(clips["longer"], lambda i, time: end - 3 + time)
    later = restamped(clips["longer"], lambda i, time: 90_000 + time if i < 60 else end - 3 + time)
    for data, n_unseen in ((near, 0), (later, 21763)):
        with piped(data) as file:
            reader, chunks = read(stdin(file))
        assert reader.error is None and reader.clock == "stream" and reader.warnings == []
        assert reader.frames == 180 and len(chunks) in (23, 24) and abs(reader.unseen - n_unseen) <= 1
        assert len(np.flatnonzero(np.diff(indices(chunks)) != 1)) == bool(n_unseen)
