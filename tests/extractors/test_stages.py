"""Stages in threads of their own: order, bounds, failures, and their end."""

import threading
from contextlib import closing
from functools import partial
from itertools import count

import pytest

from lstr.extractors.run import Ahead
from lstr.pipelines.features.video import merged


def running(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def ahead(items, n, name):
    with closing(Ahead(items, n, name)) as made:
        yield from made


@pytest.mark.parametrize("n", [1, 2, 50])
def test_order_is_kept_and_a_failure_comes_in_its_place(n):
    def source():
        yield from range(20)
        raise OSError("unplugged")

    made = []
    with pytest.raises(OSError, match="unplugged"):
        for item in ahead(source(), n, "numbers"):
            made.append(item)
    assert made == [*range(20)] and not running("numbers")


def test_no_more_is_made_than_asked_for():
    made, resting = [], threading.Event()

    def source():
        for i in range(100):
            made.append(i)
            if len(made) == 4:
                resting.set()
            yield i

    items = ahead(source(), 3, "numbers")
    assert next(items) == 0
    assert resting.wait(10)  # the one taken, and three
    threading.Event().wait(0.05)
    assert made == [0, 1, 2, 3]
    items.close()


def test_closing_ends_every_stage_and_closes_the_source_in_its_own_thread():
    closed_in = []

    def source():
        try:
            while True:
                yield 0
        finally:
            closed_in.append(threading.current_thread().name)

    items = ahead(ahead(source(), 2, "inner"), 2, "outer")
    next(items)
    items.close()
    assert closed_in == ["inner"]
    assert not running("inner") and not running("outer")


def test_merged_items_come_as_they_are_made():
    """Those of one source in order, a slow one delays no other, and no more sources at once than are wanted."""
    go, n_open = threading.Event(), []

    def source(name):
        n_open.append(1)
        for n in range(3):
            assert name != "a" or go.wait(60)
            yield name, n
        n_open.pop()

    items = merged([partial(source, name) for name in "abcde"], 2)
    found = [next(items) for _ in range(12)]
    assert not [name for name, _ in found if name == "a"] and len(n_open) <= 2
    go.set()
    found += items
    for name in "abcde":
        assert [n for other, n in found if other == name] == [0, 1, 2]


@pytest.mark.parametrize("end", ["failure", "close"])
def test_a_failure_or_the_end_closes_all_merged_sources(end):
    closed, begun = [], []

    def source(name):
        begun.append(name)
        try:
            for n in count():
                if end == "failure" and name == 1 and n == 5:
                    raise OSError("unplugged")
                yield name
        finally:
            closed.append(name)

    items = merged([partial(source, name) for name in range(4)], 2)
    if end == "failure":
        with pytest.raises(OSError, match="unplugged"):
            list(items)
    else:
        next(items)
        items.close()
    assert sorted(closed) == sorted(begun) and set(begun) <= {0, 1}, "a third was begun after the end"
    assert not running("merged_0") and not running("merged_1")
