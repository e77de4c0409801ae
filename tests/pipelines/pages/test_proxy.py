"""Copies for browsers: made only where needed, aligned with the decisions, made once, and never taken for a source."""

from fractions import Fraction

import av
import numpy as np
import pytest

from lstr.errors import VideoError
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, resample
from lstr.pipelines.pages.proxy import is_playable, write_proxy


def write_video(path, codec: str, pixels: str = "yuv420p", size: tuple[int, int] = (96, 64), n_frames: int = 45):
    """Frames at 30 a second whose brightness is their number."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=Fraction(30), options={"x265-params": "log-level=none"})
        (stream.width, stream.height), stream.pix_fmt = size, pixels
        for k in range(n_frames):
            image = np.full((size[1], size[0], 3), 30 + 4 * k, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize(
    ("name", "codec", "pixels", "playable"),
    [
        ("a.mp4", "libx264", "yuv420p", True),
        ("a.webm", "libvpx-vp9", "yuv420p", True),
        ("a.mkv", "libx264", "yuv420p", False),
        ("a.avi", "libx264", "yuv420p", False),
        ("a.mp4", "mpeg4", "yuv420p", False),
        ("a.mp4", "libx265", "yuv420p", False),
        ("a.mp4", "libx264", "yuv420p10le", False),
        ("a.mp4", "libx264", "yuv444p", False),
    ],
)
def test_what_browsers_play(tmp_path, name, codec, pixels, playable):
    assert is_playable(write_video(tmp_path / name, codec, pixels, n_frames=5)) is playable


def test_a_copy_shows_what_was_decided_on(tmp_path):
    """Frame k of the copy is 24 FPS frame k of the video: a chunk's picture is the one its decision saw."""
    video = write_video(tmp_path / "a.avi", "mpeg4")
    copy = write_proxy(video, tmp_path, "a")
    assert is_playable(copy) and list(find_videos([tmp_path])) == ["a"], "nor is it taken for a source"
    facts, original = probe(copy), probe(video)
    assert (facts.n_frames, facts.duration) == (original.n_frames, 1.5) == (36, 1.5)
    seen = [frame.image.mean() for frame in resample(FrameReader(original).frames(640))]
    shown = [frame.image.mean() for frame in FrameReader(facts).frames(640)]
    assert np.abs(np.subtract(seen, shown)).max() < 3 < np.diff(seen).mean()


def test_a_large_odd_picture_becomes_small_and_even(tmp_path):
    video = write_video(tmp_path / "a.mkv", "ffv1", "bgr0", (1283, 721), 4)
    facts = probe(write_proxy(video, tmp_path, "a"))
    assert (facts.width, facts.height) == (640, 360)


def test_it_is_made_once_for_a_file_and_anew_for_a_changed_one(tmp_path):
    video = write_video(tmp_path / "a.avi", "mpeg4")
    copy = write_proxy(video, tmp_path / "out", "a")
    first = copy.stat().st_mtime_ns
    assert write_proxy(video, tmp_path / "out", "a").stat().st_mtime_ns == first
    write_video(video, "mpeg4", n_frames=15)
    assert probe(write_proxy(video, tmp_path / "out", "a")).duration == 0.5
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.lstr-proxy.mp4"]


def test_a_damaged_video_leaves_nothing(tmp_path, sound_only):
    with pytest.raises(VideoError):
        write_proxy(sound_only, tmp_path / "out", "a")
    assert not (tmp_path / "out").exists()
