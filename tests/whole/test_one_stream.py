"""Features, models and detections of one stream alone."""

import json
import shutil

import numpy as np
import pytest

from lstr.extractors.flow.workers import FlowWorkers
from lstr.pipelines.features.folder import open_features
from tests.support.feature_set import TINY

pytestmark = pytest.mark.long

SETTINGS = [f"--set=model.{name}={value}" for name, value in TINY.items()] + ["--set=train.max_steps=2"]


@pytest.fixture
def run(lstr):
    """The output and the errors of a command that succeeds."""

    def run(*words) -> tuple[str, str]:
        code, out, err = lstr(*words)
        assert code == 0, err
        return out, err

    return run


def test_one_stream_from_video_to_detection(run, small_set, tmp_path, monkeypatch):
    """Of two videos, one to train on and one to test on."""
    monkeypatch.setattr(FlowWorkers, "__init__", lambda *_: pytest.fail("flow is computed"))
    names, labels = ("scene_00", "scene_03"), tmp_path / "labels.json"
    (tmp_path / "videos").mkdir()
    for name in names:
        shutil.copy(small_set.videos / f"{name}.mp4", tmp_path / "videos")
    content = json.loads(small_set.labels.read_text())
    content["database"] = {name: content["database"][name] for name in names}
    labels.write_text(json.dumps(content))
    features, checkpoint = tmp_path / "features", tmp_path / "run" / "checkpoint.pt"
    made = ["--recipe", small_set.recipe, "--stream", "rgb", "--calibrate", labels, "--workers", "1"]
    run("extract", tmp_path / "videos", "-o", features, *made)
    folder = open_features(features)
    assert [*folder.folders] == ["rgb"] and len(folder.ids()) == 2
    assert sorted(p.name for p in features.glob("*_*")) == list(folder.names), "no folder of the other stream"
    assert folder.recipe.calibrated_on and folder.recipe.algorithm is None
    record = folder.read_record(folder.ids()[0])
    assert set(record["arrays"]) == {"rgb"} and record["seconds"]["flow"] == 0
    assert "2 kept" in run("extract", tmp_path / "videos", "-o", features, *made)[1]

    run("train", features, "--labels", labels, "-o", tmp_path / "run", *SETTINGS)
    assert json.loads(run("evaluate", checkpoint, features, "--labels", labels, "--json")[0])["chunks"] == 20
    scores = []
    for source in (tmp_path / "videos" / "scene_00.mp4", features):
        run("detect", source, "-c", checkpoint, "-o", tmp_path / source.stem, "-f", "npy")
        scores.append(np.load(tmp_path / source.stem / "scene_00.scores.npy"))
    assert len(scores[0]) == 20 and np.allclose(*scores, atol=1e-4)
    described = json.loads(run("info", features, "--json")[0])
    assert described["streams"] == list(folder.names) and described["faults"] == []
    assert json.loads(run("info", checkpoint, "--json")[0])["recipe_id"] == folder.recipe.id


def test_a_model_of_one_stream_takes_the_features_of_both(lstr, run, small_set, tmp_path):
    """And needs the networks of its own stream only; the other stream's recipe does not matter to it."""
    labels = ("--labels", small_set.labels)
    run("train", small_set.features, *labels, "-o", tmp_path / "run", *SETTINGS, "--set", "model.flow_dim=0")
    features = shutil.copytree(small_set.features, tmp_path / "features")
    recipe = json.loads((features / "recipe.json").read_text())
    for stream, code in (("flow", 0), ("rgb", 4)):
        recipe[stream]["crops"] = 10
        (features / "recipe.json").write_text(json.dumps(recipe))
        left, _, err = lstr("evaluate", tmp_path / "run" / "checkpoint.pt", features, *labels, "--json")
        assert left == code and ("rgb.crops" in err) == bool(code) and "flow" not in err, err
