"""Packages that add a label format, a kind of model or a network by an entry point, as the documents show."""

import json
import os
import sys

import numpy as np
import pytest
import torch

from lstr.extractors.networks.network import NETWORKS
from lstr.kinds import configure, make_model
from tests.support.documents import DOCS, ROOT, block_with
from tests.support.errors import assert_error
from tests.support.feature_set import TINY
from tests.support.processes import run_process

GUIDE = ROOT / "CONTRIBUTING.md"
# runs several commands; prints the exit code, standard output and standard error of each
COMMANDS = """
import contextlib, io, json, sys
from lstr_cli.main import main
results = []
for words in json.loads(sys.argv[1]):
    texts, sys.argv[1:] = (io.StringIO(), io.StringIO()), words
    with contextlib.redirect_stdout(texts[0]), contextlib.redirect_stderr(texts[1]):
        try:
            main()
        except SystemExit as ended:
            results.append([ended.code or 0, *(text.getvalue() for text in texts)])
print(json.dumps(results))
"""


@pytest.fixture
def install(tmp_path):
    """Install a package of one module: install(group, module, code, **entries) -> `lstr` where it is installed.

    That runs commands in one process and returns the exit code, standard output and standard error of each.
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

        def run(*commands: tuple) -> list[tuple[int, str, str]]:
            words = json.dumps([[*map(str, command)] for command in commands])
            code, out, err = run_process(sys.executable, "-c", COMMANDS, words, env=environment, timeout=900)
            assert code == 0 and "Traceback" not in err + out, err + out
            return json.loads(out.splitlines()[-1])

        return run

    return install


@pytest.mark.long
def test_a_label_format_works_next_to_a_broken_format(install, small_set, tmp_path):
    assert '`entry-points."lstr.label_formats".toy = "toy_format:Toy"`' in GUIDE.read_text()
    entries = {"toy": "toy_format:Toy", "broken": "broken_module:Broken"}
    lstr = install("lstr.label_formats", "toy_format", block_with(GUIDE, "python", "class Toy"), **entries)
    labels, toy, copy = tmp_path / "a.json", tmp_path / "a.toy", tmp_path / "copy.json"
    labels.write_text(json.dumps({"database": {"a": {"annotations": [{"label": "jump", "segment": [1, 2.5]}]}}}))
    first, second, third, last = lstr(
        ("labels", "convert", labels, "-o", toy),
        ("labels", "convert", toy, "-o", copy),
        ("labels", "convert", labels, "--to", "pdf"),
        ("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path, "-f", "json,toy"),
    )
    assert toy.read_text() == "1.0|2.5|jump\n" and "broken" in first[2] and first[0] == second[0] == last[0] == 0
    assert json.loads(copy.read_text())["database"] == json.loads(labels.read_text())["database"]
    assert third[0] == 2 and "thumos" in third[2] and "toy" in third[2]
    assert len([*tmp_path.glob("scene_*.toy")]) == 4


@pytest.fixture
def with_kind(install, small_set, tmp_path):
    """Commands where a package of a kind of model is installed, which has trained in the folder `run`."""
    page = DOCS / "how-to" / "python.md"
    group, entry = block_with(page, "toml", "entry-points").split(" = ")
    assert group == 'entry-points."lstr.kinds".mean'
    entry = json.loads(entry)
    own = install("lstr.kinds", entry.partition(":")[0], block_with(page, "python", "class MeanConfig"), mean=entry)
    small = ("--preset", "mean-small", "--set", "model.share=0.25", "--set", "train.epochs=2")
    train = ("train", small_set.features, "--labels", small_set.labels, "-o", tmp_path / "run", *small)
    assert own(train)[0][0] == 0
    return own


@pytest.mark.long
def test_a_kind_of_model_trains_and_detects(with_kind, lstr, small_set, tmp_path):
    run = tmp_path / "run"
    detect = ("detect", small_set.features, "-c", run / "checkpoint.pt", "-o", tmp_path, "-f", "json")
    assert with_kind(detect)[0][0] == 0
    assert (tmp_path / "scene_00.json").exists()
    assert_error(lstr("info", run / "checkpoint.pt"), 2, str(run / "checkpoint.pt"), "'mean'")


@pytest.mark.slow
def test_a_broken_kind_does_not_affect_working_kinds(install, tmp_path):
    """`info` compares the file of published code with the tensors of every kind."""
    path = tmp_path / "epoch-25.pth"
    torch.save({"epoch": 25, "model_state_dict": make_model(configure(**TINY), 22).state_dict()}, path)
    lstr = install("lstr.kinds", "broken_kind", "", broken="broken_module:KIND")
    info, models, broken = lstr(("info", path), ("models", "--json"), ("models", "broken"))
    assert info[0] == models[0] == 0 and "lstr" in info[1] and "broken" in info[2] and broken[0] == 2
    assert "lstr" in [kind["kind"] for kind in json.loads(models[1])]


@pytest.mark.long
def test_a_network_of_a_package_extracts_features(install, lstr, small_set, tmp_path):
    """Without the package the features can be read but not extracted."""
    assert 'entry-points."lstr.networks".tiny = "tiny_network:TINY"' in GUIDE.read_text()
    entries = {"tiny": "tiny_network:TINY", "odd": "tiny_network:TINY", "lost": "broken_module:NETWORK"}
    own = install("lstr.networks", "tiny_network", block_with(GUIDE, "python", "networks.network import"), **entries)
    features = tmp_path / "features"

    def extract(name: str, output) -> tuple:
        recipe = tmp_path / f"{name}.json"
        recipe.write_text(json.dumps({"rgb": {"network": name}, "flow": None, "crop": 40, "short_side": 40}))
        return "extract", small_set.videos, "-o", output, "--recipe", recipe

    names = {"tiny": features, "odd": tmp_path / "odd", "lost": tmp_path / "lost"}
    codes, _, errors = zip(*own(*(extract(name, output) for name, output in names.items())), strict=True)
    assert codes == (0, 4, 4) and "odd" in errors[1] and "lost" in errors[2]
    assert (features / "rgb_random_tiny").is_dir()
    network = json.loads(lstr("info", features, "--json")[1])["recipe"]["rgb"]
    assert (network["network"], network["width"]) == ("tiny", 8)
    assert_error(lstr("extract", small_set.videos, "-o", tmp_path / "other", "--recipe", features), 4, "tiny")


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
