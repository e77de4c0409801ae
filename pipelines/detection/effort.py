"""What a detection took and what it cost: wall time, and processor time for each second of video."""

import resource
import threading
from time import perf_counter

from lstr.chunk import CHUNK_SECONDS


def processor_seconds() -> float:
    """What this process has used so far, all its threads together, with the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


class Effort:
    """Counts the seconds of video that a job decides on all its sources together, from any thread.

    Sources that run at once share threads, so the processor time of one alone is unknown; that for a second of video is
    known, and other processes that slow the job down do not change it.
    """

    def __init__(self) -> None:
        self.video_seconds = 0.0
        self._lock = threading.Lock()

    def count(self, seconds: float = CHUNK_SECONDS) -> None:
        """One more decision is made, on a chunk of so many seconds."""
        with self._lock:
            self.video_seconds += seconds


class Since:
    """What was spent from the moment it was made until `stop`, or until now."""

    def __init__(self, effort: Effort):
        self._effort = effort
        self._began = self._reading()
        self._ended: tuple[float, float, float] | None = None

    def stop(self) -> None:
        """Count no further."""
        self._ended = self._ended or self._reading()

    @property
    def seconds(self) -> float:
        """Wall time."""
        return self._spent()[0]

    def processor_seconds(self) -> float:
        """For a second of video that was decided meanwhile, of whatever source; 0 where nothing was."""
        _, used, decided = self._spent()
        return used / decided if decided else 0.0

    def _reading(self) -> tuple[float, float, float]:
        return perf_counter(), processor_seconds(), self._effort.video_seconds

    def _spent(self) -> tuple[float, float, float]:
        (now, used, decided), (began, before, first) = self._ended or self._reading(), self._began
        return now - began, used - before, decided - first
