"""What an installation ships: a wheel of the source distribution of a clean clone, with a compiler and without."""

import ast
import configparser
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.videos import write_video
from tests.whole.conftest import build_wheel

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("lstr", "lstr.extractors", "lstr.pipelines", "lstr_cli")
OURS = ("lstr", "lstr_cli")
"""What an installation adds to the names that can be imported."""
TAKEN = ("extractors", "pipelines", "checkpoints")
"""Folders of the repository whose names are an application's own."""


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run Python with nothing of this project but the wheel: installed(*arguments) -> what it prints."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run(command, check=True, capture_output=True)

    def run(*arguments) -> str:
        environment = {**os.environ, "PYTHONPATH": str(site), "LSTR_HOME": str(site / "home")}
        ran = subprocess.run(
            [sys.executable, "-P", *map(str, arguments)], cwd=site, env=environment, capture_output=True, text=True
        )
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
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(OURS)


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
def test_the_name_on_an_index_is_free(wheel):
    """`lstr` there is another project; command and package keep it. decord is asked for where it has wheels."""
    assert wheel.name.startswith("lstr_video-")
    files = zipfile.ZipFile(wheel)
    (metadata,) = (files.read(name).decode() for name in files.namelist() if name.endswith("/METADATA"))
    (entries,) = (files.read(name).decode() for name in files.namelist() if name.endswith("/entry_points.txt"))
    assert "lstr = lstr_cli.main:main" in entries
    lines = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    required = [Requirement(line.split(": ", 1)[1]) for line in lines]
    here = {"sys_platform": "linux", "platform_machine": "x86_64", "extra": ""}
    for machine, has_decord in ((here, True), (here | {"platform_machine": "aarch64"}, False)):
        names = {r.name for r in required if not r.marker or r.marker.evaluate(machine | {"extra": "learn"})}
        assert ("decord" in names) == has_decord and {"torch", "av", "click"} <= names
        assert not names & {"pytest", "ray", "ruff", "mypy", "moto"}, "only `make install-test` brings these"
        least = {r.name for r in required if not r.marker or r.marker.evaluate(machine | {"extra": "run"})}
        assert {"av", "onnxruntime", "opencv-python-headless"} <= least and not least & {"torch", "scipy", "matplotlib"}


@pytest.mark.long
def test_what_the_pages_import_comes_with_them():
    """`make docs` imports every module; what is no requirement of the package is one that its conf.py does without."""
    required = {Requirement(line).name for line in (*_section("install_requires"), *_section("learn"))}
    names = packages_distributions()
    spared = re.search(r"for name in \((.*?)\) if not find_spec", (ROOT / "docs" / "conf.py").read_text())[1]
    imported = {name for room in OURS for path in _python(ROOT / room) for name in _first_imports(path)}
    assert {"numpy", "torch", "cv2"} <= imported
    free = {name for name in imported if required.isdisjoint(names.get(name, [name]))}
    assert free == {name.strip('" ') for name in spared.split(",") if name}


def _section(name: str) -> list[str]:
    """The requirements that setup.cfg lists for every installation, or for an extra."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    listed = parser["options"].get(name) or parser["options.extras_require"][name]
    return [line for line in listed.splitlines() if line and not line.startswith("#")]


def _python(room: Path) -> list[Path]:
    """The modules of a room, those behind its links too."""
    rooms = [room, *(folder for folder in room.iterdir() if folder.is_symlink() and folder.is_dir())]
    return [path for folder in rooms for path in folder.rglob("*.py")]


def _first_imports(path: Path) -> set[str]:
    """Packages of others that a module imports when it is imported itself."""
    body = ast.parse(path.read_text("utf-8")).body
    modules = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in body if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {module.split(".")[0] for module in modules} - sys.stdlib_module_names - {*OURS}


def test_the_makefile_names_one_address():
    """Whoever installs chooses a package index, by pip's settings; PyTorch for processors is on its own alone."""
    assert re.findall(r"https?://\S+", (ROOT / "Makefile").read_text()) == ["https://download.pytorch.org/whl/cpu"]


def planned(target: str, venv: Path) -> str:
    """What `make TARGET` would run from nothing."""
    command = ["make", "--dry-run", "--always-make", "-C", ROOT, f"VENV={venv}", target]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_make_installs_what_each_target_needs(tmp_path):
    """The demo without the packages of the tests; tests and linters with them; all from a folder with nothing."""
    for target in ("install", "demo"):
        assert "-e '.[learn]'" in planned(target, tmp_path)
        assert "[test]" not in planned(target, tmp_path)
    for target in ("install-test", "test", "test-all", "lint"):
        assert "-e '.[test]'" in planned(target, tmp_path)
    for target in ("install", "install-test", "docs"):
        assert f"-m venv {tmp_path}" in planned(target, tmp_path)


@pytest.mark.long
def test_a_wheel_works(installed, small_set, tmp_path):
    """From a video to features, and to a page with the data files in it."""
    video = write_video(tmp_path / "v.mp4", range(0, 1200, 25))
    lstr = ("-m", "lstr_cli.main")
    assert installed(*lstr, "--version").startswith("lstr")
    assert "resnet50" in installed(*lstr, "weights", "list")
    features = tmp_path / "features"
    installed(*lstr, "extract", video, "-o", features, "--recipe", small_set.recipe, "--set", "cache=none")
    assert len(list(features.glob("*/v.npy"))) == 2
    (tmp_path / "labels.csv").write_text("video,start,end,label\nv,0.5,1.5,jump\n")
    installed(*lstr, "labels", "convert", tmp_path / "labels.csv", "--to", "eaf", "-o", tmp_path / "eaf")
    assert "jump" in (tmp_path / "eaf" / "v.eaf").read_text()


@pytest.mark.slow
def test_a_wheel_learns_and_detects(installed, tmp_path):
    """The demo, which needs nothing but what is installed."""
    lstr = ("-m", "lstr_cli.main")
    assert "--time" in installed(*lstr, "learn", "--help")
    installed(*lstr, "demo", "-o", tmp_path / "demo")
    assert (tmp_path / "demo").is_dir() and [*(tmp_path / "demo").rglob("*.lstr")]


@pytest.mark.slow
def test_an_installation_without_a_compiler_succeeds(tmp_path):
    names = zipfile.ZipFile(build_wheel(tmp_path, CC="no-such-compiler")).namelist()
    assert "lstr/extractors/flow/tvl1.py" in names and not [n for n in names if n.endswith(".so")]
