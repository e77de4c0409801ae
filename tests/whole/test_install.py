"""What an installation ships: a wheel of a clean clone, and what runs models in an environment without torch."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from lstr.pipelines.detection.options import FORMATS
from tests.support.exportable import write_exportable
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
def test_an_installation_without_a_compiler_succeeds(tmp_path):
    names = zipfile.ZipFile(build_wheel(tmp_path, CC="no-such-compiler")).namelist()
    assert "lstr/extractors/flow/tvl1.py" in names and not [n for n in names if n.endswith(".so")]


MOST_MEGABYTES = 500
DIFFERENCE = 1e-5
PICTURES = ("png", "svg")  # drawn by matplotlib


@pytest.fixture(scope="module")
def small(wheel, tmp_path_factory):
    """Run `lstr` of a clean environment: small(*arguments, code) -> what it prints, and what it says."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", f"lstr-video[run,watch] @ file://{wheel}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no index to install from: {done.stderr.strip().splitlines()[-1]}")

    def run(*arguments, code: int = 0) -> tuple[str, str]:
        environment = {**os.environ, "LSTR_HOME": str(folder / "home")}
        environment.pop("PYTHONPATH", None)
        command = [python, "-m", "lstr_cli", *map(str, arguments)]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert ran.returncode == code and "Traceback" not in ran.stderr, ran.stderr
        return ran.stdout, ran.stderr

    run.folder = folder
    return run


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Path]:
    """A model file, and what `lstr export` makes of it."""
    folder = tmp_path_factory.mktemp("models")
    whole, run = write_exportable(folder, "lstr").path, folder / "run.lstr"
    subprocess.run([sys.executable, "-m", "lstr_cli", "export", whole, "-o", run], check=True, capture_output=True)
    return whole, run


@pytest.mark.slow
def test_it_is_small_and_lacks_torch(small):
    site = next((small.folder / "venv" / "lib").glob("python3*/site-packages"))
    packages = {path.name.partition("-")[0] for path in site.glob("*.dist-info")}
    assert not packages & {"torch", "torchvision", "scipy", "matplotlib", "opencv_contrib_python", "mmaction2"}
    files = [path for path in (small.folder / "venv").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) / 1e6 < MOST_MEGABYTES


@pytest.mark.slow
def test_it_scores_as_with_torch(small, small_set, exported, lstr, tmp_path):
    """The same video, decided by the model file with torch and by the exported one without, in every format."""
    whole, run = exported
    video, names = small_set.videos / "scene_00.mp4", ",".join(name for name in FORMATS if name not in PICTURES)
    folders = tmp_path / "with", tmp_path / "without"
    assert lstr("detect", video, "-m", whole, "-o", folders[0], "-f", names)[0] == 0
    small("detect", video, "-m", run, "-o", folders[1], "-f", names)
    with_torch, without = (np.load(folder / "scene_00.scores.npy") for folder in folders)
    assert len(with_torch) > 4 and np.abs(with_torch - without).max() < DIFFERENCE
    files = [{path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} for folder in folders]
    assert files[0] == files[1] and {".mp4", ".html", ".eaf", ".vtt"} <= {path.suffix for path in files[0]}
    for name in PICTURES:
        _, err = small("detect", video, "-m", run, "-o", tmp_path / "drawn", "-f", name, code=2)
        assert "pip install matplotlib" in err


@pytest.mark.slow
def test_labels_and_the_service_need_no_torch(small, exported, tmp_path):
    _, run = exported
    assert "run.lstr" in small("info", run)[0]
    (tmp_path / "watch.toml").write_text(f'model = "{run}"\n[sources.hall]\naddress = "http://127.0.0.1:9/hall"\n')
    assert small("watch", tmp_path / "watch.toml", "--check")[0].startswith("hall: ")
    (tmp_path / "labels.csv").write_text("video,start,end,label\nv,0.5,1.5,jump\nv,2,3,wave\n")
    small("labels", "convert", tmp_path / "labels.csv", "--to", "eaf", "-o", tmp_path / "eaf")
    assert "jump" in (tmp_path / "eaf" / "v.eaf").read_text()
    small("doctor")


@pytest.mark.slow
def test_what_needs_torch_says_what_to_install(small, small_set, exported, tmp_path):
    whole, _ = exported
    video = small_set.videos / "scene_00.mp4"
    (tmp_path / "labels.csv").write_text("video,start,end,label\nscene_00,0.5,1.5,jump\n")
    for words in (
        ("detect", video, "-m", whole),
        ("learn", video, tmp_path / "labels.csv"),
        ("demo",),
        ("models",),
        ("extract", video, "-o", tmp_path / "features"),
        ("train", tmp_path, "--labels", tmp_path / "labels.csv", "-o", tmp_path / "run"),
        ("export", whole, "-o", tmp_path / "again.lstr"),
        ("quantise", whole, video, "-o", tmp_path / "again.lstr"),
        ("bench",),
    ):
        assert "pip install 'lstr-video[learn]" in small(*words, code=2)[1], words
