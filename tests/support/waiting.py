"""Wait for a condition."""

from collections.abc import Callable
from time import monotonic, sleep

TIMEOUT_S = 400.0  # ends a hanging test, also on a busy machine


def wait_until(condition: Callable[[], object], pause: Callable[[], object] = lambda: sleep(0.02)) -> None:
    """Wait until `condition()` is true; fail after TIMEOUT_S."""
    deadline = monotonic() + TIMEOUT_S
    while not condition():
        assert monotonic() < deadline, f"not after {TIMEOUT_S:g} s"
        pause()
