"""BORIS's projects, read: an ethogram, subjects, and observations whose events are coded by keys."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from lstr.errors import LabelsError, brief, few
from lstr.labels.label_set import AMBIGUOUS, SUBSET_NAMES, Note, subset_named
from lstr.labels.segment import is_time
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.observations import Bout, Event, Observation, bouts_of, videos_of

# Types of observations that show files; the last two are those of the first versions.
MEDIA = ("MEDIA", "VIDEO", "AUDIO")
OTHERS = {"LIVE": "live, without a video", "IMAGES": "of pictures"}
SUBSETS = {*SUBSET_NAMES, *SUBSET_NAMES.values()}
# The independent variable that holds a video's subset.
VARIABLE = "subset"
SAVE = "open the project in BORIS and save it again."


class Behaviour(msgspec.Struct):
    """An entry of the ethogram."""

    code: str
    type: str


class Coded(msgspec.Struct):
    """An observation as a project has it; what versions write differently is checked where it is read."""

    type: str
    events: list[list[Any]]
    file: Any = None
    offset: Any = msgspec.field(name="time offset", default=None)
    media_info: Any = None
    independent_variables: Any = None
    media_creation_date_as_offset: bool = False
    interval: Any = msgspec.field(name="observation time interval", default=None)


class Project(msgspec.Struct):
    """What is read of a project."""

    behaviors_conf: dict[str, Behaviour]
    observations: dict[str, Coded]


class Boris(Format):
    """A project of BORIS: one file for any number of videos."""

    name, suffix = "boris", ".boris"

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return from_boris(file.json)


def from_boris(content: Any) -> AnnotationSet:
    """A project's observations of videos, with notes of what does not carry over. Raises LabelsError."""
    try:
        project = msgspec.convert(content, Project)
    except msgspec.ValidationError as error:
        raise LabelsError(f"This is no project of BORIS ({error}).", SAVE) from error
    types = {behaviour.code: behaviour.type for behaviour in project.behaviors_conf.values()}
    notes, observations = [], []
    for name, coded in project.observations.items():
        if coded.type in MEDIA:
            observation, said = _observation(name, coded, types)
            observations.append(observation)
            notes += said
        else:
            what = OTHERS.get(coded.type, f"of the type {brief(coded.type)}")
            notes.append(Note("no video", f"the observation {name!r} is {what}, and is left out"))
    if not observations:
        raise LabelsError(
            "No observation of the project shows a video.", "code videos in BORIS: an observation from media files."
        )
    return videos_of(observations, list(types), [*notes, *_lost(project)])


def _observation(name: str, coded: Coded, types: dict[str, str]) -> tuple[Observation, list[Note]]:
    """An observation of files, and what is said of it. Raises LabelsError."""
    if coded.media_creation_date_as_offset:
        raise LabelsError(
            f"The observation {name!r} counts its times from when its media were made.",
            "in BORIS, take that offset away (Observations, Edit), or delete this observation.",
        )
    players = _players(name, coded.file)
    if not players:
        raise LabelsError(
            f"The observation {name!r} shows no file.", "give it one in BORIS, or delete this observation."
        )
    files, *others = players
    place = f"Observation {name!r}"
    offset = _number(place, "time offset", 0.0 if coded.offset is None else coded.offset)
    info = coded.media_info if isinstance(coded.media_info, dict) else {}
    lengths = _lengths(place, info.get("length"))
    events = sorted(_events(name, coded.events, types, offset), key=lambda event: event.time)
    states = (code for code, kind in types.items() if kind.startswith("State"))
    found = Observation(name, files, bouts_of(events, states), lengths, _subset(coded.independent_variables))
    notes = []
    if others:
        sentence = f"the observation {name!r} shows {1 + len(others)} files at once, of which {files[0]!r} is labelled"
        notes.append(Note("several players", sentence))
    if unwatched := _unwatched(place, coded.interval, [lengths.get(file) for file in files]):
        found.bouts += unwatched
        sentence = f"the observation {name!r} is of a part of its video; the rest counts as {AMBIGUOUS}"
        notes.append(Note("part of a video", sentence))
    return found, notes


def _players(name: str, file: Any) -> list[list[str]]:
    """The files that each player shows one after another, without players that show none. Raises LabelsError."""
    lists = [[one] for one in file] if isinstance(file, list) else []  # the first versions: a file a player
    if isinstance(file, dict):
        lists = [file[player] for player in sorted(file)]
    if not all(isinstance(files, list) and all(isinstance(one, str) and one for one in files) for files in lists):
        raise LabelsError(f"The files of the observation {name!r} are no paths: {brief(file)}.", SAVE)
    return [files for files in lists if files]


def _events(name: str, rows: Sequence[list[Any]], types: dict[str, str], offset: float) -> list[Event]:
    """The events of an observation, in seconds of its media. Raises LabelsError, which says which is wrong."""
    events = []
    for number, row in enumerate(rows, 1):
        place = f"Observation {name!r}, event {number}"
        texts = [str(cell or "") for cell in row[1:4]]
        if len(texts) < 2:
            raise LabelsError(f"{place} has no code: {brief(row)}.", SAVE)
        subject, code, modifiers = (*texts, "")[:3]
        if code not in types:
            raise LabelsError(
                f"{place} is {brief(code)}, which the ethogram does not have.",
                f"add it in BORIS, or delete the event; the ethogram has: {few(list(types)) or 'nothing'}.",
            )
        time = _number(place, "time", row[0]) - offset
        events.append(Event(place, round(time, 6), subject, code, modifiers))
    return events


def _number(place: str, what: str, value: Any) -> float:
    """A number of a project, also where it is written as text. Raises LabelsError."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not is_time(number):
        raise LabelsError(f"{place}: the {what} is {brief(value)}.", "give it a time in BORIS.")
    return number


def _lengths(place: str, found: Any) -> dict[str, float]:
    """Lengths of files; one that nobody measured is 0 or missing. Raises LabelsError."""
    values = found if isinstance(found, dict) else {}
    numbers = {file: _number(place, f"length of {file!r}", value) for file, value in values.items()}
    return {file: number for file, number in numbers.items() if number > 0}


def _subset(variables: Any) -> str | None:
    """The subset that an independent variable of that name says."""
    found = variables.get(VARIABLE) if isinstance(variables, dict) else None
    return subset_named(found) if isinstance(found, str) and found.strip().casefold() in SUBSETS else None


def _unwatched(place: str, interval: Any, lengths: Sequence[float | None]) -> list[Bout]:
    """What lies before and after the part that was observed. Raises LabelsError."""
    if not isinstance(interval, list) or len(interval) != 2 or not any(interval):
        return []
    first, last = (_number(place, "observation time interval", value or 0) for value in interval)
    total = sum(lengths) if None not in lengths else 0.0  # type: ignore[arg-type]
    parts = [(0.0, first), (last, total)] if last else [(0.0, first)]
    return [Bout(start, end, AMBIGUOUS) for start, end in parts if start < end]


def _lost(project: Project) -> list[Note]:
    """Notes of what a label has no place for."""
    rows = [row for coded in project.observations.values() for row in coded.events]
    kinds = {
        "modifiers": sum(len(row) > 3 and bool(str(row[3] or "").replace("None", "").strip("|")) for row in rows),
        "comments": sum(len(row) > 4 and bool(row[4]) for row in rows),
    }
    return [Note(kind, f"{kind} of {count} events are not kept") for kind, count in kinds.items() if count]
