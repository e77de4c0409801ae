"""Plans as values: what makes them is written and read as numbers, and needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from lstr.errors import ConfigError
from lstr.kinds import KINDS
from lstr.windows.plans import Form, Joined, States, check_known, needed
from tests.support.tiny_models import AVERAGED, tiny

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("settings", [*({"kind": kind} for kind in KINDS), AVERAGED], ids=lambda of: of["kind"])
def test_a_plan_read_again_is_the_models(settings):
    model = tiny(**settings)
    check_known(model.planner)
    read = msgspec.json.decode(msgspec.json.encode(model.planner), type=Form | Joined)
    assert read == model.planner
    for chunks in (np.array([0, 7, 40]), np.array([3, 5, 1000])):
        ours, theirs = model.planner(chunks), read(chunks)
        assert ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.parametrize("settings", [*({"kind": kind} for kind in KINDS), AVERAGED], ids=lambda of: of["kind"])
def test_plans_ahead_are_those_of_each_chunk(settings):
    planner = tiny(**settings).planner
    for first in (0, 17, 1000):
        for chunk, plan in enumerate(planner.ahead(first, 9), first):
            alone = needed(planner(np.array([chunk])))
            assert plan.keys() == alone.keys() and all((plan[name] == alone[name]).all() for name in plan)


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

    with pytest.raises(ConfigError, match="cannot hold the plan Odd"):
        check_known(Odd())


def test_plans_need_no_torch():
    code = "import sys, lstr.windows.plans\nprint([name for name in ('torch', 'onnxruntime') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[]"
