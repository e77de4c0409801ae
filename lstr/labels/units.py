"""Times in a label file that are no seconds: numbers of frames, or milliseconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from lstr.chunk import CLOCK, FEATURES_PER_SECOND, Clock
from lstr.labels.label_set import VideoLabels

# Seconds that a segment may reach past the last whole chunk: extraction drops a shorter tail.
TAIL = 1 / FEATURES_PER_SECOND

# A last time this many times the duration is no inexact end any more.
FAR = 1.5

# Usual numbers of frames a second.
RATES = (15, 24, 25, 30, 50, 60, 100, 120, 240)
USUAL = 30
# Kinds of times that are no seconds.
FRAMES, MILLISECONDS = "frame numbers", "milliseconds"

# Whole numbers up to this may well be seconds, of a video whose duration nobody knows.
LONG = 60
# Times, all of them whole numbers, that are too many for chance.
ENOUGH = 4


# Features whose length differs from the duration by no more than this share are of the right rate: 23.976 for 24.
SAME_RATE = 0.03


@dataclass(frozen=True)
class Footage:
    """What a video file says of itself: its seconds, and its frames per second where it states them."""

    seconds: float
    rate: float | None = None


@dataclass(frozen=True)
class Unit:
    """What the times of a video seem to be: `name`, and how many are a second."""

    name: str
    kind: str
    rate: float

    def question(self, time: float) -> str:
        """Such as "are these frames? 82/30 = 2.73 s"."""
        return f"are these {self.name}? {time:g}/{self.rate:g} = {time / self.rate:.2f} s"


def odd_units(videos: Mapping[str, VideoLabels], footage: Mapping[str, Footage]) -> dict[str, Unit]:
    """By video, what its times seem to be where they are no seconds.

    Such a video has whole numbers only, of which most are past its end, and which fit once they are divided by its
    rate, or by a usual one that suits all such videos. `footage`: what is known of the videos; others are left out.
    """
    labelled = {name: times_of([video]) for name, video in videos.items() if name in footage and video.segments}
    far = {name: max(times) for name, times in labelled.items() if _is_far(times, footage[name].seconds)}
    if 2 * len(far) < len(labelled):  # one time of a few may be a slip; of several in one video it is none
        far = {name: last for name, last in far.items() if len(labelled[name]) >= ENOUGH}
    # of frames, what is left is at least this many a second
    needed = {name: last / (footage[name].seconds + TAIL) for name, last in far.items()}
    usual = _usual(max(needed.values(), default=0))
    units = {}
    for name, least in needed.items():
        rate = footage[name].rate
        if rate and least <= rate:
            units[name] = Unit("frames", FRAMES, round(rate, 3))
        elif usual:
            units[name] = usual
    return units


def whole_numbers(videos: Iterable[VideoLabels]) -> str:
    """A question, where all times are whole numbers too large to pass for seconds; else empty.

    For labels of which nobody knows how long the videos are.
    """
    times = times_of(videos)
    if len(times) < ENOUGH or max(times) <= LONG or not _are_whole(times):
        return ""
    return f"all times are whole numbers, up to {max(times):g}: seconds or frames? With the videos it can be told"


def other_rate(videos: Mapping[str, VideoLabels], lengths: Mapping[str, int], clock: Clock = CLOCK) -> str:
    """What is odd where features are longer or shorter than the stated durations by about one factor; else empty.

    `lengths`: chunks by video. Half of the videos that state a duration must differ: single ones are cut in many ways.
    """
    stated = {name: video.duration for name, video in videos.items() if name in lengths and video.duration}
    ratios = {name: clock.length(lengths[name]) / seconds for name, seconds in stated.items()}
    far = {name: ratio for name, ratio in ratios.items() if _is_other_rate(ratio, lengths[name])}
    factor = median(ratios.values()) if ratios else 1.0
    alike = [name for name, ratio in far.items() if abs(ratio / factor - 1) < SAME_RATE]
    if not alike or 2 * len(alike) < len(stated):
        return ""
    one, chunk, rate = alike[0], clock.seconds, factor * float(clock.rate)
    return (
        f"the features of {len(alike)} of {len(stated)} videos are {factor:.3g} times as long as the labels say "
        f"({one}: {lengths[one]} chunks of {chunk:.4g} s for {stated[one]:g} s): they are {rate:.3g} a second in place "
        f"of {float(clock.rate):g}, made at another frame rate, or not of these videos"
    )


def _is_other_rate(ratio: float, length: int) -> bool:
    """Whether so many chunks are no inexact end, nor a tail that was dropped or filled up."""
    return abs(ratio - 1) > SAME_RATE and abs(length - length / ratio) > 2


def times_of(videos: Iterable[VideoLabels]) -> list[float]:
    """All starts and ends."""
    return [time for video in videos for segment in video.segments for time in (segment.start, segment.end)]


def _is_far(times: list[float], seconds: float) -> bool:
    """Whether the times are whole numbers, most of them past the end, and the last by far."""
    past = sum(time > seconds + TAIL for time in times)
    return max(times) > FAR * seconds + 1 and 2 * past > len(times) and _are_whole(times)


def _are_whole(times: Iterable[float]) -> bool:
    return all(float(time).is_integer() for time in times)


def _usual(needed: float) -> Unit | None:
    """The unit that has at least so many a second."""
    rate = next((rate for rate in RATES if rate >= math.floor(needed)), None)
    if rate is None:
        return Unit(MILLISECONDS, MILLISECONDS, 1000) if needed <= 1000 else None
    # labels that end early say little about the rate; then it is the most usual one
    return Unit("frames", FRAMES, USUAL if rate < USUAL and needed < 0.9 * rate else rate)


def footage_of(
    videos: Mapping[str, VideoLabels], known: Mapping[str, Footage], lengths: Mapping[str, int], clock: Clock = CLOCK
) -> dict[str, Footage]:
    """What is known of each labelled video: from its file, else its chunks of features, else the label file."""
    stated = {name: Footage(video.duration) for name, video in videos.items() if video.duration is not None}
    measured = {name: Footage(clock.at(length)) for name, length in lengths.items()}
    found = {**stated, **measured, **known}
    return {name: found[name] for name in videos if name in found}
