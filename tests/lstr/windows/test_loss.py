"""The loss against its definition, and where it has nothing to learn from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lstr.errors import LstrError
from lstr.windows.windows import Outputs, Part, Supervision, distillation, loss_of, multi_hot_cross_entropy, totals_of


def test_ambiguous_leaves_the_softmax_and_its_chunks_leave_the_mean():
    logits = torch.randn(6, 4, requires_grad=True)
    targets = torch.eye(4)[[0, 1, 2, 3, 3, 1]]
    targets[3, 0] = 1
    loss = multi_hot_cross_entropy(logits, targets, ignore=3)
    rows = [0, 1, 2, 5]
    torch.testing.assert_close(loss, F.cross_entropy(logits[rows, :3], torch.tensor([0, 1, 2, 1])))
    loss.backward()
    assert logits.grad[:, 3].abs().max() == 0 and logits.grad[3:5].abs().max() == 0
    assert logits.grad[rows, :3].abs().min() > 0


def test_by_hand():
    """Logits whose softmax is known without the ambiguous class: 1/6, 2/6, 3/6, and another way round."""
    odds = torch.tensor([[1.0, 2.0, 3.0, 9.0], [3.0, 1.0, 2.0, 5.0], [1.0, 2.0, 3.0, 0.1], [2.0, 2.0, 2.0, 4.0]])
    targets = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 1]])
    two_labels = math.log(6 / 2) + math.log(6 / 3)
    one_label = math.log(6 / 3)
    loss = multi_hot_cross_entropy(odds.log(), targets, ignore=3)
    assert loss.item() == pytest.approx((two_labels + one_label) / 2, abs=1e-6)
    with_all = multi_hot_cross_entropy(odds.log(), targets)
    total = math.log(math.prod((15 / 2, 15 / 3, 11 / 3, 6.1 / 0.1, 10 / 2, 10 / 4)))
    assert with_all.item() == pytest.approx(total / 4, abs=1e-6)
    only_first = torch.tensor([True, False, True, True])
    loss = multi_hot_cross_entropy(odds.log(), targets, ignore=3, valid=only_first)
    assert loss.item() == pytest.approx(two_labels, abs=1e-6)


@pytest.mark.parametrize("ignore, valid", [(1, None), (None, torch.zeros(3, dtype=torch.bool))])
def test_nothing_to_learn_gives_zero_and_not_nan(ignore, valid):
    """The published loss is NaN on a batch of ambiguous chunks, and so is the model after it."""
    logits = torch.randn(3, 2, requires_grad=True)
    loss = multi_hot_cross_entropy(logits, torch.tensor([[0, 1]] * 3), ignore=ignore, valid=valid)
    loss.backward()
    assert loss.item() == 0 and logits.grad.abs().max() == 0


def test_other_shapes_are_refused():
    with pytest.raises(LstrError):
        multi_hot_cross_entropy(torch.zeros(3, 4), torch.zeros(3, 5))


LOGITS, TARGETS = torch.randn(2, 3, 4), torch.eye(4)[torch.tensor([[0, 1, 2], [3, 0, 1]])]
COUNTS = torch.tensor([[True, True, True], [True, False, False]])
SLOTS, AHEAD = np.array([0, 1, -1]), np.array([0, 0, 1])
ALL = np.arange(3)


@pytest.mark.parametrize(
    "parts, expected, totals",
    [
        ((), [([0, 1], 1), ([2], 1)], [3.0, 1.0]),  # detection plus anticipation
        ((Part(ALL),), [(ALL, 1)], [4.0]),  # TeSTra's
        ((Part(np.array([0, 2])), Part(np.array([1]), 0.25)), [([0, 2], 1), ([1], 0.25)], [3.0, 1.0]),
    ],
)
def test_the_loss_is_the_weighted_sum_of_the_means_of_its_parts(parts, expected, totals):
    outputs = Outputs(SLOTS, AHEAD, parts)
    sums = [w * multi_hot_cross_entropy(LOGITS[:, r], TARGETS[:, r], None, COUNTS[:, r]) for r, w in expected]
    assert torch.allclose(loss_of(LOGITS, outputs, Supervision(TARGETS, COUNTS)), sum(sums))
    assert totals_of(TARGETS, COUNTS, outputs, None) == totals


SOFT = torch.randn(2, 3, 4).softmax(-1)


def test_a_teacher_is_compared_with_where_it_says_something():
    """The squared temperature times the KL divergence of both, each part's mean over all that counts."""
    soft = SOFT.clone()
    soft[0, 1] = 0
    outputs, supervision = Outputs(SLOTS, AHEAD), Supervision(TARGETS, COUNTS, soft=soft)
    wanted, ours = ((x / 3).log_softmax(-1) for x in (SOFT.log(), LOGITS))
    each = 9 * F.kl_div(ours, wanted, reduction="none", log_target=True).sum(-1)  # (B, N)
    expected = (each[0, 0] + each[1, 0]) / 3 + each[0, 2]
    assert torch.allclose(distillation(LOGITS, outputs, supervision, 3.0), expected)


def test_a_teacher_says_nothing_of_the_ambiguous_class():
    """Its scores are compared as if neither had that class, and not at all where a chunk has it."""
    outputs = Outputs(SLOTS, AHEAD, (Part(np.arange(3), 0.5),))
    logits = LOGITS.clone().requires_grad_()
    loss = distillation(logits, outputs, Supervision(TARGETS, COUNTS, 3, soft=SOFT), 2.0)
    loss.backward()
    assert (logits.grad[0, :, :3] != 0).all() and not logits.grad[..., 3].any() and not logits.grad[1].any()
    totals = totals_of(TARGETS, COUNTS, outputs, 3)
    pieces = [Supervision(TARGETS[[i]], COUNTS[[i]], 3, totals, 2.0, SOFT[[i]]) for i in range(2)]
    summed = sum(distillation(LOGITS[[i]], outputs, piece, 2.0) for i, piece in enumerate(pieces))
    assert torch.allclose(summed, loss)
