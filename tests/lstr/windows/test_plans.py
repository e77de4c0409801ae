"""Plans as values: what makes them is written and read as numbers, and needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lstr.errors import ConfigError
from lstr.windows.plans import Form, Joined, States, check_known

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"form": "pickle"},
        {"form": "ring"},
        {"form": "ring", "work_length": "8"},
        {"form": "ring", "work_length": 0},
        {"form": "ring", "work_length": 2**40},
        {"form": "bank", "work_length": 4, "long_length": 7, "long_stride": 2, "grid": "fixed"},
        {"form": "bank", "work_length": 4, "long_length": 8, "long_stride": 2, "grid": "round"},
        {"form": "joined", "members": []},
        {"form": "joined", "members": [{"form": "joined", "members": [{"form": "states"}]}]},
    ],
)
def test_what_is_no_plan_is_refused(entry):
    with pytest.raises((ValueError, RecursionError)):
        msgspec.convert(entry, Form | Joined)


def test_a_form_that_no_file_knows_is_named():
    class Odd(States):
        pass

    with pytest.raises(ConfigError, match="Odd"):
        check_known(Odd())


def test_plans_need_no_torch():
    code = "import sys, lstr.windows.plans\nprint([name for name in ('torch', 'onnxruntime') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[]"
