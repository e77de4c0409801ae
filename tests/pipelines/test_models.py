"""Every kind has its facts, and its cost can be counted."""

import json

import pytest
import torch

from lstr.kinds import KINDS, configure, presets
from lstr.models.kind import DESCRIPTION, SAME
from lstr.pipelines.models import cost_of
from tests.support.documents import ROOT


def test_every_kind_has_its_facts_and_every_preset_its_kind():
    assert sorted(name for kind in KINDS.values() for name in kind.presets) == sorted(presets())
    for name, one in ((name, kind.publication) for name, kind in KINDS.items()):
        assert one.exact in (SAME, DESCRIPTION) and one.note and one.licence and 2010 < one.year < 2030, name
        assert bool(one.golden) == (one.exact == SAME), "numbers that are claimed to be the same have their data"
        assert all(0 < result.value < 100 and result.seen for result in one.results), name
    assert next(iter(KINDS["miniroad"].presets)) == "miniroad-thumos14" and KINDS["lstr"].published_size == configure()
    assert list(KINDS["rnn"].presets) == ["rnn-small"]
    assert KINDS["rnn"].published_size == configure(kind="rnn"), "our own size is none"


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_costs_what_is_recorded(kind):
    """At the published size: work that a stream no longer saves shows here."""
    recorded = json.loads((ROOT / "benchmarks" / "models.json").read_text())["kinds"][kind]
    cost = cost_of(KINDS[kind].published_size, 22)
    assert cost.parameters == recorded["parameters"]
    assert cost.multiply_adds == pytest.approx(recorded["multiply_adds"], rel=1e-3)


def test_a_cost_is_known_and_draws_no_weights():
    before = torch.get_rng_state()
    config = configure(kind="rnn", rgb_dim=5, flow_dim=3, d_model=16, n_heads=4)
    assert cost_of(config, 7).multiply_adds == 8 * 16 + 2 * 16 * 64 + 16 * 7
    assert torch.equal(torch.get_rng_state(), before)
