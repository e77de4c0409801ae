"""EFC, ED, RED and TTPP: what they regress, reward and look back at."""

from dataclasses import replace

import pytest
import torch

from lstr.batch import predict_ahead
from lstr.models.encoder_decoder import rewards
from lstr.windows.windows import Supervision, gather, join, loss_of
from tests.support.tiny_models import tiny, video

W, A, C = 6, 2, 5
AHEAD = {"work_length": W, "anticipation": A}


def supervised(model, lengths=(20, 3)):
    """Windows at the ends of videos, one of them young, with targets of one class each."""
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
