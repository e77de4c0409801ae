"""Steps of a pipeline that work at the same time on different items, each in a thread of its own."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def closed_after(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """An iterator over items that is closed afterwards, if it can be."""
    source = iter(items)
    try:
        yield source
    finally:
        if hasattr(source, "close"):
            source.close()


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """What torch computes in this thread it computes on `n` threads; as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def ahead(items: Iterable[T], n: int, name: str) -> Iterator[T]:
    """The same items in the same order, made in a thread called `name`, at most `n` of them ahead of what was taken.

    What the thread raises is raised where the item would have come. Closing the generator closes `items` in that
    thread, and returns when the thread has ended: after the item it is at.
    """
    made: deque[T] = deque()
    change = threading.Condition()
    failure: BaseException | None = None
    ended = stopped = False

    def work() -> None:
        nonlocal failure, ended
        try:
            with closed_after(items) as source:
                for item in source:
                    with change:
                        made.append(item)
                        change.notify_all()
                        change.wait_for(lambda: len(made) < n or stopped)
                        if stopped:
                            break
        except BaseException as error:  # for the one who takes the items, whatever it is
            failure = error
        with change:
            ended = True
            change.notify_all()

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        while True:
            with change:
                change.wait_for(lambda: made or ended)
                if not made:
                    break
                item = made.popleft()
                change.notify_all()
            yield item
        if failure:
            raise failure
    finally:
        with change:
            stopped = True
            change.notify_all()
        thread.join()
