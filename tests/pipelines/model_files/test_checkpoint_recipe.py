"""Detecting and evaluating with another recipe than the checkpoint's: refused, or allowed aloud and on record."""

import json
import shutil

import numpy as np
import pytest
import torch

from tests.support.backbones import build_backbone
from tests.support.errors import assert_error
from tests.support.feature_set import TINY_SETTINGS

ALLOW = ("--set", "recipe.allow_mismatch=true")


def timelines(folder) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))]


def test_features_of_another_recipe_are_scored_where_that_is_allowed(lstr, small_set, tmp_path):
    features = shutil.copytree(small_set.features, tmp_path / "features")
    recipe = json.loads((features / "recipe.json").read_text())
    (features / "recipe.json").write_text(json.dumps(recipe | {"long_side": 160}))
    output, said = tmp_path / "out", "long_side: 160 against 96"
    detect = ("detect", features, "-c", small_set.checkpoint, "-o", output, "-f", "json,html")
    evaluate = ("evaluate", small_set.checkpoint, features, "--labels", small_set.labels, "--json")
    for command in (detect, evaluate):
        assert_error(lstr(*command), 4, said, ALLOW[1])
    code, _, err = lstr(*detect, *ALLOW)
    assert code == 0 and err.count(said) == 1, "said once, not for each of the four videos"
    found = timelines(output)
    assert len(found) == 4 and all(said in t["warnings"][-1] for t in found)
    assert said in next(output.rglob("*.html")).read_text()
    code, out, err = lstr(*evaluate, *ALLOW)
    assert code == 0 and said in err and said in json.loads(out)["warnings"][0]
    same = ("evaluate", small_set.checkpoint, small_set.features, "--labels", small_set.labels, "--json")
    code, out, err = lstr(*same, *ALLOW)
    assert code == 0 and " against " not in err and "warnings" not in json.loads(out)


@pytest.mark.long
def test_other_weights_and_other_flow_are_taken_where_that_is_allowed(lstr, small_set, tmp_path):
    torch.manual_seed(0)
    torch.save(build_backbone("mobilenetv3").state_dict(), tmp_path / "own.pth")
    video = next(small_set.videos.rglob("*.mp4"))
    detect = ["detect", video, "-c", small_set.checkpoint, "-o", tmp_path / "out", "-f", "json"]
    flow, weights = ("--set", "recipe.flow_algorithm=dis"), ("--weights", f"rgb={tmp_path / 'own.pth'}")
    assert_error(lstr(*detect, *flow), 4, '"dis-medium" against "tvl1-opencv5"', ALLOW[1])
    assert_error(lstr(*detect, *weights), 4, '"custom" against "random"', ALLOW[1])
    assert not timelines(tmp_path)
    code, _, err = lstr(*detect, *flow, *weights, *ALLOW)
    assert code == 0, err
    (timeline,) = timelines(tmp_path / "out")
    for text in ('flow_algorithm: "dis-medium" against "tvl1-opencv5"', "rgb.sha256", 'rgb.weights: "custom" against'):
        assert text in err and text in timeline["warnings"][-1]
    assert timeline["chunks"] == 20


def test_features_of_other_people_by_another_name_or_rate_are_warned_of(feature_set, lstr, tmp_path):
    """They state no recipe: what can be seen is what they are called, and how many there are."""
    words = [word for pair in TINY_SETTINGS.items() for word in ("--set", "=".join(pair))]
    words += ["--labels", feature_set.labels, "--set", "train.max_steps=2", "--preset", "lstr-small"]
    code, _, err = lstr("train", feature_set.features, "-o", tmp_path / "run", *words)
    assert code == 0 and "a second" not in err
    evaluate = ["evaluate", tmp_path / "run" / "checkpoint.pt"]
    more = ["--labels", feature_set.labels, "--subset", "validation", "--set", "resamples=0"]
    code, _, err = lstr(*evaluate, feature_set.features, *more)
    assert code == 0 and "warning" not in err
    other = shutil.copytree(feature_set.features, tmp_path / "other")
    (other / "rgb_x").rename(other / "rgb_y")
    code, _, err = lstr(*evaluate, other, *more)
    assert code == 0 and "rgb_x, flow_x" in err and "rgb_y, flow_x" in err
    for path in other.rglob("*.npy"):
        np.save(path, np.repeat(np.load(path), 2, axis=0))
    code, _, err = lstr(*evaluate, other, *more)
    assert code == 0 and "v3: 128 chunks" in err
    code, _, err = lstr("train", other, "-o", tmp_path / "run2", *words)
    assert code == 0 and "8 a second instead of 4" in err
