"""The video with its lanes: causal, on time, playable."""

from fractions import Fraction

import av
import numpy as np
import pytest

from lstr.errors import OutputError, VideoError
from lstr.pipelines.pages.overlay import Panel, write_overlay

CLASSES = ("Background", "wave", "Zürich & co")
EVENTS = [
    {"event": "started", "label": "wave", "time": 0.75, "start": 0.25, "score": 0.9},
    {"event": "expected", "label": "wave", "time": 0.8, "start": 1.5, "score": 0.6},
    {"event": "ended", "label": "wave", "time": 1.5, "start": 0.25, "end": 1.25, "score": 0.8},
    {"event": "started", "label": "Zürich & co", "time": 1.5, "start": 1.25, "score": 0.7},
]
SCORES = np.random.default_rng(0).random((8, 3), dtype=np.float32)


def film(path, stamps, size=(321, 181), rate=Fraction(30), base=Fraction(1, 1000), sound=False):
    """A grey video with frames at these times (ms)."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"crf": "30", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = size[0], size[1], "yuv444p"
        stream.codec_context.time_base = base
        voice = container.add_stream("aac", rate=44100) if sound else None
        for k, stamp in enumerate(stamps):
            frame = av.VideoFrame.from_ndarray(np.full((size[1], size[0], 3), 40 + k % 100, np.uint8), format="rgb24")
            frame.pts, frame.time_base = stamp, base
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if voice:
            samples = av.AudioFrame.from_ndarray(np.zeros((1, 44100), np.float32), format="fltp", layout="mono")
            samples.sample_rate = 44100
            container.mux(voice.encode(samples))
            container.mux(voice.encode())
    return path


def read(path) -> tuple[list[float], np.ndarray]:
    with av.open(str(path)) as container:
        frames = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    return [time for time, _ in frames], np.stack([image for _, image in frames])


def test_it_plays_at_the_rate_of_the_source_without_its_sound(tmp_path):
    source = film(tmp_path / "a.mp4", [round(k * 1000 / 30) for k in range(60)], sound=True)
    write_overlay(tmp_path / "b.mp4", source, CLASSES, EVENTS, SCORES)
    with av.open(str(tmp_path / "b.mp4")) as container:
        assert not container.streams.audio
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt, stream.width) == ("h264", "yuv420p", 642), (
            "twice as large, to be read"
        )
        assert stream.height % 2 == 0 and stream.height > 362
        assert float(stream.average_rate) == pytest.approx(30, abs=0.1)
    times, frames = read(tmp_path / "b.mp4")
    assert times == pytest.approx(read(source)[0], abs=1e-3)
    middle = frames[:, 90, 160].mean(1)
    assert np.abs(middle - (40 + np.arange(60))).max() < 6, "the picture is the source's"


def test_frames_of_a_variable_rate_stay_where_they_are(tmp_path):
    stamps = [0, 40, 80, 500, 540, 1200, 1240, 1900]
    source = film(tmp_path / "a.mkv", stamps, rate=Fraction(25))
    write_overlay(tmp_path / "b.mp4", source, CLASSES, EVENTS)
    assert read(tmp_path / "b.mp4")[0] == pytest.approx(np.array(stamps) / 1000, abs=1e-3)


def test_a_frame_alone_depends_on_nothing_later():
    later = np.vstack([SCORES[:4], 1 - SCORES[4:]])
    for now in (0.0, 0.3, 0.75, 1.0, 1.2):
        strip = Panel(640, CLASSES, EVENTS, SCORES).draw(now)
        known = [event for event in EVENTS if event["time"] <= now]
        assert (strip == Panel(640, CLASSES, known, later).draw(now)).all()
    assert (strip != Panel(640, CLASSES, [], later).draw(now)).any()


def test_what_is_no_video(tmp_path):
    (tmp_path / "a.mp4").write_text("no video")
    with pytest.raises(VideoError) as caught:
        write_overlay(tmp_path / "b.mp4", tmp_path / "a.mp4", CLASSES, EVENTS)
    assert caught.value.hint and [p.name for p in tmp_path.iterdir()] == ["a.mp4"]
    with pytest.raises(OutputError):
        write_overlay(tmp_path / "a.mp4", tmp_path / "a.mp4", CLASSES, EVENTS)
