"""Detection and evaluation with another recipe than the checkpoint's: refused, or allowed with a warning."""

import json
import shutil

import numpy as np
import pytest
import torch

from tests.support.backbones import build_backbone
from tests.support.errors import assert_error
from tests.support.feature_set import TINY_SETTINGS

ALLOW = ("--set", "recipe.allow_mismatch=true")


def test_features_of_another_recipe_are_scored_if_allowed(lstr, small_set, tmp_path):
    features = shutil.copytree(small_set.features, tmp_path / "features")
    recipe = json.loads((features / "recipe.json").read_text())
    (features / "recipe.json").write_text(json.dumps(recipe | {"long_side": 160}))
    output, difference = tmp_path / "out", "long_side: 160 against 96"
    detect = ("detect", features, "-c", small_set.checkpoint, "-o", output, "-f", "json,html")
    assert_error(lstr(*detect), 4, difference, ALLOW[1])
    code, _, err = lstr(*detect, *ALLOW)
    assert code == 0 and err.count(difference) == 1, "once for all four videos"
    documents = [json.loads(path.read_text()) for path in output.glob("*.json")]
    assert len(documents) == 4 and all(difference in timeline["warnings"][-1] for timeline in documents)
    assert difference in next(output.rglob("*.html")).read_text()
    evaluate = ("--labels", small_set.labels, "--json", *ALLOW)
    code, out, err = lstr("evaluate", small_set.checkpoint, features, *evaluate)
    assert code == 0 and difference in err and difference in json.loads(out)["warnings"][0]
    code, out, err = lstr("evaluate", small_set.checkpoint, small_set.features, *evaluate)
    assert code == 0 and " against " not in err and "warnings" not in json.loads(out)


@pytest.mark.long
def test_other_weights_and_flow_are_used_if_allowed(lstr, run, small_set, tmp_path):
    torch.manual_seed(0)
    torch.save(build_backbone("efficientnet-lite0").state_dict(), tmp_path / "own.pth")
    detect = ["detect", small_set.videos / "scene_00.mp4", "-c", small_set.checkpoint, "-o", tmp_path / "out"]
    flow, weights = ("--set", "recipe.flow_algorithm=dis"), ("--weights", f"rgb={tmp_path / 'own.pth'}")
    assert_error(lstr(*detect, *flow), 4, "'dis-medium' against 'tvl1-opencv5'", ALLOW[1])
    assert_error(lstr(*detect, *weights), 4, "'custom' against 'random'", ALLOW[1])
    assert not (tmp_path / "out").exists()
    _, err = run(*detect, "-f", "json", *flow, *weights, *ALLOW)
    timeline = json.loads((tmp_path / "out" / "scene_00.json").read_text())
    for text in ("flow_algorithm: 'dis-medium' against 'tvl1-opencv5'", "rgb.sha256", "rgb.weights: 'custom' against"):
        assert text in err and text in timeline["warnings"][-1]
    assert timeline["chunks"] == 20


def test_names_and_rates_of_features_of_other_programs_are_reported(feature_set, run, tmp_path):
    labels, settings = ("--labels", feature_set.labels), [f"--set={name}={x}" for name, x in TINY_SETTINGS.items()]
    train = [*labels, *settings, "--set", "train.max_steps=2", "--preset", "lstr-small"]
    assert "a second" not in run("train", feature_set.features, "-o", tmp_path / "run", *train)[1]
    other = shutil.copytree(feature_set.features, tmp_path / "other")
    (other / "rgb_x").rename(other / "rgb_y")
    for path in other.rglob("*.npy"):
        np.save(path, np.repeat(np.load(path), 2, axis=0))
    warnings = []
    for features in (feature_set.features, other):
        command = ("evaluate", tmp_path / "run" / "checkpoint.pt", features, *labels, "--subset", "validation")
        _, err = run(*command, "--set", "resamples=0")
        warnings.append(err)
    assert "warning" not in warnings[0]
    assert all(text in warnings[1] for text in ("rgb_x, flow_x", "rgb_y, flow_x", "v3: 128 chunks"))
    assert "8 a second instead of 4" in run("train", other, "-o", tmp_path / "run2", *train)[1]
