"""What is too much for the machine is said, once, and by what was measured."""

import pytest

from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.weights.sources import WeightSources
from lstr.pipelines.watching import capacity
from lstr.pipelines.watching.capacity import ROOM, Capacity, load_of, measure_share


def test_what_fits_is_said_once_and_again_when_sources_come():
    known = Capacity({"a": 0.1, "b": 0.2})
    assert "2 sources need 0.20" in known.load({"a": 2})
    assert known.load({"a": 2}) is None
    assert "3 sources need 0.40" in known.load({"a": 2, "b": 1})
    assert known.load({"a": 1, "c": 1}) is None, "what c takes is not measured yet"
    assert known.load({}) is None


def test_what_is_too_much_is_said_with_how_many_fit():
    assert "too much" not in load_of([(4, ROOM / 4)])
    text = load_of([(10, 0.16)])
    assert "need 1.60 of this machine" in text and "about 5 can be decided" in text
    assert "about 0 can be" in load_of([(1, 2.0)])


def test_drops_are_said_once_an_hour_by_source(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(capacity, "monotonic", lambda: clock[0])
    known = Capacity()

    def look(hall: int, door: int = 0) -> list[str]:
        clock[0] += 61
        states = [{"name": "hall", "decided": int(clock[0]) * 4, "dropped": hall}]
        return known.look(lambda: [*states, {"name": "door", "decided": int(clock[0]) * 4, "dropped": door}])

    assert look(40) == [], "what was dropped before is not news"
    assert look(41) == [], "one of 245 is worth no word"
    (text,) = look(101)
    assert text.startswith("hall: 60 of 304 chunks of the last 61 s were dropped")
    (text,) = look(200, 50)
    assert text.startswith("door: ")
    clock[0] += 3600
    assert len(look(2000)) == 1
    assert known.look(lambda: [{"name": "hall", "decided": 0, "dropped": 10**6}]) == [], "a minute is not over"


def test_what_all_of_it_takes_is_said_when_all_sources_were_read_for_a_minute(monkeypatch):
    clock, used = [0.0], [0.0]
    monkeypatch.setattr(capacity, "monotonic", lambda: clock[0])
    monkeypatch.setattr(capacity, "process_time", lambda: used[0])
    monkeypatch.setattr(capacity, "default_workers", lambda: 2)
    known = Capacity({"a": 0.1})
    known.load({"a": 1})

    def look(decided: int) -> list[str]:
        clock[0], used[0] = clock[0] + 60, used[0] + 30
        return known.look(lambda: [{"name": "hall", "decided": decided, "dropped": 0}])

    assert look(0) == look(100) == [], "not decided for all of the minute before"
    assert look(340) == ["All of it, decoding too, took 0.25 of this machine in the last minute."]
    assert look(580) == []
    known.load({"a": 2})
    assert look(820), "once for each number of sources"


@pytest.mark.long
def test_the_share_of_a_source_is_measured():
    preset = PRESETS["smallest"]
    twostream = build_twostream(preset, WeightSources(), "cpu")
    with flow_workers(preset.algorithm) as workers:
        assert 0 < measure_share(twostream, workers) < 1
