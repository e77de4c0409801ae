"""Who may import whom: lstr_cli → pipelines → extractors and the model's own rooms, one way between all folders."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"lstr": "lstr", "extractors": "lstr.extractors", "pipelines": "lstr.pipelines", "lstr_cli": "lstr_cli"}
"""Folders of the repository, and what they are imported as; extractors and pipelines are links in lstr/."""
MAY_IMPORT = {
    "lstr": {"lstr"},
    "lstr.extractors": {"lstr.extractors"},  # and lstr.errors, lstr.files
    "lstr.pipelines": {"lstr.pipelines", "lstr.extractors", "lstr"},
    "lstr_cli": {"lstr_cli", "lstr.pipelines", "lstr.extractors", "lstr"},
}
FACE = "lstr"
"""lstr/__init__.py, the public face: the one module that may reach upwards, and only when it is used."""

ONE_SUBJECT = {f"lstr.extractors.{name}" for name in ("networks", "recipe", "presets")}
"""A recipe names networks of the table, and networks are built from a recipe; their modules form no circle."""

RUN_PATH = (
    "lstr.exported",
    "lstr.extractors.networks.converted_networks",
    "lstr.extractors.twostream",
    "lstr.pipelines.detection.detect",
    "lstr.pipelines.model_files.model_file",
    "lstr_cli.detect",
)
"""What turns a video and a model file into events: it imports torch where a part that is torch's begins, not before."""
TORCH = ("torch", "torchvision", "mmaction", "mmcv", "mmengine")

# Bottom to top. What stands in one line does not import its neighbours of that line.
ORDER = {
    "lstr": (
        ("errors", "chunk"),
        ("files", "settings"),
        ("labels", "config"),
        ("windows", "metrics"),
        ("models",),
        ("kinds", "exported"),
        ("average", "exported_graphs"),
        ("loaded_checkpoint",),
        ("checkpoint",),
        ("streaming", "batch", "timeline"),
    ),
    "lstr.extractors": (
        ("devices", "stages", "streams"),
        ("lanes",),
        ("video", "flow"),
        ("networks", "recipe", "presets"),
        ("run",),
        ("twostream",),
    ),
    "lstr.pipelines": (
        ("progress", "provenance"),
        ("failures", "scenes"),
        ("pages", "doctor", "child_process", "sampled_inputs"),
        ("annotations",),
        ("model_files",),
        ("features",),
        ("evaluation",),
        ("detection",),
        ("info",),
        ("training",),
        ("learning",),
        ("demo", "models", "labelling", "watching"),
        ("bench", "calls"),
    ),
}


def sources(*folders: str) -> list[Path]:
    """The Python files of folders of the repository, each in its own place and not behind a link."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if path.resolve() == path]


def name_of(path: Path) -> str:
    """`lstr.extractors.video.frames`, for `extractors/video/frames.py`."""
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([ROOMS.get(folder, folder), *rest]).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sources(*ROOMS)}


def room_of(name: str) -> str:
    return next((room for room in sorted(MAY_IMPORT, key=len, reverse=True) if f"{name}.".startswith(f"{room}.")), "")


@cache
def imported(path: Path) -> set[str]:
    """Modules that a file imports; `from package import module` is that module, not the package."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in MODULES else node.module for name in whole}
    return names


def graph() -> dict[str, set[str]]:
    """What each of our modules imports of ours; the face is left out, for it looks down from above all."""
    found = {name: {n for n in imported(path) if n in MODULES} for name, path in MODULES.items()}
    del found[FACE]
    return found


def test_imports_go_down():
    wrong = [
        f"{name} → {other}"
        for name, others in graph().items()
        for other in others
        if room_of(other) not in MAY_IMPORT[room_of(name)]
        and other not in ("lstr.errors", "lstr.extractors", "lstr.pipelines", FACE)
        and folder_of(other, "lstr") != "lstr.files"  # the bottom layer of all
    ]
    assert not wrong


def test_links_are_not_imported_past():
    """`import extractors` works in a checkout and not in an installation, and would load each module twice."""
    bare = {"extractors", "pipelines", "checkpoints"}
    every = sources(*ROOMS, "tests", "benchmarks", "docs")
    assert not [path for path in every if {name.split(".")[0] for name in imported(path)} & bare]


def floors(room: str) -> dict[str, int]:
    return {f"{room}.{name}": floor for floor, names in enumerate(ORDER[room]) for name in names}


def folder_of(module: str, room: str) -> str:
    return ".".join(module.split(".")[: room.count(".") + 2])


def within(room: str) -> Iterator[tuple[str, str, str, str]]:
    """(module, its folder, imported module, that one's folder) of imports from one folder of a room to another."""
    for module, others in graph().items():
        for other in others:
            folder, reached = folder_of(module, room), folder_of(other, room)
            if folder != reached and room_of(module) == room_of(other) == room and room not in (folder, reached):
                yield module, folder, other, reached


@pytest.mark.parametrize("room", ORDER)
def test_folders_stand_in_one_order(room):
    known = floors(room)
    assert {folder_of(name, room) for name in MODULES if room_of(name) == room and name != room} == set(known)
    upwards = [
        f"{module} → {other}"
        for module, a, other, b in within(room)
        if known[b] >= known[a] and not {a, b} <= ONE_SUBJECT
    ]
    assert not upwards


def test_no_circles():
    modules = {name: others - {name} for name, others in graph().items()}
    while free := {name for name, others in modules.items() if not others & modules.keys()}:
        modules = {name: others for name, others in modules.items() if name not in free}
    assert not modules, "modules that import each other in a ring, and those above them"


def loads(imports: str, *packages: str) -> list[str]:
    """Which of some packages are loaded by importing modules."""
    code = f"import sys, {imports}\nprint(*[name for name in {packages} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return result.stdout.split()


def test_the_model_needs_no_video_stack():
    modules = "batch checkpoint labels.label_set windows.windows metrics.per_frame streaming timeline"
    imports = ", ".join(f"lstr.{name}" for name in modules.split())
    assert loads(imports, "cv2", "av", "mmaction", "mmengine", "click", "rich") == []


def test_the_run_path_imports_no_torch():
    """Nor does what it imports of others."""
    here = [name for name in RUN_PATH if "onnx" not in name or importlib.util.find_spec("onnxruntime")]
    assert loads(", ".join(here), *TORCH) == []


def test_files_keep_to_their_size_and_names():
    lengths = {str(path): len(path.read_text().splitlines()) for path in MODULES.values()}
    assert not {path: lines for path, lines in lengths.items() if lines > 450}
    assert len(list((ROOT / "lstr").glob("*.py"))) <= 15
    forbidden = re.compile(r"(^|_)(utils|core|engine|manager|helpers?|base)$")
    assert not [path for path in MODULES.values() if forbidden.search(path.stem)]
