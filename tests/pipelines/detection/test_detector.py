"""`lstr.load` and `lstr.detect`: a model that detects several times, with thresholds and limits."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import islice

import av
import numpy as np
import pytest

import lstr
from lstr.errors import ConfigError, LstrError, VideoError
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.options import choose_thresholds
from lstr.pipelines.detection.source import source_frames
from lstr.timeline import Thresholds
from tests.support.detections import scores_of

FOUR_CHUNKS = lstr.Limits(max_chunks=4)
ALWAYS = {"on": 0.01, "off": 0.01}


@pytest.fixture(scope="module")
def detector(small_set):
    with lstr.load(small_set.checkpoint, device="cpu", networks={"flow_threads": 1}) as loaded:
        yield loaded


def frames_of(path):
    """Yield frames and times of a video, all in one array, which is overwritten each time."""
    buffer = None
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            image = frame.to_ndarray(format="rgb24")
            buffer = np.empty_like(image) if buffer is None else buffer
            buffer[:] = image
            yield buffer, frame.time


@pytest.mark.long
def test_frames_have_the_scores_of_their_file(detector, small_set):
    video = small_set.videos / "scene_03.mp4"
    by_file, by_frames = (scores_of(detector.detect(source)) for source in (video, frames_of(video)))
    assert by_file.shape == by_frames.shape and np.allclose(by_file, by_frames, atol=1e-5)
    later = detector.detect(frames_of(video), limits=lstr.Limits(start=1, duration=0.5))
    assert [decision.chunk for decision in later] == [4, 5]


@pytest.mark.long
def test_concurrent_and_alternating_detections(detector, small_set):
    videos = sorted(small_set.videos.glob("*.mp4"))

    def scores(video) -> np.ndarray:
        return scores_of(detector.detect(video, limits=FOUR_CHUNKS))

    expected = [scores(video) for video in videos]
    with ThreadPoolExecutor(len(videos)) as pool:
        assert np.allclose(list(pool.map(scores, videos)), expected, atol=1e-6)
    turns = zip(*(detector.detect(video, limits=FOUR_CHUNKS) for video in videos), strict=True)
    assert np.allclose([scores_of(decisions) for decisions in zip(*turns, strict=True)], expected, atol=1e-6)


def test_actions_that_are_active_at_the_end_are_events(detector, small_set):
    decisions = detector.detect(small_set.features, thresholds=ALWAYS, limits=FOUR_CHUNKS)
    events = list(decisions.events())
    assert {event.event for event in events} == {"started", "ended"}
    timelines = decisions.timelines
    assert [*timelines] == [f"scene_0{n}" for n in range(4)]
    assert all(timeline["segments"] and timeline["chunks"] == 4 for timeline in timelines.values())
    for name in ("ended", "timeline"):
        with pytest.raises(LstrError):
            getattr(decisions, name)
    by_function = lstr.detect(small_set.features, detector, thresholds=ALWAYS, limits=FOUR_CHUNKS)
    assert events == [event for decision in by_function for event in decision.events]


def test_several_paths(detector, small_set):
    paths = [small_set.videos / f"scene_0{n}.mp4" for n in (2, 3)]
    decisions = detector.detect(paths, thresholds=ALWAYS, limits=FOUR_CHUNKS)
    rows = [(decision.source, decision.events) for decision in decisions]
    assert [*decisions.timelines] == ["scene_02", "scene_03"]
    for path in paths:
        single = detector.detect([path], thresholds=ALWAYS, limits=FOUR_CHUNKS)
        expected = [(decision.source, decision.events) for decision in single]
        assert rows[: len(expected)] == expected
        del rows[: len(expected)]
        assert single.ended and expected[-1][1][-len(single.ended) :] == single.ended
        assert {event.event for event in single.ended} == {"ended"}
        (last,) = single.timelines.values()
        assert single.timeline == last and last["segments"]
    assert not rows


@pytest.mark.long
def test_a_pause_of_frames_is_a_gap(detector, small_set):
    video = islice(frames_of(small_set.videos / "scene_03.mp4"), 96)
    frames = [(image.copy(), Fraction(time) + (20 if n >= 48 else 0)) for n, (image, time) in enumerate(video)]
    decisions = list(detector.detect(frames, thresholds=ALWAYS))
    chunks = [decision.chunk for decision in decisions]
    before, after = [n for n in chunks if n < 80], [n for n in chunks if n >= 80]
    assert before and after and len(chunks) < 20, "there is no decision during the pause"
    (gap,) = [gap for decision in decisions for gap in decision.gaps]
    assert (gap.first, gap.end, gap.reason) == (before[-1] + 1, after[0], "unseen")


def test_a_detection_may_be_closed_early(detector, small_set):
    with detector.detect(small_set.features) as decisions:
        assert isinstance(next(decisions), Decision)
    assert list(decisions) == [] and decisions.timeline is None


def image(side: int = 32, kind=np.uint8) -> np.ndarray:
    return np.zeros((side, side, 3), kind)


@pytest.mark.parametrize(
    ("frames", "value"),
    [
        ([(image(), 0.0), (image(), 1.0), (image(), 0.5)], "frame 2 "),
        ([(image(), float("nan"))], "nan"),
        ([(image(kind=np.float32), 0.0)], "float32"),
        ([(image()[:, :, 0], 0.0)], r"\(32, 32\)"),
        ([(image(0), 0.0)], "Frame 0 "),
        ([image()], "Item 0 "),
        ([(image(), "noon")], "Item 0 "),
        ([(image(), 40 * n) for n in range(9)], "0, 40, 80, 120 s"),
    ],
)
def test_invalid_frames(frames, value):
    with pytest.raises(VideoError, match=value) as caught:
        list(source_frames(frames, 128))
    assert caught.value.hint


def test_thresholds_of_the_checkpoint_of_all_classes_and_by_class(small_set):
    loaded = lstr.load(small_set.checkpoint)
    loaded.extra["thresholds"] = {"wave": {"on": 0.4, "off": 0.3}}
    own = {label: Thresholds() for label in loaded.classes} | {"wave": Thresholds(0.4, 0.3)}
    assert choose_thresholds(loaded) == own == choose_thresholds(loaded, {})
    assert choose_thresholds(loaded, Thresholds(0.9)) == Thresholds(0.9)
    assert choose_thresholds(loaded, {"min_length": 1, "off": None})["wave"] == Thresholds(0.4, 0.3, 1.0)
    assert choose_thresholds(loaded, {"wave": {"merge_gap": 1}}) == own | {"wave": Thresholds(0.4, 0.3, 0, 1.0)}
    assert choose_thresholds(loaded, {"backdate": 0.75})["wave"] == Thresholds(0.4, 0.3, backdate=0.75)
    assert choose_thresholds(loaded, {"wave": Thresholds(0.9)}) == own | {"wave": Thresholds(0.9)}
    for thresholds in ({"fell": Thresholds()}, {"wave": 0.4}):
        with pytest.raises(ConfigError) as caught:
            choose_thresholds(loaded, thresholds)
        assert caught.value.hint
