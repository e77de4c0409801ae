"""Every kind has its facts, and its cost can be counted."""

import json

import pytest

from lstr.kinds import KINDS
from lstr.pipelines.models import cost_of
from tests.support.documents import ROOT


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_costs_what_is_recorded(kind):
    """At the published size: work that a stream no longer saves shows here."""
    recorded = json.loads((ROOT / "benchmarks" / "models.json").read_text())["kinds"][kind]
    cost = cost_of(KINDS[kind].published_size, 22)
    assert cost["parameters"] == recorded["parameters"]
    assert cost["multiply_adds"] == pytest.approx(recorded["multiply_adds"], rel=1e-3)
