"""The contents of an installation: a wheel of a clean clone, and an environment without torch that runs models."""

import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from lstr.pipelines.detection.options import FORMATS
from tests.conftest import write_once
from tests.support.documents import ROOT
from tests.support.model_files import write_exportable
from tests.support.processes import LSTR, check_process, run_process
from tests.support.videos import write_video

APPLICATION = ("extractors", "pipelines", "checkpoints")
"""Packages of an application with the names of folders of this repository"""
MAX_MEGABYTES = 500
MAX_SCORE_DIFFERENCE = 1e-5
DRAWN_FORMATS = ("png", "svg")  # drawn by matplotlib


def build_sources(folder: Path) -> Path:
    """Build a source distribution of the committed files; of all files without git."""
    clone = ("git", "clone", "--quiet", ROOT, folder / "source")
    if not (ROOT / ".git").exists() or run_process(*clone)[0]:
        ignored = shutil.ignore_patterns(".*", "*.so", "build", "demo", "*.egg-info", "__pycache__")
        shutil.copytree(ROOT, folder / "source", ignore=ignored, symlinks=True)
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    check_process(sys.executable, "-c", code, cwd=folder / "source")
    return next(folder.glob("*.tar.gz"))


def build_wheel(folder: Path) -> Path:
    """Build a wheel from a source distribution, with the setuptools of this environment."""
    sources = build_sources(folder)
    shutil.unpack_archive(sources, folder, filter="data")
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(folder)!r})"
    check_process(sys.executable, "-c", code, cwd=folder / sources.name.removesuffix(".tar.gz"))
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def wheel(base) -> Path:
    return write_once(base / "wheel", build_wheel)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run Python with only the wheel of this project: installed(*arguments) -> standard output."""
    site = tmp_path_factory.mktemp("site")
    check_process(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel)

    def run(*arguments) -> str:
        environment = {"PYTHONPATH": str(site), "LSTR_HOME": str(site / "home")}
        return check_process(sys.executable, "-P", *arguments, cwd=site, env=environment)

    code = "import lstr, lstr.extractors as e, lstr.pipelines as p, lstr_cli as c"
    paths = run("-c", f"{code}; print(lstr.__file__, e.__file__, p.__file__, c.__file__)").split()
    assert len(paths) == 4 and all(path.startswith(str(site)) for path in paths)
    return run


@pytest.mark.long
def test_a_wheel_has_code_and_data_but_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    lstr = wheel.parent / "source" / "lstr"
    data = [lstr / "extractors" / "networks" / "manifest.json", *(lstr / "pipelines" / "pages" / "web").rglob("*.*")]
    data += (lstr / "extractors" / "flow").glob("*.cu")
    code = [path for folder in (lstr, lstr / "extractors", lstr / "pipelines") for path in folder.rglob("*.py")]
    assert len(code) > 100 and {path.relative_to(lstr.parent).as_posix() for path in (*code, *data)} <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"lstr", "lstr_cli"}


@pytest.mark.long
@pytest.mark.parametrize("search", ["insert(0, ", "append("])
def test_packages_of_an_application_keep_their_names(installed, tmp_path, search):
    for name in APPLICATION:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"NAME = {name!r}\n")
    code = f"import sys; sys.path.{search}{str(tmp_path)!r}); import lstr\n"
    code += f"import {', '.join(APPLICATION)}; print({', '.join(f'{name}.NAME' for name in APPLICATION)})\n"
    code += "from lstr.pipelines.detection.detect import detect_sources\n"
    code += "print(lstr.detect.__name__, detect_sources.__name__)"
    assert installed("-c", code).split() == [*APPLICATION, "detect", "detect_sources"]


@pytest.mark.long
def test_an_installed_wheel_extracts_features(installed, small_set, tmp_path):
    video, features = write_video(tmp_path / "v.mp4", range(0, 1200, 25)), tmp_path / "features"
    settings = ("--set", "cache=none", "--set", "runtime=torch")
    assert installed(*LSTR[1:], "--version").startswith("lstr")
    installed(*LSTR[1:], "extract", video, "-o", features, "--recipe", small_set.recipe, *settings)
    assert len(list(features.glob("*/v.npy"))) == 2


@pytest.mark.slow
def test_installation_without_a_compiler_succeeds(tmp_path):
    build = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, build_sources(tmp_path))
    check_process(*build, env={"CC": "no-such-compiler"})
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert "lstr/extractors/flow/tvl1.py" in names and not [n for n in names if n.endswith(".so")]


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """A virtual environment with what runs exported models."""
    folder = tmp_path_factory.mktemp("small") / "venv"
    check_process(sys.executable, "-m", "venv", folder)
    packages = f"lstr-video[run,watch] @ file://{wheel}"
    code, _, err = run_process(folder / "bin" / "python", "-m", "pip", "install", "--quiet", packages)
    if code:
        pytest.skip(f"no index to install from: {err.strip().splitlines()[-1]}")
    return folder


@pytest.fixture(scope="module")
def small(environment):
    """Run `lstr` of that environment: small(*arguments, code) -> (standard output, standard error)."""

    def run(*arguments, code: int = 0) -> tuple[str, str]:
        own = {"LSTR_HOME": str(environment / "home"), "PYTHONPATH": ""}
        command = (environment / "bin" / "python", *LSTR[1:], *arguments)
        exit_code, out, err = run_process(*command, cwd=environment, env=own)
        assert exit_code == code and "Traceback" not in err, err
        return out, err

    return run


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Path]:
    """A model file, and what `lstr export` writes for it."""
    folder = tmp_path_factory.mktemp("models")
    model = write_exportable(folder, "lstr").path
    check_process(*LSTR, "export", model, "-o", folder / "run.lstr")
    return model, folder / "run.lstr"


@pytest.mark.slow
def test_the_environment_is_small_and_lacks_torch(environment):
    site = next((environment / "lib").glob("python3*/site-packages"))
    packages = {path.name.partition("-")[0] for path in site.glob("*.dist-info")}
    assert not packages & {"torch", "torchvision", "scipy", "matplotlib", "opencv_contrib_python", "mmaction2"}
    files = [path for path in environment.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) / 1e6 < MAX_MEGABYTES


@pytest.mark.slow
def test_exported_models_give_the_scores_and_files_of_torch_in_every_format(small, small_set, exported, lstr, tmp_path):
    video, names = small_set.videos / "scene_00.mp4", ",".join(name for name in FORMATS if name not in DRAWN_FORMATS)
    folders = tmp_path / "with", tmp_path / "without"
    assert lstr("detect", video, "-m", exported[0], "-o", folders[0], "-f", names)[0] == 0
    small("detect", video, "-m", exported[1], "-o", folders[1], "-f", names)
    expected, scores = (np.load(folder / "scene_00.scores.npy") for folder in folders)
    assert len(expected) > 4 and np.abs(expected - scores).max() < MAX_SCORE_DIFFERENCE
    files = [{path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} for folder in folders]
    assert files[0] == files[1] and {".mp4", ".html", ".eaf", ".vtt"} <= {path.suffix for path in files[0]}
    for name in DRAWN_FORMATS:
        _, err = small("detect", video, "-m", exported[1], "-o", tmp_path / "drawn", "-f", name, code=2)
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
def test_commands_that_need_torch_name_the_package(small, small_set, exported, tmp_path):
    model, video = exported[0], small_set.videos / "scene_00.mp4"
    (tmp_path / "labels.csv").write_text("video,start,end,label\nscene_00,0.5,1.5,jump\n")
    for words in (
        ("detect", video, "-m", model),
        ("learn", video, tmp_path / "labels.csv"),
        ("demo",),
        ("models",),
        ("extract", video, "-o", tmp_path / "features"),
        ("train", tmp_path, "--labels", tmp_path / "labels.csv", "-o", tmp_path / "run"),
        ("export", model, "-o", tmp_path / "again.lstr"),
        ("bench",),
    ):
        assert "pip install 'lstr-video[learn]" in small(*words, code=2)[1], words
