"""The LSTR paper's peers by the commands: train, evaluate as a batch and as a stream, detect."""

import json

import numpy as np
import pytest
import torch

from lstr.batch import predict
from lstr.kinds import configure, make_model


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", ["idn", "fats", "woad", "efc", "ed", "red", "ttm", "lap-like", "tfn-like", "conv-deconv"]
)
def test_a_peer_trains_and_detects_by_the_commands(kind, lstr, small_set, tmp_path):
    settings = {"model.kind": kind, "model.d_model": 16, "train.epochs": 2, "train.accumulate": 2}
    if kind == "woad":
        settings["model.supervision"] = "video"
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    labels = ("--labels", small_set.labels)
    code, _, err = lstr(
        "train", small_set.features, *labels, "-o", tmp_path / "run", "--preset", "lstr-small", *options
    )
    assert code == 0, err
    scored = []
    for mode in ("batch", "stream"):
        how = ("--set", f"mode={mode}", "--allow-seen", "--subset", "training", "--json")
        code, out, err = lstr("evaluate", tmp_path / "run" / "checkpoint.pt", small_set.features, *labels, *how)
        assert code == 0, err
        scored.append(json.loads(out)["lstr"]["mAP"])
    assert scored[0] == pytest.approx(scored[1], abs=1e-4)
    how = (small_set.features, "-c", tmp_path / "run" / "checkpoint.pt", "-o", tmp_path, "-f", "json")
    code, _, err = lstr("detect", *how)
    assert code == 0 and (tmp_path / "scene_00.json").exists(), err


def test_a_scale_of_features_is_absorbed_by_a_kind_without_a_first_layer():
    """FATS takes features as they come; those it was trained on had been brought to one scale."""
    torch.manual_seed(0)
    model = make_model(configure(kind="fats", rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, generated=2), 4).eval()
    mean, std = torch.randn(8), torch.rand(8) + 0.5
    features = torch.randn(40, 8)
    expected = predict(model, (features - mean) / std)
    model.absorb(mean, std)
    np.testing.assert_allclose(predict(model, features), expected, atol=1e-5)
