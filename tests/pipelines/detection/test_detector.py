"""`lstr.load` and `lstr.detect`: a model that detects many times, with thresholds and limits."""

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

FEW = lstr.Limits(max_chunks=4)
ALWAYS = {"on": 0.01, "off": 0.01}


@pytest.fixture(scope="module")
def detector(small_set):
    with lstr.load(small_set.checkpoint, device="cpu", networks={"flow_threads": 1}) as made:
        yield made


def scores_of(decisions) -> np.ndarray:
    return np.stack([decision.scores for decision in decisions])


def frames_of(path):
    """A video's own frames and times, all of them in one array, which is overwritten each time."""
    kept = None
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            image = frame.to_ndarray(format="rgb24")
            kept = np.empty_like(image) if kept is None else kept
            kept[:] = image
            yield kept, frame.time


@pytest.mark.long
def test_frames_are_decided_as_their_file(detector, small_set):
    video = small_set.videos / "scene_03.mp4"
    by_file, by_frames = (scores_of(detector.detect(source)) for source in (video, frames_of(video)))
    assert by_file.shape == by_frames.shape and np.allclose(by_file, by_frames, atol=1e-5)
    later = detector.detect(frames_of(video), limits=lstr.Limits(start=1, duration=0.5))
    assert [decision.chunk for decision in later] == [4, 5]


@pytest.mark.long
def test_threads_and_turns_share_the_networks_and_nothing_else(detector, small_set):
    videos = sorted(small_set.videos.glob("*.mp4"))
    alone = [scores_of(detector.detect(video, limits=FEW)) for video in videos]
    with ThreadPoolExecutor(len(videos)) as pool:
        together = list(pool.map(lambda video: scores_of(detector.detect(video, limits=FEW)), videos))
    turns = zip(*(detector.detect(video, limits=FEW) for video in videos), strict=True)
    in_turns = [scores_of(decisions) for decisions in zip(*turns, strict=True)]
    for one, other, third in zip(alone, together, in_turns, strict=True):
        assert np.allclose(one, other, atol=1e-6) and np.allclose(one, third, atol=1e-6)


def test_what_is_active_at_the_end_is_an_event(detector, small_set):
    decisions = detector.detect(small_set.features, thresholds=ALWAYS, limits=FEW)
    seen = list(decisions.events())
    assert {event.event for event in seen} == {"started", "ended"}
    timelines = decisions.timelines
    assert [*timelines] == [f"scene_0{n}" for n in range(4)]
    assert all(timeline["segments"] and timeline["chunks"] == 4 for timeline in timelines.values())
    for name in ("ended", "timeline"):
        with pytest.raises(LstrError):
            getattr(decisions, name)
    others = lstr.detect(small_set.features, detector, thresholds=ALWAYS, limits=FEW)
    assert seen == [event for decision in others for event in decision.events]


def test_several_paths(detector, small_set):
    paths = [small_set.videos / f"scene_0{n}.mp4" for n in (2, 3)]
    decisions = detector.detect(paths, thresholds=ALWAYS, limits=FEW)
    seen = [(decision.source, decision.events) for decision in decisions]
    alone = [detector.detect([path], thresholds=ALWAYS, limits=FEW) for path in paths]
    rows = [[(decision.source, decision.events) for decision in one] for one in alone]
    assert seen == [*rows[0], *rows[1]]
    assert [*decisions.timelines] == ["scene_02", "scene_03"]
    for one, own in zip(alone, rows, strict=True):
        assert own[-1][1][-len(one.ended) :] == one.ended
        (last,) = one.timelines.values()
        assert one.timeline == last and last["segments"]
        assert one.ended and {event.event for event in one.ended} == {"ended"}


@pytest.mark.long
def test_a_pause_of_frames_is_a_gap(detector, small_set):
    frames = [
        (image.copy(), Fraction(time)) for image, time in islice(frames_of(small_set.videos / "scene_03.mp4"), 96)
    ]
    half = len(frames) // 2
    later = [(image, Fraction(time + 20)) for image, time in frames[half:]]
    decided = list(detector.detect([*frames[:half], *later], thresholds=ALWAYS))
    chunks = [decision.chunk for decision in decided]
    before, after = [n for n in chunks if n < 80], [n for n in chunks if n >= 80]
    assert before and after and len(chunks) < 20, "nothing is decided on a frame that is twenty seconds old"
    (gap,) = [gap for decision in decided for gap in decision.gaps]
    assert (gap.first, gap.end, gap.reason) == (before[-1] + 1, after[0], "unseen")


def test_a_detection_is_closed_on_the_way(detector, small_set):
    with detector.detect(small_set.features) as decisions:
        assert isinstance(next(decisions), Decision)
    assert list(decisions) == [] and decisions.timeline is None


def image(side: int = 32, kind=np.uint8) -> np.ndarray:
    return np.zeros((side, side, 3), kind)


@pytest.mark.parametrize(
    ("frames", "named"),
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
def test_what_is_no_frame_is_named(frames, named):
    with pytest.raises(VideoError, match=named) as caught:
        list(source_frames(frames, 128))
    assert caught.value.hint


def test_thresholds(small_set):
    """Of the checkpoint; for all classes; by name; by class."""
    loaded = lstr.load(small_set.checkpoint)
    loaded.extra["thresholds"] = {"wave": {"on": 0.4, "off": 0.3}}
    own = {label: Thresholds() for label in loaded.classes} | {"wave": Thresholds(0.4, 0.3)}
    assert choose_thresholds(loaded) == own == choose_thresholds(loaded, {})
    assert choose_thresholds(loaded, Thresholds(0.9)) == Thresholds(0.9)
    assert choose_thresholds(loaded, {"min_length": 1, "off": None})["wave"] == Thresholds(0.4, 0.3, 1.0)
    assert choose_thresholds(loaded, {"wave": {"merge_gap": 1}}) == own | {"wave": Thresholds(0.4, 0.3, 0, 1.0)}
    assert choose_thresholds(loaded, {"backdate": 0.75})["wave"] == Thresholds(0.4, 0.3, backdate=0.75)
    assert choose_thresholds(loaded, {"wave": Thresholds(0.9)}) == own | {"wave": Thresholds(0.9)}
    for wrong in ({"fell": Thresholds()}, {"wave": 0.4}):
        with pytest.raises(ConfigError) as caught:
            choose_thresholds(loaded, wrong)
        assert caught.value.hint
