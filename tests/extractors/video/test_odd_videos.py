"""Every one of the odd videos: FFmpeg's own 24 FPS frames, or one typed sentence."""

import json
from pathlib import Path

import numpy as np
import pytest

from lstr.errors import VideoError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import n_frames_until
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, open_chunks, resample, shrink
from tests.support.videos import ffmpeg_24

TABLE = Path(__file__).with_name("odd_videos.json")
LONG = "long_1080p_lowbitrate.mp4"


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict]:
    """Return what becomes of each file, by its path: features or an error."""
    return json.loads(TABLE.read_text())


def odd_videos(shared) -> dict[str, Path]:
    folder = shared / "data" / "odd_videos"
    found = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    del found["SOURCES.md"]
    assert len(found) == 192
    return found


@pytest.mark.long
def test_every_odd_video_gives_its_frames_or_a_typed_error(shared, recorded):
    """Each decoded once, all but six minutes of 1080p, which belong to the slow tests."""
    for name, path in odd_videos(shared).items():
        if path.name == LONG:
            continue
        try:
            video, reader, _ = open_chunks(path, 64)
            n_frames = sum(1 for _ in resample(reader.frames(64)))
        except VideoError as error:
            assert error.hint and str(error).replace(str(path), path.name) == recorded[name]["error"]
        else:
            assert n_frames == video.n_frames == recorded[name]["frames_24fps"], name


def decode(path: Path, twostream: TwoStream, workers: FlowWorkers, allow_damaged: bool = False) -> dict:
    """Return what a file's features are of, or the error that a user reads."""
    try:
        video, reader, chunks = open_chunks(path, twostream.recipe.long_side, allow_damaged)
        first = next(chunks, None)
        n_chunks = (first is not None) + sum(1 for _ in chunks)
    except VideoError as error:
        return {"outcome": "error", "error": str(error).replace(str(path), path.name)}
    if first is None:
        return {"outcome": "error", "error": f"{path.name} is damaged before its first chunk ends."}
    (row,) = twostream.rows([first], workers)
    assert row.rgb.shape == (2048,) and row.flow.shape == (1024,) and np.isfinite([*row.rgb, *row.flow]).all()
    return {
        "outcome": "features",
        "chunks": n_chunks,
        "frames_24fps": n_frames_until(reader.end),
        "source_frames": reader.decoded,
        "codec": video.codec,
        "coded_size": [video.width, video.height],
        "working_size": list(first.frames.shape[2:0:-1]),
        "bits": video.bits,
        "rotation": video.rotation,
        "clock": reader.clock,
        "decode_errors": reader.decode_errors,
    }


def outcome(path: Path, twostream: TwoStream, workers: FlowWorkers) -> dict:
    """Return `decode`, and for a damaged file also what is kept of it with --allow-damaged."""
    found = decode(path, twostream, workers)
    if "is damaged" in found.get("error", ""):
        found["with_allow_damaged"] = decode(path, twostream, workers, allow_damaged=True)
    return found


@pytest.mark.slow
def test_the_table_is_true(shared, recorded):
    """Every file whole at its working size, both networks on a chunk of each, damaged ones also up to the damage."""
    twostream = build_twostream(PRESETS["fast"], WeightSources(), "cpu", "float32")
    with FlowWorkers(2) as workers:
        found = {name: outcome(path, twostream, workers) for name, path in odd_videos(shared).items()}
    assert found == recorded


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
