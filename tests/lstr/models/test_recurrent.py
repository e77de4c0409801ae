"""RNN and TRN: what they remember, what they say of the future, and a stream that says the same."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from lstr import batch, checkpoint, streaming
from lstr.kinds import configure
from lstr.models.published import with_prefixes
from lstr.models.recurrent import RNN
from lstr.models.trn import TRN, PublishedTRN
from lstr.windows.windows import Supervision, gather
from tests.support.published_sets import check_gradients, read_set, supervised_windows
from tests.support.tiny_models import video

W, L = 6, 16
TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, work_length=W, long_length=L)
SHAPES = [("rnn", {"cell": "lstm"}), ("rnn", {"cell": "gru"}), ("trn", {}), ("trn", {"anticipation": 3})]
each_shape = pytest.mark.parametrize(("kind", "changes"), SHAPES, ids=["lstm", "gru", "trn-8", "trn-3"])


def tiny(kind, seed=0, n_classes=5, **changes):
    torch.manual_seed(seed)
    config = configure(**{**TINY, "kind": kind, **changes})
    return {"rnn": RNN, "trn": TRN}[kind](config, n_classes).eval()


@torch.no_grad()
def window_logits(model, windows):
    """Logits (B, W, 1 + n_ahead, C) of windows, put in place by what `outputs` says of them."""
    logits, outputs = model(windows), model.outputs()
    assert logits.shape[1] == len(outputs.slots) == len(outputs.ahead)
    placed = torch.full((len(logits), W, 1 + model.config.n_ahead, model.n_classes), float("nan"))
    placed[:, outputs.slots, outputs.ahead] = logits
    assert not placed.isnan().any()
    return placed


@each_shape
def test_first_window_is_the_beginning_of_the_video(kind, changes):
    """Later windows start from a zero state where the video carries its own on."""
    model = tiny(kind, **changes)
    features = video(2 * W)
    with torch.no_grad():
        whole = model.video_logits(features, 1)
    windows = window_logits(model, gather(features, [2, W - 1, 2 * W - 1], model.config))
    torch.testing.assert_close(windows[0, :3], whole[:3])  # the other slots are absent
    torch.testing.assert_close(windows[1], whole[:W])
    assert not torch.isclose(windows[2], whole[W:]).all(dim=-1).any()


@pytest.fixture
def published_trn(shared):
    file = shared / "data" / "golden" / "trn_small.pth"
    settings = {"rgb_dim": 24, "flow_dim": 12, "work_length": 24, "dropout": 0.0}
    return file, checkpoint.load(file, settings), *read_set(shared, "trn_small")


def test_published_trn_weights_give_the_published_scores(published_trn):
    """The score of the present is the accumulator's; step 0 of the decoder, about the same chunk, is none."""
    _, loaded, _, arrays, features = published_trn
    config, expected = loaded.config, torch.from_numpy(arrays["stream_logits"]).softmax(dim=-1)
    assert (config.kind, config.d_model, config.d_token, config.n_ahead) == ("trn", 20, 36, 7)
    assert config.shared_classifier and config.decoder_from == 0 and loaded.assumed == {"anticipation": 7}
    scores = batch.predict_ahead(loaded.model, features)
    ahead = torch.from_numpy(arrays["stream_ahead_logits"]).softmax(dim=-1)  # of chunks t to t + 7
    assert (scores[:, 0] - expected).abs().max() < 1e-6 and (scores[:, 1:] - ahead[:, 1:]).abs().max() < 1e-6
    state = streaming.create(loaded.model)
    stream = torch.stack([streaming.step_ahead(loaded.model, state, row[:24], row[24:]) for row in features])
    assert (stream - scores).abs().max() < 1e-6


def test_training_a_published_trn_is_the_published_training(published_trn):
    file, loaded, about, arrays, _ = published_trn
    model = loaded.model.train()
    windows, targets, counts = supervised_windows(model, arrays, arrays["train_start"] + 23)
    logits = model(windows)  # (B, 24 * (1 + 8), C)
    assert np.abs(logits[:, :24].detach().numpy() - arrays["train_logits"]).max() < 1e-5
    assert np.abs(logits[:, 24:].detach().numpy() - arrays["train_ahead_logits"].reshape(10, -1, 22)).max() < 1e-5
    loss = model.loss(logits, windows, Supervision(targets, counts, about["ambiguous"]))
    assert loss.item() == pytest.approx(about["train_loss"], rel=1e-5)
    loss.backward()
    renamed = functools.partial(with_prefixes, names=PublishedTRN.names)
    check_gradients(model, torch.load(file), renamed, about["train_gradient_norms"])
