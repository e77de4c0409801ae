"""Starts are told as early as labels have them."""

import numpy as np

from lstr import checkpoint
from lstr.labels.segment import Segment
from lstr.pipelines.evaluation.chosen_thresholds import backdated, choose_validated_thresholds
from lstr.pipelines.evaluation.thresholds import Scored
from lstr.timeline import DEFAULT, Thresholds, thresholds_of
from tests.support.extraction import returned

CLASSES = ("Background", "hug", "kick")


def scored(n: int, late: float, chunks: int = 400, seed: int = 0) -> Scored:
    """A video in which scores of n hugs rise so many seconds late, give or take a chunk, and kicks are told at once."""
    rng = np.random.default_rng(seed)
    scores, truth = np.full((chunks, 3), 0.1, np.float32), []
    for k in range(n):
        label, start = 1 + k % 2, 10 + k * (chunks - 20) // n
        rise = start + (round(4 * late) + int(rng.integers(-1, 2)) if label == 1 else 0)
        scores[rise : start + 12, label] = 0.9
        truth.append(Segment(start / 4, start / 4 + 3, CLASSES[label], 1.0))
    return Scored(scores, truth)


def test_what_suits_each_action_is_found():
    """Drawn to none where there are few labels; none of what is told at once, or early."""
    rules = {"hug": Thresholds(highest=True), "kick": DEFAULT}
    many = backdated(rules, [scored(20, 1.0), scored(20, 1.0, seed=1)], CLASSES)
    assert many == {"hug": Thresholds(highest=True, backdate=0.75), "kick": DEFAULT}
    assert backdated(rules, [scored(2, 1.0)], CLASSES)["hug"].backdate < many["hug"].backdate
    assert backdated(rules, [scored(20, -1.0)], CLASSES) == rules
    assert backdated(rules, [], CLASSES) == rules
    again = backdated(many, [scored(20, 1.0), scored(20, 1.0, seed=1)], CLASSES)
    assert again == many, "what was there has no part in it"


def test_thresholds_out_of_fold_have_them_and_are_written_into_the_checkpoint(small_set, tmp_path):
    """And into what decides on each video, from the others."""
    path = tmp_path / "a.pt"
    path.write_bytes(small_set.checkpoint.read_bytes())
    loaded = checkpoint.load(path)
    hug, videos = loaded.classes[1], {}
    for seed in range(6):
        one = scored(10, 1.0, 200, seed)
        rows = np.zeros((200, len(loaded.classes)), np.float32)
        rows[:, 1] = one.scores[:, 1]
        hugs = [s for s in one.truth if s.label == "hug"]
        videos[f"v{seed}"] = Scored(rows, [Segment(s.start, s.end, hug, 1.0) for s in hugs])
    _, without = returned(choose_validated_thresholds(videos, [[i] for i in videos], loaded))
    backdates = {i: rules[hug].backdate for i, rules in without.items()}
    assert backdates.keys() == videos.keys() and 0.5 <= min(backdates.values()) <= max(backdates.values()) <= 1.0
    assert 0.5 <= thresholds_of(checkpoint.load(path))[hug].backdate <= 1.0
