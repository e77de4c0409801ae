"""A docstring says what a thing is: an editor shows it alone, without the name of what is around it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "extractors lstr/labels lstr/metrics lstr/windows pipelines/annotations pipelines/datasets "
    "pipelines/evaluation pipelines/extraction pipelines/features pipelines/files pipelines/finetuning "
    "pipelines/learning pipelines/model_files pipelines/networks pipelines/reports pipelines/thresholds "
    "pipelines/training pipelines/weights"
).split()
HALF_A_SENTENCE = re.compile(r"(Of|As|That|Those|Whose)\b")


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Those of modules, classes and functions, and the strings below assignments."""
    for node in ast.walk(tree):
        body = node.body if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else []
        for before, line in zip([None, *body], body, strict=False):
            documented = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
            if documented and isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
                yield line.value


def test_no_docstring_begins_in_the_middle_of_a_sentence():
    found, n = [], 0
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        for text in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            n += 1
            if HALF_A_SENTENCE.match(str(text.value).lstrip()):
                found.append(f"{path.relative_to(ROOT)}:{text.lineno}: {str(text.value).splitlines()[0]}")
    assert n > 1000 and not found, "\n".join(found)
