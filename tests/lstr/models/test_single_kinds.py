"""Equations and losses of single kinds, in addition to the contract of all kinds (test_kinds.py), and packed models."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from lstr import streaming
from lstr.batch import predict
from lstr.models import colar, gatehub, trn
from lstr.models.encoder_decoder import rewards
from lstr.models.layers import PackedLinear
from lstr.models.trn import TENTHS
from lstr.windows import indices as memory
from lstr.windows.windows import Supervision, gather, join, loss_of
from tests.support.tiny_models import check_streams, labelled_windows, perturb, run, scores_of, tiny, video

W, L, A, C = 6, 16, 2, 5
AHEAD = {"work_length": W, "anticipation": A}


@pytest.mark.parametrize("changes", [{"grid": "sliding"}, {"grid": "anchored"}, {"l_dec": 1}, {"l_dec": 3}], ids=str)
def test_a_gatehub_stream_with_cached_gates_equals_the_whole_video(changes, monkeypatch):
    monkeypatch.setattr(gatehub, "MAX_RECOMPUTED", 0)
    model = perturb(tiny(kind="gatehub", **changes))
    torch.nn.init.normal_(model.latents)  # otherwise the queries are nearly equal
    assert "history" in model.begin(1)
    check_streams(model, [(31, 19), (50,)])


def test_the_gatehub_loss_of_certain_scores_has_a_finite_gradient():
    """An exponent below 1 has an infinite slope where p is 1."""
    model, targets = tiny(kind="gatehub"), torch.eye(5)[torch.randint(5, (6, 6))]
    logits = torch.where(targets > 0, 100.0, -100.0).requires_grad_()
    model.loss(logits, None, Supervision(targets, torch.ones(6, 6, dtype=torch.bool))).backward()
    assert logits.grad.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("kind, n_ahead", [("oadtr", 2), ("miniroad", 0)])
def test_a_window_that_is_not_full_has_rows_of_zeros_first(kind, n_ahead):
    model, features = tiny(kind=kind, anticipation=n_ahead), video(9)
    padded = torch.cat([torch.zeros(5, 8), features])
    expected = torch.stack([model.video_logits(padded[end : end + 6], 1)[-1] for end in range(9)])
    logits = model(join([gather(features, [end], model.config) for end in range(9)]))
    torch.testing.assert_close(logits, expected, atol=1e-6, rtol=0)
    if kind == "oadtr":
        torch.testing.assert_close(model.video_logits(features, 4), expected, atol=1e-6, rtol=0)


def test_a_class_without_exemplars_scores_zero_and_has_finite_gradients():
    model = tiny(kind="colar").train()
    model.exemplars[4] = 0
    windows, supervision = labelled_windows(model, range(10, 25))
    model.loss(model(windows), windows, replace(supervision, ignore=4)).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert (predict(model.eval(), video(9))[:, 4] == 0).all()


def test_exemplars_are_chunks_near_the_centres_of_their_class():
    centres = 20 * torch.eye(3, 4)
    features = torch.cat([centre + 0.1 * torch.randn(50, 4) for centre in centres])
    chosen = colar.choose_exemplars(features, 3)
    assert all((features == row).all(dim=1).any() for row in chosen)
    assert torch.cdist(centres, chosen).min(dim=1).values.max() < 0.3
    assert torch.equal(colar.choose_exemplars(features[:2], 3), features[[0, 1, 0]])
    assert torch.equal(colar.choose_exemplars(features[:0], 3), torch.zeros(3, 4))
    assert torch.equal(colar.choose_exemplars(torch.ones(9, 4), 3), torch.ones(3, 4))


@torch.no_grad()
def bank_logits(model, features, T):
    """Logits (C,) of a feature bank at chunk T from the equations, with the bank as a list of chunks."""
    long, visible = memory.long_indices(T, model.config)
    bank = [*long[visible], *range(max(T - model.config.work_length + 1, 0), T + 1)]
    tokens = [model.feature_head_long(features[chunk]) for chunk in bank]
    short = state = model.feature_head_work(features[T])
    for block in model.blocks:
        weights = [torch.exp(block.query(state) @ block.key(token) / 4).item() for token in tokens]  # 4 is sqrt(16)
        mean = sum(w * block.value(token) for w, token in zip(weights, tokens, strict=True)) / sum(weights)
        state = state + block.out(F.relu(block.norm(mean)))
    return model.classifier(torch.cat([short, state]))


@torch.no_grad()
@pytest.mark.parametrize("l_dec", [1, 3])
@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("grid", ["fixed", "sliding", "anchored"])
def test_a_feature_bank_follows_its_equations(grid, stride, l_dec):
    model = tiny(kind="lfb", grid=grid, long_stride=stride, l_dec=l_dec)
    for block in model.blocks:  # sharp attention, so that a wrong chunk in the bank changes the result
        block.query.weight.mul_(4)
        block.key.weight.mul_(4)
    features = video(2 * (W + L))
    logits = model.video_logits(features, 5)
    assert logits.shape == (len(features), 1, 5)
    for T in (0, 1, W - 1, W, W + 1, L, L + W, 2 * (W + L) - 1):
        torch.testing.assert_close(logits[T, 0], bank_logits(model, features, T), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["efc", "ed", "ttm"])
def test_future_features_inside_the_window_are_regressed(kind):
    model = tiny(kind=kind, **AHEAD)
    windows, supervision = labelled_windows(model, (19, 2))
    logits, features = model(windows)
    errors = [
        (features[b, slot, h - 1] - windows.work[b, slot + h]).square().mean()
        for b, present in enumerate((W, 3))
        for slot in range(W)
        for h in range(1, A + 1)
        if slot + h < present
    ]
    expected = loss_of(logits, model.outputs(), supervision) + torch.stack(errors).mean()
    torch.testing.assert_close(model.loss((logits, features), windows, supervision), expected)


def test_an_early_correct_label_has_the_highest_reward():
    starting, continuing = torch.eye(3)[[0, 0, 1, 1, 1]], torch.eye(3)[[1] * 5]  # now, then four ahead
    assert rewards(starting, torch.tensor([0, 1, 1, 2])).tolist() == [0, 1, 0.5, 0]
    assert rewards(continuing, torch.tensor([1, 0, 1, 1])).tolist() == [0.25, 0, 0.25, 0.25]


def test_red_makes_rewarded_labels_likelier():
    model = tiny(kind="red", **AHEAD).train()
    windows, supervision = labelled_windows(model, (19,))
    supervision = replace(supervision, targets=torch.eye(C)[1].expand_as(supervision.targets))
    ahead = torch.zeros(1, W * (1 + A), C, requires_grad=True)
    features = model(windows)[1]
    torch.manual_seed(0)
    plain = super(type(model), model).loss((ahead, features), windows, supervision)
    rewarded = sum(model.loss((ahead, features), windows, supervision) - plain for _ in range(200))
    rewarded.backward()
    assert (ahead.grad[0, W:].argmin(-1) == 1).all(), "a step against the gradient raises the correct class most"
    assert 0 < model.mean_reward < 1


def test_lap_learns_the_progress_of_complete_actions(monkeypatch):
    monkeypatch.setattr(trn, "REACH", 8)
    model, ends = tiny(kind="lap-like", anticipation=2), (3, 20, 24, 25, 30, 59)
    runs = [(1, 5), (0, 7), (1, 10), (4, 1), (2, 14), (0, 20), (1, 3)]  # class 4 is ambiguous
    windows, supervision = labelled_windows(model, ends, runs)
    logits, progress = model(windows)
    tenths = [k * TENTHS // n if action else TENTHS for action, n in runs for k in range(n)]
    unknown = [(24, 23), (24, 24), (25, 20), (25, 21), (25, 23), (25, 24), (25, 25)]  # longer than the labels read
    each, n_counted = 0, 0
    for rows, end in zip(progress, ends, strict=True):
        for row, chunk in zip(rows, range(max(0, end - W + 1), end + 1), strict=False):
            n_counted += chunk != 22
            if chunk != 22 and (end, chunk) not in unknown:
                each += F.cross_entropy(row, torch.tensor(tenths[chunk]))
    supervision = replace(supervision, ignore=4)
    expected = loss_of(logits, model.outputs(), supervision) + each / n_counted
    torch.testing.assert_close(model.loss((logits, progress), windows, supervision), expected)


def test_tfn_learns_which_chunks_belong_to_the_newest_action():
    model = tiny(kind="tfn-like")
    windows, supervision = labelled_windows(model, (3, 24))
    targets = supervision.targets.clone()
    targets[1, [1, 5]] = torch.eye(C)[[2, 4]]  # the same action before another one, and an ambiguous chunk in it
    targets[0, 5:] = 0  # slots after the newest chunk
    supervision = replace(supervision, targets=targets, ignore=4)
    logits, relevance = model(windows)
    wanted = torch.tensor([[1.0] * 4 + [0.0] * 2, [0.0] * 3 + [1.0] * 3])
    each = F.binary_cross_entropy_with_logits(relevance, wanted, reduction="none")
    expected = (each[0, :4].mean() + each[1, [0, 1, 2, 3, 5]].mean()) / 2
    newest = F.cross_entropy(logits[:, 0, :4], torch.tensor([0, 2]))
    torch.testing.assert_close(model.loss((logits, relevance), windows, supervision), newest + expected)


@pytest.mark.parametrize("has_operator", [True, False])
def test_packed_streams_equal_the_whole_video_also_without_the_undocumented_operator(has_operator, monkeypatch):
    if not has_operator:
        monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    elif not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        pytest.skip("this torch has no packed product")
    model = perturb(tiny(gru=True, anticipation=2))
    packed = streaming.create(model).constants.model
    assert {module.packed for module in packed.modules() if isinstance(module, PackedLinear)} == {has_operator}
    torch.testing.assert_close(run(model, video(40)), scores_of(model, video(40)), atol=1e-5, rtol=0)
    exact = model.double().constants().model
    layers = [module for module in exact.modules() if isinstance(module, PackedLinear)]
    x = video(3, width=layers[0].weight.shape[1]).double()
    assert torch.equal(layers[0](x), F.linear(x, layers[0].weight, layers[0].bias))
