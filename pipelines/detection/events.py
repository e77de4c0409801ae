"""What a detection reports while it runs, beside the events of every job in `lstr.pipelines.progress`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.status import Status
from lstr.pipelines.progress import Failed
from lstr.timeline import Event


@dataclass(frozen=True)
class Opened:
    """A source is read from now on. Its `status` changes in place; `classes` are those of its scores."""

    id: str
    status: Status
    classes: tuple[str, ...]
    refresh: Callable[[], object] | None = None
    """Brings the status of a live source up to date while nothing is decided."""
    origin: str = ""
    """Its path, or its address as it may be shown."""
    video: Path | None = None
    """The file of a video."""
    dated: str = ""
    """The id of a live source and when it began: no file of the output folder had that name."""
    named: bool = False
    """Whether its id is a name that a person has given it."""

    @property
    def live(self) -> bool:
        """Whether it goes on by itself, as a camera."""
        return self.refresh is not None

    @property
    def file_name(self) -> str:
        """What the names of its files begin with."""
        return self.dated or self.id


@dataclass(frozen=True)
class Decided:
    """A source has a new decision, whose lines are written."""

    id: str
    decision: Decision


@dataclass(frozen=True)
class Ended:
    """A source is over and its files are written: its lstr-timeline/1 document, empty where none is kept, and its page
    where there is one."""

    id: str
    timeline: dict
    page: Path | None = None
    events: tuple[Event, ...] = ()
    """What its end brought: `ended`, with `still_on`, of each action that was on; they follow no decision."""


@dataclass(frozen=True)
class Undecided:
    """A live source is over before there was a decision on it, and has not failed: there are no files of it."""

    id: str


@dataclass(frozen=True)
class Detected:
    """What came of all sources."""

    timelines: dict[str, dict]
    """By source, in the order in which they ended."""
    failures: tuple[Failed, ...] = ()
    index: Path | None = None
    """The page that leads to those of several sources."""
    stalled: bool = False
    """Whether a live source failed because it sent nothing for too long."""
    left: bool = False
    """Whether an interrupt ended the live sources."""


SourceEvent = Opened | Decided | Ended | Undecided | Failed
