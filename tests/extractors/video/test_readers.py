"""What every reader of frames promises, for several files."""

import os
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from lstr.extractors.video.exact_frames import index_frames
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, PyAVReader, resample
from tests.support.videos import FULL, OPEN_GROUPS, ffmpeg_24, remux, write_video

TIMES = {
    "30": range(0, 1800, 20),
    "25": range(0, 1800, 24),
    "24": range(0, 1200, 25),
    "48": [int(i * 12.5) for i in range(97)],
    "60": range(0, 1200, 10),
    "12": range(0, 1200, 50),
    "variable": np.cumsum(np.random.default_rng(3).integers(5, 90, 60)).tolist(),
    "late start": range(900, 1800, 20),
}
"""Of each file's frames, in units of 1/600 s, by frame rate or by what is odd about them."""


def through_pipe(path: Path) -> PyAVReader:
    """A reader of the same bytes as they come out of another process."""
    return PyAVReader(subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE).stdout)


READERS: dict[str, Callable[[Path], PyAVReader]] = {
    "pyav": PyAVReader,
    "pipe": through_pipe,
    "file": lambda path: FrameReader(probe(path)),
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> dict[str, Path]:
    """Frames that are uniformly grey, brighter each, by the name of their times."""
    folder = tmp_path_factory.mktemp("videos")
    return {name: write_video(folder / f"{name}.mkv", times) for name, times in TIMES.items()}


@pytest.fixture(scope="module")
def ffmpegs(videos) -> dict[str, list[int]]:
    """The grey of each 24 FPS frame, by FFmpeg's own filter."""
    return {name: [round(image.mean()) for image in ffmpeg_24(path)] for name, path in videos.items()}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
class TestReader:
    """One contract for all readers."""

    @pytest.mark.parametrize("name", TIMES)
    def test_frames_equal_ffmpegs_fps_filter(self, read, name, videos, ffmpegs):
        assert len(ffmpegs[name]) == probe(videos[name]).n_frames
        assert [round(frame.image.mean()) for frame in resample(read(videos[name]).frames(FULL))] == ffmpegs[name]

    @pytest.mark.parametrize("name", TIMES)
    def test_each_frame_comes_at_its_time(self, read, name, videos):
        reader, video = read(videos[name]), probe(videos[name])
        frames = list(reader.frames(FULL))
        assert [frame.time for frame in frames] == [video.time(number) for number in range(len(video.ticks))]
        assert frames[-1].time + frames[-1].duration == video.end
        assert reader.decoded == len(TIMES[name]) and reader.decode_errors == 0 and reader.clock == "container"
        greys = [(i * 7) % 256 for i in range(len(frames))]
        assert np.allclose([frame.image.mean() for frame in frames], greys, atol=3)

    def test_closed_early_it_holds_nothing(self, read, videos):
        path = videos["30"]
        first = read(path).frames(FULL)
        begun = [next(first).image for _ in range(3)]
        first.close()
        assert next(first, None) is None
        assert str(path) not in [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
        again = read(path).frames(FULL)
        assert all(np.array_equal(image, next(again).image) for image in begun)
        again.close()

    def test_samples_are_squared_and_frames_shrunk(self, read, tmp_path):
        path = write_video(tmp_path / "v.mkv", range(0, 200, 20), size=(360, 288), aspect=Fraction(64, 45))
        assert probe(path).size(320) == (320, 180)
        assert {frame.image.shape for frame in read(path).frames(320)} == {(180, 320, 3)}
        assert {frame.image.shape for frame in read(path).frames(FULL)} == {(202, 360, 3)}


CUT = {"within a group.ts": 9, "within a group.mp4": 7, "before an open group.mkv": 4}
"""Packets of each file that are shown before its first picture that decodes."""


@pytest.fixture(scope="module")
def cut(tmp_path_factory) -> dict[str, Path]:
    """Stream copies of a part of a video, by name."""
    folder = tmp_path_factory.mktemp("cut")
    closed = write_video(folder / "closed.ts", range(0, 1800, 24), options={"g": "25", "bf": "2"})
    opened = write_video(folder / "opened.ts", range(0, 1800, 24), codec="libx265", options=OPEN_GROUPS, noise=True)
    with av.open(str(opened)) as container:
        keys = [number for number, packet in enumerate(container.demux(video=0)) if packet.is_keyframe]
    return {
        name: remux(opened, folder / name, keys[1]) if "open" in name else remux(closed, folder / name, 16)
        for name in CUT
    }


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("reader", READERS)
def test_a_part_of_a_video_begins_at_its_first_picture_that_decodes(reader, name, cut):
    path = cut[name]
    video, index, frames = probe(path), index_frames(path), list(READERS[reader](path).frames(FULL))
    assert video.left_out == CUT[name]
    assert [frame.time for frame in frames] == [video.time(number) for number in range(len(video.ticks))]
    assert frames[-1].time + frames[-1].duration == video.end
    assert index.times == pytest.approx([float(frame.time) for frame in frames], abs=1e-6)
    assert index.duration == pytest.approx(video.duration, abs=1e-6)
    ours, ffmpegs = [frame.image for frame in resample(frames)], list(ffmpeg_24(path))
    assert len(ffmpegs) == len(ours) == video.n_frames and all(map(np.array_equal, ours, ffmpegs))


def test_a_turned_video_is_upright(shared):
    """OpenCV turns it too, by code of its own."""
    path = shared / "data" / "odd_videos" / "decord" / "video_270.mov"
    theirs = cv2.cvtColor(cv2.VideoCapture(str(path)).read()[1], cv2.COLOR_BGR2RGB)
    assert theirs.shape == (568, 320, 3) and probe(path).size(FULL) == (320, 568)
    frames = FrameReader(probe(path)).frames(FULL)
    assert np.abs(next(frames).image.astype(int) - theirs).mean() < 2
    frames.close()
