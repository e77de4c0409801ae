"""Tests of what happens after so many seconds, on machines of any speed."""

from collections.abc import Callable
from time import monotonic, sleep


def retry_longer(check: Callable[[float], None], seconds: float) -> None:
    """Call `check` with so many seconds; where it fails, with 4 and 16 times as many.

    A busy machine may need the longest; a defect fails with each.
    """
    for factor in (1, 4):
        try:
            return check(factor * seconds)
        except AssertionError:
            continue
    check(16 * seconds)


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something holds; fails after so many seconds, which a machine that is only slow does not need."""
    deadline = monotonic() + seconds
    while not holds():
        assert monotonic() < deadline, f"not after {seconds:g} s"
        sleep(0.02)
