"""Observations as BORIS has them: coded events, and the videos that one observation shows one after another."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from lstr.errors import LabelsError, brief, few
from lstr.labels.label_set import AMBIGUOUS, Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.ids import plain_id

# How a path begins that says nothing of the folder of the videos.
ABSOLUTE = re.compile(r"/|[A-Za-z]:/|\w+://")
# Bouts, each counted once a video that it reaches into.
MOST_PIECES = 2**20
START, STOP, POINT = "START", "STOP", "POINT"


@dataclass(frozen=True)
class Event:
    """A coded moment; a state begins or ends at it, in turns where `status` is empty."""

    place: str
    """Where the file has it, to begin a sentence: `Line 3`"""
    time: float
    """Seconds since the observation began"""
    subject: str
    code: str
    modifiers: str = ""
    status: str = ""


@dataclass(frozen=True)
class Bout:
    """A behaviour of a subject from `start` to `end`, in seconds since the observation began."""

    start: float
    end: float
    code: str
    subject: str = ""


@dataclass
class Observation:
    """What was coded in one sitting, of videos that follow each other."""

    name: str
    files: Sequence[str]
    bouts: list[Bout] = field(default_factory=list)
    lengths: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each file, where they are known"""
    subset: str | None = None


def bouts_of(events: Iterable[Event], states: Iterable[str] = ()) -> list[Bout]:
    """Bouts of events in their order; the first of a state begins it and the next of the same ends it.

    states: codes of behaviours that last, where no event has a status. The same are subject, code and modifiers. Raises
    LabelsError for a state that is begun or ended alone.
    """
    lasting = set(states)
    bouts = []
    begun: dict[tuple[str, str, str], Event] = {}
    for event in events:
        key = (event.subject, event.code, event.modifiers)
        if event.status == POINT or not (event.status or event.code in lasting):
            bouts.append(Bout(event.time, event.time, event.code, event.subject))
        elif key in begun and event.status != START:
            bouts.append(Bout(begun.pop(key).time, event.time, event.code, event.subject))
        elif key in begun or event.status == STOP:
            what = "begins again before it ends" if key in begun else "ends and never began"
            raise _unpaired(event, what)
        else:
            begun[key] = event
    if begun:
        raise _unpaired(next(iter(begun.values())), "begins and never ends")
    return bouts


def _unpaired(event: Event, what: str) -> LabelsError:
    of = f" of {event.subject!r}" if event.subject else ""
    return LabelsError(
        f"{event.place}: {event.code!r}{of} at {event.time:g} s {what}.",
        "pair its events in BORIS (Observations, Fix unpaired events), or delete this one.",
    )


def videos_of(observations: Sequence[Observation], classes: Sequence[str], notes: Iterable[Note] = ()) -> AnnotationSet:
    """The videos of observations, with what each shows in seconds of its own.

    classes: behaviours in the order of the file. A video in several observations gets what all of them say, where no
    subject is in two. Raises LabelsError.
    """
    ids = _ids(observations)
    segments: dict[str, list[Segment]] = {file: [] for file in ids}
    known: dict[str, dict[str, object]] = {file: {} for file in ids}
    seen: dict[str, dict[str, str]] = defaultdict(dict)  # the observation of each subject, by file
    several: dict[str, None] = {}
    count = 0
    for observation in observations:
        subjects = {bout.subject for bout in observation.bouts if bout.code != AMBIGUOUS}
        for file in dict.fromkeys(observation.files):
            if twice := sorted(subjects & seen[file].keys()):
                raise _coded_twice(file, seen[file][twice[0]], observation.name, twice[0])
            if seen[file] and subjects:
                several[file] = None
            seen[file] |= dict.fromkeys(subjects, observation.name)
            facts = {"duration": observation.lengths.get(file), "subset": observation.subset}
            known[file] |= {name: value for name, value in facts.items() if value is not None}
        starts = _starts(observation)
        for bout in observation.bouts:
            first = max(0, bisect_right(starts, bout.start) - 1)
            last = max(first, bisect_right(starts, bout.end) - 1)
            if last > first and starts[last] == bout.end:
                last -= 1
            count += last - first + 1
            if count > MOST_PIECES:
                raise LabelsError(
                    f"The observations have more than {MOST_PIECES} bouts.", "write them into several files."
                )
            for at in range(first, last + 1):
                begin = bout.start if at == first else starts[at]
                end = bout.end if at == last else starts[at + 1]
                piece = Segment(begin - starts[at], end - starts[at], bout.code, subject=bout.subject)
                segments[observation.files[at]].append(piece)
    videos = {
        ids[file]: AnnotatedVideo(tuple(found), media=file, **known[file])  # type: ignore[arg-type]
        for file, found in segments.items()
    }
    return AnnotationSet(videos, tuple(classes), (*notes, *_notes(observations, list(several))))


def _starts(observation: Observation) -> list[float]:
    """When each file of an observation begins, in its seconds. Raises LabelsError where nobody knows."""
    files = observation.files
    if unknown := next((file for file in files[:-1] if observation.lengths.get(file) is None), None):
        raise LabelsError(
            f"The observation {observation.name!r} shows {len(files)} files one after another, and does not say how "
            f"long {unknown!r} is.",
            "give the project itself (.boris) or a newer export, which say so, or make an observation of each file.",
        )
    return list(accumulate((observation.lengths[file] for file in files[:-1]), initial=0.0))


def _ids(observations: Sequence[Observation]) -> dict[str, str]:
    """An id of each file: what its observation is called where its path ends so, else its path or its name."""
    ids: dict[str, str] = {}
    for observation in observations:
        for file in observation.files:
            if file not in ids:
                ids[file] = _id(file, observation.name)
    meant = Counter(ids.values())
    ids = {file: name if meant[name] == 1 else _whole(file) for file, name in ids.items()}
    if len(set(ids.values())) < len(ids):
        twice = Counter(ids.values()).most_common(1)[0][0]
        raise LabelsError(f"Two files would be the video {twice!r}.", "write the path of each file in one way.")
    return ids


def _id(file: str, name: str) -> str:
    path = file.replace("\\", "/")
    plain = plain_id(path, ())
    if name and f"/{plain}".endswith(f"/{name}"):
        return name
    return plain.rpartition("/")[2] if ABSOLUTE.match(path) or ".." in path.split("/") else plain


def _whole(file: str) -> str:
    """A path without what makes it absolute, its ending kept: of files that one name would mean."""
    parts = file.replace("\\", "/").replace(":", "").split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))


def _coded_twice(file: str, first: str, second: str, subject: str) -> LabelsError:
    of = f"the subject {subject!r}" if subject else "no subject"
    return LabelsError(
        f"The observations {first!r} and {second!r} both code {of} in {file!r}.",
        "keep one of them, as in a copy of the project: two opinions on one video are no labels.",
    )


def _notes(observations: Sequence[Observation], several: Sequence[str]) -> list[Note]:
    """What is said of all observations."""
    notes = []
    bouts = [bout for observation in observations for bout in observation.bouts]
    points = sorted({bout.code for bout in bouts if bout.start == bout.end and bout.code != AMBIGUOUS})
    if points:
        sentence = f"point events become segments of no length: {_quoted(points)}"
        notes.append(Note("point events", sentence))
    if several:
        sentence = f"several observations of one video are put together: {_quoted(several)}"
        notes.append(Note("several observations", sentence))
    return notes


def _quoted(names: Iterable[str]) -> str:
    return few([brief(name) for name in names])
