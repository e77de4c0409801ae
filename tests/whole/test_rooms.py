"""Which module may import which: lstr_cli → pipelines → extractors and lstr, one way between all folders."""

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.processes import check_process

ROOMS = {"lstr": "lstr", "extractors": "lstr.extractors", "pipelines": "lstr.pipelines", "lstr_cli": "lstr_cli"}
"""Folders of the repository, and the packages that they are; extractors and pipelines are links in lstr/."""
MAY_IMPORT = {
    "lstr": {"lstr"},
    "lstr.extractors": {"lstr.extractors"},  # and lstr.errors, lstr.files
    "lstr.pipelines": {"lstr.pipelines", "lstr.extractors", "lstr"},
    "lstr_cli": {"lstr_cli", "lstr.pipelines", "lstr.extractors", "lstr"},
}
IMPORTED_BY_ANY = re.compile(r"lstr(\.(errors|extractors|pipelines|files(\..*)?))?")
MAY_IMPORT_EACH_OTHER = {f"lstr.extractors.{name}" for name in ("networks", "recipe", "presets")}
"""A recipe names networks of the table, and networks are built from a recipe; their modules form no cycle."""

# from a video and a model file to events: torch is imported by the parts that need it, and not before
MODULES_WITHOUT_TORCH = (
    "lstr.exported",
    "lstr.extractors.networks.converted_networks",
    "lstr.extractors.twostream",
    "lstr.pipelines.detection.detect",
    "lstr.pipelines.model_files.model_file",
    "lstr_cli.detect",
)

# Bottom to top. Modules and folders of one line do not import each other.
ORDER = {
    "lstr": (
        ("errors",),
        ("chunk",),
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
        ("pages", "doctor", "child_process"),
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


def find_sources(*folders: str) -> list[Path]:
    """Return the Python files of folders of the repository, not those behind links."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if path.resolve() == path]


def module_name(path: Path) -> str:
    """Return `lstr.extractors.video.frames` for `extractors/video/frames.py`."""
    folder, *parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([ROOMS.get(folder, folder), *parts]).removesuffix(".__init__")


MODULES = {module_name(path): path for path in find_sources(*ROOMS)}


def room_of(name: str) -> str:
    return next((room for room in sorted(MAY_IMPORT, key=len, reverse=True) if f"{name}.".startswith(f"{room}.")), "")


def folder_of(module: str, room: str) -> str:
    return ".".join(module.split(".")[: room.count(".") + 2])


def find_imports(path: Path) -> set[str]:
    """Return the modules that a file imports; `from package import module` is that module, not the package."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full_names = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in MODULES else node.module for name in full_names}
    return names


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """The modules that each module imports, without lstr/__init__.py, which imports from all rooms."""
    return {name: find_imports(path) & MODULES.keys() for name, path in MODULES.items() if name != "lstr"}


@pytest.fixture(scope="module")
def imports(graph) -> list[tuple[str, str]]:
    return [(module, imported) for module, names in graph.items() for imported in names]


def test_rooms_import_only_rooms_below(imports):
    assert not [
        f"{module} → {imported}"
        for module, imported in imports
        if room_of(imported) not in MAY_IMPORT[room_of(module)] and not IMPORTED_BY_ANY.fullmatch(imported)
    ]


def test_links_are_imported_as_packages_of_lstr():
    """`import extractors` works only in a checkout, and would load each module twice."""
    linked = re.compile(r"^ *(from|import) (extractors|pipelines|checkpoints)\b", re.MULTILINE)
    paths = find_sources(*ROOMS, "tests", "benchmarks", "docs")
    assert not [path for path in paths if linked.search(path.read_text())]


@pytest.mark.parametrize("room", ORDER)
def test_folders_import_only_folders_below(imports, room):
    floors = {f"{room}.{name}": floor for floor, names in enumerate(ORDER[room]) for name in names}
    assert {folder_of(name, room) for name in MODULES if room_of(name) == room != name} == floors.keys()
    for module, imported in imports:
        a, b = folder_of(module, room), folder_of(imported, room)
        if a != b and room_of(module) == room_of(imported) == room and room not in (a, b):
            assert floors[b] < floors[a] or {a, b} <= MAY_IMPORT_EACH_OTHER, f"{module} → {imported}"


def test_modules_import_each_other_in_no_cycle(graph):
    modules = {name: imports - {name} for name, imports in graph.items()}
    while lowest := {name for name, imports in modules.items() if not imports & modules.keys()}:
        modules = {name: imports for name, imports in modules.items() if name not in lowest}
    assert not modules, "modules of a cycle, and those above them"


def loaded_packages(modules: str, *packages: str) -> list[str]:
    """Return the packages that are loaded by importing modules."""
    code = f"import sys, {modules}\nprint(*[name for name in {packages} if name in sys.modules])"
    return check_process(sys.executable, "-c", code, cwd=ROOT).split()


@pytest.mark.long  # imports torch again
def test_models_need_no_video_packages():
    modules = "batch checkpoint labels.label_set windows.windows metrics.per_frame streaming timeline"
    names = ", ".join(f"lstr.{name}" for name in modules.split())
    assert loaded_packages(names, "cv2", "av", "mmaction", "mmengine", "click", "rich") == []


def test_detection_by_exported_models_imports_no_torch():
    packages = ("torch", "torchvision", "mmaction", "mmcv", "mmengine")
    assert loaded_packages(", ".join(MODULES_WITHOUT_TORCH), *packages) == []


def test_files_have_bounded_sizes_and_specific_names():
    assert not [path for path in MODULES.values() if len(path.read_text().splitlines()) > 450]
    assert len(list((ROOT / "lstr").glob("*.py"))) <= 15
    vague = re.compile(r"(^|_)(utils|core|engine|manager|helpers?|base)$")
    assert not [path for path in MODULES.values() if vague.search(path.stem)]
