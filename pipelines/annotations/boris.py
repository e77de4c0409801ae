"""BORIS: its projects, and how its observations of one or several files become labels of videos."""

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec

from lstr.errors import LabelsError, brief, few
from lstr.labels.label_set import AMBIGUOUS, SUBSET_NAMES, Note, subset_named
from lstr.labels.segment import Segment, is_time
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.videos import plain_id

# Types of observations that show files; the last two are those of the first versions.
MEDIA = ("MEDIA", "VIDEO", "AUDIO")
OTHERS = {"LIVE": "live, without a video", "IMAGES": "of images"}
SUBSETS = {*SUBSET_NAMES, *SUBSET_NAMES.values()}
SAVE = "open the project in BORIS and save it again."

# How a path begins that says nothing about the folder of the videos.
ABSOLUTE = re.compile(r"/|[A-Za-z]:/|\w+://")
# Bouts, each counted once per video that it reaches into: a limit against files that would fill the memory.
MOST_PIECES = 2**20
START, STOP, POINT = "START", "STOP", "POINT"


class Project(Format):
    """A project: one file for any number of videos."""

    name, suffix = "boris", ".boris"

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return from_boris(file.json)


@dataclass(frozen=True)
class Event:
    """A coded moment. Without a `status`, the moments of a state begin and end it in turns."""

    place: str
    """Its place in the file, to begin a sentence: `Line 3`"""
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
    files: Sequence[str] = ()
    bouts: list[Bout] = field(default_factory=list)
    lengths: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each file, if they are known"""
    subset: str | None = None


class Behaviour(msgspec.Struct):
    """An entry of the ethogram."""

    code: str
    type: str


class Coded(msgspec.Struct):
    """An observation in a project; what versions write differently is checked when it is read."""

    type: str
    events: list[list[Any]]
    file: Any = None
    offset: Any = msgspec.field(name="time offset", default=None)
    media_info: Any = None
    independent_variables: Any = None
    media_creation_date_as_offset: bool = False
    interval: Any = msgspec.field(name="observation time interval", default=None)


class Content(msgspec.Struct):
    """What is read of a project."""

    behaviors_conf: dict[str, Behaviour]
    observations: dict[str, Coded]


def from_boris(content: Any) -> AnnotationSet:
    """Return the videos of a project, with notes of what is not kept. Raises LabelsError."""
    try:
        project = msgspec.convert(content, Content)
    except msgspec.ValidationError as error:
        raise LabelsError(f"This is not a project of BORIS ({error}).", SAVE) from error
    types = {behaviour.code: behaviour.type for behaviour in project.behaviors_conf.values()}
    notes: list[Note] = []
    observations = []
    for name, coded in project.observations.items():
        if coded.type in MEDIA:
            observations.append(_observation(name, coded, types, notes))
        else:
            what = OTHERS.get(coded.type, f"of the type {brief(coded.type)}")
            notes.append(Note("no video", f"the observation {name!r} is {what}, and is skipped"))
    if not observations:
        raise LabelsError(
            "No observation of the project shows a video.", "code videos in BORIS: an observation from media files."
        )
    rows = [row for coded in project.observations.values() for row in coded.events]
    lost = {
        "modifiers": sum(len(row) > 3 and bool(str(row[3] or "").replace("None", "").strip("|")) for row in rows),
        "comments": sum(len(row) > 4 and bool(row[4]) for row in rows),
    }
    notes += [Note(kind, f"{kind} of {count} events are not kept") for kind, count in lost.items() if count]
    return videos_of(observations, list(types), notes)


def _observation(name: str, coded: Coded, types: dict[str, str], notes: list[Note]) -> Observation:
    """Return an observation of files, and add to the notes. Raises LabelsError."""
    if coded.media_creation_date_as_offset:
        raise LabelsError(
            f"The observation {name!r} counts its times from when its media were made.",
            "in BORIS, remove that offset (Observations, Edit), or delete this observation.",
        )
    # A list of files per player; the first versions had one file per player.
    players = [[one] for one in coded.file] if isinstance(coded.file, list) else []
    if isinstance(coded.file, dict):
        players = [coded.file[player] for player in sorted(coded.file)]
    if not all(isinstance(files, list) and all(isinstance(one, str) and one for one in files) for files in players):
        raise LabelsError(f"The files of the observation {name!r} are not paths: {brief(coded.file)}.", SAVE)
    players = [files for files in players if files]
    if not players:
        raise LabelsError(
            f"The observation {name!r} shows no file.", "give it one in BORIS, or delete this observation."
        )
    files, *others = players
    if others:
        sentence = f"the observation {name!r} shows {len(players)} files at once, of which {files[0]!r} is labelled"
        notes.append(Note("several players", sentence))
    place = f"Observation {name!r}"
    info = coded.media_info if isinstance(coded.media_info, dict) else {}
    stated = info.get("length")
    stated = stated if isinstance(stated, dict) else {}
    lengths = {file: _number(place, f"length of {file!r}", value) for file, value in stated.items()}
    lengths = {file: seconds for file, seconds in lengths.items() if seconds > 0}  # 0 is of a file not measured
    offset = _number(place, "time offset", 0.0 if coded.offset is None else coded.offset)
    events = []
    for number, row in enumerate(coded.events, 1):
        at = f"{place}, event {number}"
        texts = [str(cell or "") for cell in row[1:4]]
        if len(texts) < 2:
            raise LabelsError(f"{at} has no code: {brief(row)}.", SAVE)
        subject, code, modifiers = (*texts, "")[:3]
        if code not in types:
            raise LabelsError(
                f"{at} is {brief(code)}, which the ethogram does not have.",
                f"add it in BORIS, or delete the event; the ethogram has: {few(list(types)) or 'nothing'}.",
            )
        events.append(Event(at, round(_number(at, "time", row[0]) - offset, 6), subject, code, modifiers))
    events.sort(key=lambda event: event.time)
    bouts = bouts_of(events, [code for code, kind in types.items() if kind.startswith("State")])
    interval = coded.interval
    if isinstance(interval, list) and len(interval) == 2 and any(interval):
        first, last = (_number(place, "observation time interval", value or 0) for value in interval)
        known = [lengths.get(file) for file in files]
        total = sum(seconds for seconds in known if seconds) if None not in known else 0.0
        parts = [(0.0, first), (last, total)] if last else [(0.0, first)]
        if unwatched := [Bout(start, end, AMBIGUOUS) for start, end in parts if start < end]:
            bouts += unwatched
            sentence = f"the observation {name!r} is of a part of its video; the rest counts as {AMBIGUOUS}"
            notes.append(Note("part of a video", sentence))
    variables = coded.independent_variables
    subset = variables.get("subset") if isinstance(variables, dict) else None
    if not isinstance(subset, str) or subset.strip().casefold() not in SUBSETS:
        return Observation(name, files, bouts, lengths)
    return Observation(name, files, bouts, lengths, subset_named(subset))


def _number(place: str, what: str, value: Any) -> float:
    """Return a number of a project, also if it is written as text. Raises LabelsError."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not is_time(number):
        raise LabelsError(f"{place}: the {what} is {brief(value)}.", "give it a time in BORIS.")
    return number


def bouts_of(events: Iterable[Event], states: Iterable[str] = ()) -> list[Bout]:
    """Return the bouts of events in their order: one event of a state begins a bout and the next ends it.

    Args:
        events: Events of one state have the same subject, code and modifiers.
        states: Codes of behaviours that last, if no event has a status.

    Raises LabelsError for a state with a begin or an end alone.
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


def videos_of(observations: Sequence[Observation], classes: Sequence[str], notes: Sequence[Note]) -> AnnotationSet:
    """Return the videos of observations, each with its own seconds.

    A video in several observations has the bouts of all of them, unless a subject is in two. Raises LabelsError.
    """
    ids = _ids(observations)
    segments: dict[str, list[Segment]] = {file: [] for file in ids}
    known: dict[str, dict[str, Any]] = {file: {} for file in ids}
    seen: dict[str, dict[str, str]] = defaultdict(dict)  # the observation of each subject, by file
    several: dict[str, None] = {}
    count = 0
    for observation in observations:
        subjects = {bout.subject for bout in observation.bouts if bout.code != AMBIGUOUS}
        files, lengths = observation.files, observation.lengths
        for file in dict.fromkeys(files):
            if twice := sorted(subjects & seen[file].keys()):
                of = f"the subject {twice[0]!r}" if twice[0] else "no subject"
                raise LabelsError(
                    f"The observations {seen[file][twice[0]]!r} and {observation.name!r} both code {of} in {file!r}.",
                    "delete one of them, as in a copy of the project: two opinions on one video cannot both be used.",
                )
            if seen[file] and subjects:
                several[file] = None
            seen[file] |= dict.fromkeys(subjects, observation.name)
            facts = {"duration": lengths.get(file), "subset": observation.subset}
            known[file] |= {name: value for name, value in facts.items() if value is not None}
        if missing := next((file for file in files[:-1] if lengths.get(file) is None), None):
            raise LabelsError(
                f"The observation {observation.name!r} shows {len(files)} files one after another, and does not say "
                f"how long {missing!r} is.",
                "give the project (.boris) or a newer export, which say so, or make an observation of each file.",
            )
        starts = list(accumulate((lengths[file] for file in files[:-1]), initial=0.0))  # of each file
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
                segments[files[at]].append(piece)
    videos = {ids[file]: AnnotatedVideo(tuple(found), media=file, **known[file]) for file, found in segments.items()}
    bouts = [bout for observation in observations for bout in observation.bouts]
    points = sorted({bout.code for bout in bouts if bout.start == bout.end and bout.code != AMBIGUOUS})
    more = {
        "point events": ("point events become segments of no length", points),
        "several observations": ("several observations of one video are put together", list(several)),
    }
    said = [Note(kind, f"{text}: {few(list(map(brief, names)))}") for kind, (text, names) in more.items() if names]
    return AnnotationSet(videos, tuple(classes), (*notes, *said))


def _ids(observations: Sequence[Observation]) -> dict[str, str]:
    """Return an id per file: the name of its observation if its path ends so, else its path or its name."""
    ids: dict[str, str] = {}
    for observation in observations:
        for file in observation.files:
            if file in ids:
                continue
            path = file.replace("\\", "/")
            plain = plain_id(path, ())
            if observation.name and f"/{plain}".endswith(f"/{observation.name}"):
                ids[file] = observation.name
            elif ABSOLUTE.match(path) or ".." in path.split("/"):
                ids[file] = plain.rpartition("/")[2]
            else:
                ids[file] = plain
    counts = Counter(ids.values())
    for file, name in ids.items():
        if counts[name] > 1:  # its whole path with the ending, without what makes it absolute
            parts = file.replace("\\", "/").replace(":", "").split("/")
            ids[file] = "/".join(part for part in parts if part not in ("", ".", ".."))
    if len(set(ids.values())) < len(ids):
        twice = Counter(ids.values()).most_common(1)[0][0]
        raise LabelsError(f"Two files would be the video {twice!r}.", "write the path of each file in one way.")
    return ids
