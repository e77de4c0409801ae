"""A contract of all frame readers; damage, decoders, colours, MP4 through a pipe, frames by number, odd videos."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, zip_longest
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from av.video.reformatter import ColorRange, VideoReformatter

from lstr.errors import VideoError
from lstr.extractors.video import containers
from lstr.extractors.video.exact_frames import ExactFrames, index_frames
from lstr.extractors.video.frames import CHUNK, n_frames_until, working_size
from lstr.extractors.video.probe import Video, probe
from lstr.extractors.video.reader import (
    FrameReader,
    PyAVReader,
    SourceFrame,
    chunks_of,
    open_chunks,
    render,
    resample,
    shrink,
)
from tests.support.served import piped
from tests.support.videos import FULL, ffmpeg_24, remux, write_video

# open groups of x265: frames after a key frame that are displayed before it also need earlier frames
OPEN_GROUPS = {"x265-params": "keyint=25:min-keyint=25:scenecut=0:bframes=4:pools=1:frame-threads=1:log-level=none"}


# times of each file's frames, in units of 1/600 s
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


READERS: dict[str, Callable[[Path], PyAVReader]] = {
    "pyav": PyAVReader,
    "pipe": lambda path: PyAVReader(subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE).stdout),
    "file": lambda path: FrameReader(probe(path)),
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> dict[str, Path]:
    """Videos of uniformly grey frames, each brighter than the one before."""
    folder = tmp_path_factory.mktemp("videos")
    return {name: write_video(folder / f"{name}.mkv", times) for name, times in TIMES.items()}


def difference_from_ffmpeg(frames: Iterable[SourceFrame], video: Video) -> str:
    """Describe the first difference from FFmpeg's fps filter at 24 FPS; without a clock, only in number."""
    n = 0
    for n, (frame, image) in enumerate(zip_longest(resample(frames), ffmpeg_24(video.path)), 1):
        if frame is None or image is None:
            return f"{'more' if image is None else 'fewer'} than {n - 1} frames"
        if video.clock == "container" and not np.array_equal(frame.image, shrink(image, frame.image.shape[1::-1])):
            return f"frame {n - 1}"
    return "" if n == video.n_frames else f"{n} frames instead of {video.n_frames}"


def check_frames(reader: PyAVReader, path: Path) -> None:
    """Compare frames with the times of their packets, and with FFmpeg."""
    video, frames = probe(path), list(reader.frames(FULL))
    assert [frame.time for frame in frames] == [video.time(number) for number in range(len(video.ticks))]
    assert frames[-1].time + frames[-1].duration == video.end
    assert difference_from_ffmpeg(frames, video) == ""


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
class TestReader:
    @pytest.mark.parametrize("name", TIMES)
    def test_frames_equal_ffmpegs_fps_filter(self, read, name, videos):
        reader = read(videos[name])
        check_frames(reader, videos[name])
        assert reader.decoded == len(TIMES[name]) and reader.decode_errors == 0 and reader.clock == "container"

    def test_closing_early_releases_the_file(self, read, videos):
        path = videos["30"]
        with closing(read(path).frames(FULL)) as frames:
            images = [next(frames).image for _ in range(3)]
        assert next(frames, None) is None
        assert str(path) not in [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
        with closing(read(path).frames(FULL)) as frames:
            assert all(np.array_equal(image, next(frames).image) for image in images)

    def test_frames_have_square_pixels_and_the_working_size(self, read, tmp_path):
        path = write_video(tmp_path / "v.mkv", range(0, 200, 20), size=(360, 288), aspect=Fraction(64, 45))
        assert probe(path).size(320) == (320, 180)
        assert {frame.image.shape for frame in read(path).frames(320)} == {(180, 320, 3)}
        assert {frame.image.shape for frame in read(path).frames(FULL)} == {(202, 360, 3)}


CUTS = {"within a group.ts": 9, "within a group.mp4": 7, "before an open group.mkv": 4}  # undecodable packets


@pytest.fixture(scope="module")
def cut_videos(tmp_path_factory) -> dict[str, Path]:
    folder, times = tmp_path_factory.mktemp("cut"), range(0, 1800, 24)
    closed_groups = write_video(folder / "closed.ts", times, options={"g": "25", "bf": "2"})
    open_groups = write_video(folder / "open.ts", times, codec="libx265", options=OPEN_GROUPS, noise=True)
    with av.open(str(open_groups)) as container:
        keys = [number for number, packet in enumerate(container.demux(video=0)) if packet.is_keyframe]
    sources = {name: (open_groups, keys[1]) if "open" in name else (closed_groups, 16) for name in CUTS}
    return {name: remux(source, folder / name, first) for name, (source, first) in sources.items()}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_cut_video_starts_at_its_first_decodable_frame(read, name, cut_videos):
    video, index = probe(cut_videos[name]), index_frames(cut_videos[name])
    assert video.left_out == CUTS[name] and np.array_equal(index.times, video.times) and index.end == video.end
    check_frames(read(video.path), video.path)


@pytest.mark.parametrize("offset", ["95441.7", "-3"], ids=["33 bits wrap", "before zero"])
def test_a_transport_stream_whose_clock_wraps_is_complete(offset, tmp_path):
    clock = {"output_ts_offset": offset, "avoid_negative_ts": "disabled"}
    path = write_video(tmp_path / "v.ts", range(0, 2400, 20), container=clock)
    video = probe(path)
    assert video.ticks[0] < 0 and not video.damage
    assert (len(video.times), round(video.duration, 1)) == (120, 4)
    assert len(list(FrameReader(video).frames(FULL))) == 120


@pytest.mark.parametrize("size", [(640, 480), (960, 540), (1920, 1080), (1440, 1080), (854, 480), (1280, 720)])
def test_frames_are_averaged_as_by_opencv(size):
    image, small = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8), working_size(*size, 256)
    assert np.array_equal(shrink(image, small), cv2.resize(image, small, interpolation=cv2.INTER_AREA))


def test_a_rotated_video_is_upright_as_in_opencv(shared):
    path = shared / "data" / "odd_videos" / "decord" / "video_270.mov"
    expected = cv2.cvtColor(cv2.VideoCapture(str(path)).read()[1], cv2.COLOR_BGR2RGB)
    assert expected.shape == (568, 320, 3) and probe(path).size(FULL) == (320, 568)
    with closing(FrameReader(probe(path)).frames(FULL)) as frames:
        assert np.abs(next(frames).image.astype(int) - expected).mean() < 2


def test_a_chunk_needs_nothing_after_the_frame_that_closes_it(tmp_path):
    frames, times = PyAVReader(write_video(tmp_path / "v.mp4", range(0, 1800, 20))).frames(320), []
    next(chunks_of(times.append(frame.time) or frame for frame in frames))
    assert times[-1] * 24 + Fraction(1, 2) >= 6 > times[-2] * 24 + Fraction(1, 2)


@pytest.mark.parametrize("damage", ["cut", "zeros"])
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_frames_before_damage_are_read(tmp_path, damage, suffix):
    """In noise, where no decoder can conceal it."""
    path, container = tmp_path / f"v{suffix}", {"movflags": "faststart"} if suffix == ".mp4" else {}
    options = {"g": "10", "preset": "ultrafast"}
    write_video(path, range(0, 2000, 20), size=(96, 64), noise=True, options=options, container=container)
    complete = [frame.image for frame in FrameReader(probe(path)).frames(FULL)]
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) * 6 // 10 :]
    else:
        data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path.write_bytes(data)
    with pytest.raises(VideoError, match=path.name) as caught:
        list(FrameReader(probe(path)).frames(FULL))
    assert "--allow-damaged" in caught.value.hint
    reader = FrameReader(probe(path), allow_damaged=True)
    images = [frame.image for frame in reader.frames(FULL)]
    assert 10 < len(images) < 80 and reader.decode_errors > 0 and reader.decoded == len(images)
    assert all(np.array_equal(a, b) for a, b in zip(complete, images, strict=False))


def test_decord_gives_the_frames_of_pyav_or_an_error(tmp_path, monkeypatch):
    video = probe(write_video(tmp_path / "v.mp4", range(0, 1800, 20)))
    assert FrameReader(video).decoder == "pyav"
    expected = [chunk.frames for chunk in chunks_of(FrameReader(video).frames(320))]
    monkeypatch.setenv("LSTR_DECODER", "decord")
    np.testing.assert_array_equal([chunk.frames for chunk in chunks_of(FrameReader(video).frames(320))], expected)
    other = write_video(tmp_path / "other.mp4", range(0, 600, 20))
    missing = tmp_path / "missing.mp4"
    for unsuitable in (replace(video, bits=10), replace(video, path=other), replace(video, path=missing)):
        with pytest.raises(VideoError):
            next(FrameReader(unsuitable).frames(320))
    monkeypatch.setitem(sys.modules, "decord", None)
    for name in ("decord", "other"):
        monkeypatch.setenv("LSTR_DECODER", name)
        with pytest.raises(VideoError, match=name):
            FrameReader(video)


@pytest.mark.parametrize("planar", ("yuv420p", "yuvj420p", "yuv420p10le"))
def test_colours_of_interleaved_chroma_equal_those_of_planar(planar):
    """As GPUs decode it; FFmpeg's direct conversion to RGB would give other colours."""
    rng = np.random.default_rng(3)
    image = cv2.GaussianBlur(rng.integers(0, 256, (96, 128, 3), dtype=np.uint8), (0, 0), 2)
    frame = av.VideoFrame.from_ndarray(image, "rgb24").reformat(format=planar)
    if planar == "yuvj420p":
        frame.color_range = ColorRange.JPEG  # as a decoder sets it
    expected = render(frame, (128, 96), VideoReformatter())
    if planar.endswith("10le"):
        interleaved = frame.reformat(format="p010le")
    else:
        y, u, v = (np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size) for plane in frame.planes)
        chroma = np.stack([u[:, :64], v[:, :64]], -1).reshape(48, 128)
        interleaved = av.VideoFrame.from_ndarray(np.concatenate([y[:, :128], chroma]), "nv12")
        interleaved.color_range, interleaved.colorspace = frame.color_range, frame.colorspace
    np.testing.assert_array_equal(render(interleaved, (128, 96), VideoReformatter()), expected)
    if planar == "yuv420p":
        assert np.abs(interleaved.to_ndarray(format="rgb24").astype(int) - expected).max() > 2


def test_an_mp4_through_a_pipe(tmp_path, monkeypatch):
    """With its index at the start of the file, and at its end."""
    first = write_video(tmp_path / "first.mp4", range(0, 1200, 20), container={"movflags": "+faststart"}).read_bytes()
    last = write_video(tmp_path / "last.mp4", range(0, 1200, 20)).read_bytes()
    times = [frame.time for frame in PyAVReader(tmp_path / "first.mp4").frames(64)]
    assert len(times) == 60
    for content in (first, last):
        with piped(content) as pipe:
            reader = PyAVReader(pipe, "skip", True)
            assert [frame.time for frame in reader.frames(64)] == times
            assert ("faststart" in reader.note) == (content == last)
    for content in (b"", b"text\n" * 100, last[: last.index(b"moov") - 100]):
        with piped(content) as pipe, pytest.raises(VideoError):
            list(PyAVReader(pipe).frames(64))
    monkeypatch.setattr(containers, "MAX_COPY", 1000)
    with piped(last) as pipe, pytest.raises(VideoError):
        list(PyAVReader(pipe).frames(64))


STEPS = random.Random(3)
VARIABLE = list(accumulate(STEPS.choice([10, 20, 25, 40, 300]) for _ in range(70)))
B_FRAMES = {"g": "20", "bf": "3", "b_strategy": "0", "preset": "fast"}
OPEN = {"x264-params": "open-gop=1:keyint=15:min-keyint=15:bframes=4:b-adapt=0:scenecut=0"}
REFRESHED = {"x264-params": "intra-refresh=1:keyint=20:bframes=0"}


NTSC = Fraction(60000, 1001)
WRITERS = {
    "open groups": lambda path: write_video(path / "a.mp4", range(0, 1800, 20), options=OPEN, noise=True),
    "no key frames": lambda path: write_video(path / "a.mp4", range(0, 1800, 20), options=REFRESHED, noise=True),
    "variable rate": lambda path: write_video(path / "a.mp4", VARIABLE, options=B_FRAMES, noise=True),
    "matroska": lambda path: write_video(path / "a.mkv", VARIABLE, options=B_FRAMES, noise=True),
    "transport stream": lambda path: write_video(path / "a.ts", range(0, 1200, 20), options=B_FRAMES, noise=True),
    "avi": lambda path: write_video(path / "a.avi", range(0, 1200, 20), codec="mpeg4", options={"bf": "2"}),
    "59.94": lambda path: write_video(path / "a.mp4", range(60), options=B_FRAMES, noise=True, rate=NTSC),
    "part": lambda path: remux(WRITERS["transport stream"](path), path / "a.mkv", 7),  # starts within a group
    "part without times": lambda path: remux(WRITERS["transport stream"](path), path / "a.h264", 7),
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
    with closing(ExactFrames(index, cache_bytes)) as frames:
        for number in [*jumps, *order[::7], *order[:-13:-1], *order[10:20]]:
            assert np.array_equal(frames.image(number, FULL), played[number].image), number
        if kind == "odd samples":
            assert frames.image(0, FULL).shape == (36, 64, 3)
    if kind == "59.94":
        assert index.times[:3].tolist() == [0, 0.016683, 0.033367] and index.duration == 1.001


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
@pytest.mark.parametrize("part", range(4))
def test_odd_videos_give_their_frames_or_an_error(shared, part):
    """Files that are not in the table are errors. Only the slow test decodes six minutes of 1080p."""
    recorded, videos = json.loads(Path(__file__).with_name("odd_videos.json").read_text()), odd_videos(shared)
    assert recorded.keys() <= videos.keys()
    names = [name for name, path in videos.items() if path.name != "long_1080p_lowbitrate.mp4"][part::4]
    outcomes = {name: outcome(videos[name]) for name in names}
    assert outcomes == {name: recorded.get(name, {"outcome": "error"}) for name in outcomes}


@pytest.mark.slow
def test_odd_videos_equal_ffmpegs_fps_filter(shared):
    differences = {}
    for name, path in odd_videos(shared).items():
        try:
            video = probe(path)
            differences[name] = difference_from_ffmpeg(FrameReader(video).frames(FULL), video)
        except VideoError as error:
            assert error.hint
    assert len(differences) == 123 and {name: text for name, text in differences.items() if text} == {}
