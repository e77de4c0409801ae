"""Every kind has its facts, and its cost can be counted."""

import pytest
import torch

from lstr.kinds import KINDS, configure, make_model, presets
from lstr.models.kind import DESCRIPTION, SAME
from lstr.pipelines.models import cost_of
from tests.support.tiny_models import TINY


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
def test_the_cost_of_every_kind_is_counted(kind):
    config = configure(**TINY, kind=kind)
    cost, model = cost_of(config, 5), make_model(config, 5)
    assert cost.parameters == sum(p.numel() for p in model.parameters())
    assert cost.multiply_adds > TINY["d_model"] * 5, "at least the classifier"


def test_a_cost_is_known_and_draws_no_weights():
    before = torch.get_rng_state()
    config = configure(kind="rnn", rgb_dim=5, flow_dim=3, d_model=16, n_heads=4)
    assert cost_of(config, 7).multiply_adds == 8 * 16 + 2 * 16 * 64 + 16 * 7
    assert torch.equal(torch.get_rng_state(), before)
