"""The plan keeps to a time: fewer epochs first, then fewer images, and no promise that cannot be kept."""

import math
from dataclasses import replace

import pytest

from lstr.errors import ConfigError, TooShortError
from lstr.pipelines.learning.plan import (
    CHUNKS,
    FEATURES,
    FEWEST_EPOCHS,
    NETWORKS,
    PACK,
    SLOWER,
    Costs,
    LearnPlan,
    fit_epochs,
    make_steps,
    passes_of,
)

COSTS = Costs(chunk=0.01, row=0.003, image={"flow": 0.01}, model=2.0, crossing=9.0)
OF_BOTH = {"training": 400, "testing": 100}


def planned(budget: float | None, epochs: int = 30, draws: int = 512, folds: int = 0) -> LearnPlan:
    passes = passes_of(folds, folds, seen=True)
    others = sum(step.seconds for step in make_steps(OF_BOTH, COSTS, {"flow": epochs}, 0, 4, folds, passes))
    fitted, images = fit_epochs(budget, others, COSTS, {"flow": epochs}, draws, folds)
    steps = make_steps(OF_BOTH, COSTS, fitted, images, 4, folds, passes)
    return LearnPlan({"training": 4}, OF_BOTH, 2, "measured", steps, fitted, images, 10**6, 2, budget)


def test_networks_that_stay_as_they_begin_take_no_time():
    assert fit_epochs(60.0, 10.0, COSTS, {"flow": 0}, 512) == ({"flow": 0}, 512)
    with pytest.raises(TooShortError, match="at least"):
        fit_epochs(9.0, 10.0, COSTS, {"flow": 0}, 512)


def test_without_a_time_all_epochs_are_trained():
    plan = planned(None)
    assert plan.epochs == {"flow": 30} and plan.draws == 512
    assert plan.doing(CHUNKS).left == pytest.approx(plan.seconds) and plan.doing(PACK, 1, 1).left == 0
    assert LearnPlan.from_dict(plan.to_dict()) == plan
    assert [plan.doing(step.key).number for step in plan.steps] == list(range(1, 8))


def test_only_thresholds_on_videos_that_networks_know_are_doubted():
    plan = planned(None)
    assert "have learnt from" in plan.doubt
    spared = {"training": 4, "validation": 1}
    assert not replace(plan, folds=3).doubt and not replace(plan, videos=spared).doubt
    assert not replace(plan, epochs={"flow": 0}).doubt
    assert "label a second one" in replace(plan, of_one=True).doubt


def test_what_is_tried_and_packed_is_said():
    plan = replace(planned(None), folds=3, candidates=("a",), kinds=("rnn",))
    assert plan.models == "one model sees the features, of kind rnn"
    assert "(a), alone, averaged and by two seeds; an average" in replace(plan, twice=True).models
    assert replace(plan, folds=0, candidates=(), twice=True).models == plan.models
    both = replace(plan, candidates=("a", "b"), kinds=("rnn", "trn"))
    assert both.models.startswith("models of kinds rnn and trn are tried (a, b), alone, averaged; ")
    assert LearnPlan.from_dict(both.to_dict()) == both


def test_networks_that_stay_as_they_begin_are_no_step():
    of_two = replace(COSTS, image={"difference": 0.01, "change": 0.01})
    keys = [step.key for step in make_steps(OF_BOTH, of_two, {"difference": 2, "change": 0}, 64, 1)]
    assert NETWORKS["difference"] in keys and NETWORKS["change"] not in keys


@pytest.mark.parametrize("budget", [300, 200, 150, 100, 80])
def test_a_plan_keeps_to_its_time(budget):
    plan = planned(budget)
    assert SLOWER * plan.seconds <= budget + 3 * SLOWER
    assert plan.epochs["flow"] >= FEWEST_EPOCHS


def test_less_time_is_fewer_epochs_and_then_fewer_images():
    plans = [planned(budget) for budget in (400, 200, 90, 70)]
    images = [plan.epochs["flow"] * plan.draws for plan in plans]
    assert images == sorted(images, reverse=True)
    assert plans[1].epochs["flow"] < 30 and plans[1].draws == 512
    assert plans[-1].epochs["flow"] == FEWEST_EPOCHS and plans[-1].draws < 512


def test_a_time_that_cannot_be_kept_is_refused_with_the_least():
    with pytest.raises(ConfigError, match="at least") as caught:
        planned(10)
    minutes = int(caught.value.hint.split("--time ")[1].split("m")[0])
    planned(60 * minutes)


def test_a_setting_of_few_epochs_is_no_time_too_short():
    assert planned(1000, epochs=2).epochs == {"flow": 2}


def test_features_are_computed_as_often_as_there_are_networks_to_see_the_videos():
    """Of three folds each network without one sees two thirds; all are aligned only where every fold has a network."""
    assert passes_of(0, 0, seen=False) == 1
    assert passes_of(3, 1, seen=True) == pytest.approx(1 + 1 + 2 / 3)
    assert passes_of(3, 3, seen=True) == pytest.approx(1 + 2 * (1 + 2))
    assert passes_of(3, 3, seen=False) == pytest.approx(1 + 1 + 2)
    fixed = replace(COSTS, fixed=0.5)
    with_it, without = ({s.key: s.seconds for s in make_steps(OF_BOTH, c, {"flow": 1}, 64, 1)} for c in (fixed, COSTS))
    changed = {key for key in with_it if with_it[key] != without[key]}
    assert changed == {FEATURES} and with_it[FEATURES] - without[FEATURES] == pytest.approx(0.5 * sum(OF_BOTH.values()))


def test_folds_are_trained_within_the_time():
    """Four networks share what one had; a time too short for them is refused by itself."""
    without, whole = planned(None), planned(None, folds=3)
    network = [next(step for step in plan.steps if step.key == NETWORKS["flow"]) for plan in (without, whole)]
    assert network[1].seconds == pytest.approx(4 * network[0].seconds)
    for budget in (600, 300, 200):
        plan = planned(budget, folds=3)
        assert SLOWER * plan.seconds <= budget + 3 * 4 * SLOWER and plan.epochs["flow"] < 30
    with pytest.raises(TooShortError, match="by 3 folds takes"):
        planned(80, folds=3)
    assert planned(80)


def test_folds_that_would_leave_networks_half_trained_are_refused():
    others = sum(step.seconds for step in make_steps(OF_BOTH, COSTS, {"flow": 30}, 0, 4, 3))
    whole = 4 * 30 * 512 * COSTS.image["flow"]
    enough = SLOWER * (others + whole * 2 / 3)
    assert fit_epochs(enough + 1, others, COSTS, {"flow": 30}, 512, 3, 2 / 3)[0]["flow"] >= 20
    with pytest.raises(TooShortError, match=f"by 3 folds takes {math.ceil(enough)} s"):
        fit_epochs(enough - 1, others, COSTS, {"flow": 30}, 512, 3, 2 / 3)
