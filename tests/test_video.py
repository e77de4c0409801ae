"""24 FPS frames and chunks from real files, against FFmpeg's own fps filter."""

from fractions import Fraction

import av
import numpy as np
import pytest

from extractors.errors import MissingPathError, VideoError
from extractors.video import (
    CHUNK,
    FrameReader,
    find_videos,
    probe,
    read_chunks,
    resample,
    shrink,
    working_size,
)


def write_video(path, times, rate=30, size=(64, 48), codec="libx264", options=None):
    """An MP4 whose frame i is shown at times[i] (units of 1/600 s) and is uniformly grey, brighter each frame."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.time_base = stream.time_base = Fraction(1, 600)
        for i, time in enumerate(times):
            image = np.full((size[1], size[0], 3), (i * 7) % 256, np.uint8)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 600)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def ffmpeg_24(path) -> list[np.ndarray]:
    """The same file through FFmpeg's fps filter."""
    frames = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        graph = av.filter.Graph()
        nodes = [
            graph.add_buffer(template=stream),
            graph.add("setpts", "PTS-STARTPTS"),
            graph.add("fps", "24"),
            graph.add("buffersink"),
        ]
        for a, b in zip(nodes, nodes[1:], strict=False):
            a.link_to(b)
        graph.configure()

        def drain():
            while True:
                try:
                    frames.append(graph.pull().to_ndarray(format="rgb24"))
                except (av.error.BlockingIOError, av.error.EOFError):
                    return

        for frame in container.decode(stream):
            graph.push(frame)
            drain()
        graph.push(None)
        drain()
    return frames


RATES = {
    "30": range(0, 1800, 20),
    "25": range(0, 1800, 24),
    "24": range(0, 1200, 25),
    "48": [int(i * 12.5) for i in range(97)],
    "60": range(0, 1200, 10),
    "12": range(0, 1200, 50),
    "variable": np.cumsum(np.random.default_rng(3).integers(5, 90, 60)).tolist(),
    "late start": range(900, 1800, 20),
}


@pytest.mark.parametrize("name", RATES)
def test_frames_equal_ffmpegs_fps_filter(tmp_path, name):
    path = write_video(tmp_path / "v.mp4", RATES[name])
    video = probe(path)
    ours = list(resample(FrameReader(video), video.n_frames))
    oracle = ffmpeg_24(path)
    assert len(ours) == len(oracle)
    assert [int(a.mean()) for a in ours] == [int(b.mean()) for b in oracle]


@pytest.mark.parametrize("decoder", ["decord", "pyav"])
def test_both_readers_give_the_same(tmp_path, decoder):
    video = probe(write_video(tmp_path / "v.mp4", RATES["variable"]))
    reader = FrameReader(video)
    reader.decoder = decoder
    frames = list(reader)
    assert [time for time, _ in frames] == list(video.timestamps)
    assert reader.decoded == len(RATES["variable"])
    brightness = [frame.mean() for _, frame in frames]
    assert np.allclose(brightness, [(i * 7) % 256 for i in range(len(frames))], atol=3)


def test_reopening_decord_loses_no_frame(tmp_path, monkeypatch):
    video = probe(write_video(tmp_path / "v.mp4", RATES["30"]))
    whole = [frame for _, frame in FrameReader(video)]
    monkeypatch.setattr("extractors.video.DECODE_AHEAD_BYTES", 1)
    assert all((a == b).all() for a, (_, b) in zip(whole, FrameReader(video), strict=True))


def test_chunks(tmp_path):
    video = probe(write_video(tmp_path / "v.mp4", range(0, 1000, 20)))  # 50 frames at 30 a second: 40 at 24
    chunks = list(read_chunks(FrameReader(video), 320))
    assert video.n_frames == 40 and len(chunks) == video.n_chunks == 6
    assert [c.index for c in chunks] == list(range(6))
    assert [c.end_time for c in chunks] == [0.25 * (k + 1) for k in range(6)]
    assert chunks[0].frames.shape == (CHUNK, 48, 64, 3) and chunks[0].frames.dtype == np.uint8


def test_a_chunk_needs_nothing_after_the_frame_that_closes_it(tmp_path):
    video = probe(write_video(tmp_path / "v.mp4", RATES["30"]))
    taken = []

    def counting():
        for item in FrameReader(video):
            taken.append(item)
            yield item

    reader = FrameReader(video)
    reader.__class__ = type("Counting", (FrameReader,), {"__iter__": lambda self: counting()})
    next(read_chunks(reader, 320))
    assert taken[-1][0] * 24 + Fraction(1, 2) >= 6
    assert taken[-2][0] * 24 + Fraction(1, 2) < 6


def test_working_size():
    assert working_size(1920, 1080, 320) == (320, 180)
    assert working_size(1080, 1920, 320) == (180, 320)
    assert working_size(160, 120, 320) == (160, 120)
    assert shrink(np.zeros((360, 640, 3), np.uint8), 320).shape == (180, 320, 3)


def test_bad_files_are_typed_errors(tmp_path, sound_only):
    (tmp_path / "text.mp4").write_text("no video at all")
    (tmp_path / "empty.mp4").touch()
    for name in ("text.mp4", "empty.mp4", sound_only.name):
        with pytest.raises(VideoError) as caught:
            probe(tmp_path / name)
        assert name in str(caught.value) and caught.value.hint
    with pytest.raises(MissingPathError):
        probe(tmp_path / "nothing.mp4")
    with pytest.raises(MissingPathError):
        probe(tmp_path)


def test_a_damaged_file_is_an_error(tmp_path):
    path = write_video(tmp_path / "v.mp4", range(0, 6000, 20), size=(320, 240), options={"g": "10"})
    data = bytearray(path.read_bytes())
    middle = data.index(b"mdat") + 4 + (len(data) - data.index(b"mdat")) // 3
    data[middle : middle + 400] = b"\xff" * 400
    path.write_bytes(data)
    try:
        frames = list(FrameReader(probe(path)))
    except VideoError as error:
        assert "damaged" in str(error) or "not a readable video" in str(error)
    else:
        assert len(frames) == 300  # the decoder concealed it: every frame is there


def test_ids_keep_folders(tmp_path):
    for name in ("a/x.mp4", "b/x.MKV", "b/note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list(find_videos([tmp_path])) == ["a/x", "b/x"]
    assert list(find_videos([tmp_path / "a" / "x.mp4"])) == ["x"]
    with pytest.raises(MissingPathError, match="both be called 'x'"):
        find_videos([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(MissingPathError, match="holds no video"):
        (tmp_path / "c").mkdir()
        find_videos([tmp_path / "c"])


def test_shared_odd_videos_give_chunks_or_a_typed_error(shared):
    """Everything but the six-minute 1080p file, which belongs to the slow tests."""
    readable = 0
    for path in sorted((shared / "data" / "odd_videos").rglob("*")):
        if not path.is_file() or path.suffix == ".md" or path.name == "long_1080p_lowbitrate.mp4":
            continue
        try:
            video = probe(path)
            chunks = sum(1 for _ in read_chunks(FrameReader(video), 64))
        except VideoError as error:
            assert error.hint
        else:
            assert chunks == video.n_chunks, path.name
            readable += chunks > 0
    assert readable >= 100


@pytest.mark.slow
def test_the_long_1080p_video(shared):
    """Six minutes of 1080p, reopened every 43 frames."""
    video = probe(shared / "data" / "odd_videos" / "androidx_media" / "long_1080p_lowbitrate.mp4")
    assert video.height == 1080 and video.duration > 300
    assert sum(1 for _ in read_chunks(FrameReader(video), 320)) == video.n_chunks
