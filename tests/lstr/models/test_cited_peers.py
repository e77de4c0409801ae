"""IDN, FATS and WOAD against their published code, and what their streams and losses promise."""

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


@pytest.fixture
def golden(shared):
    """Arrays and description by name."""

    def read(name):
        folder = shared / "data" / "golden_peers"
        with np.load(folder / f"{name}_small.npz") as file:
            arrays = {key: torch.from_numpy(file[key]) for key in file.files}
        return arrays, json.loads((folder / f"{name}_small.json").read_text())

    return read


@pytest.fixture
def published(shared, golden, tmp_path):
    """A model of a kind from its published file by the keys, with what no tensor tells."""

    def load(name, changes):
        path = shared / "data" / "golden_peers" / f"{name}_small.pth"
        if name == "idn":  # its weights are a TensorFlow checkpoint's, by variable names
            kept = {key.removeprefix("weight:"): a for key, a in golden("idn")[0].items() if key.startswith("weight:")}
            path = tmp_path / "idn.pth"
            torch.save(kept, path)
        loaded = checkpoint.load(path, {**changes, "dropout": 0.0})
        assert loaded.config.kind == name
        return loaded.model

    return load


def test_idn_gives_the_published_logits_at_every_position(golden, published):
    arrays, about = golden("idn")
    model = published(
        "idn", {"rgb_dim": about["rgb_dim"], "flow_dim": about["flow_dim"], "work_length": about["chunks"]}
    )
    features = torch.cat([arrays["rgb"], arrays["flow"]], 1).float()
    ends = arrays["window_ends"].numpy()
    scores = predict(model, features)[torch.from_numpy(ends)]
    assert (scores - arrays["probs_newest"]).abs().max() < 1e-6
    windows = gather(features, ends, model.config)
    with torch.no_grad():
        logits, early, squared = model(windows)
    assert (logits - arrays["logits"]).abs().max() < 1e-5 and (early - arrays["early_logits"]).abs().max() < 1e-5
    embedded = arrays["early_embedding"]
    assert (squared - (embedded - embedded[:, -1:]).square().sum(-1)).abs().max() < 1e-4
    rows = torch.from_numpy(ends)[:, None] + torch.arange(1 - about["chunks"], 1)
    targets = arrays["labels"][rows].float()
    loss = model.loss((logits, early, squared), windows, Supervision(targets, windows.work_mask))
    same = arrays["similarity_labels"]
    contrastive = torch.where(same, squared, (1 - squared).clamp(min=0)).mean()
    entropy = [-(targets * x.log_softmax(-1)).sum(-1).mean() for x in (logits, early)]
    torch.testing.assert_close(loss, entropy[0] + 0.3 * (entropy[1] + contrastive))


def test_fats_gives_the_published_scores_and_losses(golden, published):
    arrays, about = golden("fats")
    model = published(
        "fats",
        {"rgb_dim": 20, "flow_dim": 0, "work_length": about["frame_length"], "generated": about["gen_feature_len"]},
    )
    for name in ("stream_v0", "stream_v1"):
        scores, expected = predict(model, arrays[f"{name}_features"]), arrays[f"{name}_pred"]
        assert (scores[:, 1:] - expected[:, 1:]).abs().max() < 1e-6
        runs = torch.clamp(torch.arange(len(expected)) // 2 + 1, max=about["infer_steps"])
        assert (scores[:, 0] - (expected[:, 0] - 1 / runs)).abs().max() < 1e-6, "the published 1 is left out"
    rows, n = arrays["window_features"][:, : about["frame_length"]], about["train_seg_length"]
    exact = model.double().run_logits(rows.double())
    assert (exact - arrays["window_logits_alone"]).abs().max() < 2e-6, "the published logits are 1.1e-6 off"
    model.float()
    logits, *cycles = model.prefix(rows, n, arrays["train_prev_prob"])
    errors = [
        (cycle - true).square().mean((0, 2)).sum()
        for cycle, true in zip(cycles, (rows[:, :n], rows[:, -n:]), strict=True)
    ]
    action = F.binary_cross_entropy_with_logits(logits, arrays["train_targets"][:, n - 1])
    published_losses = [
        arrays[f"train_{name}"] for name in ("first_half_loss_sum", "second_half_loss_sum", "action_loss")
    ]
    for ours, theirs in zip([*errors, action], published_losses, strict=True):
        assert abs(ours.item() - theirs) < 1e-5 * theirs
    model.train()
    targets = arrays["train_targets"][:, : about["frame_length"]]
    windows = replace(gather(rows[0], [7] * 3, model.config), work=rows)
    supervision = Supervision(targets, windows.work_mask)
    loss = model.loss((logits, *cycles), windows, supervision)
    torch.testing.assert_close(loss, sum(errors) + action)
    loss.backward()
    norms = sorted(p.grad.norm().item() for p in model.parameters())
    assert np.allclose(norms, sorted(about["train_gradient_norms"].values()), rtol=1e-4)


def test_woad_gives_the_published_scores_and_starts(golden, published):
    arrays, _ = golden("woad")
    model = published("woad", {"rgb_dim": 24, "flow_dim": 0, "work_length": 26, "unroll": 8})
    features = arrays["stream_features"]
    with torch.no_grad():
        logits = model.video_logits(features, 64)[:, 0]
    assert (logits - arrays["stream_action_logits"]).abs().max() < 1e-6
    state, begins = streaming.create(model), []
    for row in features:
        streaming.step(model, state, row, None)
        begins.append(state.tensors["start"][0, 0].clone())
    assert (torch.stack(begins) - arrays["stream_start_logits"].softmax(-1)[:, 1]).abs().max() < 1e-6


def test_woad_has_the_published_losses(golden, published):
    arrays, about = golden("woad")
    model = published("woad", {"rgb_dim": 24, "flow_dim": 0, "work_length": 26, "unroll": 8})
    features, labels = arrays["train_features"], arrays["train_video_labels"].float()
    present = torch.arange(26) < arrays["train_lengths"][:, None]
    windows = replace(gather(features[0], [25] * 7, model.config), work=features)
    logits, starts, activity, tokens = model(windows)
    targets = arrays["train_targets"].float()
    theirs = about["losses_with_pseudo_labels"]
    drawn = woad.focal_loss(arrays["train_start_loss_logits"], arrays["train_start_loss_targets"])
    ours = {
        "frameloss": multi_hot_cross_entropy(logits, targets[:, :24]),  # theirs has the padding as background
        "milloss": woad.video_loss(activity, labels, present),
        "casloss": woad.likeness_loss(tokens, activity, labels, present, [(0, 1), (2, 3), (4, 5)]),
        "startloss": drawn,
    }
    for name, value in ours.items():
        assert abs(value.item() - theirs[name]) < 1e-5 * theirs[name], name
    by_step = arrays["train_start_logits"].unflatten(0, (8, 7, 3)).permute(1, 2, 0, 3).flatten(1, 2)
    assert (starts - by_step).abs().max() < 1e-5
    permuted, begins = arrays["train_negative_permutation"], arrays["train_starts"][:, :24]
    in_order = [x.unflatten(1, (3, 8)).permute(2, 0, 1).flatten() for x in (begins, starts[..., 0], starts[..., 1])]
    first, flat = in_order[0] > 0, torch.stack(in_order[1:], -1)
    others = flat[~first][permuted[: 3 * int(first.sum())]]
    chosen = torch.cat([flat[first], others])
    focal = woad.focal_loss(chosen, torch.arange(len(chosen)).lt(int(first.sum())).long())
    total = ours["frameloss"] + focal + 0.5 * (ours["milloss"] + ours["casloss"])
    assert abs(total.item() - theirs["total_loss"]) < 1e-5 * theirs["total_loss"]
    total.backward()
    norms = sorted(p.grad.norm().item() for p in model.parameters())
    assert np.allclose(norms, sorted(about["gradient_norms_with_pseudo_labels"].values()), rtol=1e-4)


def test_woad_makes_the_published_labels(golden):
    arrays, about = golden("woad")
    for i, name in enumerate("abc"):
        activity = arrays[f"pseudo_activations_{name}"]
        runs = [(f"c{k}", *run) for k, of_class in enumerate(runs_of(activity)) for run in of_class]
        expected = about["pseudo"]["segments_before_label_filter"][i]
        assert [run[:3] for run in runs] == [tuple(run[:3]) for run in expected]
        assert np.allclose([run[3] for run in runs], [run[3] for run in expected], atol=1e-5)
        labels = torch.tensor([[float(f"c{k}" in about["pseudo"]["video_labels"][i]) for k in range(5)]])
        targets, starts, usable = pseudo_targets(activity[None], labels, torch.ones(1, len(activity), dtype=torch.bool))
        assert torch.equal(targets[0], arrays[f"pseudo_targets_{name}"][:, 1:].float())
        assert torch.equal(starts[0], arrays[f"pseudo_starts_{name}"] > 0)
        best = {run[0] for run in runs if run[3] >= CONFIDENCE}
        assert bool(usable) == (set(about["pseudo"]["video_labels"][i]) <= best)


def test_woad_of_videos_reads_no_times():
    """The loss of supervision by videos is the same wherever in its window an action is."""
    model = tiny(kind="woad", work_length=16, supervision="video").train()
    model.batches.fill_(1000)
    windows = gather(video(16), [15], model.config)
    losses = []
    for first in (2, 9):
        targets = torch.zeros(1, 16, 5)
        targets[:, :, 0] = 1
        targets[0, first : first + 3] = torch.tensor([0, 0, 1.0, 0, 0])
        torch.manual_seed(1)
        losses.append(model.loss(model(windows), windows, Supervision(targets, windows.work_mask)).item())
    assert losses[0] == losses[1] > 0
    model.config = model.config.replace(supervision="segment")
    torch.manual_seed(1)
    assert model.loss(model(windows), windows, Supervision(targets, windows.work_mask)).item() != losses[1]
