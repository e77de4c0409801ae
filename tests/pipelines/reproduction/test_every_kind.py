"""A dry run of every kind on a synthetic set, by its published training and with small sizes."""

from pathlib import Path

import pytest

from lstr.errors import LstrError
from lstr.kinds import OURS, kind_named
from lstr.pipelines.progress import result_of
from lstr.pipelines.reproduction.job import plan
from lstr.pipelines.reproduction.options import ReproduceOptions
from lstr.pipelines.reproduction.plan import Plan
from lstr.pipelines.training.config import preset_named
from tests.support.synthetic_set import write_synthetic

pytestmark = pytest.mark.long
SMALL = {
    **dict.fromkeys(("d_model", "d_feedforward", "decoder_feedforward", "d_token"), 16),
    **dict.fromkeys(("n_heads", "decoder_heads"), 2),
    **{"long_length": 64, "groups": 2, "n0": 4, "n1": 4, "n_generated": 4, "unroll": 8, "generated": 2},
}
"""The most of each: a published FATS or TRN takes a minute a step."""
UNPUBLISHED = {"rnn", "lap-like", "tfn-like", "conv-deconv"}
"""Kinds without a number of their own; the others have one on THUMOS'14."""


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("synthetic"))


def planned(kind: str, features: Path, folder: Path) -> Plan:
    """The plan by the published settings but for SMALL."""
    named = kind_named(kind)
    results = [preset for one in named.publication.results for preset in one.presets]
    preset = results[0] if results else named.published_preset or "thumos14"
    model = preset_named(preset)[0]
    model = model if model.kind == kind else named.config()
    small = {
        f"model.{name}": str(min(getattr(model, name), most)) for name, most in SMALL.items() if hasattr(model, name)
    }
    return result_of(plan(ReproduceOptions(kind, [features], output=folder / "out", settings=small)))


@pytest.mark.parametrize("kind", OURS)
def test_a_dry_run(kind, synthetic, tmp_path):
    """Settings, row, data and time are told, nothing compares, and nothing is written."""
    found = planned(kind, synthetic, tmp_path)
    assert found.model.kind == kind and found.seconds(3) > 0 and found.steps > 0
    assert not list(tmp_path.iterdir())
    numbers = [row.published for row in found.rows]
    assert any(number is not None for number in numbers) == (kind not in UNPUBLISHED)
    for row in found.rows:
        assert row.published is None or "synthetic data" in row.reasons
        assert "not comparable" in row.verdict([50.0]) or "no published number is at hand" in row.verdict([50.0])
    assert {str(one) for one in found.data} >= {"synthetic data"}
    assert found.differs == kind_named(kind).publication.differs


def test_each_kind_has_its_line_in_the_list():
    """A kind that is added is published, or says that it is not."""
    for kind in OURS:
        results = kind_named(kind).publication.results
        assert bool(results) == (kind not in UNPUBLISHED)
        presets = kind_named(kind).presets
        assert all(preset in presets for one in results for preset in one.presets), kind


def test_what_is_put_together_cannot_be_reproduced(synthetic):
    with pytest.raises(LstrError, match="no kind 'average'"):
        list(plan(ReproduceOptions("average", [synthetic])))
