"""Videos of pages: overlays with lanes and labels, and copies that browsers play."""

import av
import numpy as np
import pytest
from matplotlib.font_manager import findfont

from lstr.errors import OutputError, VideoError
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, resample
from lstr.pipelines.pages import overlay
from lstr.pipelines.pages.overlay import FIRST_FONT, Panel, font_of, illegible_warning, letters, write_overlay
from lstr.pipelines.pages.proxy import is_playable, write_proxy
from tests.support.videos import write_video

CLASSES = ("Background", "wave", "Zürich & co")
EVENTS = [
    {"event": "started", "label": "wave", "time": 0.75, "start": 0.25, "score": 0.9},
    {"event": "expected", "label": "wave", "time": 0.8, "start": 1.5, "score": 0.6},
    {"event": "ended", "label": "wave", "time": 1.5, "start": 0.25, "end": 1.25, "score": 0.8},
    {"event": "started", "label": "Zürich & co", "time": 1.5, "start": 1.25, "score": 0.7},
]
SCORES = np.random.default_rng(0).random((8, 3), dtype=np.float32)


def read(path) -> tuple[list[float], np.ndarray]:
    with av.open(str(path)) as container:
        frames = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    return [time for time, _ in frames], np.stack([image for _, image in frames])


def test_the_overlay_has_the_rate_and_frames_of_its_source(tmp_path):
    source = write_video(tmp_path / "a.mp4", range(0, 720, 20), (321, 181), pixels="yuv444p")
    write_overlay(tmp_path / "b.mp4", source, CLASSES, EVENTS, SCORES)
    with av.open(str(tmp_path / "b.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt, stream.width) == ("h264", "yuv420p", 642), "enlarged"
        assert stream.height % 2 == 0 and stream.height > 362
        assert float(stream.average_rate) == pytest.approx(30, abs=0.1)
    times, frames = read(tmp_path / "b.mp4")
    assert times == pytest.approx(read(source)[0], abs=1e-3)
    assert np.abs(frames[:, 90, 160].mean(1) - 7 * np.arange(36)).max() < 6


def test_frames_of_a_variable_rate_keep_their_times(tmp_path):
    stamps = [0, 24, 48, 300, 324, 720, 744, 1140]
    source = write_video(tmp_path / "a.mkv", stamps)
    write_overlay(tmp_path / "b.mp4", source, CLASSES, EVENTS)
    assert read(tmp_path / "b.mp4")[0] == pytest.approx(np.array(stamps) / 600, abs=1e-3)


def test_a_frame_is_independent_of_later_scores_and_events():
    changed = np.vstack([SCORES[:4], 1 - SCORES[4:]])
    for now in (0.0, 0.3, 0.75, 1.0, 1.2):
        strip = Panel(640, CLASSES, EVENTS, SCORES).draw(now)
        past_events = [event for event in EVENTS if event["time"] <= now]
        assert (strip == Panel(640, CLASSES, past_events, changed).draw(now)).all()
    assert (strip != Panel(640, CLASSES, [], changed).draw(now)).any()


def test_a_damaged_video_and_an_output_that_is_the_source_are_refused(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_text("no video")
    with pytest.raises(VideoError):
        write_overlay(tmp_path / "b.mp4", path, CLASSES, EVENTS)
    assert [*tmp_path.iterdir()] == [path]
    with pytest.raises(OutputError):
        write_overlay(path, path, CLASSES, EVENTS)


@pytest.fixture
def install_fonts(monkeypatch):
    """Let this machine have these fonts next to the first one, and no others: install_fonts(*paths)."""

    def install(*paths) -> None:
        letters.cache_clear()
        font_of.cache_clear()
        monkeypatch.setattr(overlay, "_other_fonts", lambda: [*map(str, paths)])

    yield install
    letters.cache_clear()
    font_of.cache_clear()


def test_each_letter_is_drawn_in_a_font_that_has_it(install_fonts, tmp_path):
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    dejavu, armenian, hieroglyph = str(findfont("DejaVu Sans")), "Ճա", "𓃠"
    install_fonts(tmp_path / "broken.ttf", dejavu)
    assert {font_of(letter) for letter in armenian} == {dejavu}
    assert {font_of(letter) for letter in "Dive!مé\u200d?"} == {FIRST_FONT}
    assert hieroglyph in illegible_warning(["kick", armenian, hieroglyph])
    assert armenian not in illegible_warning([armenian])
    ink, end_of_first = letters(f"a{armenian}", 20), len(letters("a", 20)[0])
    assert ink[: len(ink) // 2, end_of_first:].sum() > 0
    install_fonts()
    assert font_of(armenian[0]) is None and illegible_warning(["kick", "é"]) == ""
    assert armenian in illegible_warning(["kick", armenian])
    assert not np.array_equal(letters(f"a{armenian}", 20)[:, :30], ink[:, :30])


SECOND = range(0, 620, 20)  # at 30 FPS


@pytest.mark.parametrize(
    ("name", "codec", "pixels", "playable"),
    [
        ("a.mp4", "libx264", "yuv420p", True),
        ("a.webm", "libvpx-vp9", "yuv420p", True),
        ("a.mkv", "libx264", "yuv420p", False),
        ("a.avi", "libx264", "yuv420p", False),
        ("a.mp4", "mpeg4", "yuv420p", False),
        ("a.mp4", "libx265", "yuv420p", False),
        ("a.mp4", "libx264", "yuv420p10le", False),
        ("a.mp4", "libx264", "yuv444p", False),
    ],
)
def test_files_that_browsers_play(tmp_path, name, codec, pixels, playable):
    assert is_playable(write_video(tmp_path / name, SECOND[:5], codec=codec, pixels=pixels)) is playable


def test_frame_k_of_a_copy_is_frame_k_of_the_chunks(tmp_path):
    video = write_video(tmp_path / "a.avi", SECOND, codec="mpeg4")
    copy = write_proxy(video, tmp_path, "a")
    assert is_playable(copy) and list(find_videos([tmp_path])) == ["a"], "not an input of other commands"
    original, copied = probe(video), probe(copy)
    assert copied.n_frames == original.n_frames == 24 and copied.duration == 1.0
    expected = [frame.image.mean() for frame in resample(FrameReader(original).frames(640))]
    images = [frame.image.mean() for frame in FrameReader(copied).frames(640)]
    assert np.abs(np.subtract(expected, images)).max() < 3 < np.diff(expected).mean()


def test_a_copy_is_small_and_has_even_sides(tmp_path):
    video = write_video(tmp_path / "a.mkv", SECOND[:4], (1283, 721), "ffv1", pixels="bgr0")
    copied = probe(write_proxy(video, tmp_path, "a"))
    assert (copied.width, copied.height) == (640, 360)


def test_a_copy_is_rewritten_only_if_the_video_changes(tmp_path):
    video = write_video(tmp_path / "a.avi", SECOND, codec="mpeg4")
    copy = write_proxy(video, tmp_path / "out", "a")
    written = copy.stat().st_mtime_ns
    assert write_proxy(video, tmp_path / "out", "a").stat().st_mtime_ns == written
    write_video(video, SECOND[:16], codec="mpeg4")
    assert probe(write_proxy(video, tmp_path / "out", "a")).duration == 0.5
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.lstr-proxy.mp4"]


def test_a_damaged_video_has_no_copy(tmp_path, sound_only):
    with pytest.raises(VideoError):
        write_proxy(sound_only, tmp_path / "out", "a")
    assert not (tmp_path / "out").exists()
