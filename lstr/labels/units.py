"""Times in a label file that are not seconds: numbers of frames, or milliseconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from lstr.chunk import CLOCK, FEATURES_PER_SECOND, Clock
from lstr.labels.label_set import VideoLabels

# How far a segment may reach past the last whole chunk: extraction drops a shorter tail.
TAIL_S = 1 / FEATURES_PER_SECOND
# A last time that exceeds the duration by this factor is not just an inexact end.
FAR = 1.5
# Usual numbers of frames per second, and the most usual one.
RATES = (15, 24, 25, 30, 50, 60, 100, 120, 240)
USUAL = 30
# Kinds of times that are not seconds.
FRAMES, MILLISECONDS = "frame numbers", "milliseconds"
# Whole numbers up to this may well be seconds, if the duration of the video is unknown.
LONG_S = 60
# This many times that are all whole numbers are not chance.
ENOUGH = 4
# Features whose length differs from the duration by no more than this share have the right rate: 23.976 for 24.
SAME_RATE = 0.03


@dataclass(frozen=True)
class Footage:
    """What a video file states: its seconds, and its frames per second if it states them."""

    seconds: float
    rate: float | None = None


@dataclass(frozen=True)
class Unit:
    """What the times of a video seem to be: `name`, and how many are a second."""

    name: str
    kind: str
    rate: float

    def question(self, time: float) -> str:
        """Return a question such as "are these frames? 82/30 = 2.73 s"."""
        return f"are these {self.name}? {time:g}/{self.rate:g} = {time / self.rate:.2f} s"


def odd_units(videos: Mapping[str, VideoLabels], footage: Mapping[str, Footage]) -> dict[str, Unit]:
    """Return by video what its times seem to be, if they are not seconds.

    Such a video has only whole numbers, most of them past its end, that fit once they are divided by its rate, or by a
    usual one that suits all such videos. Only videos in `footage` are looked at.
    """
    labelled = {name: _times_of([video]) for name, video in videos.items() if name in footage and video.segments}
    far = {}
    for name, times in labelled.items():
        seconds = footage[name].seconds
        past = sum(time > seconds + TAIL_S for time in times)
        if max(times) > FAR * seconds + 1 and 2 * past > len(times) and _are_whole(times):
            far[name] = max(times)
    if 2 * len(far) < len(labelled):  # one time of a few may be a slip; several in one video are not
        far = {name: last for name, last in far.items() if len(labelled[name]) >= ENOUGH}
    # if they are frames, there are at least this many per second
    needed = {name: last / (footage[name].seconds + TAIL_S) for name, last in far.items()}
    usual = _usual_unit(max(needed.values(), default=0))
    units = {}
    for name, least in needed.items():
        rate = footage[name].rate
        if rate and least <= rate:
            units[name] = Unit("frames", FRAMES, round(rate, 3))
        elif usual:
            units[name] = usual
    return units


def _usual_unit(needed: float) -> Unit | None:
    """Return the unit of which at least `needed` are a second."""
    rate = next((rate for rate in RATES if rate >= math.floor(needed)), None)
    if rate is None:
        return Unit(MILLISECONDS, MILLISECONDS, 1000) if needed <= 1000 else None
    # labels that end early say little about the rate; then it is the most usual one
    return Unit("frames", FRAMES, USUAL if rate < USUAL and needed < 0.9 * rate else rate)


def whole_numbers(videos: Iterable[VideoLabels]) -> str:
    """Return a question if all times are whole numbers too large to pass for seconds; else empty.

    It is for labels of videos whose lengths are unknown.
    """
    times = _times_of(videos)
    if len(times) < ENOUGH or max(times) <= LONG_S or not _are_whole(times):
        return ""
    return f"all times are whole numbers, up to {max(times):g}: seconds or frames? With the videos it can be told"


def other_rate(videos: Mapping[str, VideoLabels], lengths: Mapping[str, int], clock: Clock = CLOCK) -> str:
    """Return a sentence if features differ from the stated durations by about one factor; else empty.

    `lengths`: chunks by video. Half of the videos that state a duration must differ, because single videos are cut in
    many ways.
    """
    stated = {name: video.duration for name, video in videos.items() if name in lengths and video.duration}
    ratios = {name: clock.length(lengths[name]) / seconds for name, seconds in stated.items()}
    factor = median(ratios.values()) if ratios else 1.0
    alike = [
        name
        for name, ratio in ratios.items()
        # by more than an inexact end, and more chunks than a tail that was dropped or filled up
        if abs(ratio - 1) > SAME_RATE and abs(lengths[name] - lengths[name] / ratio) > 2
        if abs(ratio / factor - 1) < SAME_RATE
    ]
    if not alike or 2 * len(alike) < len(stated):
        return ""
    one, chunk, rate = alike[0], clock.seconds, factor * float(clock.rate)
    return (
        f"the features of {len(alike)} of {len(stated)} videos are {factor:.3g} times as long as the labels say "
        f"({one}: {lengths[one]} chunks of {chunk:.4g} s for {stated[one]:g} s): they are {rate:.3g} a second instead "
        f"of {float(clock.rate):g}, made at another frame rate, or not of these videos"
    )


def footage_of(
    videos: Mapping[str, VideoLabels], known: Mapping[str, Footage], lengths: Mapping[str, int], clock: Clock = CLOCK
) -> dict[str, Footage]:
    """Return what is known of each labelled video: by its file, else its chunks of features, else the label file."""
    stated = {name: Footage(video.duration) for name, video in videos.items() if video.duration is not None}
    measured = {name: Footage(clock.at(length)) for name, length in lengths.items()}
    found = {**stated, **measured, **known}
    return {name: found[name] for name in videos if name in found}


def _times_of(videos: Iterable[VideoLabels]) -> list[float]:
    return [time for video in videos for segment in video.segments for time in (segment.start, segment.end)]


def _are_whole(times: Iterable[float]) -> bool:
    return all(float(time).is_integer() for time in times)
