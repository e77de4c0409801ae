"""Who may import whom: lstr_cli → pipelines → extractors, lstr."""

import ast
import re
import subprocess
import sys
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


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def sources() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    room = path.relative_to(ROOT).parts[0]
    reached = {name.split(".")[0] for name in imported(path)} & set(ROOMS)
    assert reached <= MAY_IMPORT[room]


def test_only_the_console_imports_rich():
    users = [p.relative_to(ROOT).as_posix() for p in sources() if any(n.split(".")[0] == "rich" for n in imported(p))]
    assert users == ["lstr_cli/console.py"]


def test_no_cycles():
    graph = {}
    for path in sources():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        graph[module] = {n for n in imported(path) if n.split(".")[0] in ROOMS}
    done, path = set(), []

    def visit(module):
        assert module not in path, f"cycle: {' → '.join([*path, module])}"
        if module in done or module not in graph:
            return
        path.append(module)
        for other in graph[module]:
            visit(other)
        path.pop()
        done.add(module)

    for module in graph:
        visit(module)


def test_the_model_needs_no_video_stack():
    code = (
        "import sys\n"
        "import lstr.batch, lstr.checkpoint, lstr.labels, lstr.loss, lstr.metrics, lstr.streaming\n"
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
