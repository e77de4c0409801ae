"""Stages in threads of their own: order, bounds, failures, and their end."""

import threading
from contextlib import closing

import pytest

from lstr.extractors.run import Ahead


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
