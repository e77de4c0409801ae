"""What single kinds promise beside the contract of all (test_kinds.py), and packed models."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lstr import streaming
from lstr.batch import predict, predict_ahead
from lstr.models import colar, gatehub
from lstr.models.convolutional import same_run
from lstr.models.encoder_decoder import rewards
from lstr.models.layers import PackedLinear
from lstr.models.trn import REACH, TENTHS, tenths_of
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.window_samples import hide_slots, make_targets
from lstr.windows import indices as memory
from lstr.windows.windows import Supervision, gather, join, loss_of
from tests.support.published_sets import supervised_windows
from tests.support.tiny_models import check_streams, run, scores_of, tiny, unsettled, video


@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_a_chunk_leaves_the_memory_of_a_testra_stream(decay):
    """The published stream keeps every chunk for ever under the box kernel."""
    model = unsettled(tiny(kind="testra", grid="anchored", work_length=4, decay=decay))
    features = video(40)
    other = features.clone()
    other[8] += 5
    scores = run(model, torch.stack([features, other], dim=1), streaming.create(model, 2))[:, :, 0]
    apart = (scores[:, 0] - scores[:, 1]).abs().amax(dim=1) > 1e-6
    # in the work memory for 4 chunks, then in every fourth long memory, 4 times
    assert apart.nonzero()[:, 0].tolist() == [8, 9, 10, 11, 15, 19, 23, 27]


@pytest.mark.parametrize("changes", [{"grid": "sliding"}, {"grid": "anchored"}, {"l_dec": 1}, {"l_dec": 3}], ids=str)
def test_a_gatehub_stream_that_keeps_parts_of_its_gates_equals_the_whole_video(changes, monkeypatch):
    monkeypatch.setattr(gatehub, "MAX_RECOMPUTED", 0)
    model = unsettled(tiny(kind="gatehub", **changes))
    torch.nn.init.normal_(model.latents)  # or each query would be like each other
    assert "history" in model.begin(1)
    check_streams(model, [(31, 19), (50,)])


def test_a_gatehub_loss_of_sure_scores_has_a_slope():
    """Of exponents below 1 the slope is not finite where p is 1."""
    model, targets = tiny(kind="gatehub"), torch.eye(5)[torch.randint(5, (6, 6))]
    sure = torch.where(targets > 0, 100.0, -100.0).requires_grad_()
    model.loss(sure, None, Supervision(targets, torch.ones(6, 6, dtype=torch.bool))).backward()
    assert sure.grad.isfinite().all()


def test_a_hidden_slot_of_gatehub_is_a_row_of_zeros():
    model = unsettled(tiny(kind="gatehub"))
    with torch.no_grad():
        model.latents.normal_()
        windows = gather(video(40), [39], model.config)
        hidden = hide_slots(windows, 0.999)  # all but the newest
        emptied = replace(windows, long=torch.cat([torch.zeros_like(windows.long[:, :-1]), windows.long[:, -1:]], 1))
        assert torch.equal(model(hidden), model(emptied)) and not torch.allclose(model(hidden), model(windows))


@torch.no_grad()
@pytest.mark.parametrize("kind, n_ahead", [("oadtr", 2), ("miniroad", 0)])
def test_a_young_window_is_scored_or_trained_with_rows_of_zeros_before_it(kind, n_ahead):
    model, features = tiny(kind=kind, anticipation=n_ahead), video(9)
    padded = torch.cat([torch.zeros(5, 8), features])
    expected = torch.stack([model.video_logits(padded[end : end + 6], 1)[-1] for end in range(9)])
    young = model(join([gather(features, [end], model.config) for end in range(9)]))
    torch.testing.assert_close(young, expected, atol=1e-6, rtol=0)
    if kind == "oadtr":
        torch.testing.assert_close(model.video_logits(features, 4), expected, atol=1e-6, rtol=0)


def test_a_class_without_exemplars_scores_nothing_and_harms_no_gradient():
    model, features = tiny(kind="colar").train(), video(20).numpy()
    model.exemplars[4] = 0
    truth = np.eye(5)[np.random.default_rng(0).integers(0, 4, 20)]
    arrays = {"rgb": features[:, :5], "flow": features[:, 5:], "target": truth}
    windows, targets, counts = supervised_windows(model, arrays, np.arange(12))
    loss = model.loss(model(windows), windows, Supervision(targets, counts, 4))
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert (predict(model.eval(), video(9))[:, 4] == 0).all()


def test_exemplars_are_chunks_near_the_centres_of_their_class():
    centres = 20 * torch.eye(3, 4)
    features = torch.cat([centre + 0.1 * torch.randn(50, 4) for centre in centres])
    chosen = colar.choose_exemplars(features, 3)
    assert all((features == row).all(dim=1).any() for row in chosen)
    assert torch.cdist(centres, chosen).min(dim=1).values.max() < 0.3
    few = colar.choose_exemplars(features[:2], 3)
    assert torch.equal(few, features[[0, 1, 0]])
    assert torch.equal(colar.choose_exemplars(features[:0], 3), torch.zeros(3, 4))
    assert torch.equal(colar.choose_exemplars(torch.ones(9, 4), 3), torch.ones(3, 4))


W, L = 6, 16


@torch.no_grad()
def written_out(model, features, T):
    """Logits (C,) at chunk T from the equations, with the bank as a list of chunks."""
    long, seen = memory.long_indices(T, model.config)
    bank = [*long[seen], *range(max(T - model.config.work_length + 1, 0), T + 1)]
    tokens = [model.feature_head_long(features[chunk]) for chunk in bank]
    short = found = model.feature_head_work(features[T])
    for block in model.blocks:
        weights = [torch.exp(block.query(found) @ block.key(token) / 4).item() for token in tokens]  # 4 is sqrt(16)
        mean = sum(w * block.value(token) for w, token in zip(weights, tokens, strict=True)) / sum(weights)
        found = found + block.out(F.relu(block.norm(mean)))
    return model.classifier(torch.cat([short, found]))


@torch.no_grad()
@pytest.mark.parametrize("l_dec", [1, 3])
@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("grid", ["fixed", "sliding", "anchored"])
def test_equations(grid, stride, l_dec):
    model = tiny(kind="lfb", grid=grid, long_stride=stride, l_dec=l_dec)
    for block in model.blocks:  # attention so sharp that it matters which chunks are in the bank
        block.query.weight.mul_(4)
        block.key.weight.mul_(4)
    features = video(2 * (W + L))
    logits = model.video_logits(features, 5)
    assert logits.shape == (len(features), 1, 5)
    for T in (0, 1, W - 1, W, W + 1, L, L + W, 2 * (W + L) - 1):
        torch.testing.assert_close(logits[T, 0], written_out(model, features, T), atol=1e-5, rtol=0)


W, A, C = 6, 2, 5
AHEAD = {"work_length": W, "anticipation": A}


def supervised(model, lengths=(20, 3)):
    torch.manual_seed(3)
    windows = join([gather(video(length, length), [length - 1], model.config) for length in lengths])
    outputs = model.outputs()
    targets = torch.eye(C)[torch.randint(0, C, (len(lengths), len(outputs.slots)))]
    return windows, Supervision(targets, windows.work_mask[:, torch.from_numpy(outputs.slots)])


@pytest.mark.parametrize("kind", ["efc", "ed", "ttm"])
def test_features_that_the_window_has_are_regressed(kind):
    model = tiny(kind=kind, **AHEAD)
    windows, supervision = supervised(model)
    logits, features = model(windows)
    errors = []
    for b, present in enumerate((W, 3)):
        for slot in range(W):
            for h in range(1, A + 1):
                if slot + h < present:
                    errors.append((features[b, slot, h - 1] - windows.work[b, slot + h]).square().mean())
    expected = loss_of(logits, model.outputs(), supervision) + torch.stack(errors).mean()
    torch.testing.assert_close(model.loss((logits, features), windows, supervision), expected)


@pytest.mark.parametrize("n", [1, 3])
def test_cmert_weights_the_decoder_by_s1_and_every_refinement_by_s2(n):
    model = tiny(kind="cmert", grid="anchored", refine_times=n, **AHEAD)
    windows, supervision = supervised(model, (40, 50))
    logits = model(windows)
    sizes = [W + A] * (n + 1) + [model.config.future]
    pieces = zip(logits.split(sizes, dim=1), supervision.targets.split(sizes, dim=1), strict=True)
    means = [F.cross_entropy(ours.flatten(0, 1), wanted.flatten(0, 1)) for ours, wanted in pieces]
    expected = 0.1 * means[0] + 1.0 * sum(means[1:-1]) + 0.5 * means[-1]
    torch.testing.assert_close(model.loss(logits, windows, supervision), expected)


def test_a_reward_is_for_being_right_early():
    background, act = torch.eye(3)[0], torch.eye(3)[1]
    begins = torch.stack([background, background, act, act, act])  # now, then four ahead
    drawn = torch.tensor([0, 1, 1, 2])
    assert rewards(begins, drawn).tolist() == [0, 1, 0.5, 0]
    goes_on = torch.stack([act] * 5)
    assert rewards(goes_on, torch.tensor([1, 0, 1, 1])).tolist() == [0.25, 0, 0.25, 0.25]


def test_red_prefers_what_is_rewarded():
    """Gradients of the reward alone make a label likelier whose reward is above the mean."""
    model = tiny(kind="red", **AHEAD).train()
    windows, supervision = supervised(model, (20,))
    supervision = replace(supervision, targets=torch.eye(C)[1].expand_as(supervision.targets))
    ahead = torch.zeros(1, W * (1 + A), C, requires_grad=True)
    features = model(windows)[1]
    torch.manual_seed(0)
    plain = super(type(model), model).loss((ahead, features), windows, supervision)
    rewarded = sum(model.loss((ahead, features), windows, supervision) - plain for _ in range(200))
    rewarded.backward()
    assert (ahead.grad[0, W:].argmin(-1) == 1).all(), "a step against the gradient raises the right class most"
    assert 0 < model.mean_reward < 1, "which is what rewards are compared with"


def test_ttpp_looks_no_further_back_than_its_window():
    model, features = tiny(kind="ttm", **AHEAD), video(20)
    changed = features.clone()
    changed[: 20 - W] += 5
    ours, theirs = predict_ahead(model, features), predict_ahead(model, changed)
    assert torch.equal(ours[-1], theirs[-1]) and not torch.allclose(ours[-2], theirs[-2])


LABELS = [0] * 12 + [1] * 10 + [2] * 20 + [0] * 18


def labelled_windows(model, ends=(3, 20, 30)):
    rows, labels = video(60).numpy(), torch.eye(5)[torch.tensor(LABELS)].numpy()
    one = LabelledVideo("v", TwoStreamArray(rows[:, :5], rows[:, 5:]), labels)
    windows = join([gather(rows, [end], model.config) for end in ends])
    return windows, Supervision(*make_targets([one], [(0, end) for end in ends], model.config, model.outputs()))


def test_tenths_are_of_actions_whose_length_is_known():
    labels = torch.eye(3)[torch.tensor([[2] * 3 + [0] + [1] * 5 + [2] * 10 + [0] * 2 + [1] * 2])]
    exists = torch.ones(labels.shape[:2], dtype=torch.bool)
    tenths = [-1] * 3 + [10] + [0, 2, 4, 6, 8] + list(range(10)) + [10] * 2 + [-1] * 2
    assert tenths_of(labels, exists).tolist() == [tenths]
    exists[0, :2] = exists[0, -1:] = False  # the video has no such chunks: what is beside them begins and ends there
    assert tenths_of(labels, exists).tolist() == [[-1, -1, 0, *tenths[3:-2], 0, -1]]
    ambiguous = torch.cat([labels, (torch.arange(labels.shape[1]) == 6).float()[None, :, None]], dim=2)
    found = tenths_of(ambiguous, exists, 3)[0, 4:9]
    assert found.tolist() == [0, 5, 0, 0, 5], "an ambiguous chunk ends a run"


def test_lap_learns_how_far_actions_have_come():
    model = tiny(kind="lap-like", anticipation=2)
    windows, supervision = labelled_windows(model)
    logits, progress = model(windows)
    assert supervision.targets.shape[1] == logits.shape[1] + 2 * REACH + model.config.work_length
    known = [LABELS[i] and (i - (12 if i < 22 else 22)) * TENTHS // (10 if i < 22 else 20) for i in range(60)]
    known = [tenth if LABELS[i] else TENTHS for i, tenth in enumerate(known)]
    W, wanted, rows = model.config.work_length, [], []
    for b, end in enumerate((3, 20, 30)):
        start = max(0, end - W + 1)
        for slot in range(min(W, end + 1)):
            wanted.append(known[start + slot])
            rows.append(progress[b, slot])
    expected = F.cross_entropy(torch.stack(rows), torch.tensor(wanted))
    loss = model.loss((logits, progress), windows, supervision)
    torch.testing.assert_close(loss, loss_of(logits, model.outputs(), supervision) + expected)


def test_lap_weighs_what_it_takes_on_by_progress():
    """Before it has learned anything all states weigh the same; afterwards what the head says chooses."""
    model, features = tiny(kind="lap-like", anticipation=2), video(12)
    before = predict(model, features)
    with torch.no_grad():
        model.progress.bias[3] += 4
        torch.testing.assert_close(predict(model, features), before, atol=1e-6, rtol=0)
        model.ranges[3, 0] += 4
    assert (predict(model, features)[1:] - before[1:]).abs().amax(dim=1).min() > 1e-5


def test_a_run_is_unbroken_back_from_the_newest():
    labels = torch.eye(4)[torch.tensor([[1, 0, 1, 3, 1, 1, 0, 0]])]
    present = torch.arange(8)[None] < 6
    assert same_run(labels, labels[:, 5], present)[0].tolist() == [False] * 4 + [True] * 2 + [False] * 2
    through = [False, False, True, False, True, True, False, False]
    assert same_run(labels, labels[:, 5], present, 3)[0].tolist() == through


def test_tfn_learns_which_chunks_belong_to_the_newest():
    model = tiny(kind="tfn-like")
    windows, supervision = labelled_windows(model, (3, 24))
    logits, relevance = model(windows)
    wanted = torch.tensor([[1.0] * 4 + [0.0] * 2, [0.0] * 3 + [1.0] * 3])
    each = F.binary_cross_entropy_with_logits(relevance, wanted, reduction="none")
    expected = (each[0, :4].mean() + each[1].mean()) / 2
    newest = F.cross_entropy(logits[:, 0], torch.tensor([0, 2]))
    torch.testing.assert_close(model.loss((logits, relevance), windows, supervision), newest + expected)


@pytest.mark.parametrize("has_operator", [True, False])
def test_without_the_operator_a_stream_says_the_same(has_operator, monkeypatch):
    """The operator is not documented, so a torch without it must serve."""
    if not has_operator:
        monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    elif not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        pytest.skip("this torch has no packed product")
    model = unsettled(tiny(gru=True, anticipation=2))
    packed = streaming.create(model).constants.model
    assert {module.packed for module in packed.modules() if isinstance(module, PackedLinear)} == {has_operator}
    torch.testing.assert_close(run(model, video(40)), scores_of(model, video(40)), atol=1e-5, rtol=0)
    exact = model.double().constants().model
    layers = [module for module in exact.modules() if isinstance(module, PackedLinear)]
    x = video(3, width=layers[0].weight.shape[1]).double()
    assert torch.equal(layers[0](x), F.linear(x, layers[0].weight, layers[0].bias)), "float64 stays float64"
