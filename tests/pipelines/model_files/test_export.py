"""Exported model files: equal scores, all kinds of models, and files that are refused."""

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import lstr
from lstr.errors import CheckpointError, ConfigError, DeviceError, NetworkRuntimeError, RecipeError
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.detector import detect
from lstr.pipelines.detection.model import Networks, load_checkpoint
from lstr.pipelines.detection.options import Limits, NetworkOptions
from lstr.pipelines.model_files import export as job
from lstr.pipelines.model_files.export import export
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import result_of
from lstr.pipelines.scenes import SceneConfig, render_scenes
from tests.support.detections import scores_of
from tests.support.errors import assert_error
from tests.support.model_files import rewrite_model, write_exportable

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]


def render_video(folder: Path) -> Path:
    config = SceneConfig(n_videos=1, n_testing=1, seconds=5.0, width=96, height=64)
    (video,) = (render_scenes(folder, config).parent / "videos").iterdir()
    return video


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A video, a model file, and the exported model file."""
    folder = tmp_path_factory.mktemp("exported")
    video, model = render_video(folder), write_exportable(folder, "lstr")
    return video, model, result_of(export(model.path, folder / "run.lstr", [video]))


def test_an_exported_file_has_the_scores_of_the_model(files):
    video, model, exported = files
    alike = exported.exported["alike"]
    assert 0 < alike["scores"] < 1e-5 and alike["steps"] > 200 and alike["chunks"] == 20
    expected = scores_of(detect(video, model.path, device="cpu"))
    assert len(expected) == 20 and abs(scores_of(detect(video, exported.path)) - expected).max() < 1e-5
    with lstr.load(exported.path) as detector:
        assert abs(scores_of(detector.detect(video)) - expected).max() < 1e-5


def test_openvino_runs_the_networks_if_chosen(files, lstr, tmp_path):
    pytest.importorskip("openvino")
    video, model, exported = files
    command = ("detect", video, "-m", exported.path, "-o", tmp_path, "-f", "npy", "--set", "runtime=openvino")
    assert lstr(*command)[0] == 0
    expected = scores_of(detect(video, model.path, device="cpu"))
    assert abs(np.load(tmp_path / f"{video.stem}.scores.npy") - expected).max() < 1e-5
    twostream, _, _ = Networks(load_checkpoint(exported.path), NetworkOptions(runtime="openvino")).open()
    assert twostream.runtimes == {"rgb": "openvino"}


def test_an_exported_file_describes_its_model(files, lstr):
    _, model, exported = files
    about = exported.about
    for name in ("classes", "recipe", "config", "thresholds", "seen", "checkpoint", "title"):
        assert about[name] == model.about[name]
    assert about["format"] == "lstr-model/2" and model.about["format"] == "lstr-model/1"
    assert about["exported"]["made_from"] == hashlib.sha256(model.path.read_bytes()).hexdigest()
    assert set(about["members"]) == {"card.md", "lstr.onnx", "rgb.onnx"}
    with zipfile.ZipFile(exported.path) as container:
        for name in (*about["members"], "model.json"):
            assert str(Path(__file__).parents[3]).encode() not in container.read(name), "paths of this machine"
    code, out, _ = lstr("info", exported.path)
    assert code == 0 and "to run without torch" in out and "onnxruntime" in out


@pytest.mark.parametrize(
    "kinds", [pytest.param(("lstr", "mat"), marks=pytest.mark.slow), ("miniroad", "rnn", "lfb")], ids="-".join
)
def test_averages_of_all_kinds_are_exported(kinds, tmp_path):
    video, model = render_video(tmp_path), write_exportable(tmp_path, *kinds)
    exported = result_of(export(model.path, tmp_path / "run.lstr", [video], streams=2, n_chunks=8))
    ours, theirs = (scores_of(detect(video, file.path, limits=Limits(max_chunks=8))) for file in (exported, model))
    assert abs(ours - theirs).max() < 1e-5 and exported.about["exported"]["step"]["streams"] == 2


def test_a_rendered_video_is_used_without_videos(lstr, tmp_path):
    model = write_exportable(tmp_path, "rnn")
    code, out, err = lstr("export", model.path, "-o", tmp_path / "run.lstr", "--json")
    differences = json.loads(out)
    assert code == 0 and differences["scores"] < 1e-5 and differences["chunks"] == 36, err


def test_a_file_with_other_scores_is_not_written(files, tmp_path, monkeypatch):
    video, model, _ = files
    make_graph, changed = job.make_graph, model.checkpoint().model
    changed.classifier.bias.data[1] += 0.01
    monkeypatch.setattr(job, "make_graph", lambda _, step: make_graph(changed, step))
    with pytest.raises(CheckpointError):
        result_of(export(model.path, tmp_path / "run.lstr", [video], n_chunks=4))
    assert not (tmp_path / "run.lstr").exists()


def change_operation(document, members):
    model = onnx.load_model_from_string(members["lstr.onnx"])
    model.graph.node[0].op_type = "Loop"
    members["lstr.onnx"] = model.SerializeToString()


TAMPERED = {
    "operation": change_operation,
    "member": lambda document, members: members.update({"more.onnx": b"x"}),
    "classes": lambda document, members: document.update(classes=["Background"]),
    "plan": lambda document, members: document["exported"]["step"].update(plan={"form": "eval"}),
    "streams": lambda document, members: document["exported"]["step"].update(streams=10**9),
    "another step": lambda document, members: document["exported"]["step"].update(streams=2),
    "no description": lambda document, members: document.update(exported={}),
    "graphs swapped": lambda document, members: members.update({"lstr.onnx": members["rgb.onnx"]}),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_file_is_refused(files, tmp_path, name):
    path = rewrite_model(files[2].path, tmp_path / "a.lstr", TAMPERED[name])
    with pytest.raises((CheckpointError, NetworkRuntimeError)):
        list(detect(files[0], path))


def test_other_files_are_not_exported(files, lstr, tmp_path):
    video, model, exported = files
    (tmp_path / "random.lstr").write_bytes(b"\x93NUMPY" * 40)
    rewrite_model(model.path, tmp_path / "p.lstr", lambda d, _: d["networks"]["rgb"].update({"from": "published"}))
    for path in (exported.path, tmp_path / "random.lstr", tmp_path / "none.lstr", tmp_path / "p.lstr"):
        assert_error(lstr("export", path, "-o", tmp_path / "b.lstr"), 4, path.name)
    before = model.path.read_bytes()
    for more in ((), ("-o", video), ("-o", model.path), ("-o", tmp_path / "b.lstr", "--set", "streams=0")):
        assert_error(lstr("export", model.path, *more), 2)
    assert model.path.read_bytes() == before and not (tmp_path / "b.lstr").exists()


def test_an_exported_file_only_detects(files, lstr, tmp_path):
    video, model, exported = files
    for words in (("unpack", exported.path), ("pack", exported.path, model.path)):
        assert_error(lstr(*words, "-o", tmp_path / "out.lstr"), 4, exported.path.name)
    with pytest.raises(CheckpointError):
        open_model(exported.path).checkpoint()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"networks": NetworkOptions(runtime="torch")}, NetworkRuntimeError),
        ({"networks": NetworkOptions(weights={"rgb": "other.pth"})}, RecipeError),
        ({"networks": NetworkOptions(device="cuda")}, DeviceError),
        ({"settings": {"n_heads": "2"}}, ConfigError),
    ],
)
def test_options_that_need_torch_are_refused(files, options, error):
    with pytest.raises(error):
        [*detect_sources([files[0]], DetectOptions(files[2].path, keep_going=False, **options))]
