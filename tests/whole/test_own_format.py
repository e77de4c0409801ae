"""A label format of another package: the one of CONTRIBUTING, installed by an entry point, through the commands."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.documents import ROOT, block_with

GUIDE = ROOT / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def own_lstr(tmp_path_factory):
    """The command line with the packages toy and broken installed; it returns (exit code, output, errors)."""
    site = tmp_path_factory.mktemp("site")
    (site / "toy_format.py").write_text(block_with(GUIDE, "python", "class Toy"))
    (site / "broken_format.py").write_text("import not_installed\n")
    info = site / "toy_format-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-format\nVersion: 1.0\n")
    assert '`entry-points."lstr.label_formats".toy = "toy_format:Toy"`' in GUIDE.read_text()
    group = "[lstr.label_formats]\ntoy = toy_format:Toy\nbroken = broken_format:Broken\n"
    (info / "entry_points.txt").write_text(group)

    def run(*words):
        paths = os.pathsep.join([str(site), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": paths, "LSTR_HOME": str(site / "home"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "lstr_cli.main", *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def test_it_is_read_written_and_listed_next_to_one_that_is_broken(own_lstr, small_set, tmp_path):
    labels, toy, back = tmp_path / "a.json", tmp_path / "a.toy", tmp_path / "back.json"
    labels.write_text(json.dumps({"database": {"a": {"annotations": [{"label": "jump", "segment": [1, 2.5]}]}}}))
    code, _, err = own_lstr("labels", "convert", labels, "-o", toy)
    assert code == 0 and toy.read_text() == "1.0|2.5|jump\n", err
    assert "The label format broken of another package cannot be imported" in err and "Traceback" not in err
    code, _, err = own_lstr("labels", "convert", toy, "-o", back)
    assert code == 0 and json.loads(back.read_text())["database"] == json.loads(labels.read_text())["database"], err
    code, out, err = own_lstr("labels", "check", toy, "--json")
    assert code == 0 and json.loads(out)["segments"] == 1, err
    code, _, err = own_lstr("labels", "convert", labels, "--to", "pdf")
    assert code == 2 and "thumos" in err and "toy." in err, err
    code, _, err = own_lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path, "-f", "json,toy")
    assert code == 0 and len([*tmp_path.glob("scene_*.toy")]) == 4, err
