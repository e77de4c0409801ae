"""Events of jobs, used by the command line, Python, the demo and Ray."""

import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:  # it imports numpy, which would slow down shell completion
    from lstr.labels.check import Finding

Result = TypeVar("Result")


@dataclass(frozen=True)
class Progress:
    """Progress of one task, for example chunks of a video, steps of a network or videos of a folder."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Notice:
    """A sentence for the user: a warning, or with `warning` false information about the job."""

    text: str
    warning: bool = True
    repeats: bool = False
    """Whether it is shown every time, even if the text is the same."""


@dataclass(frozen=True)
class LabelFindings:
    """The findings of a check of a label file."""

    source: str
    findings: "list[Finding]"


@dataclass(frozen=True)
class Failed:
    """The failure of one input, with reason and hint; the job continues with the others."""

    id: str
    reason: str
    hint: str = ""
    error: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception, for a caller that needs its details."""


@dataclass(frozen=True)
class Finished(Generic[Result]):
    """The last event of a job, with its result."""

    result: Result


def result_of(events: Iterable[Any], notify: Callable[[Any], None] = lambda event: None) -> Any:
    """Run a job to its end, pass each event to `notify`, and return the result of its Finished event."""
    result = None
    for event in events:
        notify(event)
        if isinstance(event, Finished):
            result = event.result
    return result


def warn(event: Any) -> None:
    """Show the warnings of a job as Python warnings; ignore other events."""
    if isinstance(event, Notice) and event.warning:
        # The warning refers to the first caller outside this package, because Python shows a warning once per line.
        frame, depth = sys._getframe(1), 2
        while frame.f_back and str(frame.f_globals.get("__name__", "")).split(".")[0] == "lstr":
            frame, depth = frame.f_back, depth + 1
        warnings.warn(event.text, stacklevel=depth)


# A function that is called with (what, done, total).
ProgressCallback = Callable[[str, int, int], None]
