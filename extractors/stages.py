"""Stages of the work on a source, to report in which one an error occurred."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

from lstr.files.atomic import STAGE

T = TypeVar("T")


class Stage(AbstractContextManager[Any]):
    """A context manager that marks an error with the stage, unless an inner stage has marked it."""

    def __init__(self, name: str, action: str):
        self.name = name
        self.action = action
        """What fails, in a message."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error:
            self.mark(error)

    def mark(self, error: BaseException) -> None:
        """Mark an error that came from this stage; work on each chunk calls this instead of entering the stage."""
        if isinstance(error, Exception) and stage_of(error) is None:
            with suppress(AttributeError):  # a few types of C extensions take no attributes
                setattr(error, STAGE, self.name)  # kept from one thread or process to another


PROBE = Stage("probe", "reading its metadata")
DECODE = Stage("decode", "decoding")
FLOW = Stage("flow", "optical flow")
NETWORK = Stage("network", "a feature network")
MODEL = Stage("model", "the model's decision")
WRITE = Stage("write", "writing the output")
STAGES = {stage.name: stage for stage in (PROBE, DECODE, FLOW, NETWORK, MODEL, WRITE)}


def stage_of(error: BaseException) -> Stage | None:
    """Return the stage that an error came from; None if it came from no stage."""
    return STAGES.get(getattr(error, STAGE, ""))


@contextmanager
def closed_after(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """Yield an iterator over items that is closed afterwards, if it can be."""
    source = iter(items)
    try:
        yield source
    finally:
        if hasattr(source, "close"):
            source.close()


@contextmanager
def torch_threads(n: int | None = None) -> Iterator[None]:
    """Let torch use `n` threads for calls from this thread (None: no change), and restore the number afterwards.

    Threads that start during this time inherit the number.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
