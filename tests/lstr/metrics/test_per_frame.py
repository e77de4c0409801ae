"""Average precision by chunk, against published numbers and scikit-learn; which chunks published code scores."""

import json

import numpy as np
import pytest

from lstr.errors import LstrError
from lstr.kinds import KINDS
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.metrics.per_frame import (
    Ranking,
    average_precision,
    chance,
    per_frame,
    per_stage,
    published_per_stage,
    time_prior,
)
from lstr.metrics.scoring_rule import EVERY_CHUNK, ScoringRule
from tests.support.published_sets import read_set

CLASSES = ("Background", "A", "B", "Ambiguous")


@pytest.fixture(scope="module")
def published(shared):
    """What the published evaluation gives, its scores and targets, and targets with ambiguous chunks."""
    folder = shared / "data" / "golden"
    with np.load(folder / "metrics_small.npz") as arrays:
        expected = json.loads((folder / "metrics_small.json").read_text())
        return expected, arrays["scores"], arrays["target"], arrays["target_ambiguous"]


def check(result, key, expected):
    assert result[f"m{key}"] == pytest.approx(expected["mean"], abs=1e-6)
    ours = {label: entry[key] for label, entry in result["per_class"].items()}
    assert ours == pytest.approx(expected["per_class"], abs=1e-6)


def test_metrics_are_the_published_ones(published):
    expected, scores, targets, ambiguous = published
    assert tuple(expected["class_names"]) == THUMOS_CLASSES
    result = per_frame(scores, targets, THUMOS_CLASSES)
    check(result, "AP", expected["mAP"])
    check(result, "cAP", expected["mcAP"])
    for row in published_per_stage(scores, targets, THUMOS_CLASSES):
        ours = {label: entry["cAP"] for label, entry in row["per_class"].items()}
        assert ours == pytest.approx(expected["stages_cAP"][row["stage"]], abs=1e-6)
    result = per_frame(scores, ambiguous, THUMOS_CLASSES)
    check(result, "AP", expected["ambiguous"]["AP"])
    check(result, "cAP", expected["ambiguous"]["cAP"])
    with_all = per_frame(scores, ambiguous, THUMOS_CLASSES, ignore=None)
    check(with_all, "cAP", expected["ambiguous"]["cAP_without_rule"])
    assert with_all["mcAP"] - result["mcAP"] > 1e-4, "the two would not be told apart"


def test_absent_classes_are_in_no_mean_and_an_all_positive_one_is_perfect():
    scores = np.random.default_rng(2).random((6, 4))
    targets = np.zeros((6, 4), dtype=int)
    targets[:, 1] = 1
    assert per_frame(scores, targets, CLASSES)["per_class"] == {"A": {"AP": 1.0, "cAP": 1.0, "positives": 6}}
    nothing = per_frame(np.zeros((3, 4)), np.eye(4)[[0, 0, 3]], CLASSES)
    assert np.isnan(nothing["mAP"]) and np.isnan(nothing["mcAP"]) and nothing["per_class"] == {}


@pytest.mark.parametrize("steps", [3, 1000], ids=["ties", "no ties"])
def test_a_ranking_gives_what_scikit_learn_gives_of_every_resample(steps):
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(steps)
    scores, on = rng.integers(0, steps, 300) / steps, rng.random(300) < 0.1
    ranking = Ranking(scores, on)
    assert ranking.average_precision() == pytest.approx(average_precision(scores, on), abs=1e-12)
    for _ in range(5):
        times = rng.integers(0, 4, 300)
        again = np.repeat(np.arange(300), times)
        weights = times[ranking.order]
        assert ranking.average_precision(weights) == pytest.approx(average_precision(scores[again], on[again]))
        w = (~on[again]).sum() / on[again].sum()
        expected = average_precision_score(on[again], scores[again], sample_weight=np.where(on[again], 1, 1 / w))
        assert ranking.average_precision(weights, calibrated=True) == pytest.approx(expected)
    assert np.isnan(ranking.average_precision((~on[ranking.order]).astype(int)))


@pytest.mark.parametrize("scores", [np.zeros((3, 4)), np.zeros((2, 5)), np.zeros((2, 4, 1)), np.full((2, 4), np.nan)])
def test_other_shapes_and_nan_are_refused(scores):
    with pytest.raises(LstrError):
        per_frame(scores, np.zeros((2, 4)), CLASSES)


def test_chance_is_the_share_of_each_class():
    videos = [np.array([[1, 0], [0, 1]]), np.array([[1, 0], [1, 0]])]
    assert chance(videos, 3).tolist() == [[0.75, 0.25]] * 3
    with pytest.raises(LstrError):
        chance([], 3)


def test_time_prior_follows_time_and_backs_off():
    early = np.zeros((100, 2))
    early[:50, 1] = early[50:, 0] = 1
    scores = time_prior([early] * 20, 300)
    assert scores.shape == (300, 2)
    assert scores[20, 1] > 0.9 and scores[80, 1] < 0.1
    np.testing.assert_allclose(scores[150:], 0.5)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-6)
    assert per_frame(scores[:100], early, ("Background", "A"))["mAP"] > 0.9
    assert time_prior([early], 0).shape == (0, 2)


def targets_of(*on, ambiguous=()):
    made = np.zeros((len(on), 4), dtype=int)
    made[:, 1] = on
    made[list(ambiguous), 3] = 1
    made[:, 0] = ~made.any(axis=1)
    return made


def supports(rows):
    return [row["per_class"]["A"]["positives"] for row in rows]


def test_each_chunk_of_an_action_is_in_one_tenth():
    on = targets_of(*[0] * 5, *[1] * 20, *[0] * 5, *[1] * 3)
    rows = per_stage([np.random.default_rng(0).random((33, 4))], [on], CLASSES)
    assert [row["stage"] for row in rows][::9] == ["0-10%", "90-100%"]
    assert supports(rows) == [2, 3, 2, 2, 2, 3, 2, 2, 3, 2]  # the middles of 3 chunks are at 1/6, 1/2 and 5/6


def test_runs_end_with_their_video():
    """Published, the two actions are one of 20 chunks; each is of 10."""
    first, second = targets_of(*[0] * 10, *[1] * 10), targets_of(*[1] * 10, *[0] * 10)
    scores = np.random.default_rng(0).random((40, 4))
    rows = per_stage([scores[:20], scores[20:]], [first, second], CLASSES)
    assert supports(rows) == [2] * 10
    joined = published_per_stage(scores, np.concatenate([first, second]), CLASSES)
    assert supports(joined) == [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]  # the last is lost


def test_ambiguous_chunks_are_left_out_and_published_runs_join_across_them():
    on = targets_of(*[1] * 10, *[0] * 5, *[1] * 10, *[0] * 10, ambiguous=range(10, 15))
    scores = np.random.default_rng(0).random((35, 4))
    rows = published_per_stage(scores, on, CLASSES)
    keep = np.r_[0:10, 15:35]
    assert rows == published_per_stage(scores[keep], on[keep], CLASSES)
    assert supports(rows) == [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    assert supports(per_stage([scores], [on], CLASSES)) == [2] * 10


NAMES = ("Background", "run", "jump", "Ambiguous")
NOTHING, RUN, JUMP, AMBIGUOUS, BOTH = np.eye(4)[[0]], np.eye(4)[[1]], np.eye(4)[[2]], np.eye(4)[[3]], [[0, 1, 0, 1]]
VIDEO = np.concatenate([AMBIGUOUS, RUN, NOTHING, BOTH, JUMP, AMBIGUOUS, RUN, NOTHING])
UNKNOWN = {"rnn", "lfb", "idn", "efc", "ed", "red", "ttm", "lap-like", "tfn-like", "conv-deconv"}
"""Kinds of which no code says which chunks are scored."""


def chunks_of(kind: str, work_length: int = 3, n_ahead: int = 0, video=VIDEO) -> list[int]:
    rule = KINDS[kind].model.scoring_rule
    config = type("Config", (), {"work_length": work_length, "n_ahead": n_ahead})
    return np.flatnonzero(rule.of(config).chosen(video, NAMES)).tolist()


@pytest.mark.parametrize(
    ("kinds", "chosen", "of_longer_memory"),
    [
        (("lstr", "testra", "mat", "cmert"), [0, 1, 2, 3, 4, 5, 6, 7], []),  # ambiguous ones are left to the metric
        (("miniroad", "trn", "fats", "woad"), [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7]),
        (("gatehub",), [1, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]),  # 2 and 7 are two chunks after an ambiguous one
        (("oadtr", "colar"), [2, 3, 4, 6], []),  # 3 has an action beside the ambiguous label
    ],
)
def test_each_kind_has_its_chunks(kinds, chosen, of_longer_memory):
    for kind in kinds:
        assert chunks_of(kind) == chosen
        assert chunks_of(kind, work_length=9) == of_longer_memory


def test_what_a_model_foresees_has_to_be_in_the_video():
    assert (chunks_of("oadtr", n_ahead=2), chunks_of("oadtr", n_ahead=6)) == ([2, 3, 4], [])


def test_every_kind_of_the_table_has_a_rule_or_is_known_to_have_none():
    assert {kind for kind in KINDS if KINDS[kind].model.scoring_rule is None} == UNKNOWN


def test_an_ambiguous_chunk_that_stays_counts_against_every_class():
    """By hand: `run` scores .6, .5 and .4 without the class Ambiguous, the middle one at an ambiguous chunk."""
    targets = np.concatenate([RUN, AMBIGUOUS, RUN])
    scores = np.array([[0.2, 0.3, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0], [0.6, 0.4, 0.0, 0.0]])
    rule = ScoringRule("FATS", "every", "negative")
    assert rule.scored(scores, NAMES)[:, 1] == pytest.approx([0.6, 0.5, 0.4])
    assert per_frame(rule.scored(scores, NAMES), rule.labelled(targets, NAMES), NAMES)["mAP"] == pytest.approx(5 / 6)
    assert per_frame(scores, targets, NAMES)["mAP"] == 1  # with the class, and the chunk in no metric
    assert EVERY_CHUNK.scored(scores, NAMES) is scores and EVERY_CHUNK.labelled(targets, NAMES) is targets


def published_mean(scores, positive) -> float:
    """Mean over classes of the mean precision at the ranks of a class's chunks, as that code counts it."""
    means = []
    for column in range(1, scores.shape[1]):
        ranked = positive[np.argsort(-scores[:, column], kind="stable"), column]
        if ranked.any():
            means.append(np.mean([ranked[: place + 1].mean() for place in np.flatnonzero(ranked)]))
    return float(np.mean(means))


@pytest.mark.parametrize("kind", ["gatehub", "oadtr", "colar"])
def test_published_scores_have_the_mean_that_their_code_would_print(shared, kind):
    about, arrays, _ = read_set(shared, f"{kind}_small")
    targets, theirs = arrays["target"], arrays["published_scores"]  # (L, 22), (L, 21)
    names = ("Background", *map(str, range(1, 21)), "Ambiguous")
    if kind == "gatehub":
        work, n_ahead, expected = about["config"]["present_frames"], 0, arrays["evaluated"]
    else:
        work = about["config"]["enc_layers"] if kind == "oadtr" else about["window"]
        n_ahead = about["config"]["query_num"] if kind == "oadtr" else 0
        # windows from 0 to L less what is ahead, exclusive at both ends, whose newest chunk is not ambiguous alone
        ends = np.arange(work, len(targets) - n_ahead)
        expected = np.isin(np.arange(len(targets)), ends[targets[ends - 1].argmax(axis=1) != 21] - 1)
        assert not (expected & ~arrays["has_output"]).any()
    rule = KINDS[kind].model.scoring_rule.of(type("Config", (), {"work_length": work, "n_ahead": n_ahead}))
    keep = rule.chosen(targets, names)
    assert (keep == expected).all() and 0 < keep.sum() < len(keep)
    if kind == "colar":  # of its two branches the file has no score of all classes together
        scores = np.pad(theirs, ((0, 0), (0, 1)))
    else:
        odds = np.exp(arrays["logits"] - arrays["logits"].max(axis=1, keepdims=True))
        scores = odds / odds.sum(axis=1, keepdims=True)
    ours = per_frame(rule.scored(scores[keep], names), rule.labelled(targets[keep], names), names)["mAP"]
    assert ours == pytest.approx(published_mean(theirs[keep], targets[keep, :21] > 0), abs=1e-6)
    assert ours != pytest.approx(per_frame(scores, targets, names)["mAP"], abs=1e-3), "the two would not be told apart"
