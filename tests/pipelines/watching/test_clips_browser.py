"""Clips in a real headless Chromium: they load, have their length, and show the pictures that were received."""

from pathlib import Path

import av
import pytest

from lstr.extractors.video.clip_file import ClipFile
from lstr.extractors.video.packet_ring import PacketRing
from tests.support.browser import until
from tests.support.videos import write_video

PAGE = "<!doctype html><title>clip</title><video id=film src=clip.mp4 muted></video>"


def clip_of(video: Path, path: Path) -> float:
    """Write the clip of all but the first second of a film; its seconds."""
    ring = PacketRing(2**26, 100.0)
    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        for number, packet in enumerate(container.demux(stream)):
            ring.take(packet, stream, number / 10)
    packets = ring.after(10)
    clip = ClipFile(path, packets[0])
    for packet in packets:
        clip.write(packet)
    clip.close()
    return clip.seconds


@pytest.mark.long
@pytest.mark.parametrize(("name", "codec", "pixels"), [("a.ts", "libx264", "yuv420p"), ("a.mkv", "mjpeg", "yuvj420p")])
def test_a_clip_is_shown(chromium, tmp_path, name, codec, pixels):
    options = {} if codec == "mjpeg" else {"g": "10", "bf": "2"}
    video = write_video(tmp_path / name, range(0, 3600, 60), codec=codec, options=options, pixels=pixels)
    seconds = clip_of(video, tmp_path / "clip.mp4")
    (tmp_path / "page.html").write_text(PAGE)
    page = chromium.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    until(page, "film.readyState >= 2 || film.error !== null")
    assert page.evaluate("film.error && film.error.message") is None
    assert abs(page.evaluate("film.duration") - seconds) < 0.15 and 4.8 < seconds < 5.2
    page.evaluate("(film.playbackRate = 8, film.play())")
    until(page, "film.ended")
    assert page.evaluate("[film.videoWidth, film.videoHeight]") == [64, 48]
    played = page.evaluate("film.getVideoPlaybackQuality()['totalVideoFrames']")
    assert played > 10, "frames were decoded as it played"
    page.close()
