"""Events of jobs, the same for the command line, Python, the demo and Ray."""

import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:  # it brings numpy, and a shell that completes something waits for this module
    from lstr.labels.check import Finding

Result = TypeVar("Result")


@dataclass(frozen=True)
class Progress:
    """Progress of one thing: chunks of a video, steps of a network, videos of a folder."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Notice:
    """A sentence for a person: a warning, or with `warning` false what the job has found or is about to do."""

    text: str
    warning: bool = True
    repeats: bool = False
    """Whether it is shown each time, though its words are the same."""


@dataclass(frozen=True)
class LabelFindings:
    """What is odd or wrong in a label file."""

    source: str
    findings: "list[Finding]"


@dataclass(frozen=True)
class Failed:
    """One input of several has failed, why, and what to do; the job continues with the others."""

    id: str
    reason: str
    hint: str = ""
    error: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception, for a caller that needs its details."""


@dataclass(frozen=True)
class Finished(Generic[Result]):
    """The last event of a job: its result."""

    result: Result


def result_of(events: Iterable[Any], tell: Callable[[Any], None] = lambda event: None) -> Any:
    """Run a job to its end, pass each event to `tell`, and return the result of its Finished."""
    result = None
    for event in events:
        tell(event)
        if isinstance(event, Finished):
            result = event.result
    return result


def warn(event: Any) -> None:
    """Show the warnings of a job as Python's own; ignore other events."""
    if isinstance(event, Notice) and event.warning:
        # The warning names the first line that is not in this package, because Python shows a warning once per line.
        frame, depth = sys._getframe(1), 2
        while frame.f_back and str(frame.f_globals.get("__name__", "")).split(".")[0] == "lstr":
            frame, depth = frame.f_back, depth + 1
        warnings.warn(event.text, stacklevel=depth)


# Called as (what, done, total) by work below the jobs.
ProgressCallback = Callable[[str, int, int], None]
