"""IDN, FATS and WOAD: scores, losses and gradients of their published code."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lstr import checkpoint, streaming
from lstr.batch import predict
from lstr.models import woad
from lstr.models.woad import CONFIDENCE, pseudo_targets, runs_of
from lstr.windows.windows import Supervision, gather, multi_hot_cross_entropy
from tests.support.tiny_models import tiny, video

WOAD_FILE = "data/golden_peers/woad_small.pth"
WOAD = {"rgb_dim": 24, "flow_dim": 0, "work_length": 26, "unroll": 8}


def golden(shared, name):
    """Return the arrays and the description of a published set."""
    folder = shared / "data" / "golden_peers"
    with np.load(folder / f"{name}_small.npz") as file:
        arrays = {key: torch.from_numpy(file[key]) for key in file.files}
    return arrays, json.loads((folder / f"{name}_small.json").read_text())


def published(path, name, settings):
    """Return the model of a file with published weights, and with the settings that no tensor defines."""
    loaded = checkpoint.load(path, {**settings, "dropout": 0.0})
    assert loaded.config.kind == name
    return loaded.model


def check_gradients(model, published):
    norms = sorted(p.grad.norm().item() for p in model.parameters())
    assert np.allclose(norms, sorted(published.values()), rtol=1e-4)


def test_idn_has_the_published_logits_and_loss(shared, tmp_path):
    arrays, about = golden(shared, "idn")
    settings = {"rgb_dim": about["rgb_dim"], "flow_dim": about["flow_dim"], "work_length": about["chunks"]}
    # its weights are a TensorFlow checkpoint's, by variable names
    weights = {key.removeprefix("weight:"): tensor for key, tensor in arrays.items() if key.startswith("weight:")}
    torch.save(weights, tmp_path / "idn.pth")
    model = published(tmp_path / "idn.pth", "idn", settings)
    features = torch.cat([arrays["rgb"], arrays["flow"]], 1).float()
    ends = arrays["window_ends"]
    assert (predict(model, features)[ends] - arrays["probs_newest"]).abs().max() < 1e-6
    windows = gather(features, ends.numpy(), model.config)
    with torch.no_grad():
        logits, early, squared = model(windows)
    assert (logits - arrays["logits"]).abs().max() < 1e-5 and (early - arrays["early_logits"]).abs().max() < 1e-5
    embedded = arrays["early_embedding"]
    assert (squared - (embedded - embedded[:, -1:]).square().sum(-1)).abs().max() < 1e-4
    targets = arrays["labels"][ends[:, None] + torch.arange(1 - about["chunks"], 1)].float()
    loss = model.loss((logits, early, squared), windows, Supervision(targets, windows.work_mask))
    contrastive = torch.where(arrays["similarity_labels"], squared, (1 - squared).clamp(min=0)).mean()
    entropy = [-(targets * x.log_softmax(-1)).sum(-1).mean() for x in (logits, early)]
    torch.testing.assert_close(loss, entropy[0] + 0.3 * (entropy[1] + contrastive))


def test_fats_has_the_published_scores_losses_and_gradients(shared):
    arrays, about = golden(shared, "fats")
    W, n = about["frame_length"], about["train_seg_length"]
    settings = {"rgb_dim": 20, "flow_dim": 0, "work_length": W, "generated": about["gen_feature_len"]}
    model = published(shared / "data" / "golden_peers" / "fats_small.pth", "fats", settings)
    for name in ("stream_v0", "stream_v1"):
        scores, expected = predict(model, arrays[f"{name}_features"]), arrays[f"{name}_pred"]
        assert (scores[:, 1:] - expected[:, 1:]).abs().max() < 1e-6
        runs = torch.clamp(torch.arange(len(expected)) // 2 + 1, max=about["infer_steps"])
        # the published code adds 1 to the background's sum over runs
        assert (scores[:, 0] - (expected[:, 0] - 1 / runs)).abs().max() < 1e-6
    rows = arrays["window_features"][:, :W]
    exact = model.double().run_logits(rows.double())
    assert (exact - arrays["window_logits_alone"]).abs().max() < 2e-6, "the published logits are 1.1e-6 off"
    model.float()
    logits, *cycles = model.prefix(rows, n, arrays["train_prev_prob"])
    halves = zip(cycles, (rows[:, :n], rows[:, -n:]), strict=True)
    losses = [(cycle - half).square().mean((0, 2)).sum() for cycle, half in halves]
    losses.append(F.binary_cross_entropy_with_logits(logits, arrays["train_targets"][:, n - 1]))
    for name, loss in zip(("first_half_loss_sum", "second_half_loss_sum", "action_loss"), losses, strict=True):
        assert loss.item() == pytest.approx(arrays[f"train_{name}"].item(), rel=1e-5)
    model.train()
    windows = replace(gather(rows[0], [7] * 3, model.config), work=rows)
    loss = model.loss((logits, *cycles), windows, Supervision(arrays["train_targets"][:, :W], windows.work_mask))
    torch.testing.assert_close(loss, sum(losses))
    loss.backward()
    check_gradients(model, about["train_gradient_norms"])


def test_woad_has_the_published_scores_and_starts(shared):
    arrays, _ = golden(shared, "woad")
    model, features = published(shared / WOAD_FILE, "woad", WOAD), arrays["stream_features"]
    with torch.no_grad():
        logits = model.video_logits(features, 64)[:, 0]
    assert (logits - arrays["stream_action_logits"]).abs().max() < 1e-6
    state, starts = streaming.create(model), []
    for row in features:
        streaming.step(model, state, row, None)
        starts.append(state.tensors["start"][0, 0].clone())
    assert (torch.stack(starts) - arrays["stream_start_logits"].softmax(-1)[:, 1]).abs().max() < 1e-6


def test_woad_has_the_published_losses_and_gradients(shared):
    arrays, about = golden(shared, "woad")
    model, features = published(shared / WOAD_FILE, "woad", WOAD), arrays["train_features"]
    labels, targets = arrays["train_video_labels"].float(), arrays["train_targets"].float()
    present = torch.arange(26) < arrays["train_lengths"][:, None]
    logits, starts, activity, tokens = model(replace(gather(features[0], [25] * 7, model.config), work=features))
    expected = about["losses_with_pseudo_labels"]
    losses = {
        "frameloss": multi_hot_cross_entropy(logits, targets[:, :24]),  # theirs has the padding as background
        "milloss": woad.video_loss(activity, labels, present),
        "casloss": woad.likeness_loss(tokens, activity, labels, present, [(0, 1), (2, 3), (4, 5)]),
        "startloss": woad.focal_loss(arrays["train_start_loss_logits"], arrays["train_start_loss_targets"]),
    }
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(
        {name: expected[name] for name in losses}, rel=1e-5
    )
    by_step = arrays["train_start_logits"].unflatten(0, (8, 7, 3)).permute(1, 2, 0, 3).flatten(1, 2)
    assert (starts - by_step).abs().max() < 1e-5
    # the published order of starts and of the negatives that it draws
    in_order = [
        x.unflatten(1, (3, 8)).permute(2, 0, 1).flatten()
        for x in (arrays["train_starts"][:, :24], starts[..., 0], starts[..., 1])
    ]
    positive, flat = in_order[0] > 0, torch.stack(in_order[1:], -1)
    n = int(positive.sum())
    drawn = torch.cat([flat[positive], flat[~positive][arrays["train_negative_permutation"][: 3 * n]]])
    focal = woad.focal_loss(drawn, torch.arange(len(drawn)).lt(n).long())
    total = losses["frameloss"] + focal + 0.5 * (losses["milloss"] + losses["casloss"])
    assert total.item() == pytest.approx(expected["total_loss"], rel=1e-5)
    total.backward()
    check_gradients(model, about["gradient_norms_with_pseudo_labels"])


def test_woad_makes_the_published_pseudo_labels(shared):
    arrays, about = golden(shared, "woad")
    segments, labels_of = (about["pseudo"][key] for key in ("segments_before_label_filter", "video_labels"))
    for name, expected, video_labels in zip("abc", segments, labels_of, strict=True):
        activity = arrays[f"pseudo_activations_{name}"]
        runs = [(f"c{k}", *run) for k, of_class in enumerate(runs_of(activity)) for run in of_class]
        assert [run[:3] for run in runs] == [tuple(run[:3]) for run in expected]
        assert np.allclose([run[3] for run in runs], [run[3] for run in expected], atol=1e-5)
        labels = torch.tensor([[float(f"c{k}" in video_labels) for k in range(5)]])
        targets, starts, usable = pseudo_targets(activity[None], labels, torch.ones(1, len(activity), dtype=torch.bool))
        assert torch.equal(targets[0], arrays[f"pseudo_targets_{name}"][:, 1:].float())
        assert torch.equal(starts[0], arrays[f"pseudo_starts_{name}"] > 0)
        assert bool(usable) == (set(video_labels) <= {run[0] for run in runs if run[3] >= CONFIDENCE})


def test_woad_supervised_by_videos_ignores_the_times_of_actions():
    model = tiny(kind="woad", work_length=16, supervision="video").train()
    model.batches.fill_(1000)
    windows = gather(video(16), [15], model.config)

    def loss(first):
        targets = torch.zeros(1, 16, 5)
        targets[:, :, 0] = 1
        targets[0, first : first + 3] = torch.tensor([0, 0, 1.0, 0, 0])
        torch.manual_seed(1)
        return model.loss(model(windows), windows, Supervision(targets, windows.work_mask)).item()

    by_video = loss(2)
    assert by_video == loss(9) > 0
    model.config = model.config.replace(supervision="segment")
    assert loss(9) != by_video
