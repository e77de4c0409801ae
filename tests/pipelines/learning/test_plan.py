"""What a plan says, and what is measured for it."""

from dataclasses import replace
from itertools import chain, repeat
from unittest.mock import patch

import msgspec
import pytest

from lstr.pipelines.learning.plan import (
    CHUNKS,
    FEATURES,
    MODEL,
    NETWORKS,
    PACK,
    LearnPlan,
    PlannedStep,
)
from lstr.pipelines.learning.planner import fastest, models_of

STEPS = tuple(PlannedStep(key, 10.0) for key in (CHUNKS, NETWORKS["flow"], FEATURES, MODEL, PACK))
PLAN = LearnPlan(
    {"training": 4}, {"training": 400}, 2, "measured", STEPS, {"flow": 30}, 512, (("flow",),), "rnn-small", 1
)


def test_a_plan_is_kept_as_json():
    assert msgspec.convert(PLAN.to_dict(), LearnPlan) == PLAN
    assert PLAN.progress(CHUNKS).left == PLAN.seconds == 50 and PLAN.progress(PACK, 1, 1).left == 0
    assert [PLAN.progress(step.key).number for step in STEPS] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "networks"),
        ({"is_one_recording": True}, "second recording"),
        ({"folds": 3}, ""),
        ({"videos": {"training": 4, "validation": 1}}, ""),
        ({"epochs": {"flow": 0}}, ""),
    ],
)
def test_thresholds_on_videos_that_networks_have_seen_are_a_warning(changed, words):
    warning = replace(PLAN, **changed).warning
    assert words in warning and bool(warning) == bool(words)


def test_one_model_sees_all_streams_and_one_motion_alone():
    assert models_of(("grey", "difference")) == (("grey", "difference"), ("difference",))
    assert models_of(("rgb", "flow")) == (("rgb", "flow"), ("flow",))
    assert models_of(("difference", "change")) == (("difference", "change"),)
    assert models_of(("grey",)) == (("grey",),)


@pytest.mark.parametrize(
    ("steps", "expected", "taken"),
    [((8.0, 1.6, 1.5), 1.5, 3), ((0.3, 0.1, 0.2), 0.1, 3), ((9.0, 3.0), 3.0, 2), ((30.0,), 30.0, 1)],
    ids=["slow only to begin", "fast", "slow", "too slow to repeat"],
)
def test_a_step_is_as_fast_as_those_that_follow_the_first(steps, expected, taken):
    """Loading and first memory may make the first step five times as long."""
    done, ends = [], list(chain(*((0.0, seconds) for seconds in steps)))
    with patch("lstr.pipelines.learning.planner.perf_counter", side_effect=chain(ends, repeat(99.0))):
        assert fastest(lambda: done.append(0), "cuda") == expected
    assert len(done) == taken
