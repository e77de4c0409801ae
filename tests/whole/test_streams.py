"""Features, models and detections of a single stream, and of five."""

import json
import shutil

import numpy as np
import pytest

from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.streams import PICTURES, STREAMS
from lstr.pipelines.features.folder import open_features, verify
from lstr.pipelines.learning.learn import learn
from lstr.pipelines.learning.plan import LearnOptions
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import result_of
from tests.support.feature_set import TINY

SIZE = {"size": [32, 48], "margin": 1.15}
SMALL = {
    "based_on": "smallest",
    "flow_algorithm": "dis",
    "long_side": 96,
    **{stream: {"network": "mobilenetv3", "crops": 2, **SIZE} for stream in STREAMS},
    "pose": {"network": "movenet-multipose", "size": [32, 64]},
    "rgb": {"network": "mobilenetv3"},
    "flow": {"network": "shufflenetv2"},
}


@pytest.mark.slow
@pytest.mark.parametrize("streams", [tuple(stream for stream in STREAMS if stream != "pose"), ("pose",)])
def test_learn_and_detect_with_several_streams_and_one(small_set, tmp_path, run, streams):
    """Detection from pixels and from features agrees; the networks of `change` and `pose` are not trained."""
    recipe = SMALL | {stream: None for stream in STREAMS if stream not in streams}
    (tmp_path / "five.json").write_text(json.dumps(recipe))
    settings = {f"{stream}.epochs": str(int(stream not in ("change", "pose"))) for stream in streams}
    settings |= {"draws": "16", "model.d_model": "16", "train.epochs": "1"}
    settings = {"settings": settings, "cache": tmp_path / "cache", "recipe": str(tmp_path / "five.json")}
    inputs = ([str(small_set.videos)], str(small_set.labels), str(tmp_path / "five.lstr"))
    path = result_of(learn(LearnOptions(*inputs, folds=0, device="cpu", **settings))).model
    recipe, config = open_model(path).recipe, open_model(path).about["config"]
    assert recipe.streams == streams and recipe.dims == ((326, 0) if "pose" in streams else (4 * 576, 1024))
    assert (config["rgb_dim"], config["flow_dim"]) == recipe.dims
    features = open_features(path.with_suffix(".learn") / "features")
    video_id = features.ids()[-1]
    arrays, (rgb, flow) = features.arrays(video_id), features.load(video_id)
    assert tuple(arrays) == streams and not verify(features)[1]
    assert np.array_equal(np.asarray(rgb), np.concatenate([arrays[s] for s in streams if s in PICTURES], 1))
    assert "flow" not in streams or np.array_equal(np.asarray(flow), arrays["flow"])
    (tmp_path / "features").symlink_to(features.path)
    scores = []
    for source in (next(small_set.videos.rglob(f"{video_id}.mp4")), tmp_path / "features"):
        run("detect", source, "-m", path, "-f", "npy", "-o", tmp_path / f"{source.name} out")
        scores.append(np.load(next((tmp_path / f"{source.name} out").rglob(f"{video_id}*.npy"))))
    np.testing.assert_allclose(*scores, atol=1e-3)


SETTINGS = [f"--set=model.{name}={value}" for name, value in TINY.items()] + ["--set=train.max_steps=2"]


@pytest.mark.long
def test_a_single_stream_of_two_videos_from_video_to_detection(run, small_set, tmp_path, monkeypatch):
    monkeypatch.setattr(FlowWorkers, "__init__", lambda *_: pytest.fail("computes flow"))
    names, labels = ("scene_00", "scene_03"), tmp_path / "labels.json"
    (tmp_path / "videos").mkdir()
    for name in names:
        shutil.copy(small_set.videos / f"{name}.mp4", tmp_path / "videos")
    content = json.loads(small_set.labels.read_text())
    content["database"] = {name: content["database"][name] for name in names}
    labels.write_text(json.dumps(content))
    features, checkpoint = tmp_path / "features", tmp_path / "run" / "checkpoint.pt"
    options = ["--recipe", small_set.recipe, "--stream", "rgb", "--calibrate", labels, "--workers", "1"]
    run("extract", tmp_path / "videos", "-o", features, *options)
    folder = open_features(features)
    assert [*folder.folders] == ["rgb"] and len(folder.ids()) == 2
    assert sorted(p.name for p in features.glob("*_*")) == list(folder.names)
    assert folder.recipe.calibrated_on and folder.recipe.algorithm is None
    record = folder.read_record(folder.ids()[0])
    assert set(record["arrays"]) == {"rgb"} and record["seconds"]["flow"] == 0
    assert "2 kept" in run("extract", tmp_path / "videos", "-o", features, *options)[1]

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


@pytest.mark.long
def test_a_model_of_a_single_stream_accepts_features_of_both(lstr, run, small_set, tmp_path):
    """It needs only the network of its stream; the recipe of the other stream does not matter."""
    labels = ("--labels", small_set.labels)
    run("train", small_set.features, *labels, "-o", tmp_path / "run", *SETTINGS, "--set", "model.flow_dim=0")
    features = shutil.copytree(small_set.features, tmp_path / "features")
    recipe = json.loads((features / "recipe.json").read_text())
    for stream, code in (("flow", 0), ("rgb", 4)):
        recipe[stream]["crops"] = 10
        (features / "recipe.json").write_text(json.dumps(recipe))
        exit_code, _, err = lstr("evaluate", tmp_path / "run" / "checkpoint.pt", features, *labels, "--json")
        assert exit_code == code and ("rgb.crops" in err) == bool(code) and "flow" not in err, err
