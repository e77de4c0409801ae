"""TOAD against its description in plain NumPy: what a window scores, what its loss is, and what a stream gives."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.batch import predict_ahead
from lstr.checkpoints import checkpoint
from lstr.errors import ConfigError
from lstr.exported.graphs import describe, make_graph
from lstr.exported.streaming import create, open_step, step_ahead
from lstr.kinds import configure, make_model, presets
from lstr.metrics.per_frame import per_frame
from lstr.metrics.scoring_rule import TOAD_RULE
from lstr.windows.loss import Supervision
from lstr.windows.windows import gather
from tests.support.tiny_models import tiny, unsettled, video

WIDTH, HEADS = 16, 4
CLASSES = ("Background", "run", "jump", "Ambiguous")


@pytest.fixture
def model():
    """As published, but small: features as wide as the blocks, two of these."""
    made = unsettled(tiny(kind="toad", rgb_dim=WIDTH, flow_dim=0, d_model=WIDTH, n_heads=HEADS))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3)  # far from the linear part of every function
    return made


def normed(x, weight, bias):
    """LayerNorm of the last axis, with the epsilon of the description."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weight + bias


def logits_of(tensors, window, heads=HEADS):
    """Logits (2, C) of one window of features (T, D), by the description, from a state_dict as float64 arrays."""
    T, D = window.shape
    x = window + tensors["positions.weight"][:T]
    for block in (f"blocks.{i}." for i in range(sum(name.endswith("qkv.weight") for name in tensors))):

        def linear(inputs, layer, block=block):
            return inputs @ tensors[f"{block}{layer}.weight"].T + tensors[f"{block}{layer}.bias"]

        def norm(inputs, layer, block=block):
            return normed(inputs, tensors[f"{block}{layer}.weight"], tensors[f"{block}{layer}.bias"])

        q, k, v = np.split(linear(norm(x, "norm1"), "qkv"), 3, axis=-1)
        found = np.empty_like(q)
        for head in range(heads):
            part = slice(head * D // heads, (head + 1) * D // heads)
            scores = np.exp(q[:, part] @ k[:, part].T / np.sqrt(D / heads))
            found[:, part] = scores / scores.sum(-1, keepdims=True) @ v[:, part]
        x = x + linear(found, "proj")
        inner = linear(norm(x, "norm2"), "mlp.0")
        x = x + linear(inner / (1 + np.exp(-1.702 * inner)), "mlp.3")
    vector = (x + window).mean(0)
    vector = vector / np.sqrt((vector**2).sum())
    after = np.maximum(normed(vector, tensors["next_norm.weight"], tensors["next_norm.bias"]), 0)
    return 100 * np.stack([tensors["classifier.weight"] @ vector, tensors["next_classifier.weight"] @ after])


@torch.no_grad()
def test_every_window_scores_as_described(model):
    model.double()
    features = video(20, width=WIDTH).double()
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    expected = [logits_of(tensors, features[max(0, end - 5) : end + 1].numpy()) for end in range(20)]
    assert np.abs(model.video_logits(features, 7).numpy() - np.stack(expected)).max() < 1e-6
    windows = gather(features, [2, 9, 19], model.config)
    assert np.abs(model(windows).numpy() - np.stack([expected[i] for i in (2, 9, 19)])).max() < 1e-6


def test_a_stream_and_an_exported_step_score_as_the_whole_video(model):
    features = video(40, width=WIDTH)
    scores, state = predict_ahead(model, features), streaming.create(model)
    stream = torch.stack([streaming.step_ahead(model, state, row, row[:0]) for row in features])
    assert (stream - scores).abs().max() < 1e-5
    description = describe(model.requires_grad_(False), 1)
    step = open_step(description, make_graph(model, description))
    kept = create(step)
    exported = np.stack([step_ahead(step, kept, row, row[:0]) for row in features.numpy()])
    assert np.abs(exported - scores.numpy()).max() < 1e-5


@torch.no_grad()
def test_scores_are_the_same_whatever_follows_and_in_batches_of_any_size(model):
    features = video(40, width=WIDTH)
    whole = model.video_logits(features, 64)
    for size in (1, 7, 40):
        torch.testing.assert_close(model.video_logits(features, size), whole, atol=1e-4, rtol=1e-5)  # of logits to 100
    other = torch.cat([features[:20], 10 * video(20, 1, WIDTH)])
    assert torch.equal(model.video_logits(other, 64)[:20], whole[:20])
    assert not torch.isclose(model.video_logits(other, 64)[20:], whole[20:]).all(dim=2).any()


def test_without_blocks_and_positions_a_score_is_that_of_the_mean_vector():
    model = tiny(kind="toad", rgb_dim=WIDTH, flow_dim=0, l_enc=0)
    torch.nn.init.zeros_(model.positions.weight)
    features = video(9, width=WIDTH)
    mean = torch.nn.functional.normalize(features[3:].mean(0), dim=0)
    torch.testing.assert_close(model.video_logits(features, 4)[-1, 0], 100 * model.classifier.weight @ mean)


def test_the_loss_is_of_the_first_label_and_half_of_the_next_chunk(model):
    windows = gather(video(30, width=WIDTH), [9, 19, 29], model.config)
    logits = model(windows)
    targets = torch.zeros(3, 2, 5)
    targets[0, 0, [1, 3]] = 1  # two labels: the first counts
    targets[0, 1, 2] = targets[1, 1, 0] = targets[2, 0, 0] = 1
    targets[1, 0, [2, 4]] = 1  # ambiguous: out
    counts = torch.tensor([[True, True], [True, True], [True, False]])
    loss = model.loss(logits, windows, Supervision(targets, counts, ignore=4))
    sure = logits[..., :4].log_softmax(-1)
    expected = -(sure[0, 0, 1] + sure[2, 0, 0]) / 2 - 0.5 * (sure[0, 1, 2] + sure[1, 1, 0]) / 2
    torch.testing.assert_close(loss, expected)


def test_the_published_size_and_its_first_weights():
    preset = presets()["toad-thumos14"]
    torch.manual_seed(0)
    made = make_model(preset.model, 21)
    learnt = {name: parameter.numel() for name, parameter in made.named_parameters()}
    blocks = sum(n for name, n in learnt.items() if name.startswith("blocks.") and name.endswith("weight"))
    assert blocks == 6 * 12 * 512**2 + 6 * 2 * 512 and learnt["positions.weight"] == 77 * 512
    assert sum(n for name, n in learnt.items() if "next_norm" in name) == 1024
    assert not any("classifier" in name or "feature_head" in name for name in learnt), "texts and features are frozen"
    for name, parameter in made.named_parameters():
        if "bias" in name:
            assert not parameter.any()
        elif "norm" not in name:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.02)
    assert torch.allclose(made.classifier.weight.norm(dim=1), torch.ones(21))
    assert {presets()[f"toad-{k}-shot"].train["shots"] for k in (1, 2, 4, 8)} == {1, 2, 4, 8}


def test_texts_are_taken_at_length_one_and_stored(model, tmp_path):
    now, after = torch.eye(5, WIDTH) * 7, torch.zeros(5, WIDTH)
    model.take_texts(now, after)
    assert torch.equal(model.classifier.weight, torch.eye(5, WIDTH)) and not model.next_classifier.weight.any()
    checkpoint.save(tmp_path / "toad.pt", model, tuple("abcde"), None, {})
    loaded = checkpoint.load(tmp_path / "toad.pt").model
    assert torch.equal(predict_ahead(loaded, video(9, width=WIDTH)), predict_ahead(model, video(9, width=WIDTH)))
    with pytest.raises(ConfigError, match="5 × 8 .* 5 × 16") as caught:
        model.take_texts(torch.eye(5, 8), torch.eye(5, 8))
    assert "model.d_model=8" in caught.value.hint


def test_mean_and_deviation_of_features_are_absorbed(model):
    features, mean, std = video(9, width=WIDTH), torch.randn(WIDTH), torch.rand(WIDTH) + 0.5
    before = model.video_logits((features - mean) / std, 4)
    model.absorb(mean, std)
    torch.testing.assert_close(model.video_logits(features, 4), before, atol=1e-3, rtol=1e-4)


def test_a_window_longer_than_the_table_of_positions_is_refused():
    with pytest.raises(ConfigError, match="work_length is 78"):
        configure(kind="toad", work_length=78)
    assert configure(kind="toad", work_length=77, l_enc=0).n_ahead == 1


def test_its_protocol_leaves_background_out_and_takes_the_first_label():
    """By hand: what a model says of background costs nothing there, and a second label is none."""
    targets = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 1, 0, 1]])
    scores = np.array([[0, 0.9, 0.1, 0], [0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0.4, 0.3, 0.3, 0], *[[1, 0, 0, 0]] * 2])
    assert TOAD_RULE.chosen(targets, CLASSES).tolist() == [False, True, True, True, False, True]
    keep = TOAD_RULE.chosen(targets, CLASSES)
    taken = TOAD_RULE.labelled(targets[keep], CLASSES)
    assert taken.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 1, 0, 0]]
    found = per_frame(TOAD_RULE.scored(scores[keep], CLASSES), taken, CLASSES)["per_class"]
    assert found["run"]["positives"] == 3 and found["jump"]["AP"] == 1
    standard = per_frame(scores, targets, CLASSES)["per_class"]
    assert standard["run"]["AP"] < found["run"]["AP"], "the false alarm on background is ranked first"
    assert replace(TOAD_RULE, first_label=False).labelled(targets[keep], CLASSES)[2].tolist() == [0, 1, 1, 0]
