"""What is measured for a plan is how fast steps are, not how slowly they begin."""

from itertools import chain, repeat
from unittest.mock import patch

import pytest

from lstr.pipelines.learning.pace import fastest


@pytest.mark.parametrize(
    ("steps", "expected", "taken"),
    [((8.0, 1.6, 1.5), 1.5, 3), ((0.3, 0.1, 0.2), 0.1, 3), ((9.0, 3.0), 3.0, 2), ((30.0,), 30.0, 1)],
    ids=["slow only to begin", "fast", "slow", "too slow to repeat"],
)
def test_a_step_is_as_fast_as_those_that_follow_the_first(steps, expected, taken):
    """Loading and first memory may make the first step five times as long, and a plan by it five times too long."""
    done, ends = [], list(chain(*((0.0, seconds) for seconds in steps)))
    with patch("lstr.pipelines.learning.pace.perf_counter", side_effect=chain(ends, repeat(99.0))):
        assert fastest(lambda: done.append(0), "cuda") == expected
    assert len(done) == taken
