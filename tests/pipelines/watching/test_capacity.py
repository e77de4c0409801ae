"""What is too much for the machine is said, once, and by what was measured."""

from lstr.pipelines.watching import capacity
from lstr.pipelines.watching.capacity import Capacity


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
