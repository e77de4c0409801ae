"""All odd videos give FFmpeg's frames at 24 FPS, or a VideoError."""

import json
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from lstr.errors import VideoError
from lstr.extractors.video.frames import CHUNK, n_frames_until
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, open_chunks, resample, shrink
from tests.support.videos import ffmpeg_24

TABLE = Path(__file__).with_name("odd_videos.json")


def odd_videos(shared) -> dict[str, Path]:
    folder = shared / "data" / "odd_videos"
    videos = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    del videos["SOURCES.md"]
    assert len(videos) == 192
    return videos


def outcome(path: Path, allow_damaged: bool = False) -> dict:
    """Return facts about a file's frames, or its error; for a damaged file also with --allow-damaged."""
    try:
        video, reader, _ = open_chunks(path, 64, allow_damaged)
        n_frames = sum(1 for _ in resample(reader.frames(64)))
        if n_frames < CHUNK:
            raise VideoError("too short", "none")
    except VideoError as error:
        assert error.hint and "\n" not in str(error)
        if "--allow-damaged" in error.hint and not allow_damaged:
            return {"outcome": "error", "with_allow_damaged": outcome(path, allow_damaged=True)}
        return {"outcome": "error"}
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
def test_odd_videos_give_their_frames_or_an_error(shared):
    """Files that are not in the table are errors. Only the slow test decodes six minutes of 1080p."""
    recorded, videos = json.loads(TABLE.read_text()), odd_videos(shared)
    assert recorded.keys() <= videos.keys()
    outcomes = {name: outcome(path) for name, path in videos.items() if path.name != "long_1080p_lowbitrate.mp4"}
    assert outcomes == {name: recorded.get(name, {"outcome": "error"}) for name in outcomes}


def difference_from_ffmpeg(path: Path) -> str:
    """Describe the first difference between a file's frames and FFmpeg's; empty for equal frames."""
    video = probe(path)
    reader, n = FrameReader(video), 0
    for n, (frame, image) in enumerate(zip_longest(resample(reader.frames(10**6)), ffmpeg_24(path)), 1):
        if frame is None or image is None:
            return f"{'more' if image is None else 'fewer'} than {n - 1} frames"
        if video.clock == "container" and not np.array_equal(frame.image, shrink(image, frame.image.shape[1::-1])):
            return f"frame {n - 1} ({reader.decoder})"
    return "" if n == video.n_frames else f"{n} frames instead of {video.n_frames}"


@pytest.mark.slow
def test_odd_videos_equal_ffmpegs_fps_filter(shared):
    """To the bit and in number; only the number is compared for files without a clock."""
    differences = {}
    for name, path in odd_videos(shared).items():
        try:
            differences[name] = difference_from_ffmpeg(path)
        except VideoError as error:
            assert error.hint
    assert len(differences) == 123 and {name: text for name, text in differences.items() if text} == {}
