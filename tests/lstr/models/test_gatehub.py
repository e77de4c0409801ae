"""GateHUB against its published scores and training, and a stream that says the same as the whole video."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr import checkpoint, streaming
from lstr.batch import predict
from lstr.errors import CheckpointError
from lstr.kinds import KINDS
from lstr.models import gatehub
from lstr.pipelines.training.window_samples import hide_slots
from lstr.windows.windows import Supervision, gather
from tests.support.published_sets import check_training, read_set, supervised_windows
from tests.support.tiny_models import of_each_window, tiny, unsettled, video

SETTINGS = {"rgb_dim": 24, "flow_dim": 12, "n_heads": 4, "dropout": 0.0}


@pytest.fixture
def published(shared):
    file = shared / "data" / "golden" / "gatehub_small.pth"
    return file, checkpoint.load(file, SETTINGS), *read_set(shared, "gatehub_small")


def probabilities(logits):
    return torch.from_numpy(logits).softmax(dim=-1)


def test_published_weights_give_the_published_scores(published):
    _, loaded, about, arrays, features = published
    config = loaded.config
    assert (config.kind, config.work_length, config.long_length, config.long_stride) == ("gatehub", 8, 88, 1)
    assert (config.n0, config.l_enc, config.l_dec) == (6, 2, 2) and not loaded.assumed
    expected = probabilities(arrays["logits"])
    scores = predict(loaded.model, features)
    with torch.no_grad():
        present = loaded.model(supervised_windows(loaded.model, arrays, arrays["present_chunks"])[0])
    assert (scores - expected).abs().max() < 1e-5
    without = scores[:, :21] / scores[:, :21].sum(dim=1, keepdim=True)  # as published: no ambiguous class
    assert np.abs(without.numpy() - arrays["published_scores"]).max() < 1e-5
    # those that are there, of a young window: ours come first
    for ours, theirs, chunk in zip(present, arrays["present_logits"], arrays["present_chunks"], strict=True):
        there = min(8, chunk + 1)
        assert np.abs(ours[:there].numpy() - theirs[-there:]).max() < 2e-4


@pytest.mark.long
def test_a_stream_of_published_weights_gives_the_published_scores(published, monkeypatch):
    """Where parts are kept, as at the published size, within what the published code is off exact arithmetic."""
    _, loaded, _, arrays, features = published
    expected = probabilities(arrays["logits"])
    for anew in (gatehub.MAX_RECOMPUTED, 0):
        monkeypatch.setattr(gatehub, "MAX_RECOMPUTED", anew)
        state = streaming.create(loaded.model)
        rows = torch.from_numpy(features)
        scores = torch.stack([streaming.step(loaded.model, state, row[:24], row[24:]) for row in rows])
        apart = (scores - expected).abs().amax(dim=1)
        assert apart.max() < 3e-5 and apart.quantile(0.95) < 1e-5


def test_training_is_the_published_one(published):
    file, loaded, about, arrays, _ = published
    check_training(loaded.model, about, arrays, torch.load(file), KINDS["gatehub"].published.renamed)


def test_a_loss_of_sure_scores_has_a_slope():
    """Of exponents below 1 the slope is not finite where p is 1."""
    model, targets = tiny(kind="gatehub"), torch.eye(5)[torch.randint(5, (6, 6))]
    sure = torch.where(targets > 0, 100.0, -100.0).requires_grad_()
    model.loss(sure, None, Supervision(targets, torch.ones(6, 6, dtype=torch.bool))).backward()
    assert sure.grad.isfinite().all()


@pytest.mark.parametrize("anew", [0, gatehub.MAX_RECOMPUTED])
@pytest.mark.parametrize("changes", [{"long_stride": 1}, {"grid": "sliding"}, {"grid": "anchored"}, {"l_dec": 1}])
def test_streams_of_all_ages_say_what_their_videos_say(monkeypatch, anew, changes):
    monkeypatch.setattr(gatehub, "MAX_RECOMPUTED", anew)
    model = unsettled(tiny(kind="gatehub", **changes))
    with torch.no_grad():
        model.latents.normal_()  # or each query would be like each other
    videos = [video(n, seed) for seed, n in enumerate((50, 31, 19))]
    defined = []
    for one in videos:
        defined.append(of_each_window(model, one)[:, 0].softmax(dim=-1))
        torch.testing.assert_close(predict(model, one), defined[-1], atol=1e-5, rtol=0)
    state = streaming.create(model, 2)
    for t in range(50):
        second = (videos[1][t], defined[1][t]) if t < 31 else (videos[2][t - 31], defined[2][t - 31])
        if t == 31:
            streaming.reset(state, [1])
        rows = torch.stack([videos[0][t], second[0]])
        scores = streaming.step(model, state, rows[:, :5], rows[:, 5:])
        torch.testing.assert_close(scores, torch.stack([defined[0][t], second[1]]), atol=1e-5, rtol=0)


def test_a_hidden_slot_is_a_row_of_zeros():
    model = unsettled(tiny(kind="gatehub"))
    with torch.no_grad():
        model.latents.normal_()
        windows = gather(video(40), [39], model.config)
        hidden = hide_slots(windows, 0.999)  # all but the newest
        emptied = replace(windows, long=torch.cat([torch.zeros_like(windows.long[:, :-1]), windows.long[:, -1:]], 1))
        assert torch.equal(model(hidden), model(emptied)) and not torch.allclose(model(hidden), model(windows))


def test_names_of_the_first_release_are_known(published, tmp_path):
    file, loaded, _, _, features = published
    older = {"latent_query": "memory_decoder_cls_token_history", "classifier.": "mlp_head."}
    older |= {"present_position_encoding": "short_position_encoding", "history_encoder.ghu": "history_encoder.decoder"}
    tensors = {}
    for name, tensor in torch.load(file).items():
        for new, old in older.items():
            name = name.replace(new, old)
        tensors["module." + name] = tensor
    torch.save({"model": tensors, "epoch": 3}, tmp_path / "older.pth")
    again = checkpoint.load(tmp_path / "older.pth", SETTINGS)
    assert torch.equal(predict(again.model, features), predict(loaded.model, features))
    del tensors["module.gate_layer.bias"]
    torch.save(tensors, tmp_path / "less.pth")
    with pytest.raises(CheckpointError, match="lacks tensors: gate.bias"):
        checkpoint.load(tmp_path / "less.pth", SETTINGS)
    with pytest.raises(CheckpointError, match="n_long is 44 in the configuration but 88 in the tensors"):
        checkpoint.load(file, {**SETTINGS, "long_length": 44})
