"""Stages in threads of their own: order, bounds, failures, and their end."""

import threading
from contextlib import closing
from functools import partial
from itertools import count

import pytest
import torch

from lstr.extractors.run import Ahead
from lstr.extractors.stages import torch_threads
from lstr.pipelines.features.video import merged


def running(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def ahead(items, n, name):
    with closing(Ahead(items, n, name)) as made:
        yield from made


@pytest.mark.parametrize("n", [1, 2, 50])
def test_order_is_kept(n):
    assert list(ahead(iter(range(20)), n, "numbers")) == list(range(20))
    assert not running("numbers")
    assert list(ahead([], n, "numbers")) == []


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


def test_a_failure_comes_in_its_place():
    def source():
        yield 1
        yield 2
        raise OSError("unplugged")

    items = ahead(source(), 5, "failing")
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(OSError, match="unplugged"):
        next(items)
    assert not running("failing")


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
    """Those of one source in order, a slow one in nobody's way, and no more sources at once than are wanted."""
    go, open_now, most, lock = threading.Event(), [0], [0], threading.Lock()

    def source(name, slow=False):
        with lock:
            open_now[0] += 1
            most[0] = max(most[0], open_now[0])
        for n in range(3):
            if slow:
                assert go.wait(60)
            yield name, n
        with lock:
            open_now[0] -= 1

    items = merged([partial(source, name, name == "a") for name in "abcde"], 2)
    first = [next(items) for _ in range(12)]
    assert not [name for name, _ in first if name == "a"], "it waits, and the others were all made beside it"
    go.set()
    rest = list(items)
    assert sorted(first + rest) == [(name, n) for name in "abcde" for n in range(3)] and most == [2]
    for name in "abcde":
        assert [n for other, n in first + rest if other == name] == [0, 1, 2]
    assert not running("merged_0") and not running("merged_1")


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


def test_torch_has_its_threads_back():
    before = torch.get_num_threads()
    with pytest.raises(ValueError), torch_threads(before + 2):
        assert torch.get_num_threads() == before + 2
        raise ValueError
    assert torch.get_num_threads() == before
