"""Rule and teller are tried on videos that neither was chosen on, and the teller is taken where it is really better."""

from dataclasses import replace

import numpy as np
import pytest

from lstr.checkpoints import checkpoint
from lstr.labels.segment import Segment
from lstr.metrics.actions import FOUND_IOU, measure_events
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.evaluation.telling import LEARNT, RULE, choose_told, is_enough
from lstr.pipelines.learning.deciding import decide_seen, decide_unseen
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.progress import Notice
from lstr.pipelines.thresholds import teaching
from lstr.pipelines.thresholds.by_actions import Scored, choose_without_each
from lstr.pipelines.thresholds.teaching import TellerData, typical_lengths
from lstr.rules import thresholds_of
from lstr.teller import LearntRules
from lstr.timeline import Thresholds

CLASSES = ("Background", "hug", "kick")


def video(seed: int, told_apart: bool, n: int = 6) -> Scored:
    """Hugs of 2 s; as many false ones score alike, and where they are told apart a kick nearly does beside them."""
    random = np.random.default_rng(seed)
    scores = random.uniform(0, 0.05, (n * 40, len(CLASSES))).astype(np.float32)
    truth = []
    for start in range(10, n * 40, 40):
        scores[start : start + 8, 1] = random.uniform(0.5, 0.6, 8)
        truth.append(Segment(start / 4, start / 4 + 2, "hug"))
        scores[start + 20 : start + 28, 1] = random.uniform(0.5, 0.6, 8)
        if told_apart:
            scores[start + 20 : start + 28, 2] = random.uniform(0.3, 0.4, 8)
    scores[:, 0] = 1 - scores[:, 1:].sum(axis=1)
    return Scored(scores, truth)


def told_of(told_apart: bool, **options):
    groups = [[video(seed, told_apart)] for seed in range(6)]
    rule, without = choose_without_each(groups, CLASSES)
    return groups, choose_told(groups, CLASSES, rule.by_class, [one.by_class for one in without], **options), rule


@pytest.mark.long
def test_what_a_rule_cannot_tell_apart_is_learnt():
    groups, told, rule = told_of(True)
    assert told.taken == LEARNT and told.interval[0] > 0
    assert told.events[LEARNT]["f1"] > 0.9 > 0.7 > told.events[RULE]["f1"]
    assert told.events[LEARNT]["false_alarms_per_hour"] < told.events[RULE]["false_alarms_per_hour"]
    assert isinstance(told.rules, LearntRules) and dict(told.rules.rules) == rule.by_class
    assert all(isinstance(own, LearntRules) for own in told.without) and len(told.without) == len(groups)
    new = video(99, True)
    found = [detect_events(new.scores, CLASSES, told.rules, new.truth)]
    assert measure_events(found, CLASSES)["together"]["iou"][str(FOUND_IOU)]["f1"] > 0.9, "of a video of its own"
    again = told_of(True)[1]
    assert again.to_dict() == told.to_dict() and np.array_equal(again.rules.teller.hidden, told.rules.teller.hidden)


@pytest.mark.long
@pytest.mark.parametrize("told_apart", [True, False])
def test_what_is_taken_is_never_worse_on_its_own_measure(told_apart):
    groups, told, rule = told_of(told_apart)
    videos = [
        detect_events(one.scores, CLASSES, own, one.truth) for (one,), own in zip(groups, told.without, strict=True)
    ]
    f1 = measure_events(videos, CLASSES)["together"]["iou"][str(FOUND_IOU)]["f1"]
    assert f1 == told.events[told.taken]["f1"] >= told.events[RULE]["f1"]
    if not told_apart:
        assert told.taken == RULE and told.rules == rule.by_class
        assert told_of(False, tell=LEARNT)[1].taken == LEARNT, "asked for"


@pytest.mark.long
def test_learning_puts_it_into_the_checkpoint_and_says_how_good_both_are(small_set, tmp_path):
    path = tmp_path / "a.pt"
    path.write_bytes(small_set.checkpoint.read_bytes())
    loaded = checkpoint.load(path)
    renamed = dict(zip(("hug", "kick"), loaded.classes[1:], strict=False))

    def fitting(one: Scored) -> Scored:
        rows = np.pad(one.scores, ((0, 0), (0, len(loaded.classes) - len(CLASSES))))
        return Scored(rows, [Segment(s.start, s.end, renamed[s.label]) for s in one.truth])

    scored = {f"scene_{seed:02}": fitting(video(seed, True)) for seed in range(9)}
    options = LearnOptions(["videos"], "labels.csv", tmp_path / "m.lstr")
    events, decided = followed(decide_unseen(scored, loaded, options))
    assert events == [decided.told] and decided.told.taken == LEARNT and decided.without.keys() == scored.keys()
    assert isinstance(thresholds_of(checkpoint.load(path)), LearntRules)
    events, decided = followed(decide_unseen(scored, loaded, LearnOptions(["v"], "l.csv", "m.lstr", tell="rule")))
    assert not events and decided.told is None and not isinstance(thresholds_of(checkpoint.load(path)), LearntRules)
    asked = LearnOptions(["v"], "l.csv", "m.lstr", tell="learnt")
    (notice,), _ = followed(decide_unseen(dict([*scored.items()][:2]), loaded, asked))
    assert isinstance(notice, Notice) and "too few videos" in notice.text
    (notice,), _ = followed(decide_seen([*scored.values()], loaded, asked))
    assert "have seen every video" in notice.text


def followed(events):
    """What is yielded, and what is returned."""
    found = []
    while True:
        try:
            found.append(next(events))
        except StopIteration as end:
            return found, end.value


def test_how_much_is_enough():
    groups = [[video(seed, True, n=13)] for seed in range(4)]
    assert is_enough(groups, CLASSES) and not is_enough(groups[:3], CLASSES)
    few = [[Scored(one.scores, one.truth[:2])] for (one,) in groups]
    assert not is_enough(few, CLASSES) and is_enough(few, CLASSES, asked=True)
    assert not is_enough([[Scored(one.scores, [])] for (one,) in groups], CLASSES, asked=True)


def test_a_teller_of_one_set_knows_its_lengths_and_leaves_out_what_is_ambiguous():
    assert typical_lengths([video(0, True).truth], CLASSES) == {"hug": 8.0, "kick": 8.0}
    assert typical_lengths([[]], CLASSES) == {"hug": 4.0, "kick": 4.0}
    plain = video(0, True)
    unclear = Scored(plain.scores, [*plain.truth, Segment(7, 10, "Ambiguous")])
    weights = [TellerData([one], CLASSES).teach([0]).output for one in (plain, unclear)]
    assert not np.array_equal(*weights)


def test_of_many_chunks_a_sample_teaches(monkeypatch):
    monkeypatch.setattr(teaching, "MOST_ROWS", 900)
    many = video(0, True, n=30)
    data = TellerData([many], CLASSES)
    told = data.told(data.teach([0]), 0, many.scores)
    assert told[10:18, 1].mean() > 0.8 > 0.2 > told[30:38, 1].mean()
    assert Thresholds().on > told[:, 2].max()


def test_what_is_told_of_a_video_knows_nothing_of_its_labels():
    """Typical lengths were those of all videos, the one that is left out too."""
    plain, other = video(0, True), video(1, True)
    longer = Scored(other.scores, [replace(s, end=s.end + 1.0) for s in other.truth])
    first, second = (TellerData([plain, one], CLASSES) for one in (other, longer))
    tellers = [data.teach([0]) for data in (first, second)]
    assert tellers[0].lengths == tellers[1].lengths == typical_lengths([plain.truth], CLASSES)
    told = [data.told(teller, 1, other.scores) for data, teller in zip((first, second), tellers, strict=True)]
    assert np.array_equal(*told) and np.array_equal(told[0], tellers[0].told(other.scores, CLASSES)), "as a stream"
    assert first.teach([0, 1]).lengths != second.teach([0, 1]).lengths
