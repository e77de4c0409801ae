"""Which chunks published code scores, by hand and against its own arrays."""

import numpy as np
import pytest

from lstr.kinds import KINDS
from lstr.metrics.per_frame import per_frame
from lstr.metrics.scoring_rule import EVERY_CHUNK, ScoringRule
from tests.support.published_sets import read_set

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
    assert chunks_of("oadtr", n_ahead=2) == [2, 3, 4]
    assert chunks_of("oadtr", n_ahead=6) == []


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
