"""The benchmark of all kinds: every kind has its row."""

import json

import pytest
import torch

from lstr.errors import ConfigError
from lstr.kinds import KINDS
from lstr.pipelines.models import describe_models
from lstr.pipelines.progress import Finished, Progress
from tests.support.benchmarks import benchmark
from tests.support.tiny_models import TINY

bench = benchmark("models")


def shapes(kinds):
    """Small sizes of kinds, each with what else its published size sets."""
    own = {"mat": {"groups": 2}}
    return tuple((kind, KINDS[kind].published_size.replace(**TINY, **own.get(kind, {}))) for kind in kinds)


@pytest.fixture(autouse=True)
def one_round(monkeypatch):
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "CHUNKS", 60)
    monkeypatch.setattr(bench, "CORES", (1,))


@pytest.mark.parametrize("kinds", [("rnn",), pytest.param(tuple(KINDS), marks=pytest.mark.slow)])
def test_every_kind_has_a_row(kinds):
    events = list(bench.bench_kinds(bench.KindsBench(kinds, seconds=0.001, shapes=shapes(["lstr", *kinds]))))
    assert isinstance(events[-1], Finished)
    record = json.loads(json.dumps(events[-1].result))
    assert tuple(record["kinds"]) == kinds
    for row in record["kinds"].values():
        assert row["parameters"] > 0 and row["multiply_adds"] > 0 and row["stream"]
        for speed in row["stream"].values():
            assert speed["steps_per_second"] > 0 and speed["processor_ms"] >= 0 and speed["ratio_to_lstr"] > 0
    steps = [event for event in events if isinstance(event, Progress)]
    assert steps[-1].done == steps[-1].total
    assert torch.get_num_threads() == 1, "as tests/conftest.py sets it"


def test_training_is_measured_where_that_is_wanted():
    options = bench.KindsBench(("red",), 0.001, True, shapes(["lstr", "red"]))
    row = list(bench.bench_kinds(options))[-1].result["kinds"]["red"]
    assert row["training"]["steps"] >= 1 and 0 <= row["training"]["data_wait"] <= 1


@pytest.mark.parametrize("ask", [lambda kind: bench.KindsBench((kind,)), lambda kind: list(describe_models(kind))])
def test_an_unknown_kind_is_an_error_that_names_the_known_ones(ask):
    with pytest.raises(ConfigError, match="'gpt'") as failed:
        ask("gpt")
    assert [kind for kind in KINDS if kind not in failed.value.hint] == []
    ask("rnn")
