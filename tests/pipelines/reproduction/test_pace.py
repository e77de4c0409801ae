"""What a training takes by a few steps, and what is left of it."""

import pytest

from lstr.pipelines.reproduction import pace
from lstr.pipelines.reproduction.pace import Pace, TimeLeft


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by what work says that it takes."""
    now = [0.0]
    monkeypatch.setattr(pace, "perf_counter", lambda: now[0])

    def work(fixed: float, each: float):
        def take(n: int) -> None:
            now[0] += fixed + each * n

        return take

    return work


def test_what_every_step_has_is_told_from_what_a_window_adds(clock):
    """The optimiser of a large model takes seconds whatever the batch is; taken 16 times, a plan was far too long."""
    assert pace._extrapolated(clock(3.0, 0.1), 1, 16) == (pytest.approx(4.6), 2)
    assert pace._extrapolated(clock(0.0, 5.0), 1, 32) == (pytest.approx(160.0), 2)
    assert pace._extrapolated(clock(0.01, 0.001), 1, 16) == (pytest.approx(0.026), 16), "all of it, where that is short"
    assert pace._extrapolated(clock(0.0, 0.3), 8, 512)[0] == pytest.approx(153.6)


def test_what_is_left_goes_by_what_is_seen(clock):
    left = TimeLeft(Pace(step=1.0, chunk=0.1, windows=1, whole=True), 100, 50)
    assert left.seconds == 105.0
    left.count("steps", 10, 4.0)
    assert left.seconds == 95.0, "too short to say"
    left.count("steps", 10, 40.0)
    assert left.seconds == pytest.approx(80 * 44 / 20 + 5)
    left.skip("steps", 80)
    left.skip("chunks", 100)
    assert left.seconds == 0
