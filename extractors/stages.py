"""Stages of the work on a source: which one an error came from, and threads in which they work at the same time."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ContextDecorator, closing, contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
_MARK = "lstr_stage"  # an attribute of the error, which it keeps from one thread or process to another


class Stage(ContextDecorator):
    """A context manager, and a decorator: an error that leaves it is marked, unless a stage inside has marked it."""

    def __init__(self, name: str, action: str):
        self.name = name
        self.action = action
        """What fails, in a message."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and stage_of(error) is None:
            with suppress(AttributeError):  # a few types of C extensions take no attributes
                setattr(error, _MARK, self.name)

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The same items, each taken in this stage; `items` are not closed with the generator."""
        source = iter(items)
        while True:
            with self:
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item


PROBE = Stage("probe", "looking into it")
DECODE = Stage("decode", "decoding")
FLOW = Stage("flow", "optical flow")
NETWORK = Stage("network", "a feature network")
MODEL = Stage("model", "the model's decision")
WRITE = Stage("write", "writing what came of it")
STAGES = {stage.name: stage for stage in (PROBE, DECODE, FLOW, NETWORK, MODEL, WRITE)}


def stage_of(error: BaseException) -> Stage | None:
    """The stage that an error came from; None where none was entered."""
    return STAGES.get(getattr(error, _MARK, ""))


@dataclass
class StepSeconds:
    """Seconds that each step worked, in all its threads together. Steps overlap, so the sum is not a duration."""

    decode: float = 0.0
    flow: float = 0.0
    # all streams but flow
    rgb_network: float = 0.0
    flow_network: float = 0.0

    def add(self, other: "StepSeconds") -> None:
        """Add the seconds of another."""
        for name, seconds in vars(other).items():
            setattr(self, name, getattr(self, name) + seconds)


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
def torch_threads(n: int | None = None) -> Iterator[None]:
    """What torch computes in this thread it computes on `n` threads, if that is said; as before afterwards.

    What a thread sets, those that begin later have too.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Ahead(Generic[T]):
    """A queue of items that a thread called `name` makes in order, at most `n` of them ahead.

    Iterate over it, or `take` while items are `waiting`. `changed` is notified of each item, and of the end. After the
    end `error` is what the thread raised; iterating raises it where the item would have come.
    """

    def __init__(self, items: Iterable[T], n: int, name: str, changed: threading.Condition | None = None):
        self._items, self._n = items, n
        self._made: deque[T] = deque()
        self._change = changed or threading.Condition()
        self.error: BaseException | None = None
        self.ended = self._stopped = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with closed_after(self._items) as source:
                for item in source:
                    with self._change:
                        self._made.append(item)
                        self._change.notify_all()
                        self._change.wait_for(lambda: len(self._made) < self._n or self._stopped)
                        if self._stopped:
                            break
        except BaseException as error:  # for the one who takes the items, whatever it is
            self.error = error
        with self._change:
            self.ended = True
            self._change.notify_all()

    @property
    def waiting(self) -> int:
        """Number of items to take."""
        return len(self._made)

    def take(self) -> T:
        """Return the oldest item; one must be waiting."""
        with self._change:
            item = self._made.popleft()
            self._change.notify_all()
        return item

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._made or self.ended)
            if not self._made:
                break
            yield self.take()
        if self.error:
            raise self.error

    def stop(self) -> None:
        """Make no more after the item that the thread is at."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    def close(self) -> None:
        """Stop, and wait until the thread has closed `items`."""
        self.stop()
        self._thread.join()


def ahead(items: Iterable[T], n: int, name: str) -> Iterator[T]:
    """The same as `Ahead`, from the first item that is taken on; closing the generator closes it."""
    with closing(Ahead(items, n, name)) as made:
        yield from made


def merged(makers: Iterable[Callable[[], Iterable[T]]], n: int) -> Generator[T, None, None]:
    """The items of many iterables as they come, `n` of these made at a time, each in its own thread.

    Those of one iterable stay in order. What one raises ends all. Close the generator to let each thread close its own,
    after the item it is at.
    """
    made: SimpleQueue[T | Future] = SimpleQueue()
    stopped = threading.Event()

    def work(make: Callable[[], Iterable[T]]) -> None:
        if stopped.is_set():
            return
        try:
            with closed_after(make()) as source:
                for item in source:
                    made.put(item)
                    if stopped.is_set():
                        break
        except BaseException:
            stopped.set()  # before this thread takes the next one
            raise

    with ThreadPoolExecutor(n, "merged") as pool:
        try:
            left = 0
            for make in makers:
                pool.submit(work, make).add_done_callback(made.put)
                left += 1
            while left:
                item = made.get()
                if isinstance(item, Future):
                    left -= 1
                    item.result()  # raises what ended it
                else:
                    yield item
        finally:
            stopped.set()
