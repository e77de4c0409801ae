"""Average precision per frame against published numbers and scikit-learn; stages; chunks that published code scores."""

import json

import numpy as np
import pytest

from lstr.errors import LstrError
from lstr.kinds import KINDS
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.metrics.per_frame import average_precision, per_frame, per_stage, published_per_stage, rank_chunks, time_prior
from lstr.metrics.scoring_rule import EVERY_CHUNK, ScoringRule
from tests.support.drawn import targets_of
from tests.support.published_sets import read_set

CLASSES = ("Background", "A", "B", "Ambiguous")


def test_metrics_equal_the_published_ones(shared):
    folder = shared / "data" / "golden"
    expected = json.loads((folder / "metrics_small.json").read_text())
    with np.load(folder / "metrics_small.npz") as file:
        scores, targets, ambiguous = file["scores"], file["target"], file["target_ambiguous"]
    result, filtered = (per_frame(scores, on, THUMOS_CLASSES) for on in (targets, ambiguous))
    complete = per_frame(scores[:, :-1], ambiguous[:, :-1], THUMOS_CLASSES[:-1])  # without Ambiguous
    for figures, name, published in (
        (result, "AP", expected["mAP"]),
        (result, "cAP", expected["mcAP"]),
        (filtered, "AP", expected["ambiguous"]["AP"]),
        (filtered, "cAP", expected["ambiguous"]["cAP"]),
        (complete, "cAP", expected["ambiguous"]["cAP_without_rule"]),
    ):
        assert figures[f"m{name}"] == pytest.approx(published["mean"], abs=1e-6)
        ours = {label: entry[name] for label, entry in figures["per_class"].items()}
        assert ours == pytest.approx(published["per_class"], abs=1e-6)
    assert complete["mcAP"] - filtered["mcAP"] > 1e-4, "the data does not distinguish the two"
    for row in published_per_stage(scores, targets, THUMOS_CLASSES):
        ours = {label: entry["cAP"] for label, entry in row["per_class"].items()}
        assert ours == pytest.approx(expected["stages_cAP"][row["stage"]], abs=1e-6)


def test_absent_classes_are_in_no_mean_and_a_class_of_every_chunk_is_perfect():
    scores = np.random.default_rng(2).random((6, 4))
    targets = np.zeros((6, 4), dtype=int)
    targets[:, 1] = 1
    assert per_frame(scores, targets, CLASSES)["per_class"] == {"A": {"AP": 1.0, "cAP": 1.0, "positives": 6}}
    nothing = per_frame(np.zeros((3, 4)), targets_of("..?"), CLASSES)
    assert np.isnan(nothing["mAP"]) and np.isnan(nothing["mcAP"]) and nothing["per_class"] == {}


@pytest.mark.parametrize("steps", [3, 1000], ids=["ties", "no ties"])
def test_a_ranking_equals_scikit_learn_on_every_resample(steps):
    from sklearn.metrics import average_precision_score  # takes a second, and each process of a test run collects all

    rng = np.random.default_rng(steps)
    scores, on = rng.integers(0, steps, 300) / steps, rng.random(300) < 0.1
    assert average_precision(scores, on) == pytest.approx(average_precision_score(on, scores), abs=1e-12)
    ranked = rank_chunks(scores, on, None, np.arange(300), 300)
    draws = rng.integers(0, 4, (5, 300))
    plain, calibrated = (ranked.average_precisions(draws, calibrated) for calibrated in (False, True))
    for times, ap, cap in zip(draws, plain, calibrated, strict=True):
        rows = np.repeat(np.arange(300), times)
        scores_drawn, on_drawn = scores[rows], on[rows]
        assert ap == pytest.approx(average_precision_score(on_drawn, scores_drawn))
        weights = np.where(on_drawn, 1, on_drawn.sum() / (~on_drawn).sum())
        assert cap == pytest.approx(average_precision_score(on_drawn, scores_drawn, sample_weight=weights))
    assert np.isnan(ranked.average_precisions((~on).astype(int)[None])).all()


@pytest.mark.parametrize("scores", [np.zeros((3, 4)), np.zeros((2, 5)), np.zeros((2, 4, 1)), np.full((2, 4), np.nan)])
def test_scores_of_another_shape_and_nan_are_refused(scores):
    with pytest.raises(LstrError):
        per_frame(scores, np.zeros((2, 4)), CLASSES)


def test_the_time_prior_follows_time_and_backs_off_to_chance():
    early = np.zeros((100, 2))
    early[:25, 1] = early[25:, 0] = 1
    scores = time_prior([early] * 20, 300)
    assert scores.shape == (300, 2) and time_prior([early], 0).shape == (0, 2)
    assert scores[10, 1] > 0.9 and scores[80, 1] < 0.1
    assert scores[150:].tolist() == [[0.75, 0.25]] * 150, "the share of each class"
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-6)
    assert per_frame(scores[:100], early, ("Background", "A"))["mAP"] > 0.9
    with pytest.raises(LstrError):
        time_prior([], 3)


def positives(rows):
    return [row["per_class"]["A"]["positives"] for row in rows]


def scores_like(targets):
    return np.random.default_rng(0).random(targets.shape)


def test_each_chunk_of_an_action_is_in_a_single_stage():
    on = targets_of("." * 5 + "A" * 20 + "." * 5 + "AAA")
    rows = per_stage([scores_like(on)], [on], CLASSES)
    assert [row["stage"] for row in rows][::9] == ["0-10%", "90-100%"]
    assert positives(rows) == [2, 3, 2, 2, 2, 3, 2, 2, 3, 2]  # the middles of 3 chunks are at 1/6, 1/2 and 5/6


@pytest.mark.parametrize("separator", ["", "?????"], ids=["a new video", "ambiguous chunks"])
def test_published_stages_join_actions_that_ours_separate(separator):
    """Published, the two actions are one of 20 chunks, without the last chunk; ours are of 10."""
    on = targets_of("." * 10 + "A" * 10 + separator + "A" * 10 + "." * 10)
    scores, cut = scores_like(on), [] if separator else [20]
    assert positives(per_stage(np.split(scores, cut), np.split(on, cut), CLASSES)) == [2] * 10
    published = published_per_stage(scores, on, CLASSES)
    assert positives(published) == [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    assert published == published_per_stage(scores[on[:, 3] == 0], on[on[:, 3] == 0], CLASSES)


def chunks_of(kind: str, work_length: int) -> list[int]:
    """The chunks of a short video that the published code of a kind scores."""
    video = targets_of("?A.?B?A.")
    video[3, 1] = 1
    config = type("Config", (), {"work_length": work_length, "n_ahead": 0})
    return np.flatnonzero(KINDS[kind].model.scoring_rule.of(config).chosen(video, CLASSES)).tolist()


@pytest.mark.parametrize(
    ("kinds", "chosen", "of_longer_memory"),
    [
        (("lstr", "testra", "mat", "cmert"), [0, 1, 2, 3, 4, 5, 6, 7], []),  # the metric skips ambiguous chunks
        (("miniroad", "trn", "fats", "woad"), [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7]),
        (("gatehub",), [1, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]),  # 2 and 7 are two chunks after an ambiguous one
        (("oadtr", "colar"), [2, 3, 4, 6], []),  # 3 has an action in addition to the ambiguous label
    ],
)
def test_each_kind_scores_its_published_chunks(kinds, chosen, of_longer_memory):
    for kind in kinds:
        assert (chunks_of(kind, 3), chunks_of(kind, 9)) == (chosen, of_longer_memory)


def test_a_scored_ambiguous_chunk_counts_against_every_class():
    """By hand: A scores .6, .5 and .4 without the class Ambiguous, the middle one at an ambiguous chunk."""
    targets = targets_of("A?A")
    scores = np.array([[0.2, 0.3, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0], [0.6, 0.4, 0.0, 0.0]])
    rule = ScoringRule("FATS", "every", "negative")
    scored = rule.scored(scores, CLASSES)
    assert scored[:, 1] == pytest.approx([0.6, 0.5, 0.4])
    assert per_frame(scored, rule.labelled(targets, CLASSES), CLASSES)["mAP"] == pytest.approx(5 / 6)
    assert per_frame(scores, targets, CLASSES)["mAP"] == 1  # with the class, and the chunk in no metric
    assert EVERY_CHUNK.scored(scores, CLASSES) is scores and EVERY_CHUNK.labelled(targets, CLASSES) is targets


def published_mean(scores, positive) -> float:
    """Mean over classes of the mean precision at the ranks of a class's chunks, as that code counts it."""
    means = []
    for column in range(1, scores.shape[1]):
        ranked = positive[np.argsort(-scores[:, column], kind="stable"), column]
        if ranked.any():
            means.append(np.mean([ranked[: place + 1].mean() for place in np.flatnonzero(ranked)]))
    return float(np.mean(means))


@pytest.mark.parametrize("kind", ["gatehub", "oadtr", "colar"])
def test_published_scores_have_the_mean_that_their_code_prints(shared, kind):
    about, arrays, _ = read_set(shared, f"{kind}_small")
    targets, theirs = arrays["target"], arrays["published_scores"]  # (L, 22), (L, 21)
    names = ("Background", *map(str, range(1, 21)), "Ambiguous")
    if kind == "gatehub":
        work, n_ahead, expected = about["config"]["present_frames"], 0, arrays["evaluated"]
    else:
        work = about["config"]["enc_layers"] if kind == "oadtr" else about["window"]
        n_ahead = about["config"]["query_num"] if kind == "oadtr" else 0
        # windows from 0 to L without the chunks ahead, exclusive at both ends, without ambiguous newest chunks
        ends = np.arange(work, len(targets) - n_ahead)
        expected = np.isin(np.arange(len(targets)), ends[targets[ends - 1].argmax(axis=1) != 21] - 1)
        assert not (expected & ~arrays["has_output"]).any()
    rule = KINDS[kind].model.scoring_rule.of(type("Config", (), {"work_length": work, "n_ahead": n_ahead}))
    keep = rule.chosen(targets, names)
    assert (keep == expected).all() and 0 < keep.sum() < len(keep)
    if kind == "colar":  # the file has no scores of all classes together
        scores = np.pad(theirs, ((0, 0), (0, 1)))
    else:
        odds = np.exp(arrays["logits"] - arrays["logits"].max(axis=1, keepdims=True))
        scores = odds / odds.sum(axis=1, keepdims=True)
    ours = per_frame(rule.scored(scores[keep], names), rule.labelled(targets[keep], names), names)["mAP"]
    assert ours == pytest.approx(published_mean(theirs[keep], targets[keep, :21] > 0), abs=1e-6)
    assert ours != pytest.approx(per_frame(scores, targets, names)["mAP"], abs=1e-3), "the rule changes nothing"
