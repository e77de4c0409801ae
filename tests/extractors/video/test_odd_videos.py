"""Every one of the odd videos: FFmpeg's own 24 FPS frames, or one typed sentence."""

import json
from pathlib import Path

import numpy as np
import pytest

from lstr.errors import VideoError
from lstr.extractors.video.frames import CHUNK, n_frames_until
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, open_chunks, resample, shrink
from tests.support.videos import ffmpeg_24

TABLE = Path(__file__).with_name("odd_videos.json")
LONG = "long_1080p_lowbitrate.mp4"


def odd_videos(shared) -> dict[str, Path]:
    folder = shared / "data" / "odd_videos"
    found = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    del found["SOURCES.md"]
    assert len(found) == 192
    return found


def outcome(path: Path, allow_damaged: bool = False) -> dict:
    """Return what a file's frames are, and of a damaged file also what is kept of it with --allow-damaged."""
    try:
        video, reader, _ = open_chunks(path, 64, allow_damaged)
        n_frames = sum(1 for _ in resample(reader.frames(64)))
        if n_frames < CHUNK:
            raise VideoError("too short", "none")
    except VideoError as error:
        assert error.hint and "\n" not in str(error)
        found = {"outcome": "error"}
        if "--allow-damaged" in error.hint and not allow_damaged:
            found["with_allow_damaged"] = outcome(path, allow_damaged=True)
        return found
    assert n_frames == n_frames_until(reader.end)
    return {
        "outcome": "features",
        "chunks": n_frames // CHUNK,
        "frames_24fps": n_frames,
        "source_frames": reader.decoded,
        "codec": video.codec,
        "coded_size": [video.width, video.height],
        "working_size": list(video.size(320)),
        "bits": video.bits,
        "rotation": video.rotation,
        "clock": reader.clock,
        "decode_errors": reader.decode_errors,
    }


@pytest.mark.long
def test_every_odd_video_gives_its_frames_or_a_typed_error(shared):
    """Each decoded once, all but six minutes of 1080p, which belong to the slow tests."""
    recorded = json.loads(TABLE.read_text())
    videos = odd_videos(shared)
    assert videos.keys() == recorded.keys()
    found = {name: outcome(path) for name, path in videos.items() if path.name != LONG}
    assert found == {name: recorded[name] for name in found}


def differences(path: Path) -> str:
    """What differs between a file's frames here and FFmpeg's, in words; empty when nothing does."""
    video = probe(path)
    reader = FrameReader(video)
    ours, oracle = resample(reader.frames(10**6)), ffmpeg_24(path)
    n = 0
    last = (None, None)
    for n, frame in enumerate(ours, 1):
        theirs = next(oracle, None)
        if theirs is None:
            return f"more than {n - 1} frames"
        if last[0] is frame and np.array_equal(last[1], theirs):
            continue
        if video.clock == "container" and not np.array_equal(frame.image, shrink(theirs, frame.image.shape[1::-1])):
            return f"frame {n - 1} ({reader.decoder})"
        last = (frame, theirs)
    if next(oracle, None) is not None:
        return f"only {n} frames"
    return "" if n == video.n_frames else f"{n} frames, {video.n_frames} announced"


@pytest.mark.slow
def test_every_readable_file_equals_ffmpegs_fps_filter(shared):
    """Frame for frame, to the bit, frame counts included; those without a clock have none to compare by."""
    found = {}
    for name, path in odd_videos(shared).items():
        try:
            found[name] = differences(path)
        except VideoError as error:
            assert error.hint
    assert len(found) == 123
    assert {name: what for name, what in found.items() if what} == {}
