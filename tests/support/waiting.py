"""Wait for a condition."""

from collections.abc import Callable
from time import monotonic, sleep


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until `condition()` is true; fail after `seconds`."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, f"not after {seconds:g} s"
        sleep(0.02)
