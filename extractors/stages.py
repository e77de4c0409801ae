"""Which stage of the work on a source an error came from."""

from collections.abc import Iterable, Iterator
from contextlib import ContextDecorator, suppress
from typing import TypeVar

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
