"""Numbers recorded from the published implementation, and from its evaluation."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from lstr import batch, checkpoint, streaming
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.metrics import per_frame as action_stages
from lstr.metrics import per_frame as metrics
from lstr.windows import windows
from lstr.windows.windows import multi_hot_cross_entropy


@pytest.fixture(scope="module")
def golden(shared):
    folder = shared / "data" / "golden"
    missing = [name for name in ("lstr_small.pth", "metrics_small.npz") if not (folder / name).is_file()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in {folder}")
    return folder


@pytest.fixture(scope="module")
def model(golden):
    return checkpoint.load(golden / "lstr_small.pth", {"n_heads": "4", "long_length": "128"}).model


@pytest.fixture(scope="module")
def video(golden):
    with np.load(golden / "lstr_small.npz") as arrays:
        return dict(arrays)


def test_batch_probabilities(model, video):
    scores = batch.predict(model, np.concatenate([video["rgb"], video["flow"]], axis=1))
    assert scores.shape == (260, 22)
    np.testing.assert_allclose(scores, video["probabilities"], atol=1e-5, rtol=0)


def test_stream_probabilities(model, video):
    state = streaming.create(model)
    scores = [streaming.step(model, state, *chunk) for chunk in zip(video["rgb"], video["flow"], strict=True)]
    scores = torch.stack(scores)
    assert scores.shape == (260, 22)
    np.testing.assert_allclose(scores, video["probabilities"], atol=1e-5, rtol=0)


def test_first_window_logits_and_loss(golden, model, video):
    features = np.concatenate([video["rgb"], video["flow"]], axis=1)
    with torch.no_grad():
        logits = model(windows.gather(features, [31], model.config))[0]
    np.testing.assert_allclose(logits, video["first_window_logits"], atol=1e-5, rtol=0)
    loss = multi_hot_cross_entropy(logits, torch.from_numpy(video["target"][:32]), ignore=21)
    expected = json.loads((golden / "lstr_small.json").read_text())["first_window_loss"]
    assert loss.item() == pytest.approx(expected, abs=1e-5)


@pytest.fixture(scope="module")
def evaluated(golden):
    expected = json.loads((golden / "metrics_small.json").read_text())
    assert tuple(expected["class_names"]) == THUMOS_CLASSES
    with np.load(golden / "metrics_small.npz") as arrays:
        return expected, arrays["scores"], arrays["target"]


def equals(result, key, expected):
    assert result[f"m{key}"] == pytest.approx(expected["mean"], abs=1e-6)
    ours = {label: entry[key] for label, entry in result["per_class"].items()}
    assert ours == pytest.approx(expected["per_class"], abs=1e-6)


def test_metrics(evaluated):
    expected, scores, targets = evaluated
    result = metrics.per_frame(scores, targets, expected["class_names"])
    equals(result, "AP", expected["mAP"])
    equals(result, "cAP", expected["mcAP"])


def test_ambiguous_chunks_are_in_neither_published_metric_of_thumos(golden, evaluated):
    expected, scores, _ = evaluated
    if "ambiguous" not in expected:
        pytest.skip("metrics_small.json has no entry `ambiguous`")
    with np.load(golden / "metrics_small.npz") as arrays:
        targets = arrays["target_ambiguous"]
    result = metrics.per_frame(scores, targets, expected["class_names"])
    equals(result, "AP", expected["ambiguous"]["AP"])
    equals(result, "cAP", expected["ambiguous"]["cAP"])
    with_all = metrics.per_frame(scores, targets, expected["class_names"], ignore=None)
    equals(with_all, "cAP", expected["ambiguous"]["cAP_without_rule"])
    assert with_all["mcAP"] - result["mcAP"] > 1e-4, "the two would not be told apart"


def test_metrics_per_stage(evaluated):
    expected, scores, targets = evaluated
    for row in action_stages.published_per_stage(scores, targets, expected["class_names"]):
        ours = {label: entry["cAP"] for label, entry in row["per_class"].items()}
        assert ours == pytest.approx(expected["stages_cAP"][row["stage"]], abs=1e-6)
