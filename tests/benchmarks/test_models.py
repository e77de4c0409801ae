"""The benchmark of all kinds: every kind has its row, what is measured so far is told, and `lstr models` shows it."""

import json
from dataclasses import replace

import pytest
import torch

from lstr.config import KINDS
from lstr.errors import ConfigError
from lstr.literature.publications import published_size
from lstr.pipelines.models import describe_models, keep_speeds, read_speeds
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.speed.measuring import Measured
from tests.support.benchmarks import benchmark
from tests.support.tiny_models import TINY

bench = benchmark("models")


def shapes(kinds):
    """Small sizes of kinds, each with what else its published size sets."""
    own = {"mat": {"groups": 2}}
    return tuple((kind, replace(published_size(kind), **TINY, **own.get(kind, {}))) for kind in kinds)


@pytest.fixture(autouse=True)
def one_round(monkeypatch):
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "CHUNKS", 60)
    monkeypatch.setattr(bench, "CORES", (1,))


@pytest.mark.parametrize("kinds", [("rnn",), pytest.param(tuple(KINDS), marks=pytest.mark.long)])
def test_every_kind_has_a_row(kinds):
    events = list(bench.bench_kinds(bench.KindsBench(kinds, seconds=0.001, shapes=shapes(["lstr", *kinds]))))
    assert isinstance(events[-1], Finished)
    record = json.loads(json.dumps(events[-1].result))
    assert tuple(record["kinds"]) == kinds
    for row in record["kinds"].values():
        assert row["parameters"] > 0 and row["multiply_adds"] > 0 and row["stream"]
        for speed in row["stream"].values():
            assert speed["steps_per_second"] > 0 and speed["processor_ms"] >= 0 and speed["ratio_to_lstr"] > 0
    assert any(isinstance(event, Measured) and event.record["unfinished"] for event in events)
    steps = [event for event in events if isinstance(event, Progress)]
    assert steps[-1].done == steps[-1].total
    assert torch.get_num_threads() == 1, "as tests/conftest.py sets it"


@pytest.mark.parametrize(
    "kind", ["red", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS if kind != "red")]
)
def test_training_is_measured_where_that_is_wanted(kind):
    options = bench.KindsBench((kind,), 0.001, True, shapes(["lstr", kind]))
    row = list(bench.bench_kinds(options))[-1].result["kinds"][kind]
    assert row["training"]["steps"] >= 1 and 0 <= row["training"]["data_wait"] <= 1


def test_speeds_of_this_machine_are_kept_by_kind(monkeypatch, tmp_path):
    monkeypatch.setenv("LSTR_HOME", str(tmp_path))
    about = {"machine": "m", "processor": "p"}
    keep_speeds({**about, "kinds": {"rnn": {"stream": {"1": {"steps_per_second": 5}}, "date": "d"}}})
    keep_speeds({**about, "kinds": {"lfb": {"stream": {}, "date": "d"}}})
    assert read_speeds()["kinds"].keys() == {"rnn", "lfb"}
    (one,) = describe_models("rnn")
    assert one["speed"]["stream"]["1"]["steps_per_second"] == 5 and one["speed"]["machine"] == "m"
    keep_speeds({**about, "machine": "another", "kinds": {"lfb": {"stream": {}}}})
    assert read_speeds()["kinds"].keys() == {"lfb"}, "another machine's speeds are none of this one"


@pytest.mark.parametrize("ask", [lambda kind: bench.KindsBench((kind,)), lambda kind: list(describe_models(kind))])
def test_an_unknown_kind_is_an_error_that_names_the_known_ones(ask):
    with pytest.raises(ConfigError, match="no kind 'gpt'") as failed:
        ask("gpt")
    assert [kind for kind in KINDS if kind not in failed.value.hint] == []
    ask("rnn")
