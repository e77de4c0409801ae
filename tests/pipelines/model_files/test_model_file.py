"""Model files: packing, unpacking, detection with nothing else, and files that are refused."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import lstr
from lstr import checkpoint
from lstr.checkpoint import CALIBRATION, TENSORS, load, save
from lstr.errors import CheckpointError, LstrError, OutputError
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.model import find_checkpoint, make_default, warnings_of_source
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.model_files.networks import recorded_weights
from lstr.pipelines.model_files.packing import change_model, unpack_model, write_model
from lstr.pipelines.training.recogniser import initial_weights
from lstr.timeline import Thresholds, thresholds_of
from tests.support.detections import scores_of
from tests.support.errors import assert_error
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, RGB_DIM, SMALL
from tests.support.model_files import rewrite_model

METRICS = {
    "lstr": {"mAP": 0.62, "mcAP": 0.71, "per_class": {"fall": {"AP": 0.62}}},
    "chance": {"mAP": 0.1, "mcAP": 0.5},
    "videos": 3,
    "events": {"per_class": {"fall": {"labels": 5, "found": 4, "false_alarms": 1}}},
}
ABOUT = {"title": "Falls | at home", "metrics": METRICS}


@pytest.fixture(scope="module")
def packed(finetuned, tmp_path_factory):
    """A checkpoint, the weights folder of its features, and the model file of both."""
    folder = tmp_path_factory.mktemp("packed")
    torch.manual_seed(0)
    model = make_model(configure(**TINY, rgb_dim=RGB_DIM), len(CLASSES)).eval()
    path, weights = folder / "run" / "checkpoint.pt", finetuned.weights
    path.parent.mkdir()
    extra = {"preset": "small", "thresholds": {"fall": {"on": 0.4, "off": 0.3}}}
    recipe = json.loads(weights.recipe.to_json())
    save(path, model, CLASSES, recipe, {"training_videos": ["scene_00", "without a file"]}, extra)
    file = write_model(folder / "fall.lstr", path, weights.path, ABOUT).path
    return SimpleNamespace(checkpoint=path, weights=weights.path, file=file, videos=finetuned.videos)


def detect(video: Path, model, **options) -> np.ndarray:
    """Return the scores of the first two chunks."""
    return scores_of(lstr.detect(video, model, limits=lstr.Limits(max_chunks=2), device="cpu", **options))


def are_equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


def test_unpacking_restores_checkpoint_and_weights(packed, tmp_path):
    """Packed again, with the networks next to the checkpoint, the model file has the same bytes."""
    folder = unpack_model(packed.file, tmp_path / "fall")
    before, after = checkpoint.read(packed.checkpoint), checkpoint.read(folder / "checkpoint.pt")
    assert are_equal(before[TENSORS], after[TENSORS]) and after[CALIBRATION] == {}
    for name in ("config", "classes", "recipe", "metrics", "extra", "versions"):
        assert json.loads(before[name]) == json.loads(after[name]), name
    for stream in ("rgb", "flow"):
        paths = (packed.weights / f"{stream}.pth", folder / "weights" / f"{stream}.pth")
        before, after = (torch.load(path, weights_only=True) for path in paths)
        assert are_equal(before["state_dict"], after["state_dict"]) and before["lstr"] == after["lstr"]
    repacked = write_model(tmp_path / "fall.lstr", folder / "checkpoint.pt", None, ABOUT)
    assert repacked.path.read_bytes() == packed.file.read_bytes()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "card.md").write_text("license: mine")
    for output in (folder, tmp_path / "own"):
        with pytest.raises(OutputError):
            unpack_model(packed.file, output)


@pytest.mark.long
def test_detection_needs_only_the_model_file(packed, tmp_path):
    path, video = shutil.copy(packed.file, tmp_path / "else where.lstr"), packed.videos["scene_02"]
    files = {stream: packed.weights / f"{stream}.pth" for stream in ("rgb", "flow")}
    expected = detect(video, packed.checkpoint, networks=files)
    loaded = lstr.load(path)
    for model in (path, loaded):
        assert np.array_equal(detect(video, model), expected)
    assert thresholds_of(loaded)["fall"] == Thresholds(0.4, 0.3) and loaded.path == path


def test_a_model_file_describes_itself(packed):
    model = open_model(packed.file)
    assert is_model(packed.file) and not is_model(packed.checkpoint) and not is_model(packed.weights)
    assert model.classes == CLASSES and model.networks == {"rgb": "inside", "flow": "inside"}
    seen = json.loads((packed.weights / "finetune.json").read_text())["training"]
    assert model.about["seen"] == {**seen, "without a file": None}
    assert model.about["metrics"] == METRICS


def test_thresholds_can_be_replaced(packed, tmp_path):
    path = shutil.copy(packed.file, tmp_path / "fall.lstr")
    change_model(open_model(path), path, {"thresholds": {"fall": {"on": 0.7, "off": 0.2}}})
    assert thresholds_of(lstr.load(path))["fall"] == Thresholds(0.7, 0.2)
    assert "0.700 | 0.200" in (unpack_model(path, tmp_path / "x") / "card.md").read_text()
    before, after = open_model(packed.file).about, open_model(path).about
    assert {name for name in before if before[name] != after[name]} == {"thresholds", "members"}


def test_checkpoints_without_their_networks_are_not_packed(packed, tmp_path):
    loaded = load(packed.checkpoint)
    save(tmp_path / "bare.pt", loaded.model, loaded.classes, None, {})
    for path, weights in (
        (tmp_path / "bare.pt", None),  # without a recipe
        (packed.checkpoint, None),  # without networks
        (packed.checkpoint, packed.weights / "fold_1" / "rgb.pth"),  # other networks
    ):
        with pytest.raises(LstrError):
            write_model(tmp_path / "x.lstr", path, weights, {})
        assert not (tmp_path / "x.lstr").exists()
    shutil.copy(packed.checkpoint, tmp_path / "other.pt")
    with pytest.raises(OutputError):  # an existing file of another kind is kept
        write_model(tmp_path / "other.pt", packed.checkpoint, packed.weights, {})


@pytest.mark.long
def test_random_networks_are_stored_as_seed_and_calibration(small_set, tmp_path):
    model = write_model(tmp_path / "r.lstr", small_set.checkpoint, None, {})
    assert model.networks == {"rgb": "random", "flow": "random"} and model.path.stat().st_size < 3e6
    video = small_set.videos / "scene_03.mp4"
    assert np.array_equal(detect(video, model.path), detect(video, small_set.checkpoint))
    paths = (small_set.checkpoint, unpack_model(model.path, tmp_path / "x") / "checkpoint.pt")
    before, after = (checkpoint.read(path)[CALIBRATION] for path in paths)
    assert all(are_equal(before[stream], after[stream]) for stream in ("rgb", "flow"))


@pytest.mark.long
def test_detection_warns_of_training_videos_and_demo_models(packed, tmp_path):
    training, new = packed.videos["scene_00"], packed.videos["scene_02"]
    copy = shutil.copy(training, tmp_path / "copy.mp4")
    loaded = lstr.load(packed.file)
    for source in (("copy", copy), ("without a file", new), ("scene_00", None)):
        assert len(warnings_of_source(loaded, *source)) == 1
    assert not warnings_of_source(loaded, "scene_02", new) and not warnings_of_source(loaded, "scene_00", new)
    demo = write_model(tmp_path / "d.lstr", packed.checkpoint, packed.weights, dict(demo=True, videos={"scene_02": ""}))
    loaded = demo.checkpoint()
    assert not warnings_of_source(loaded, "scene_02", new)
    (warning,) = warnings_of_source(loaded, "street", new)
    assert "demo" in warning and "demo" in demo.card()
    with pytest.raises(CheckpointError, match="demo"):
        make_default(demo.path)


def test_a_new_default_model_replaces_the_previous(packed):
    with pytest.raises(CheckpointError):
        find_checkpoint(None)
    first = make_default(packed.checkpoint)
    assert find_checkpoint(None) == first
    second = make_default(packed.file)
    assert find_checkpoint(None) == second and not first.exists()
    assert second.read_bytes() == packed.file.read_bytes()


@pytest.mark.parametrize(
    ("entry", "values", "value"),
    [
        ("config", {"d_model": 1 << 19}, "d_model is 524288 .* 64 "),
        ("config", {"work_length": 1 << 40}, "work_length is 1099511627776"),
        ("config", {"d_model": "wide"}, "d_model is 'wide'"),
        ("recipe", {"crop": 1 << 30}, "crop"),
        ("networks", {"rgb": None}, "h.lstr"),
        ("classes", None, "h.lstr"),
    ],
)
def test_an_invalid_description_is_refused(small_set, tmp_path, entry, values, value):
    def change(document, _):
        document[entry] = values and document[entry] | values

    model = write_model(tmp_path / "r.lstr", small_set.checkpoint, None, {})
    path = rewrite_model(model.path, tmp_path / "h.lstr", change)
    with pytest.raises(CheckpointError, match=value):
        open_model(path).checkpoint()


def test_other_files_are_refused(lstr, small_set, tmp_path):
    video = small_set.videos / "scene_00.mp4"
    (tmp_path / "text.lstr").write_text("hello")
    evaluate = ("evaluate", tmp_path / "text.lstr", small_set.features, "--labels", small_set.labels)
    for command in (("detect", video, "-m", tmp_path / "text.lstr"), ("info", tmp_path / "text.lstr"), evaluate):
        assert_error(lstr(*command), 4, "text.lstr")


@pytest.mark.long
def test_commands_pack_describe_detect_and_unpack(lstr, packed, tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps(METRICS))
    file, copy, detect = tmp_path / "my falls.lstr", tmp_path / "copy.lstr", ("--duration", "0.5", "--json")
    pack = ["pack", packed.checkpoint.parent, "--weights", packed.weights, "-o", file]
    code, out, err = lstr(*pack, "--metrics", tmp_path / "metrics.json")
    assert code == 0 and out == "", err
    described = json.loads(lstr("info", file, "--json")[1])
    assert described["kind"] == "model file" and described["title"] == "my falls"
    assert described["actions"] == ["fall"] and described["measured"]["lstr"]["mAP"] == 0.62
    checked = json.loads(lstr("weights", "check", file, "--json")[1])
    assert [(v["stream"], v["state"], v["name"]) for v in checked] == [("rgb", "ok", "fälle"), ("flow", "ok", "fälle")]
    make_default(file)
    for model in (["-m", file], []):
        code, out, err = lstr("detect", packed.videos["scene_00"], *model, *detect)
        (warning,) = json.loads(out)["warnings"]
        assert code == 0 and json.loads(out)["decided"] == 2 and "scene_00" in warning and err.count("warning: ") == 1
    code, _, err = lstr("pack", file, "-o", copy)
    before, after = open_model(file).about, open_model(copy).about
    card = {"card.md": after["members"]["card.md"]}  # has the names of file and model
    assert code == 0 and after == {**before, "members": before["members"] | card}, err
    assert_error(lstr("pack", file, "-o", file), 2, "my falls.lstr")
    assert_error(lstr("pack", file, "-o", copy, "--weights", packed.weights), 2, "--weights")
    assert_error(lstr("unpack", packed.checkpoint, "-o", tmp_path / "y"), 4, "checkpoint.pt")
    assert_error(lstr("pack", tmp_path, "-o", file), 2, str(tmp_path))
    (tmp_path / "metrics.json").write_text('{"lstr": {"per_class": {"\\ud800": {"AP": 1}}}}')  # is not in any encoding
    for metrics in (file, tmp_path / "metrics.json"):
        assert_error(lstr("pack", packed.checkpoint, "-o", tmp_path / "z.lstr", "--metrics", metrics), 2, metrics.name)


@pytest.mark.long
def test_the_networks_of_a_model_file_extract_features_and_start_training(lstr, run, packed, tmp_path):
    features = tmp_path / "features"
    options = ["--recipe", packed.file, "--workers", 1, "--set", "threads=1", "--set", "cache=none"]
    run("extract", packed.videos["scene_02"], "-o", features, *options)
    assert set(recorded_weights(features).values()) == {str(packed.file)}
    recipe = json.loads((features / "recipe.json").read_text())
    assert recipe["rgb"]["weights"] == "fälle" and "folds" not in recipe["rgb"]
    annotations = [{"label": "fall", "segment": [1, 2]}]
    labels = {"database": {"scene_02": {"subset": "testing", "duration": 4, "annotations": annotations}}}
    (tmp_path / "labels.json").write_text(json.dumps(labels | {"classes": ["fall"]}))
    code, out, err = lstr("evaluate", packed.file, features, "--labels", tmp_path / "labels.json", "--json")
    assert code == 0 and json.loads(out)["checkpoint"] == str(packed.file), err
    members = open_model(packed.file).about["members"]
    for stream, initial in initial_weights(SMALL, str(packed.file), {}).items():
        assert initial.sha256 == members[f"{stream}.safetensors"]["sha256"]
        assert set(initial.seen) == {"scene_00", "scene_01"}


@pytest.mark.long
def test_networks_are_located_by_the_path_in_the_run_also_if_both_were_moved(lstr, packed, tmp_path):
    project, video = tmp_path / "project", packed.videos["scene_02"]
    shutil.copytree(packed.weights, project / "nets" / "w")
    loaded = load(packed.checkpoint)
    extra = {"networks": dict.fromkeys(("rgb", "flow"), {"path": "/not/there/w", "relative": "../nets/w"})}
    path = project / "run" / "checkpoint.pt"
    path.parent.mkdir()
    save(path, loaded.model, loaded.classes, loaded.recipe, loaded.metrics, extra)
    assert np.array_equal(detect(video, path), detect(video, packed.file))
    moved = project.rename(tmp_path / "moved")
    path, weights = moved / "run" / "checkpoint.pt", moved / "nets" / "w"
    assert "flow" in write_model(tmp_path / "x.lstr", path, None, {}).inside
    recipe = json.loads((weights / "recipe.json").read_text())
    recipe["flow"]["sha256"] = "0" * 16
    (weights / "recipe.json").write_text(json.dumps(recipe))
    assert_error(lstr("detect", video, "-m", path), 4, str(weights))
    shutil.rmtree(weights)
    assert_error(lstr("detect", video, "-m", path), 4, "/not/there/w", "--weights rgb=w")
