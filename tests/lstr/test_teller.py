"""A teller hears no future, its state is a value, and a timeline decides by it where a model carries one."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from lstr.checkpoints import checkpoint
from lstr.checkpoints.entries import fault_of_told, is_teller
from lstr.errors import CheckpointError
from lstr.pipelines.thresholds.choice import choose_thresholds, write_thresholds
from lstr.rules import thresholds_of
from lstr.teller import INPUTS, LearntRules, Listener, Teller, inputs_of_video
from lstr.timeline import DEFAULT, ThresholdError, Thresholds, Timeline

CLASSES = ("Background", "kick", "punch")
ACTIONS = ("kick", "punch")


def some_teller(seed: int = 0) -> Teller:
    random = np.random.default_rng(seed)
    return Teller(
        {label: 8.0 for label in ACTIONS}, random.normal(0, 0.3, (4, len(INPUTS) + 1)), random.normal(0, 1, 5)
    )


def of_mean() -> Teller:
    """It says how high the mean of the last second is: above a half where it is."""
    hidden = np.zeros((1, len(INPUTS) + 1))
    hidden[0, INPUTS.index("mean of 4")] = 1.0
    return Teller({label: 8.0 for label in ACTIONS}, hidden, np.array([3.0, 0.0]))


def scores_of(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet((0.5, 0.3, 0.3), n).astype(np.float32)


def push_all(timeline: Timeline, scores, first: int = 0) -> list:
    return [e for k, row in enumerate(scores) for e in timeline.push((first + k + 1) / 4, row)]


def test_a_stream_hears_what_a_video_has_and_nothing_of_the_future():
    teller, scores = some_teller(), scores_of(80)
    listener = Listener(teller, CLASSES)
    streamed = np.stack([listener.push(row) for row in scores])
    assert np.array_equal(streamed.astype(np.float32), teller.told(scores, CLASSES))
    assert np.array_equal(streamed[:, 0].astype(np.float32), scores[:, 0]), "background is not told"
    assert np.ptp(streamed[:, 1]) > 0.1
    other = scores.copy()
    other[40:] = scores_of(40, 1)
    assert np.array_equal(teller.told(other, CLASSES)[:40], teller.told(scores, CLASSES)[:40])


def test_what_it_sees():
    scores = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.1, 0.6, 0.3], [0.8, 0.1, 0.1]], np.float32)
    rows = inputs_of_video(scores, CLASSES, {"kick": 4.0, "punch": 4.0})[:, 0]
    seen = dict(zip(INPUTS, rows.T, strict=True))
    assert seen["is a candidate"].tolist() == [0, 1, 1, 0] and seen["since a candidate"].tolist() == [0, 0, 0, 1]
    assert seen["candidate's share of a typical length"].tolist() == [0, 0.25, 0.5, 0]
    assert np.allclose(seen["candidate's mean"], [0, 0.7, 0.65, 0], atol=1e-6)
    assert np.allclose(seen["candidate's highest"], [0, 0.7, 0.7, 0], atol=1e-6)
    assert np.allclose(seen["rise"], [0.1, 0.6, 0.2, 0.1 - (0.1 + 0.7 + 0.6) / 3], atol=1e-6)
    assert np.allclose(seen["rival"][1], np.log(0.1 / 0.9)) and np.allclose(seen["mean of 2"][2], np.log(0.65 / 0.35))


def test_what_is_remembered_is_a_value_that_goes_on():
    rules = LearntRules(
        dict.fromkeys(CLASSES, DEFAULT), some_teller(), {label: Thresholds(0.4, 0.3) for label in ACTIONS}
    )
    scores = scores_of(60, 2)
    whole, first = Timeline(CLASSES, rules), Timeline(CLASSES, rules)
    expected, begun = push_all(whole, scores), push_all(first, scores[:33])
    assert expected and begun + push_all(pickle.loads(pickle.dumps(first)), scores[33:], 33) == expected
    listener, again = Listener(some_teller(), CLASSES), Listener(some_teller(), CLASSES)
    for row in scores[:9]:
        listener.push(row)
    again.heard = listener.heard
    assert np.array_equal(listener.push(scores[9]), again.push(scores[9]))
    first.finish(33 / 4)
    assert push_all(first, scores) == push_all(Timeline(CLASSES, rules), scores), "the next source begins anew"


def test_a_timeline_decides_by_the_probabilities_and_shows_the_rules():
    spike = np.array([[1 - s, s, 0] for s in (0, 0, 0.9, 0, 0, 0.9, 0.9, 0.9, 0.9, 0, 0, 0, 0)])
    by_rule = push_all(Timeline(CLASSES, DEFAULT), spike)
    rules = LearntRules(dict.fromkeys(ACTIONS, DEFAULT), of_mean(), dict.fromkeys(ACTIONS, DEFAULT))
    timeline = Timeline(CLASSES, rules)
    told = push_all(timeline, spike)
    assert [e.time for e in by_rule if e.event == "started"] == [0.75, 1.5]
    assert [e.time for e in told if e.event == "started"] == [2.0], "a spike is not told"
    assert timeline.describe() == {label: DEFAULT.to_dict() for label in ACTIONS}
    ruled = rules.ruled({"kick": Thresholds(0.8, 0.5)})
    assert [e.time for e in push_all(Timeline(CLASSES, ruled), spike) if e.event == "started"] == [0.75, 1.5]
    assert ruled["kick"].on == 0.8 and ruled["punch"] == DEFAULT and len(ruled) == 2


def test_where_chunks_were_lost_it_begins_anew():
    rules = LearntRules(dict.fromkeys(ACTIONS, DEFAULT), of_mean(), dict.fromkeys(ACTIONS, DEFAULT))
    high = np.array([0.1, 0.9, 0.0])
    timeline = Timeline(CLASSES, rules)
    for k in range(4):
        timeline.push((k + 1) / 4, np.array([1.0, 0, 0]))
    assert timeline.push(1.25, high) == [] and [e.event for e in timeline.push(2.5, high)] == ["started"]


def test_a_checkpoint_carries_it_beside_its_thresholds(small_set, tmp_path):
    path = tmp_path / "a.pt"
    path.write_bytes(small_set.checkpoint.read_bytes())
    classes = checkpoint.load(path).classes
    teller = Teller({label: 8.0 for label in classes[1:]}, some_teller().hidden, some_teller().output)
    own = {label: Thresholds(0.6, 0.3) for label in classes[1:]}
    write_thresholds(checkpoint.load(path), LearntRules(dict.fromkeys(classes[1:], DEFAULT), teller, own))
    loaded = checkpoint.load(path)
    rules = thresholds_of(loaded)
    assert isinstance(rules, LearntRules) and dict(rules.thresholds) == own and rules[classes[1]] == DEFAULT
    assert np.array_equal(rules.teller.hidden, teller.hidden) and np.array_equal(rules.teller.output, teller.output)
    assert choose_thresholds(loaded, {"tell": "rule"}) == {label: DEFAULT for label in classes}
    by_hand = choose_thresholds(loaded, {"on": 0.7, "tell": None})
    assert not isinstance(by_hand, LearntRules) and by_hand[classes[1]].on == 0.7, "thresholds are the rule's"
    with pytest.raises(ThresholdError, match="not of what was learnt"):
        choose_thresholds(loaded, {"on": 0.7, "tell": "learnt"})
    for values in ({"on": 0.7}, Thresholds(0.7)):
        of_one = choose_thresholds(loaded, {classes[1]: values, classes[2]: {"on": None}})
        assert isinstance(of_one, LearntRules) and of_one[classes[1]].on == 0.7, "those of one class alone"
        assert dict(of_one.thresholds) == {label: own[label] for label in classes[2:]}
    with pytest.raises(CheckpointError, match="is what the Hub has, and stays as it is"):
        write_thresholds(replace(loaded, hub={"commit": "a" * 40}), {label: DEFAULT for label in classes[1:]})
    write_thresholds(loaded, {label: DEFAULT for label in classes[1:]})
    assert not isinstance(thresholds_of(checkpoint.load(path)), LearntRules), "it goes with what it was chosen beside"
    with pytest.raises(ThresholdError, match="no learnt way"):
        thresholds_of(checkpoint.load(path), {"tell": "learnt"})
    with pytest.raises(ThresholdError, match="tell is 'both'"):
        thresholds_of(checkpoint.load(path), {"tell": "both"})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"hidden": [[0.0] * 3]}, "inputs that this version has"),
        ({"output": [0.0]}, "hidden units"),
        ({"lengths": {"kick": 8.0, "punch": 8.0, "bite": 1.0}}, "bite, which is none of its classes"),
        ({"thresholds": {"kick": {"on": 0.2, "off": 0.7}}}, "begin at 0.2 and end below 0.7"),
        ({"thresholds": {"bite": {}}}, "does not tell of it"),
    ],
)
def test_one_that_is_damaged_is_refused(change, fault):
    stored = LearntRules({}, of_mean(), dict.fromkeys(ACTIONS, DEFAULT)).stored()
    assert is_teller(json.loads(json.dumps(stored))) and not fault_of_told(CLASSES, {"teller": stored})
    changed = stored | change
    if "hidden" in change:
        changed["output"] = [0.0, 0.0]
    assert is_teller(changed) and fault in fault_of_told(CLASSES, {"teller": changed})
    assert not is_teller(stored | {"hidden": "none"}) and not is_teller({**stored, "more": 1})
