"""Detecting and evaluating with another recipe than the checkpoint's: refused, or allowed aloud and on record."""

import json
import shutil

import numpy as np
import pytest
import torch

from tests.support.backbones import build_backbone
from tests.support.feature_set import TINY_SETTINGS

ALLOW = "--set recipe.allow_mismatch=true"


@pytest.fixture
def other_features(small_set, tmp_path):
    """The same arrays under a recipe that says something else of them."""
    features = tmp_path / "features"
    shutil.copytree(small_set.features, features)
    recipe = json.loads((features / "recipe.json").read_text())
    (features / "recipe.json").write_text(json.dumps(recipe | {"long_side": 160}))
    return features


def timelines(folder) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))]


def test_features_of_another_recipe_are_scored_where_that_is_allowed(lstr, small_set, other_features, tmp_path):
    detect = ["detect", other_features, "-c", small_set.checkpoint, "-o", tmp_path / "out", "-f", "json,html"]
    code, _, err = lstr(*detect)
    assert code == 4 and "long_side: 160 against 96" in err and ALLOW in err
    code, _, err = lstr(*detect, *ALLOW.split())
    assert code == 0 and err.count("long_side: 160 against 96") == 1, "said once, not for each of the four videos"
    found = timelines(tmp_path / "out")
    assert len(found) == 4 and all("long_side: 160 against 96" in t["warnings"][-1] for t in found)
    assert "long_side: 160 against 96" in next((tmp_path / "out").rglob("*.html")).read_text()
    evaluate = ["evaluate", small_set.checkpoint, other_features, "--labels", small_set.labels, "--json"]
    code, _, err = lstr(*evaluate)
    assert code == 4 and ALLOW in err
    code, out, err = lstr(*evaluate, *ALLOW.split())
    assert code == 0 and "long_side: 160" in err and "long_side: 160" in json.loads(out)["warnings"][0]
    code, out, err = lstr(
        "evaluate", small_set.checkpoint, small_set.features, "--labels", small_set.labels, "--json", *ALLOW.split()
    )
    assert code == 0 and "another recipe" not in err and "warnings" not in json.loads(out)


@pytest.mark.long
def test_other_weights_and_other_flow_are_taken_where_that_is_allowed(lstr, small_set, tmp_path):
    torch.manual_seed(0)
    torch.save(build_backbone("mobilenetv3").state_dict(), tmp_path / "own.pth")
    video = next(small_set.videos.rglob("*.mp4"))
    detect = ["detect", video, "-c", small_set.checkpoint, "-o", tmp_path / "out", "-f", "json"]
    code, _, err = lstr(*detect, "--set", "recipe.flow_algorithm=dis")
    assert code == 4 and '"dis-medium" against "tvl1-opencv5"' in err and ALLOW in err and not timelines(tmp_path)
    code, _, err = lstr(*detect, "--weights", f"rgb={tmp_path / 'own.pth'}")
    assert code == 4 and '"custom" against "random"' in err and ALLOW in err and not timelines(tmp_path)
    code, _, err = lstr(
        *detect, "--set", "recipe.flow_algorithm=dis", "--weights", f"rgb={tmp_path / 'own.pth'}", *ALLOW.split()
    )
    assert code == 0, err
    (timeline,) = timelines(tmp_path / "out")
    for text in ('flow_algorithm: "dis-medium" against "tvl1-opencv5"', "rgb.sha256", 'rgb.weights: "custom" against'):
        assert text in err and text in timeline["warnings"][-1]
    assert timeline["chunks"] == 20
    code, _, err = lstr(*detect, *ALLOW.split())
    assert code == 0 and "another recipe" not in err, "nothing differs, so nothing is said"


def test_features_of_other_people_by_another_name_or_rate_are_warned_of(feature_set, lstr, tmp_path):
    """They state no recipe: what can be seen is what they are called, and how many there are."""
    words = [word for pair in TINY_SETTINGS.items() for word in ("--set", "=".join(pair))]
    train = ["train", feature_set.features, "--labels", feature_set.labels, "-o", tmp_path / "run", *words]
    code, _, err = lstr(*train, "--set", "train.max_steps=2", "--preset", "lstr-small")
    assert code == 0 and "a second instead of" not in err
    evaluate = ["evaluate", tmp_path / "run" / "checkpoint.pt"]
    more = ["--labels", feature_set.labels, "--subset", "validation", "--set", "resamples=0"]
    code, _, err = lstr(*evaluate, feature_set.features, *more)
    assert code == 0 and "warning" not in err
    other = shutil.copytree(feature_set.features, tmp_path / "other")
    (other / "rgb_x").rename(other / "rgb_y")
    code, _, err = lstr(*evaluate, other, *more)
    assert code == 0 and "was trained on arrays called rgb_x, flow_x, and these are called rgb_y, flow_x" in err
    for path in other.rglob("*.npy"):
        np.save(path, np.repeat(np.load(path), 2, axis=0))
    code, _, err = lstr(*evaluate, other, *more)
    assert code == 0 and "2 of 2 videos are 2 times as long as the labels say (v3: 128 chunks" in err
    train[1:2] = [other]
    train[train.index("-o") + 1] = tmp_path / "run2"
    code, _, err = lstr(*train, "--set", "train.max_steps=2", "--preset", "lstr-small")
    assert code == 0 and "8 a second instead of 4" in err
