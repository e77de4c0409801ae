"""A kind of model in another package: the one of the documentation, installed beside lstr, through every command."""

import json
import os
import subprocess
import sys

import pytest
import torch

from lstr.kinds import configure, make_model
from tests.support.documents import ROOT, block_with
from tests.support.feature_set import TINY

PAGE = ROOT / "docs" / "how-to" / "python.md"


@pytest.fixture(scope="module")
def own_lstr(tmp_path_factory):
    """The command line where a package with the page's kind is installed; it gives (exit code, output, errors)."""
    group, place = block_with(PAGE, "toml", "entry-points").split(" = ")
    assert group == 'entry-points."lstr.kinds".mean'
    code = block_with(PAGE, "python", "class MeanConfig")
    return installed(tmp_path_factory.mktemp("site"), "mean", json.loads(place), code)


@pytest.fixture(scope="module")
def broken_lstr(tmp_path_factory):
    """The same where the package needs one that is not there."""
    return installed(tmp_path_factory.mktemp("site"), "broken", "broken_kind:KIND", "import not_installed\n")


@pytest.fixture(scope="module")
def published_file(tmp_path_factory):
    """A checkpoint in the layout of LSTR's published code."""
    path = tmp_path_factory.mktemp("published") / "epoch-25.pth"
    torch.save({"epoch": 25, "model_state_dict": make_model(configure(**TINY), 22).state_dict()}, path)
    return path


def installed(site, name, place, code):
    """The command line beside a package of one module with the kind `name`."""
    (site / f"{place.partition(':')[0]}.py").write_text(code)
    info = site / f"{name}_kind-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-kind\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lstr.kinds]\n{name} = {place}\n")

    def run(*words):
        paths = os.pathsep.join([str(site), str(ROOT)])
        home = str(site / "home")
        environment = {**os.environ, "PYTHONPATH": paths, "LSTR_HOME": home, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "lstr_cli.main", *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.long
def test_it_trains_and_detects(own_lstr, lstr, small_set, tmp_path):
    run = tmp_path / "run"
    labels = ("--labels", small_set.labels)
    small = ("--preset", "mean-small", "--set", "model.share=0.25", "--set", "train.epochs=2")
    code, _, err = own_lstr("train", small_set.features, *labels, "-o", run, *small)
    assert code == 0, err
    code, _, err = own_lstr("detect", small_set.features, "-c", run / "checkpoint.pt", "-o", tmp_path, "-f", "json")
    assert code == 0 and (tmp_path / "scene_00.json").exists(), err
    code, _, err = lstr("info", run / "checkpoint.pt")
    assert code == 2 and f"{run / 'checkpoint.pt'}: kind is 'mean'" in err and "needs that package" in err


@pytest.mark.slow
def test_one_that_is_broken_ends_nothing_that_does_not_use_it(broken_lstr, published_file):
    """Every file of the published code is compared with the tensors of every kind."""
    code, out, err = broken_lstr("info", published_file)
    assert code == 0 and "lstr" in out and "The kind broken of another package cannot be imported" in err, err
    code, out, err = broken_lstr("models", "--json")
    assert code == 0 and "lstr" in [kind["kind"] for kind in json.loads(out)]
    code, _, err = broken_lstr("models", "broken")
    assert code == 2 and "cannot be imported" in err and "Traceback" not in err
