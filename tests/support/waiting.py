"""Tests with time limits, on machines of any speed."""

from collections.abc import Callable
from time import monotonic, sleep


def retry_longer(check: Callable[[float], None], seconds: float) -> None:
    """Call `check(seconds)`; if it fails, retry with 4 and 16 times the seconds, for a busy machine."""
    for factor in (1, 4):
        try:
            return check(factor * seconds)
        except AssertionError:
            continue
    check(16 * seconds)


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until `condition()` is true; fail after `seconds`."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, f"not after {seconds:g} s"
        sleep(0.02)
