"""What every reader of frames promises, for several files; damage, decoders, colours, and MP4 through a pipe."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from av.video.reformatter import ColorRange, VideoReformatter

from lstr.errors import VideoError
from lstr.extractors.video import containers
from lstr.extractors.video.exact_frames import index_frames
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, PyAVReader, chunks_of, render, resample
from tests.support.served import piped
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


@pytest.mark.parametrize("offset", ["95441.7", "-3"], ids=["33 bits wrap", "before zero"])
def test_a_transport_stream_is_whole_wherever_its_clock_begins(offset, tmp_path):
    clock = {"output_ts_offset": offset, "avoid_negative_ts": "disabled"}
    path = write_video(tmp_path / "v.ts", range(0, 2400, 20), container=clock)
    video = probe(path)
    assert video.ticks[0] < 0 and not video.damage
    assert (len(video.times), round(video.duration, 1)) == (120, 4)
    assert len(list(FrameReader(video).frames(FULL))) == 120


def test_a_turned_video_is_upright(shared):
    """OpenCV turns it too, by code of its own."""
    path = shared / "data" / "odd_videos" / "decord" / "video_270.mov"
    theirs = cv2.cvtColor(cv2.VideoCapture(str(path)).read()[1], cv2.COLOR_BGR2RGB)
    assert theirs.shape == (568, 320, 3) and probe(path).size(FULL) == (320, 568)
    frames = FrameReader(probe(path)).frames(FULL)
    assert np.abs(next(frames).image.astype(int) - theirs).mean() < 2
    frames.close()


def test_a_chunk_needs_nothing_after_the_frame_that_closes_it(tmp_path):
    frames, taken = PyAVReader(write_video(tmp_path / "v.mp4", range(0, 1800, 20))).frames(320), []
    next(chunks_of(taken.append(frame.time) or frame for frame in frames))
    assert taken[-1] * 24 + Fraction(1, 2) >= 6 > taken[-2] * 24 + Fraction(1, 2)


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """100 frames that no decoder can conceal, by container."""
    folder = tmp_path_factory.mktemp("noise")
    options = {"g": "10", "preset": "ultrafast"}
    starts = {".mp4": {"movflags": "faststart"}, ".mkv": {}, ".ts": {}}
    return {
        ending: write_video(
            folder / f"v{ending}", range(0, 2000, 20), size=(96, 64), noise=True, options=options, container=container
        )
        for ending, container in starts.items()
    }


@pytest.mark.parametrize("harm", ["cut.mp4", "cut.mkv", "bytes.mp4", "bytes.mkv"])
def test_a_damaged_file_gives_what_precedes_the_damage(tmp_path, noise, harm):
    path = tmp_path / harm
    source = noise[path.suffix]
    whole = [frame.image for frame in FrameReader(probe(source)).frames(FULL)]
    data = bytearray(source.read_bytes())
    if harm.startswith("cut"):
        del data[len(data) * 6 // 10 :]
    else:
        data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path.write_bytes(data)
    with pytest.raises(VideoError, match=harm) as caught:
        list(FrameReader(probe(path)).frames(FULL))
    assert "--allow-damaged" in caught.value.hint
    reader = FrameReader(probe(path), allow_damaged=True)
    kept = [frame.image for frame in reader.frames(FULL)]
    assert 10 < len(kept) < 80 and reader.decode_errors > 0 and reader.decoded == len(kept)
    assert all(np.array_equal(a, b) for a, b in zip(whole, kept, strict=False))


def test_the_decoder_can_be_chosen(tmp_path, monkeypatch):
    """decord gives the frames of PyAV, or an error for a file of which it would not."""
    video = probe(write_video(tmp_path / "v.mp4", range(0, 1800, 20)))
    assert FrameReader(video).decoder == "pyav"
    expected = [chunk.frames for chunk in chunks_of(FrameReader(video).frames(320))]
    monkeypatch.setenv("LSTR_DECODER", "decord")
    np.testing.assert_array_equal([chunk.frames for chunk in chunks_of(FrameReader(video).frames(320))], expected)
    other = write_video(tmp_path / "other.mp4", range(0, 600, 20))
    for unfit in (replace(video, bits=10), replace(video, path=other), replace(video, path=tmp_path / "gone.mp4")):
        with pytest.raises(VideoError):
            next(FrameReader(unfit).frames(320))
    monkeypatch.setitem(sys.modules, "decord", None)
    for name in ("decord", "other"):
        monkeypatch.setenv("LSTR_DECODER", name)
        with pytest.raises(VideoError, match=name):
            FrameReader(video)


@pytest.mark.parametrize("planar", ("yuv420p", "yuvj420p", "yuv420p10le"))
def test_interleaved_pictures_have_the_same_colours(planar):
    """The same samples, chroma interleaved: FFmpeg would make other colours of them directly."""
    rng = np.random.default_rng(3)
    image = cv2.GaussianBlur(rng.integers(0, 256, (96, 128, 3), dtype=np.uint8), (0, 0), 2)
    picture = av.VideoFrame.from_ndarray(image, "rgb24").reformat(format=planar)
    if planar == "yuvj420p":
        picture.color_range = ColorRange.JPEG  # as a decoder says of it
    expected = render(picture, (128, 96), VideoReformatter())
    interleaved = picture.reformat(format="p010le") if planar.endswith("10le") else _interleaved(picture)
    np.testing.assert_array_equal(render(interleaved, (128, 96), VideoReformatter()), expected)
    if planar == "yuv420p":
        assert np.abs(interleaved.to_ndarray(format="rgb24").astype(int) - expected).max() > 2


def _interleaved(picture: av.VideoFrame) -> av.VideoFrame:
    """A picture of 8 bits with its chroma interleaved: no sample changed."""
    y, u, v = (np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size) for plane in picture.planes)
    made = av.VideoFrame(picture.width, picture.height, "nv12")
    made.color_range, made.colorspace = picture.color_range, picture.colorspace
    chroma = np.stack([u[:, : picture.width // 2], v[:, : picture.width // 2]], -1).reshape(len(u), -1)
    for plane, samples in zip(made.planes, (y, chroma), strict=True):
        rows = np.zeros((plane.height, plane.line_size), np.uint8)
        rows[:, : picture.width] = samples[:, : picture.width]
        plane.update(rows.tobytes())
    return made


@pytest.fixture
def mp4(tmp_path):
    """An MP4 by where its index is: bytes."""
    last = write_video(tmp_path / "last.mp4", range(0, 1200, 20))
    first = write_video(tmp_path / "first.mp4", range(0, 1200, 20), container={"movflags": "+faststart"})
    return {"last": last.read_bytes(), "first": first.read_bytes()}


def times_of(reader: PyAVReader) -> list[float]:
    return [float(frame.time) for frame in reader.frames(64)]


def test_the_index_may_be_first_or_last(mp4, tmp_path):
    expected = times_of(PyAVReader(tmp_path / "first.mp4"))
    assert len(expected) == 60
    for place in mp4:
        with piped(mp4[place]) as pipe:
            reader = PyAVReader(pipe, "skip", True)
            assert times_of(reader) == expected and ("faststart" in reader.note) == (place == "last")


def test_what_is_no_whole_video(mp4, monkeypatch):
    for content in (b"", b"text\n" * 100, mp4["last"][: mp4["last"].index(b"moov") - 100]):
        with piped(content) as pipe, pytest.raises(VideoError):
            times_of(PyAVReader(pipe))
    monkeypatch.setattr(containers, "MAX_COPY", 1000)  # what is kept is bounded
    with piped(mp4["last"]) as pipe, pytest.raises(VideoError) as caught:
        times_of(PyAVReader(pipe))
    assert caught.value.hint
