"""Packages that add a label format, a kind of model or a feature network by an entry point, as the documents show."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from lstr.extractors.networks.network import NETWORKS
from lstr.kinds import configure, make_model
from tests.support.documents import DOCS, ROOT, block_with
from tests.support.feature_set import TINY

GUIDE = ROOT / "CONTRIBUTING.md"


@pytest.fixture
def install(tmp_path):
    """The command line where a package of one module adds entries: install(group, module, code, **entries)."""

    def install(group: str, module: str, code: str, **entries: str):
        site = tmp_path / "site"
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(code)
        (site / "broken_module.py").write_text("import not_installed\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

        def run(*words) -> tuple[int, str, str]:
            paths = os.pathsep.join([str(site), str(ROOT)])
            environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "lstr_cli.main", *map(str, words)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
            assert "Traceback" not in done.stderr
            return done.returncode, done.stdout, done.stderr

        return run

    return install


def test_a_label_format_is_read_written_and_listed_next_to_one_that_is_broken(install, small_set, tmp_path):
    assert '`entry-points."lstr.label_formats".toy = "toy_format:Toy"`' in GUIDE.read_text()
    entries = {"toy": "toy_format:Toy", "broken": "broken_module:Broken"}
    lstr = install("lstr.label_formats", "toy_format", block_with(GUIDE, "python", "class Toy"), **entries)
    labels, toy, back = tmp_path / "a.json", tmp_path / "a.toy", tmp_path / "back.json"
    labels.write_text(json.dumps({"database": {"a": {"annotations": [{"label": "jump", "segment": [1, 2.5]}]}}}))
    code, _, err = lstr("labels", "convert", labels, "-o", toy)
    assert code == 0 and toy.read_text() == "1.0|2.5|jump\n" and "broken" in err, err
    code, _, err = lstr("labels", "convert", toy, "-o", back)
    assert code == 0 and json.loads(back.read_text())["database"] == json.loads(labels.read_text())["database"], err
    code, _, err = lstr("labels", "convert", labels, "--to", "pdf")
    assert code == 2 and "thumos" in err and "toy" in err, err
    code, _, err = lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path, "-f", "json,toy")
    assert code == 0 and len([*tmp_path.glob("scene_*.toy")]) == 4, err


@pytest.mark.long
def test_a_kind_of_model_trains_and_detects(install, lstr, small_set, tmp_path):
    page, run = DOCS / "how-to" / "python.md", tmp_path / "run"
    group, place = block_with(page, "toml", "entry-points").split(" = ")
    assert group == 'entry-points."lstr.kinds".mean'
    place = json.loads(place)
    own = install("lstr.kinds", place.partition(":")[0], block_with(page, "python", "class MeanConfig"), mean=place)
    small = ("--preset", "mean-small", "--set", "model.share=0.25", "--set", "train.epochs=2")
    code, _, err = own("train", small_set.features, "--labels", small_set.labels, "-o", run, *small)
    assert code == 0, err
    code, _, err = own("detect", small_set.features, "-c", run / "checkpoint.pt", "-o", tmp_path, "-f", "json")
    assert code == 0 and (tmp_path / "scene_00.json").exists(), err
    code, _, err = lstr("info", run / "checkpoint.pt")
    assert code == 2 and str(run / "checkpoint.pt") in err and "'mean'" in err


@pytest.mark.slow
def test_a_broken_kind_ends_nothing_that_does_not_use_it(install, tmp_path):
    """Every file of the published code is compared with the tensors of every kind."""
    path = tmp_path / "epoch-25.pth"
    torch.save({"epoch": 25, "model_state_dict": make_model(configure(**TINY), 22).state_dict()}, path)
    lstr = install("lstr.kinds", "broken_kind", "", broken="broken_module:KIND")
    code, out, err = lstr("info", path)
    assert code == 0 and "lstr" in out and "broken" in err, err
    code, out, err = lstr("models", "--json")
    assert code == 0 and "lstr" in [kind["kind"] for kind in json.loads(out)]
    assert lstr("models", "broken")[0] == 2


@pytest.mark.long
def test_a_network_in_a_recipe(install, lstr, small_set, tmp_path):
    """Its features are extracted; without the package they can be read, and not made."""
    assert 'entry-points."lstr.networks".tiny = "tiny_network:TINY"' in GUIDE.read_text()
    code = block_with(GUIDE, "python", "networks.network import")
    entries = {"tiny": "tiny_network:TINY", "odd": "tiny_network:TINY", "lost": "broken_module:NETWORK"}
    own = install("lstr.networks", "tiny_network", code, **entries)
    features = tmp_path / "features"

    def extract(name: str, output) -> tuple[int, str, str]:
        recipe = tmp_path / f"{name}.json"
        recipe.write_text(json.dumps({"rgb": {"network": name}, "flow": None, "crop": 40, "short_side": 40}))
        return own("extract", small_set.videos, "-o", output, "--recipe", recipe)

    code, _, err = extract("tiny", features)
    assert code == 0 and (features / "rgb_random_tiny").is_dir(), err
    code, out, err = lstr("info", features, "--json")
    described = json.loads(out)["recipe"]["rgb"]
    assert code == 0 and (described["network"], described["width"]) == ("tiny", 8), err
    code, _, err = lstr("extract", small_set.videos, "-o", tmp_path / "again", "--recipe", features)
    assert code == 4 and "tiny" in err
    for name in ("odd", "lost"):
        code, _, err = extract(name, tmp_path / name)
        assert code == 4 and name in err, err


@pytest.mark.long
def test_a_network_is_trained_and_computed_by_each_runtime(lstr, small_set, tmp_path, monkeypatch):
    names: dict = {}
    exec(block_with(GUIDE, "python", "networks.network import"), names)
    monkeypatch.setitem(NETWORKS, "tiny", names["TINY"])
    recipe = {"rgb": {"network": "tiny"}, "flow": None, "crop": 40, "short_side": 40}
    (tmp_path / "tiny.json").write_text(json.dumps(recipe))
    words = ("--labels", small_set.labels, "-o", tmp_path / "w", "--recipe", tmp_path / "tiny.json")
    code, _, err = lstr("finetune", small_set.videos, *words, "--set", "epochs=1", "--set", "draws=8")
    assert code == 0, err
    made = []
    for runtime in ("torch", "openvino", "onnxruntime"):
        how = ("--recipe", tmp_path / "w", "--set", f"runtime={runtime}", "--workers", 1)
        code, _, err = lstr("extract", small_set.videos / "scene_00.mp4", "-o", tmp_path / runtime, *how)
        assert code == 0 and "Torch computes it" not in err, err
        made.append(np.load(next((tmp_path / runtime).glob("*/scene_00.npy"))))
    assert all(np.abs(made[0] - other).max() < 0.05 * np.abs(made[0]).max() for other in made)
