"""What of a live source was seen without a gap: its frames, cut where the next one is too far away; and the gaps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from lstr.extractors.video.frames import CHUNK, FPS, SourceFrame, n_frames_until

GAP_SECONDS = 2
RATES = (Fraction(1, 10), 240)  # frames per second that a source may say it has
SLOW_STEPS = 4  # of a source with less than two frames per second
SILENCE = 10.0  # seconds without a frame after which another connection is tried


@dataclass(frozen=True)
class Gap:
    """Chunks from `first` to before `end` that are not decided: `dropped`, or `unseen`: they never came."""

    first: int
    end: int
    reason: str


def joined(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps in order, neighbours of one reason as one."""
    found: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.first):
        if found and found[-1].end == gap.first and found[-1].reason == gap.reason:
            gap = replace(gap, first=found.pop().first)
        found.append(gap)
    return found


def stretches(
    frames: Iterator[SourceFrame], step: Fraction | None = None
) -> Iterator[tuple[int, Iterator[SourceFrame]]]:
    """Frames cut where the next one is too far away to have been seen until then: (first whole chunk, frames) each.

    `step` is that of a frame before. Each stretch must be taken to its end before the next one.
    """
    newest = step or Fraction(0)
    ahead = next(frames, None)

    def stretch() -> Iterator[SourceFrame]:
        nonlocal ahead, newest
        while ahead is not None:
            frame, ahead = ahead, None
            yield frame
            ahead = next(frames, None)
            if ahead is not None:
                allowed = min(max(Fraction(GAP_SECONDS), SLOW_STEPS * newest), Fraction(SLOW_STEPS * SILENCE))
                newest = ahead.time - frame.time
                if newest > allowed:
                    return

    while ahead is not None:
        yield -(-n_frames_until(ahead.time) // CHUNK), stretch()


def counted_on(before: Fraction, duration: Fraction, silence: float) -> Fraction:
    """The time of a frame that follows one at `before` by as long as frames last, or after a silence, in seconds."""
    slowest, fastest = RATES
    step = duration if 1 / Fraction(fastest) <= duration <= 1 / slowest else Fraction(1, FPS)
    return before + (Fraction(silence).limit_denominator(1000) if silence > GAP_SECONDS else step)
