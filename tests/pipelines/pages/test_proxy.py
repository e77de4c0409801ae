"""Copies of videos for browsers: when one is needed, and its frames and times."""

import numpy as np
import pytest

from lstr.errors import VideoError
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, resample
from lstr.pipelines.pages.proxy import is_playable, write_proxy
from tests.support.videos import write_video

SECOND = range(0, 620, 20)  # at 30 FPS


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
def test_files_that_browsers_play(tmp_path, name, codec, pixels, playable):
    assert is_playable(write_video(tmp_path / name, SECOND[:5], codec=codec, pixels=pixels)) is playable


def test_frames_of_a_copy_are_those_of_the_chunks(tmp_path):
    """Frame k of the copy is frame k of the video at 24 FPS."""
    video = write_video(tmp_path / "a.avi", SECOND, codec="mpeg4")
    copy = write_proxy(video, tmp_path, "a")
    assert is_playable(copy) and list(find_videos([tmp_path])) == ["a"], "not an input of other commands"
    original, copied = probe(video), probe(copy)
    assert copied.n_frames == original.n_frames == 24 and copied.duration == 1.0
    expected = [frame.image.mean() for frame in resample(FrameReader(original).frames(640))]
    images = [frame.image.mean() for frame in FrameReader(copied).frames(640)]
    assert np.abs(np.subtract(expected, images)).max() < 3 < np.diff(expected).mean()


def test_a_copy_is_small_and_has_even_sides(tmp_path):
    video = write_video(tmp_path / "a.mkv", SECOND[:4], (1283, 721), "ffv1", pixels="bgr0")
    copied = probe(write_proxy(video, tmp_path, "a"))
    assert (copied.width, copied.height) == (640, 360)


def test_a_copy_is_rewritten_only_if_the_video_changes(tmp_path):
    video = write_video(tmp_path / "a.avi", SECOND, codec="mpeg4")
    copy = write_proxy(video, tmp_path / "out", "a")
    written = copy.stat().st_mtime_ns
    assert write_proxy(video, tmp_path / "out", "a").stat().st_mtime_ns == written
    write_video(video, SECOND[:16], codec="mpeg4")
    assert probe(write_proxy(video, tmp_path / "out", "a")).duration == 0.5
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.lstr-proxy.mp4"]


def test_a_damaged_video_has_no_copy(tmp_path, sound_only):
    with pytest.raises(VideoError):
        write_proxy(sound_only, tmp_path / "out", "a")
    assert not (tmp_path / "out").exists()
