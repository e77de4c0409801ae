"""The cost of every kind of model."""

import json

import pytest

from lstr.kinds import KINDS
from lstr.pipelines.models import cost_of
from tests.support.documents import ROOT

# others are for `make test-all`
QUICK = ("lstr", "rnn", "gatehub")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.long) for kind in KINDS]
)
def test_the_cost_of_a_step_at_the_published_size_agrees_with_the_record(kind):
    recorded = json.loads((ROOT / "benchmarks" / "models.json").read_text())["kinds"][kind]
    cost = cost_of(KINDS[kind].published_size, 22)
    assert cost["parameters"] == recorded["parameters"]
    assert cost["multiply_adds"] == pytest.approx(recorded["multiply_adds"], rel=1e-3)
