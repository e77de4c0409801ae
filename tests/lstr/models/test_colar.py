"""Colar against its published scores and training, and the exemplars that it compares with."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from lstr import checkpoint, streaming
from lstr.batch import predict
from lstr.errors import CheckpointError
from lstr.kinds import KINDS
from lstr.models import colar
from lstr.windows.windows import Supervision
from tests.support.playlists import defined, playlists_of, streamed
from tests.support.published_sets import check_gradients, read_set, supervised_windows
from tests.support.tiny_models import tiny, video

SETTINGS = {"rgb_dim": 24, "flow_dim": 12, "work_length": 16}


@pytest.fixture
def published(shared, tmp_path):
    """The file as its authors save it, with the exemplars that they keep beside it."""
    about, arrays, features = read_set(shared, "colar_small")
    tensors = torch.load(shared / "data" / "golden" / "colar_small.pth")
    content = {"exemplars": torch.from_numpy(arrays["exemplars"])}
    for part in ("model_static", "model_dynamic"):
        content[part] = {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(part)}
    torch.save(content, tmp_path / "colar.pth")
    tensors["exemplars"] = content["exemplars"]
    return tensors, checkpoint.load(tmp_path / "colar.pth", SETTINGS), about, arrays, features


def test_published_weights_give_the_published_scores(published):
    _, loaded, _, arrays, features = published
    assert (loaded.config.kind, loaded.config.exemplars, loaded.assumed) == ("colar", 10, {})
    has, expected = arrays["has_output"], torch.from_numpy(arrays["published_scores"])
    scores = predict(loaded.model, features)
    assert (scores[has, :21] - expected[has]).abs().max() < 1e-5 and (scores[:, 21] == 0).all()
    state = streaming.create(loaded.model)
    stream = torch.stack([streaming.step(loaded.model, state, row[:24], row[24:]) for row in features])
    assert (stream - scores).abs().max() < 1e-6


def test_training_is_the_published_one(published):
    tensors, loaded, about, arrays, _ = published
    model = loaded.model.train()
    windows, _, counts = supervised_windows(model, arrays, arrays["train_end"] - 1)
    targets = one_hot(torch.from_numpy(arrays["train_label"]), 22)[:, None].float()
    loss = model.loss(model(windows), windows, Supervision(targets, counts))
    assert loss.item() == pytest.approx(about["train_loss"], rel=1e-5)
    loss.backward()
    check_gradients(model, tensors, KINDS["colar"].published.renamed, about["train_gradient_norms"])


def test_a_published_file_without_exemplars_says_where_they_come_from(shared):
    with pytest.raises(CheckpointError, match="exemplars") as caught:
        checkpoint.load(shared / "data" / "golden" / "colar_small.pth", SETTINGS)
    assert "torch.save" in caught.value.hint and "choose_exemplars" in caught.value.hint


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


@pytest.mark.parametrize("work_length", [1, 4, 5, 9])
def test_streams_of_all_ages_say_what_their_videos_say(work_length):
    """Also over what earlier videos left, and where windows are too short for anything to be kept."""
    model = tiny(kind="colar", work_length=work_length)
    playlists = playlists_of([0, 1, 5, 11], 24)
    expected = defined(model, playlists)
    torch.testing.assert_close(streamed(model, playlists), expected, atol=1e-6, rtol=0)
    whole = predict(model, playlists[0][1])
    torch.testing.assert_close(whole, expected[0, :, 0], atol=1e-6, rtol=0)
