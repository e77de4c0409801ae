"""A feature network of another package: the one of CONTRIBUTING, by its entry point, in a recipe."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.documents import ROOT, block_with

GUIDE = ROOT / "CONTRIBUTING.md"


@pytest.mark.long
def test_a_network_of_another_package_in_a_recipe(small_set, lstr, tmp_path):
    """Its features are extracted and trained on; without the package they can be read, and not made."""
    entry = 'entry-points."lstr.networks".tiny = "tiny_network:TINY"'
    assert entry in GUIDE.read_text()
    site = tmp_path / "site"
    info = site / "tiny_network-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "tiny_network.py").write_text(block_with(GUIDE, "python", "networks.network import"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-network\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[lstr.networks]\ntiny = tiny_network:TINY\nodd = tiny_network:TINY\nlost = not_installed:NETWORK\n"
    )
    recipe, features = tmp_path / "tiny.json", tmp_path / "features"
    recipe.write_text(json.dumps({"rgb": {"network": "tiny"}, "flow": None, "crop": 40, "short_side": 40}))

    def run(*words):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "lstr_cli.main", *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        return done.returncode, done.stdout, done.stderr

    extract = ("extract", small_set.videos, "-o", features, "--recipe", recipe)
    code, _, err = run(*extract)
    assert code == 0 and (features / "rgb_random_tiny").is_dir(), err
    code, out, err = lstr("info", features, "--json")
    described = json.loads(out)["recipe"]["rgb"]
    assert code == 0 and (described["network"], described["width"]) == ("tiny", 8), err
    code, _, err = lstr("extract", small_set.videos, "-o", tmp_path / "again", "--recipe", features)
    assert code == 4 and "tiny" in err
    for name, words in (("odd", "is not valid"), ("lost", "cannot be imported")):
        recipe.write_text(json.dumps({"rgb": {"network": name}, "flow": None}))
        code, _, err = run("extract", small_set.videos, "-o", tmp_path / name, "--recipe", recipe)
        assert code == 4 and f"The network {name} of another package {words}" in err, err
