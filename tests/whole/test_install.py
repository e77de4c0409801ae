"""What an installation ships: a wheel of the source distribution of a clean clone, with a compiler and without."""

import os
import subprocess
import sys
import zipfile

import pytest

from tests.support.videos import write_video
from tests.whole.conftest import build_wheel

MODULES = ("lstr", "lstr.extractors", "lstr.pipelines", "lstr_cli")
TAKEN = ("extractors", "pipelines", "checkpoints")
"""Folders of the repository whose names are an application's own."""
LSTR = ("-m", "lstr_cli.main")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run Python with nothing of this project but the wheel: installed(*arguments) -> what it prints."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run(command, check=True, capture_output=True)

    def run(*arguments) -> str:
        environment = {**os.environ, "PYTHONPATH": str(site), "LSTR_HOME": str(site / "home")}
        command = [sys.executable, "-P", *map(str, arguments)]
        ran = subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    code = f"import importlib; print(*(importlib.import_module(m).__file__ for m in {MODULES}))"
    assert all(path.startswith(str(site)) for path in run("-c", code).split())
    return run


@pytest.mark.long
def test_a_wheel_holds_code_and_data_and_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    lstr = wheel.parent / "source" / "lstr"
    kept = [lstr / "extractors" / "networks" / "manifest.json", *(lstr / "pipelines" / "pages" / "web").rglob("*.*")]
    kept += (lstr / "extractors" / "flow").glob("*.cu")
    code = [path for room in (lstr, lstr / "extractors", lstr / "pipelines") for path in room.rglob("*.py")]
    expected = {path.relative_to(lstr.parent).as_posix() for path in (*code, *kept)}
    assert len(code) > 100 and expected <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"lstr", "lstr_cli"}


@pytest.mark.long
def test_an_application_keeps_its_names(installed, tmp_path):
    """Its own packages of those names, found before and after ours, and `lstr` beside them."""
    for name in TAKEN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWN = {name!r}\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import lstr\n"
    code += f"import {', '.join(TAKEN)}; print({', '.join(f'{name}.OWN' for name in TAKEN)})\n"
    code += "from lstr.pipelines.detection.detect import detect_sources\n"
    code += "print(lstr.detect.__name__, detect_sources.__name__)"
    for order in (code, code.replace("path.insert(0, ", "path.append(")):
        assert installed("-c", order).split() == [*TAKEN, "detect", "detect_sources"]


@pytest.mark.long
def test_a_wheel_works(installed, small_set, tmp_path):
    """From a video to features, and to a page with the data files in it."""
    video = write_video(tmp_path / "v.mp4", range(0, 1200, 25))
    assert installed(*LSTR, "--version").startswith("lstr")
    features = tmp_path / "features"
    installed(*LSTR, "extract", video, "-o", features, "--recipe", small_set.recipe, "--set", "cache=none")
    assert len(list(features.glob("*/v.npy"))) == 2


@pytest.mark.slow
def test_a_wheel_learns_and_detects(installed, tmp_path):
    """The demo, which needs nothing but what is installed."""
    installed(*LSTR, "demo", "-o", tmp_path / "demo")
    assert [*(tmp_path / "demo").rglob("*.lstr")]


@pytest.mark.slow
def test_an_installation_without_a_compiler_succeeds(tmp_path):
    names = zipfile.ZipFile(build_wheel(tmp_path, CC="no-such-compiler")).namelist()
    assert "lstr/extractors/flow/tvl1.py" in names and not [n for n in names if n.endswith(".so")]
