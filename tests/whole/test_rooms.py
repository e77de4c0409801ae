"""Who may import whom: lstr_cli → pipelines → extractors, lstr, and one way between the folders inside."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("lstr", "extractors", "pipelines", "lstr_cli")
MAY_IMPORT = {
    "lstr": {"lstr"},
    "extractors": {"extractors"},
    "pipelines": {"pipelines", "extractors", "lstr"},
    "lstr_cli": {"lstr_cli", "pipelines", "extractors", "lstr"},
}
FACE = "lstr"
"""lstr/__init__.py, the public face: the one module that may reach upwards, and only when it is used."""

# Bottom to top. What stands in one line does not import its neighbours of that line.
ORDER = {
    "extractors": (
        ("errors", "names", "home", "addresses", "prefetch", "lifeline", "stages"),
        ("devices",),
        ("lanes",),
        ("video", "flow"),
        ("recipe",),
        ("presets",),
        ("networks",),
        ("twostream",),
    ),
    "pipelines": (
        ("files", "progress", "provenance"),
        ("failures",),
        ("reports", "doctor"),
        ("features",),
        ("networks", "annotations"),
        ("datasets",),
        ("extraction", "evaluation", "detection", "info"),
        ("training", "quantisation"),
        ("finetuning",),
        ("learning",),
        ("demo", "models"),
        ("speed", "calls"),
    ),
}


def sources() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sources()}


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


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    room = path.relative_to(ROOT).parts[0]
    reached = {name.split(".")[0] for name in imported(path)} & set(ROOMS)
    assert name_of(path) == FACE or reached <= MAY_IMPORT[room]


def floors(room: str) -> dict[str, int]:
    return {f"{room}.{name}": floor for floor, names in enumerate(ORDER[room]) for name in names}


def within(room: str) -> Iterator[tuple[str, str, str, str]]:
    """(module, its folder, imported module, that one's folder) of imports from one folder of a room to another."""
    for module, others in graph().items():
        for other in others:
            folder, reached = (".".join(name.split(".")[:2]) for name in (module, other))
            if folder != reached and folder.startswith(f"{room}.") and reached.startswith(f"{room}."):
                yield module, folder, other, reached


@pytest.mark.parametrize("room", ORDER)
def test_folders_stand_in_one_order(room):
    known = floors(room)
    assert {".".join(name.split(".")[:2]) for name in MODULES if name.startswith(f"{room}.")} == set(known)
    upwards = [f"{module} → {other}" for module, a, other, b in within(room) if known[b] >= known[a]]
    assert not upwards


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring; empty where none do."""
    done, path = set(), []

    def visit(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done or module not in graph:
            return []
        path.append(module)
        for other in sorted(graph[module]):
            if found := visit(other):
                return found
        path.pop()
        done.add(module)
        return []

    for module in graph:
        if found := visit(module):
            return found
    return []


def test_no_circles():
    assert not circle(graph())


def test_a_circle_through_a_package_is_found(tmp_path, monkeypatch):
    """`from package import module` was once taken for an import of the package, and a circle went unseen."""
    (tmp_path / "a.py").write_text("from extractors import b\n")
    (tmp_path / "b.py").write_text("def late():\n    from extractors.a import x\n")
    monkeypatch.setitem(MODULES, "extractors.a", tmp_path / "a.py")
    monkeypatch.setitem(MODULES, "extractors.b", tmp_path / "b.py")
    assert circle(graph()) == ["extractors.a", "extractors.b", "extractors.a"]


def test_only_the_console_imports_rich():
    users = [p.relative_to(ROOT).as_posix() for p in sources() if any(n.split(".")[0] == "rich" for n in imported(p))]
    assert users == ["lstr_cli/console.py"]


def test_the_model_needs_no_video_stack():
    code = (
        "import sys\n"
        "import lstr.batch, lstr.checkpoints.checkpoint, lstr.labels.label_set, lstr.windows.loss, lstr.metrics.per_frame, lstr.streaming, lstr.timeline\n"
        "print([m for m in ('cv2', 'decord', 'av', 'mmaction', 'mmengine', 'click', 'rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[]"


def test_python_files_keep_to_their_size():
    long = {p.name: len(p.read_text().splitlines()) for p in sources() if len(p.read_text().splitlines()) > 360}
    assert not long


def test_forbidden_names():
    for path in sources():
        assert not re.search(r"(^|_)(utils|core|engine|manager|helpers?|base)$", path.stem), path
