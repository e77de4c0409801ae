"""Features, models and detections of one stream alone."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lstr.extractors.flow.workers import FlowWorkers
from lstr.pipelines.features.folder import open_features
from tests.support.feature_set import TINY

pytestmark = pytest.mark.long

SETTINGS = [f"--set=model.{name}={value}" for name, value in TINY.items()]


@dataclass(frozen=True)
class OneStream:
    """Two videos of the small set, one to train on and one to test on."""

    videos: Path
    labels: Path
    recipe: Path


@pytest.fixture
def two(small_set, tmp_path) -> OneStream:
    database = json.loads(small_set.labels.read_text())
    subsets = {}
    for video_id, video in database["database"].items():
        subsets.setdefault(video["subset"], video_id)
    (tmp_path / "videos").mkdir()
    database["database"] = {i: database["database"][i] for i in subsets.values()}
    for video_id in subsets.values():
        shutil.copy(next(small_set.videos.rglob(f"{video_id}.*")), tmp_path / "videos")
    (tmp_path / "labels.json").write_text(json.dumps(database))
    return OneStream(tmp_path / "videos", tmp_path / "labels.json", small_set.recipe)


def test_one_stream_from_video_to_detection(lstr, two, tmp_path, monkeypatch):
    features, run, out = tmp_path / "features", tmp_path / "run", tmp_path / "timeline"
    monkeypatch.setattr(FlowWorkers, "__init__", lambda *_: pytest.fail("flow is computed"))
    made = ["--recipe", two.recipe, "--stream", "rgb"]
    code, _, err = lstr("extract", two.videos, "-o", features, *made, "--calibrate", two.labels, "--workers", "1")
    assert code == 0, err
    folder = open_features(features)
    assert [*folder.folders] == ["rgb"] and len(folder.ids()) == 2
    assert sorted(p.name for p in features.glob("*_*")) == list(folder.names), "no folder of the other stream"
    assert folder.recipe.calibrated_on and folder.recipe.algorithm is None
    record = folder.read_record(folder.ids()[0])
    assert set(record["arrays"]) == {"rgb"} and record["seconds"]["flow"] == 0
    assert "2 kept" in lstr("extract", two.videos, "-o", features, *made, "--calibrate", two.labels)[2]

    code, _, err = lstr("train", features, "--labels", two.labels, "-o", run, "--set", "train.max_steps=2", *SETTINGS)
    assert code == 0 and "one stream, rgb" in err, err
    code, shown, err = lstr("evaluate", run / "checkpoint.pt", features, "--labels", two.labels, "--json")
    assert code == 0 and json.loads(shown)["chunks"] == 20, err

    video = two.videos / f"{folder.ids()[0]}.mp4"
    code, _, err = lstr("detect", video, "-c", run / "checkpoint.pt", "-o", out, "-f", "json,npy")
    assert code == 0, err
    code, _, err = lstr("detect", features, "-c", run / "checkpoint.pt", "-o", tmp_path / "stored", "-f", "npy")
    assert code == 0, err
    seen, stored = (np.load(next(p.glob(f"{folder.ids()[0]}*.npy"))) for p in (out, tmp_path / "stored"))
    assert seen.shape[0] == 20 and np.allclose(seen, stored, atol=1e-4)

    code, shown, err = lstr("info", features, "--json")
    described = json.loads(shown)
    assert code == 0 and described["streams"] == list(folder.names) and described["faults"] == [], err
    assert json.loads(lstr("info", run / "checkpoint.pt", "--json")[1])["recipe_id"] == folder.recipe.id


def test_a_model_of_one_stream_takes_the_features_of_both(lstr, small_set, tmp_path):
    """And needs the networks of its own stream only; the other stream's recipe does not matter to it."""
    run = tmp_path / "run"
    train = [
        "train",
        small_set.features,
        "--labels",
        small_set.labels,
        "-o",
        run,
        "--set",
        "train.max_steps=2",
        *SETTINGS,
    ]
    assert lstr(*train, "--set", "model.flow_dim=0")[0] == 0
    features = tmp_path / "features"
    shutil.copytree(small_set.features, features)
    recipe = json.loads((features / "recipe.json").read_text())
    recipe["flow"]["crops"] = 10
    (features / "recipe.json").write_text(json.dumps(recipe))
    evaluate = ["evaluate", run / "checkpoint.pt", features, "--labels", small_set.labels, "--json"]
    assert lstr(*evaluate)[0] == 0
    recipe["rgb"]["crops"] = 10
    (features / "recipe.json").write_text(json.dumps(recipe))
    code, _, err = lstr(*evaluate)
    assert code == 4 and "rgb.crops: 10 against 1" in err and "flow" not in err
