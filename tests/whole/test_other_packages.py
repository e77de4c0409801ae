"""Packages that add a label format, a kind of model or a network by an entry point, as the documents show."""

import json
import os

import numpy as np
import pytest
import torch

from lstr.extractors.networks.network import NETWORKS
from lstr.kinds import configure, make_model
from tests.support.documents import DOCS, ROOT, block_with
from tests.support.errors import assert_error
from tests.support.feature_set import TINY
from tests.support.processes import LSTR, run_process

GUIDE = ROOT / "CONTRIBUTING.md"


@pytest.fixture
def install(tmp_path):
    """Install a package of one module: install(group, module, code, **entries) -> `lstr` where it is installed.

    That runs a command and returns its standard output and standard error.
    """

    def install(group: str, module: str, code: str, **entries: str):
        site = tmp_path / "site"
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(code)
        (site / "broken_module.py").write_text("import not_installed\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        environment = {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "OMP_NUM_THREADS": "1"}

        def run(*words, code: int = 0) -> tuple[str, str]:
            exit_code, out, err = run_process(*LSTR, *words, env=environment, timeout=900)
            assert exit_code == code and "Traceback" not in err, err
            return out, err

        return run

    return install


@pytest.mark.long
def test_a_label_format_works_next_to_a_broken_format(install, small_set, tmp_path):
    assert '`entry-points."lstr.label_formats".toy = "toy_format:Toy"`' in GUIDE.read_text()
    entries = {"toy": "toy_format:Toy", "broken": "broken_module:Broken"}
    lstr = install("lstr.label_formats", "toy_format", block_with(GUIDE, "python", "class Toy"), **entries)
    labels, toy, copy = tmp_path / "a.json", tmp_path / "a.toy", tmp_path / "copy.json"
    labels.write_text(json.dumps({"database": {"a": {"annotations": [{"label": "jump", "segment": [1, 2.5]}]}}}))
    _, err = lstr("labels", "convert", labels, "-o", toy)
    assert toy.read_text() == "1.0|2.5|jump\n" and "broken" in err
    lstr("labels", "convert", toy, "-o", copy)
    assert json.loads(copy.read_text())["database"] == json.loads(labels.read_text())["database"]
    _, err = lstr("labels", "convert", labels, "--to", "pdf", code=2)
    assert "thumos" in err and "toy" in err
    lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path, "-f", "json,toy")
    assert len([*tmp_path.glob("scene_*.toy")]) == 4


@pytest.mark.long
def test_a_kind_of_model_trains_and_detects(install, lstr, small_set, tmp_path):
    page, run = DOCS / "how-to" / "python.md", tmp_path / "run"
    group, entry = block_with(page, "toml", "entry-points").split(" = ")
    assert group == 'entry-points."lstr.kinds".mean'
    entry = json.loads(entry)
    own = install("lstr.kinds", entry.partition(":")[0], block_with(page, "python", "class MeanConfig"), mean=entry)
    small = ("--preset", "mean-small", "--set", "model.share=0.25", "--set", "train.epochs=2")
    own("train", small_set.features, "--labels", small_set.labels, "-o", run, *small)
    own("detect", small_set.features, "-c", run / "checkpoint.pt", "-o", tmp_path, "-f", "json")
    assert (tmp_path / "scene_00.json").exists()
    assert_error(lstr("info", run / "checkpoint.pt"), 2, str(run / "checkpoint.pt"), "'mean'")


@pytest.mark.slow
def test_a_broken_kind_does_not_affect_working_kinds(install, tmp_path):
    """`info` compares the file of published code with the tensors of every kind."""
    path = tmp_path / "epoch-25.pth"
    torch.save({"epoch": 25, "model_state_dict": make_model(configure(**TINY), 22).state_dict()}, path)
    lstr = install("lstr.kinds", "broken_kind", "", broken="broken_module:KIND")
    out, err = lstr("info", path)
    assert "lstr" in out and "broken" in err
    assert "lstr" in [kind["kind"] for kind in json.loads(lstr("models", "--json")[0])]
    lstr("models", "broken", code=2)


@pytest.mark.long
def test_a_network_of_a_package_extracts_features(install, lstr, small_set, tmp_path):
    """Without the package the features can be read but not extracted."""
    assert 'entry-points."lstr.networks".tiny = "tiny_network:TINY"' in GUIDE.read_text()
    entries = {"tiny": "tiny_network:TINY", "odd": "tiny_network:TINY", "lost": "broken_module:NETWORK"}
    own = install("lstr.networks", "tiny_network", block_with(GUIDE, "python", "networks.network import"), **entries)
    features = tmp_path / "features"

    def extract(name: str, output, code: int = 0) -> str:
        recipe = tmp_path / f"{name}.json"
        recipe.write_text(json.dumps({"rgb": {"network": name}, "flow": None, "crop": 40, "short_side": 40}))
        return own("extract", small_set.videos, "-o", output, "--recipe", recipe, code=code)[1]

    extract("tiny", features)
    assert (features / "rgb_random_tiny").is_dir()
    network = json.loads(lstr("info", features, "--json")[1])["recipe"]["rgb"]
    assert (network["network"], network["width"]) == ("tiny", 8)
    assert_error(lstr("extract", small_set.videos, "-o", tmp_path / "other", "--recipe", features), 4, "tiny")
    for name in ("odd", "lost"):
        assert name in extract(name, tmp_path / name, code=4)


@pytest.mark.long
def test_a_network_of_a_package_is_trained_and_run_by_each_runtime(run, small_set, tmp_path, monkeypatch):
    names: dict = {}
    exec(block_with(GUIDE, "python", "networks.network import"), names)
    monkeypatch.setitem(NETWORKS, "tiny", names["TINY"])
    recipe = {"rgb": {"network": "tiny"}, "flow": None, "crop": 40, "short_side": 40}
    (tmp_path / "tiny.json").write_text(json.dumps(recipe))
    words = ("--labels", small_set.labels, "-o", tmp_path / "w", "--recipe", tmp_path / "tiny.json")
    run("finetune", small_set.videos, *words, "--set", "epochs=1", "--set", "draws=8")
    features = []
    for runtime in ("torch", "openvino", "onnxruntime"):
        words = ("--recipe", tmp_path / "w", "--set", f"runtime={runtime}", "--workers", 1)
        _, err = run("extract", small_set.videos / "scene_00.mp4", "-o", tmp_path / runtime, *words)
        assert "Torch computes it" not in err
        features.append(np.load(next((tmp_path / runtime).glob("*/scene_00.npy"))))
    assert all(np.abs(features[0] - other).max() < 0.05 * np.abs(features[0]).max() for other in features)
