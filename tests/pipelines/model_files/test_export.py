"""An exported model file: it scores as the model does, needs no torch, and is refused where it was tampered with."""

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import lstr
from lstr.errors import CheckpointError, ConfigError, DeviceError, NetworkRuntimeError, RecipeError
from lstr.extractors.video.inputs import LiveOptions
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.detector import detect
from lstr.pipelines.detection.model import load_checkpoint, open_networks
from lstr.pipelines.detection.options import Limits, NetworkOptions
from lstr.pipelines.model_files import export as job
from lstr.pipelines.model_files.export import export
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import result_of
from lstr.pipelines.scenes import SceneConfig, render_scenes
from tests.support.errors import assert_error
from tests.support.exportable import write_exportable

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
PATIENT, FIRST = LiveOptions(on_lag="wait"), Limits(max_chunks=18)
ROOT = Path(__file__).resolve().parents[3]


def video_of(folder: Path) -> Path:
    config = SceneConfig(n_videos=1, n_testing=1, seconds=5.0, width=96, height=64)
    (video,) = (render_scenes(folder, config).parent / "videos").iterdir()
    return video


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A video, a model file, and that exported."""
    folder = tmp_path_factory.mktemp("exported")
    video, model = video_of(folder), write_exportable(folder, "lstr")
    return video, model, result_of(export(model.path, folder / "run.lstr", [video]))


def scores_of(video, model, **options):
    return np.stack([decision.scores for decision in detect(video, model, **options)])


def test_an_exported_file_scores_as_the_model(files):
    video, model, exported = files
    alike = exported.exported["alike"]
    assert 0 < alike["scores"] < 1e-5 and alike["steps"] > 200 and alike["chunks"] == 20
    expected = scores_of(video, model.path, device="cpu")
    assert len(expected) == 20 and abs(scores_of(video, exported.path) - expected).max() < 1e-5
    with lstr.load(exported.path) as detector:
        again = np.stack([decision.scores for decision in detector.detect(video)])
    assert abs(again - expected).max() < 1e-5


def test_openvino_scores_as_the_model_where_it_is_asked_for(files, lstr, tmp_path):
    pytest.importorskip("openvino")
    video, model, exported = files
    words = ("detect", video, "-m", exported.path, "-o", tmp_path, "-f", "npy", "--set", "runtime=openvino")
    assert lstr(*words)[0] == 0
    expected = scores_of(video, model.path, device="cpu")
    assert abs(np.load(tmp_path / f"{video.stem}.scores.npy") - expected).max() < 1e-5
    assert abs(scores_of(video, exported.path, networks={"runtime": "openvino"}) - expected).max() < 1e-5
    with open_networks(load_checkpoint(exported.path), NetworkOptions(runtime="openvino")) as (twostream, _, _):
        assert twostream.runtimes == {"rgb": "openvino"}


def test_what_it_says_of_itself(files, lstr):
    _, model, exported = files
    about = exported.about
    kept = ("classes", "recipe", "config", "thresholds", "seen", "checkpoint", "title")
    assert {name: about[name] for name in kept} == {name: model.about[name] for name in kept}
    assert about["format"] == "lstr-model/2" and model.about["format"] == "lstr-model/1"
    assert about["exported"]["made_from"] == hashlib.sha256(model.path.read_bytes()).hexdigest()
    assert set(about["members"]) == {"card.md", "lstr.onnx", "rgb.onnx"}
    with zipfile.ZipFile(exported.path) as container:
        assert container.read("card.md")
        for name in ("lstr.onnx", "rgb.onnx", "model.json"):
            assert str(ROOT).encode() not in container.read(name)
    code, out, _ = lstr("info", exported.path)
    assert code == 0 and "runs without torch" in out and "onnxruntime" in out


@pytest.mark.parametrize(
    "kinds", [pytest.param(("lstr", "mat"), marks=pytest.mark.slow), ("miniroad", "rnn", "lfb")], ids="-".join
)
def test_other_kinds_and_averages(kinds, tmp_path):
    video, model = video_of(tmp_path), write_exportable(tmp_path, *kinds)
    exported = result_of(export(model.path, tmp_path / "run.lstr", [video], streams=2, n_chunks=8))
    first = Limits(max_chunks=8)
    difference = scores_of(video, exported.path, limits=first) - scores_of(video, model.path, limits=first)
    assert abs(difference).max() < 1e-5 and exported.about["exported"]["step"]["streams"] == 2


def test_a_drawn_video_serves_where_none_is_given(lstr, tmp_path):
    model = write_exportable(tmp_path, "rnn")
    code, out, err = lstr("export", model.path, "-o", tmp_path / "run.lstr", "--json")
    found = json.loads(out)
    assert code == 0 and found["scores"] < 1e-5 and found["chunks"] == 36, err


def test_a_file_that_differs_is_not_written(files, tmp_path, monkeypatch):
    video, model, _ = files
    real, changed = job.make_graph, model.checkpoint().model
    changed.classifier.bias.data[1] += 0.01
    monkeypatch.setattr(job, "make_graph", lambda _, step: real(changed, step))
    with pytest.raises(CheckpointError):
        result_of(export(model.path, tmp_path / "run.lstr", [video], n_chunks=4))
    assert not (tmp_path / "run.lstr").exists()


def tampered(path: Path, source: Path, change) -> Path:
    """A copy of a file whose members `change` has changed, with the sizes and hashes that they have then."""
    with zipfile.ZipFile(source) as container:
        members = {name: container.read(name) for name in container.namelist()}
    document = json.loads(members.pop("model.json"))
    change(document, members)
    document["members"] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    } | document.pop("stated", {})
    with zipfile.ZipFile(path, "w") as container:
        container.writestr("model.json", json.dumps(document))
        for name, content in members.items():
            container.writestr(name, content)
    return path


def another_operation(document, members):
    import onnx

    model = onnx.load_model_from_string(members["lstr.onnx"])
    model.graph.node[0].op_type = "Loop"
    members["lstr.onnx"] = model.SerializeToString()


def data_elsewhere(document, members):
    import onnx

    model = onnx.load_model_from_string(members["rgb.onnx"])
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../secret")
    members["rgb.onnx"] = model.SerializeToString()


TAMPERED = {
    "operation": another_operation,
    "external": data_elsewhere,
    "path": lambda d, m: m.update({"../evil.onnx": b"x"}),
    "member": lambda d, m: m.update({"more.onnx": b"x"}),
    "no graph": lambda d, m: m.pop("lstr.onnx"),
    "size": lambda d, m: d.update(stated={"rgb.onnx": {"bytes": 1, "sha256": "0" * 64}}),
    "hash": lambda d, m: d.update(stated={"lstr.onnx": {"bytes": len(m["lstr.onnx"]), "sha256": "0" * 64}}),
    "classes": lambda d, m: d.update(classes=["Background"]),
    "plan": lambda d, m: d["exported"]["step"].update(plan={"form": "eval"}),
    "streams": lambda d, m: d["exported"]["step"].update(streams=10**9),
    "other step": lambda d, m: d["exported"]["step"].update(streams=2),
    "nothing": lambda d, m: d.update(exported={}),
    "graphs swapped": lambda d, m: m.update({"lstr.onnx": m["rgb.onnx"]}),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_file_is_refused(files, tmp_path, name):
    path = tampered(tmp_path / "a.lstr", files[2].path, TAMPERED[name])
    with pytest.raises((CheckpointError, NetworkRuntimeError)) as caught:
        scores_of(files[0], path)
    assert caught.value.hint


def test_what_cannot_be_exported(files, lstr, tmp_path):
    video, model, exported = files
    (tmp_path / "random.lstr").write_bytes(b"\x93NUMPY" * 40)
    tampered(tmp_path / "p.lstr", model.path, lambda d, m: d["networks"]["rgb"].update({"from": "published"}))
    for path in (exported.path, tmp_path / "random.lstr", tmp_path / "none.lstr", tmp_path / "p.lstr"):
        assert_error(lstr("export", path, "-o", tmp_path / "b.lstr"), 4, path.name)
    before = model.path.read_bytes()
    for more in ((), ("-o", video), ("-o", model.path), ("-o", tmp_path / "b.lstr", "--set", "streams=0")):
        assert_error(lstr("export", model.path, *more), 2)
    assert model.path.read_bytes() == before and not (tmp_path / "b.lstr").exists()


def test_what_an_exported_file_is_no_use_for(files, lstr, tmp_path):
    video, model, exported = files
    for words in (("unpack", exported.path), ("quantise", exported.path, video), ("pack", exported.path, model.path)):
        assert_error(lstr(*words, "-o", tmp_path / "out.lstr"), 4, exported.path.name)
    with pytest.raises(CheckpointError):
        open_model(exported.path).checkpoint()
    for networks, error in (
        ({"runtime": "torch"}, NetworkRuntimeError),
        ({"weights": {"rgb": "other.pth"}}, RecipeError),
    ):
        with pytest.raises(error) as caught:
            scores_of(video, exported.path, networks=networks)
        assert caught.value.hint
    for options, error in (({"device": "cuda"}, DeviceError), ({"settings": {"n_heads": "2"}}, ConfigError)):
        with pytest.raises(error) as caught:
            [*detect_sources([video], DetectOptions(exported.path, keep_going=False, **options))]
        assert caught.value.hint
