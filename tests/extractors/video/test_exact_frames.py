"""Frames requested by number equal those decoded from the beginning, with their times."""

import random
from fractions import Fraction
from itertools import accumulate

import av
import numpy as np
import pytest

from lstr.extractors.video.exact_frames import ExactFrames, index_frames
from lstr.extractors.video.reader import PyAVReader
from tests.support.videos import FULL, remux, write_video

STEPS = random.Random(3)
VARIABLE = list(accumulate(STEPS.choice([10, 20, 25, 40, 300]) for _ in range(70)))
B_FRAMES = {"g": "15", "bf": "3", "b_strategy": "0", "preset": "fast"}
OPEN = {"x264-params": "open-gop=1:keyint=15:min-keyint=15:bframes=4:b-adapt=0:scenecut=0"}
REFRESHED = {"x264-params": "intra-refresh=1:keyint=20:bframes=0"}


def write_part(path, ending: str):
    """Write a stream copy that starts within a group, so that its first frames cannot be decoded."""
    whole = write_video(path / "whole.ts", range(0, 1200, 20), options={**B_FRAMES, "g": "20"}, noise=True)
    return remux(whole, path / f"a{ending}", 7)


def write_rate(path, rate: Fraction):
    """Write noise with B-frames at a fractional rate."""
    random = np.random.default_rng(1)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=rate, options=B_FRAMES)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(60):
            image = random.integers(0, 256, (48, 64, 3), np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        output.mux(stream.encode())
    return path


WRITERS = {
    "b-frames": lambda path: write_video(path / "a.mp4", range(0, 1200, 20), options=B_FRAMES, noise=True),
    "open groups": lambda path: write_video(path / "a.mp4", range(0, 1800, 20), options=OPEN, noise=True),
    "no key frames": lambda path: write_video(path / "a.mp4", range(0, 1800, 20), options=REFRESHED, noise=True),
    "variable rate": lambda path: write_video(path / "a.mp4", VARIABLE, options=B_FRAMES, noise=True),
    "matroska": lambda path: write_video(path / "a.mkv", VARIABLE, options=B_FRAMES, noise=True),
    "transport stream": lambda path: write_video(path / "a.ts", range(0, 1200, 20), options=B_FRAMES, noise=True),
    "avi": lambda path: write_video(path / "a.avi", range(0, 1200, 20), codec="mpeg4", options={"bf": "2"}),
    "23.976": lambda path: write_rate(path / "a.mp4", Fraction(24000, 1001)),
    "59.94": lambda path: write_rate(path / "a.mp4", Fraction(60000, 1001)),
    "part": lambda path: write_part(path, ".mkv"),
    "part without times": lambda path: write_part(path, ".h264"),
    "odd samples": lambda path: write_video(path / "a.mp4", range(0, 600, 20), aspect=Fraction(4, 3), noise=True),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    "cache_bytes", [96 * 2**20, pytest.param(40_000, marks=pytest.mark.long)], ids=["large cache", "small cache"]
)
def test_frames_by_number_equal_those_that_are_played(tmp_path, kind, cache_bytes):
    path = WRITERS[kind](tmp_path)
    played = list(PyAVReader(path).frames(FULL))
    index = index_frames(path)
    assert index.times == pytest.approx([float(frame.time) for frame in played], abs=6e-7)
    order = list(range(len(played)))
    jumps = random.Random(5).choices(order, k=40 if cache_bytes > 10**6 else 12)
    with ExactFrames(index, cache_bytes) as frames:
        for number in [*jumps, *order[::7], *order[:-13:-1], *order[10:20]]:
            assert np.array_equal(frames.image(number, FULL), played[number].image), number
        if kind == "odd samples":
            assert frames.image(0, FULL).shape == (36, 64, 3)
    if kind == "59.94":
        assert index.times[:3].tolist() == [0, 0.016683, 0.033367] and index.duration == 1.001
