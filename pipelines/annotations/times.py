"""Times in the cells of tables: seconds, clocks, time codes and numbers of frames."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from lstr.errors import LabelsError, brief
from lstr.labels.segment import clock_seconds

# h:mm:ss:ff, frames of the last second; with a semicolon numbers of frames are dropped, as of 29.97 a second.
TIMECODE = re.compile(r"(\d{1,9}):([0-5]?\d):([0-5]?\d)([:;])(\d{1,3})")
# So many numbers of a second lose one in the first second of each minute but the tenth.
DROPPED = 15

# Frames a second of a video by its id; None where nobody knows.
RateOf = Callable[[str], float | None]


def unknown(video_id: str) -> None:
    """No rate: what is known where no video is at hand."""


@dataclass(frozen=True)
class Clock:
    """What makes seconds of the times of a table; `frames`: one rate of all videos."""

    frames: float | None = None
    rate_of: RateOf = unknown

    def time_of(self, cell: str, line: int, video_id: str, scale: int = 1, counts_frames: bool = False) -> float:
        """The seconds of a cell: a number, h:mm:ss or h:mm:ss:ff. Raises LabelsError.

        scale: how many units of a number are a second. counts_frames: whether a number is that of a frame.
        """
        if found := TIMECODE.fullmatch(cell.strip()):
            rate = self.rate(f"Line {line}: {brief(cell)} counts frames", video_id)
            return _frame_of(found, rate, line) / rate
        seconds = clock_seconds(cell)
        if seconds is not None:
            return seconds
        number = number_of(cell, line)
        return number / (self.rate("The table counts frames", video_id) if counts_frames else scale)

    def rate(self, what: str, video_id: str) -> float:
        """Frames a second of a video; `what` begins the sentence of the LabelsError where nobody knows."""
        rate = self.frames or self.rate_of(video_id)
        if rate is None:
            raise LabelsError(
                f"{what}, and does not say how many a second has.",
                "make seconds of them, by the rates of the videos or by one of all: `lstr labels convert FILE "
                "--video VIDEOS -o labels.json`, or `lstr labels convert FILE --frames 30 -o labels.json`.",
            )
        return rate


def _frame_of(code: re.Match[str], rate: float, line: int) -> int:
    """The frame that a time code names. Raises LabelsError where its second has no such frame."""
    hours, minutes, seconds, mark, frame = code.groups()
    a_second, minute = round(rate), int(hours) * 60 + int(minutes)
    if int(frame) >= a_second:
        raise LabelsError(
            f"Line {line}: {brief(code[0])} is frame {frame} of a second that has {a_second}.",
            "give the rate that the times were made with: `lstr labels convert FILE --frames 30 -o labels.json`.",
        )
    dropped = round(rate / DROPPED) * (minute - minute // 10) if mark == ";" else 0
    return (minute * 60 + int(seconds)) * a_second + int(frame) - dropped


def number_of(text: str, line: int) -> float:
    """The finite number that a cell of a line holds, also with a decimal comma. Raises LabelsError."""
    try:
        number = float(text.strip().replace(",", "."))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise LabelsError(
            f"Line {line}: {brief(text)} is no number.", "write times as seconds, such as 12.5, or as 0:00:12.5."
        )
    return number
