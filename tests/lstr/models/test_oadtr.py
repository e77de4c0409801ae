"""OadTR against its published scores and training."""

import numpy as np
import pytest
import torch

from lstr import checkpoint, streaming
from lstr.batch import predict_ahead
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import KINDS, configure
from tests.support.published_sets import check_training, read_set
from tests.support.tiny_models import tiny, video

SETTINGS = {"rgb_dim": 24, "flow_dim": 12, "n_heads": 4, "decoder_heads": 2, "dropout": 0.0}


@pytest.fixture
def published(shared):
    file = shared / "data" / "golden" / "oadtr_small.pth"
    return file, checkpoint.load(file, SETTINGS), *read_set(shared, "oadtr_small")


def test_published_weights_give_the_published_scores(published):
    """Of whole videos and as a stream, wherever the published code has any: the newest chunk and those ahead."""
    _, loaded, _, arrays, features = published
    config = loaded.config
    assert (config.kind, config.work_length, config.anticipation, config.l_enc, config.l_dec) == ("oadtr", 16, 8, 2, 2)
    assert (config.d_feedforward, config.decoder_feedforward) == (48, 40) and not loaded.assumed
    has = arrays["has_output"]
    logits = np.concatenate([arrays["logits"][:, None], arrays["ahead_logits"]], axis=1)  # (L, 9, C)
    expected = torch.from_numpy(logits).softmax(dim=-1)[has]
    loaded.model.double()  # in single precision the published code is 6.4e-6 off, and processors differ by as much
    features = torch.from_numpy(features).double()
    scores = predict_ahead(loaded.model, features)
    assert (scores[has] - expected).abs().max() < 1e-5 and has.sum() == 225
    without = scores[has, 0, :21] / scores[has, 0, :21].sum(dim=1, keepdim=True)  # as published: no ambiguous class
    assert np.abs(without.numpy() - arrays["published_scores"][has]).max() < 1e-5
    state = streaming.create(loaded.model)
    stream = torch.stack([streaming.step_ahead(loaded.model, state, row[:24], row[24:]) for row in features])
    assert (stream - scores).abs().max() < 1e-6 and (stream[has] - expected).abs().max() < 1e-5


def test_training_is_the_published_one(published):
    file, loaded, about, arrays, _ = published
    check_training(loaded.model, about, arrays, torch.load(file), KINDS["oadtr"].published.renamed)


@torch.no_grad()
def test_a_young_window_has_rows_of_zeros_before_it():
    model = tiny(kind="oadtr", anticipation=2)
    features = video(9)
    padded = torch.cat([torch.zeros(5, 8), features])
    young = model.video_logits(features, 4)
    assert young.shape == (9, 3, 5)
    for chunk in range(9):
        torch.testing.assert_close(young[chunk], model.video_logits(padded[chunk : chunk + 6], 1)[-1])


def test_settings_that_do_not_fit_are_refused(published):
    for changes, named in (({"decoder_heads": 3}, "decoder_heads 3"), ({"decoder_heads": -1}, "decoder_heads is -1")):
        with pytest.raises(ConfigError, match=named):
            configure(kind="oadtr", **changes)
    with pytest.raises(ConfigError, match="decoder_heads is 4 and kind is lstr") as caught:
        configure(decoder_heads=4)
    assert "oadtr" in caught.value.hint
    with pytest.raises(CheckpointError, match="work_length is 64 in the configuration but 16 in the tensors"):
        checkpoint.load(published[0], {**SETTINGS, "work_length": 64})
