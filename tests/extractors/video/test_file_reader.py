"""24 FPS frames and chunks from real files, against FFmpeg's own fps filter."""

import os
import sys
import threading
from dataclasses import replace
from fractions import Fraction

import av
import cv2
import numpy as np
import pytest
from av.video.reformatter import ColorRange, VideoReformatter

from lstr.errors import VideoError
from lstr.extractors.video.containers import Opening
from lstr.extractors.video.frames import CHUNK, working_size
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, PyAVReader, chunks_of, render
from tests.support.videos import FULL, write_video


def test_chunks(tmp_path):
    video = probe(write_video(tmp_path / "v.mp4", range(0, 1000, 20)))  # 50 frames at 30 per second: 40 at 24
    reader = FrameReader(video)
    chunks = list(chunks_of(reader.frames(320)))
    assert video.n_frames == 40 and len(chunks) == video.n_chunks == 6
    assert [c.index for c in chunks] == list(range(6))
    assert [c.end_time for c in chunks] == [0.25 * (k + 1) for k in range(6)]
    assert chunks[0].frames.shape == (CHUNK, 48, 64, 3) and chunks[0].frames.dtype == np.uint8
    assert float(reader.end) == video.duration


def test_a_chunk_needs_nothing_after_the_frame_that_closes_it(tmp_path):
    frames, taken = PyAVReader(write_video(tmp_path / "v.mp4", range(0, 1800, 20))).frames(320), []
    next(chunks_of(taken.append(frame.time) or frame for frame in frames))
    assert taken[-1] * 24 + Fraction(1, 2) >= 6 > taken[-2] * 24 + Fraction(1, 2)


def test_a_pipe_gives_chunks_while_it_is_still_written(noise):
    """The source never ends here: what comes needs no end, no seeking and no full buffer."""
    data = noise[".ts"].read_bytes()
    end, start = os.pipe()
    written = threading.Thread(target=os.write, args=(start, data), daemon=True)  # the pipe stays open
    written.start()
    reader = PyAVReader(os.fdopen(end, "rb"), live=True, opening=Opening({"analyzeduration": "1000000"}))
    chunks = chunks_of(reader.frames(64))
    whole = chunks_of(PyAVReader(noise[".ts"]).frames(64))
    for _ in range(11):
        ours, theirs = next(chunks), next(whole)
        assert ours.end_time == theirs.end_time and np.array_equal(ours.frames, theirs.frames)
    os.close(start)


def test_timestamps_that_step_back(tmp_path):
    """Two recordings one after the other in one stream: the clock of the second goes on from the first."""
    data = write_video(tmp_path / "v.ts", range(1200, 3000, 20)).read_bytes()
    (tmp_path / "twice.ts").write_bytes(data * 2)
    times = [frame.time for frame in PyAVReader(tmp_path / "twice.ts", damage="skip").frames(64)]
    assert times == [Fraction(i, 30) for i in range(180)]


@pytest.mark.parametrize(
    ("coded", "aspect", "size"),
    [
        ((1920, 1080), 1, (320, 180)),
        ((1080, 1920), 1, (180, 320)),
        ((160, 120), 1, (160, 120)),
        ((720, 576), Fraction(64, 45), (320, 180)),
        ((176, 144), Fraction(12, 11), (176, 132)),
        ((100, 100), Fraction(1, 2), (50, 100)),
    ],
)
def test_working_size(coded, aspect, size):
    assert working_size(*coded, 320, aspect) == size


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


def test_damage_in_a_live_source_is_skipped(tmp_path, noise):
    path = tmp_path / "v.ts"
    data = bytearray(noise[".ts"].read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20000] = bytes(20000)
    path.write_bytes(data)
    reader = PyAVReader(path, damage="skip", live=True)
    times = [frame.time for frame in reader.frames(FULL)]
    assert reader.decode_errors > 0 and 80 < len(times) < 100 and times[-1] == Fraction(99, 30)


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
