"""Joined videos: how they are joined, cut and judged; and what keeps a memory from learning them by heart."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lstr.batch import predict
from lstr.kinds import configure, make_model
from lstr.labels.label_set import Labels, Segment, VideoLabels
from lstr.pipelines.training import step
from lstr.windows.windows import gather

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
HUG, OTHER, QUIET, ORDINARY, FALL = range(5)  # the feature that a kind of chunk shows


@pytest.fixture
def clips(monkeypatch):
    """The module that joins."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("joined_clips")


@pytest.fixture
def study(clips):
    """The module of the study."""
    return importlib.import_module("joined")


@pytest.fixture
def settings(clips):
    """The module of the settings against learning by heart."""
    return importlib.import_module("small_memory")


def clip_of(clips, kind, place, length, fall=(0, 0)):
    rows = np.zeros((length, 16), np.float32)
    rows[:, kind] = 1
    rows[:, 8 + place] = 0.1  # of the clip itself
    if fall[1]:
        rows[: fall[0], FALL], rows[: fall[0], ORDINARY] = 0, 1
    return clips.Clip(f"{kind}-{place}", rows, fall)


@pytest.fixture
def known(clips):
    """Clips whose kind is one feature."""
    kinds = [[clip_of(clips, kind, place, 10 + place) for place in range(4)] for kind in (HUG, OTHER, QUIET, ORDINARY)]
    return clips.Clips(*kinds, [clip_of(clips, FALL, place, 16, (6, 10)) for place in range(4)])


def test_a_fall_is_called_by_the_one_hug_that_was_before_it(clips, known):
    random = np.random.default_rng(0)
    for gap in (1.0, 5.0, 60.0):
        for after_hug in (True, False):
            fall, cue = known.falls[0], (known.hugs if after_hug else known.others)[1]
            one = clips.join(random, known, after_hug, gap, fall, cue)
            rows, (start, stop) = one.video.features[:], one.fall
            assert one.called == (1 if after_hug else 2) and stop - start == 4
            assert (rows[start:stop, FALL] == 1).all() and one.video.targets[:, 1:].sum() == 4
            assert np.count_nonzero(rows[:, HUG]) == (11 if after_hug else 0), "one hug or none"
            last = start - 1 - round(4 * gap)  # the last chunk of the interaction
            assert (rows[last - 10 : last + 1, HUG if after_hug else OTHER] == 1).all()
            assert 0 <= last - 10 <= 80 and len(rows) == start + 10


def test_tests_are_balanced_and_every_clip_takes_part(clips, known):
    drawn = clips.draw_tests(np.random.default_rng(0), known, (5.0, 20.0), 8)
    assert [one.gap for one in drawn] == [5.0] * 8 + [20.0] * 8
    assert sum(one.called == 1 for one in drawn[:8]) == sum(one.called == 1 for one in drawn[8:]) == 4
    assert {one.sources[1] for one in drawn} == {clip.source for clip in known.falls}
    assert {one.sources[0] for one in drawn} >= {clip.source for clip in known.hugs}
    trained = [clips.draw(np.random.default_rng(0), known) for _ in range(2)]
    assert np.array_equal(trained[0].video.features[:], trained[1].video.features[:]), "by the seed alone"


def test_videos_are_cut_where_their_labels_change(clips):
    sequence = VideoLabels("training", 10.0, (Segment(2.0, 4.0, "hug"), Segment(5.0, 8.0, "kick")))
    fall = VideoLabels("training", 5.0, (Segment(2.0, 3.0, "falling"), Segment(3.0, 5.0, "lying")))
    labels = {
        "ut_interaction": Labels(("Background", "hug", "kick"), {"seq": sequence}),
        "urfall": Labels(("Background", "falling", "lying"), {"fall": fall}),
    }
    videos = {"seq": np.arange(40.0)[:, None], "fall": np.arange(20.0)[:, None]}
    found = clips.cut(videos, labels, ["seq", "fall"])
    edges = {kind: [(c.rows[0, 0], c.rows[-1, 0]) for c in of_kind] for kind, of_kind in vars(found).items()}
    assert edges == {
        "hugs": [(8, 15)],
        "others": [(20, 31)],
        "quiet": [(0, 7), (16, 19), (32, 39)],
        "ordinary": [(0, 7)],
        "falls": [(0, 19)],
    }
    assert found.falls[0].fall == (8, 12)


def test_principal_directions_keep_what_varies(clips):
    random = np.random.default_rng(0)
    hidden = random.standard_normal((300, 2)) * [3, 1]
    rows = hidden @ np.linalg.qr(random.standard_normal((9, 2)))[0].T + 5
    mean, onto = clips.principal(rows, 2)
    reduced = (rows - mean) @ onto
    assert reduced.var(axis=0).mean() == pytest.approx(1) and np.abs(np.cov(reduced.T)[0, 1]) < 1e-9
    assert reduced @ np.linalg.pinv(onto) + mean == pytest.approx(rows)


def test_who_knows_the_hug_calls_every_fall_right(study, known):
    fold = study.Fold(known, known)
    tests = study.Tests([fold, fold])
    margins = np.concatenate([study.detect_hugs(fold, part) for part in tests.of_fold])[None]
    found = tests.accuracy(margins)
    assert (
        found["accuracy"] == 1 and found["interval"] == [1, 1] and set(found["by_gap"]) == {"5", "10", "20", "40", "60"}
    )
    constant = tests.accuracy(np.ones_like(margins))
    assert constant["accuracy"] == 0.5 and constant["by_fold"] == [0.5, 0.5]
    low, high = constant["interval"]
    assert low < 0.5 < high, "resamples of clips are not balanced"
    perfect = [np.eye(3)[one.video.targets.argmax(1)] for one in tests.all]
    assert tests.mean_ap([perfect])["mAP"] == 1 and (tests.margins(perfect) > 0).tolist() == tests.hugs.tolist()


def test_a_lead_is_that_of_the_same_seeds(study, known):
    tests = study.Tests([study.Fold(known, known)])
    right = tests.hugs * 2.0 - 1
    rows = {
        study.AGAINST: {"seeds": [0, 1], "falls": tests.accuracy(np.stack([-right, right]))},
        "knows": {"seeds": [0], "falls": tests.accuracy(right[None])},
    }
    for row in rows.values():
        row["per_frame"] = {**row["falls"], "by_seed": row["falls"]["by_seed"]}
    found = study.with_leads(rows)
    assert found["knows"]["falls"]["ahead of lstr-0s"] == {"difference": 1.0, "interval": [1.0, 1.0]}
    assert found[study.AGAINST]["falls"]["accuracy"] == 0.5 and "resampled" not in found[study.AGAINST]["falls"]


def test_what_was_scored_is_not_trained_again(study, known, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "WIDTH", 16)
    row = study.Row("", {"d_model": 32, "d_feedforward": 32}, {"max_steps": 2})
    tests = study.draw_tests(np.random.default_rng(0), known, (5.0,), 2)
    fold = study.Fold(known, known)
    first, _ = study.kept_scores(tmp_path / "a" / "b.npz", fold, tests, row, 0)
    monkeypatch.setattr(study, "train_on", lambda *_: pytest.fail("trained again"))
    again, _ = study.kept_scores(tmp_path / "a" / "b.npz", fold, tests, row, 0)
    for one, same, joined in zip(first, again, tests, strict=True):
        assert one.shape == (len(joined.video.targets), 3) and np.array_equal(one, same)


def test_every_row_is_a_model(study, settings):
    for name, row in study.ROWS.items():
        config, training = row.configs(1)
        assert make_model(config, 3) and training.seed == 1
        assert name != study.AGAINST or config.long_length == 0
    for one in settings.SETTINGS.values():
        known = {name: value for name, value in one.changes(settings.SHORT).items() if not name.startswith("memory.")}
        settings_of = importlib.import_module("lstr.pipelines.training.config").resolve("lstr-small", known, (0, 16))
        assert settings_of[0].n_long > 0 and settings_of[1].hide_long == one.hide


SMALL = configure(
    rgb_dim=0, flow_dim=8, d_model=32, n_heads=4, d_feedforward=32, work_length=4, long_length=16, long_stride=4
)


def test_memories_are_dropped_whole(settings):
    windows = gather(torch.randn(40, 8), [39] * 64, SMALL)
    before = step.hide_slots
    with settings.regularised(0.5, False):
        dropped = step.hide_slots(windows, 0.0)
    seen = dropped.long_mask.sum(1)
    assert step.hide_slots is before
    assert set(seen.tolist()) == {1, 4} and 16 < int((seen == 1).sum()) < 48
    assert (dropped.long[~dropped.long_mask] == 0).all() and dropped.long_mask[:, -1].all()


def test_tokens_without_their_mean_say_nothing_of_what_is_always_there(settings):
    torch.manual_seed(0)
    model = make_model(SMALL, 3).eval()
    features = torch.randn(30, 8)
    plain = predict(model, features)
    with settings.regularised(0.0, True):
        whole = predict(model, features)
        torch.testing.assert_close(whole, model.video_logits(features, 7)[:, 0].softmax(-1))
        model.feature_head_long.register_forward_hook(lambda _module, _given, tokens: tokens + 3)
        torch.testing.assert_close(predict(model, features), whole)
    assert (plain - whole).abs().max() > 1e-3 and (predict(model, features) - plain).abs().max() > 1e-3


@pytest.mark.long
def test_lstr_learns_what_decides_and_without_memory_is_at_chance(clips, study, known, monkeypatch):
    monkeypatch.setattr(study, "WIDTH", 16)
    monkeypatch.setattr(clips, "GAPS", (2.0, 4.0))
    monkeypatch.setattr(clips, "LEAD", 2.0)
    strong = {kind: [replace(clip, rows=3 * clip.rows) for clip in found] for kind, found in vars(known).items()}
    fold = study.Fold(clips.Clips(**strong), clips.Clips(**strong))
    tests = study.draw_tests(np.random.default_rng(0), fold.testing, (2.0, 4.0), 20)
    scored = {}
    for memory in (32, 0):
        model = {"d_model": 32, "d_feedforward": 32, "dropout": 0.0, "long_length": memory, "long_stride": 2}
        row = study.Row("", {**model, "work_length": 4}, {"max_steps": 160, "lr": 3e-3})
        trained = study.train_on(fold, *row.configs(0))
        scores = [predict(trained, one.video.features[:]).numpy()[one.fall[0] + 1] for one in tests]
        scored[memory] = np.mean([(s[1] > s[2]) == (one.called == 1) for s, one in zip(scores, tests, strict=True)])
    assert scored[32] > 0.9 and 0.25 < scored[0] < 0.75
