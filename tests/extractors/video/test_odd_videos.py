"""Every one of the odd videos: FFmpeg's own 24 FPS frames, or one typed sentence."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from lstr.extractors.errors import VideoError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.file_reader import FrameReader, open_chunks
from lstr.extractors.video.frames import resample, shrink
from lstr.extractors.video.probe import probe
from lstr.extractors.weights.sources import WeightSources
from tests.support.videos import ffmpeg_24

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
LONG = "long_1080p_lowbitrate.mp4"


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict]:
    """The table that `benchmarks/odd_videos.py` wrote."""
    return json.loads((BENCHMARKS / "odd-videos.json").read_text())["files"]


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
            assert reader.decoder == recorded[name]["decoder"], name


@pytest.mark.slow
def test_the_table_is_true(shared, recorded):
    """Every file whole at its working size, both networks on a chunk of each, damaged ones also up to the damage."""
    outcome = runpy.run_path(str(BENCHMARKS / "odd_videos.py"))["outcome"]
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
