"""`import lstr`: every public name, imported when it is first used."""

import ast
import importlib
import inspect
import pickle
import sys

import pytest

import lstr
from tests.support.documents import ROOT
from tests.support.processes import check_process

HEAVY = ("torch", "numpy", "sklearn", "cv2", "av", "mmaction", "lstr.pipelines", "lstr.extractors")
CHANGE = "from lstr.kinds import change, configure\nchange(configure(long_length=0), {'kind': 'rnn'})"


@pytest.mark.parametrize(
    "code, heavy",
    [
        ("import lstr\nlstr.__version__, dir(lstr), lstr.__all__", HEAVY),
        # a change of the kind imports no third kind, but torch, which takes seconds
        pytest.param(CHANGE, ("lstr.models.foresight",), marks=pytest.mark.long),
    ],
)
def test_imports_load_only_what_is_used(code, heavy):
    script = f"import sys\n{code}\nprint(*(name for name in {heavy} if name in sys.modules))"
    assert check_process(sys.executable, "-c", script, cwd=ROOT).split() == []


@pytest.mark.parametrize("name", sorted(set(lstr.__all__) - {"__version__"}))
def test_every_public_name_has_its_value_and_documentation(name):
    value = getattr(lstr, name)
    assert value is getattr(lstr, name)
    assert dir(lstr) == sorted(lstr.__all__), "modules loaded for names add none"
    assert inspect.getdoc(value)
    if inspect.isfunction(value):
        module, attribute = lstr._NAMES[name]
        assert inspect.signature(value) == inspect.signature(getattr(importlib.import_module(module), attribute))
        assert pickle.loads(pickle.dumps(value)) is value


def test_type_checkers_know_the_same_names():
    (block,) = (node for node in ast.parse((ROOT / "lstr" / "__init__.py").read_text()).body if isinstance(node, ast.If)
                if isinstance(node.test, ast.Name))  # fmt: skip
    names = {a.asname: (n.module, a.name) for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert names == lstr._NAMES
    assert (ROOT / "lstr" / "py.typed").is_file()
