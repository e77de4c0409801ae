"""What TeSTra, GateHUB, Colar, OadTR and MiniROAD promise beside the contract of all kinds."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.batch import predict
from lstr.models import colar
from lstr.pipelines.training.window_samples import hide_slots
from lstr.windows.windows import Supervision, gather, join
from tests.support.published_sets import supervised_windows
from tests.support.tiny_models import run, tiny, unsettled, video


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
def test_a_young_window_of_oadtr_has_rows_of_zeros_before_it():
    model, features = tiny(kind="oadtr", anticipation=2), video(9)
    padded = torch.cat([torch.zeros(5, 8), features])
    young = model.video_logits(features, 4)
    for chunk in range(9):
        torch.testing.assert_close(young[chunk], model.video_logits(padded[chunk : chunk + 6], 1)[-1])


@torch.no_grad()
def test_a_young_window_of_miniroad_is_trained_with_rows_of_zeros_before_it():
    model, features = tiny(kind="miniroad"), video(9)
    padded = torch.cat([torch.zeros(5, 8), features])
    young = model(join([gather(features, [end], model.config) for end in range(9)]))[:, 0]
    expected = torch.stack([model.video_logits(padded[end : end + 6], 1)[-1, 0] for end in range(9)])
    torch.testing.assert_close(young, expected, atol=1e-6, rtol=0)


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
