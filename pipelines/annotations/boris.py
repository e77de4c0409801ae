"""Read BORIS projects: observations with coded events."""

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec

from lstr.errors import LabelsError, brief, few
from lstr.labels.label_set import AMBIGUOUS, SUBSET_NAMES, Note, VideoLabels, subset_named
from lstr.labels.segment import Segment, is_time
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.videos import plain_id

# Types of observations of files; the last two are from the first versions.
MEDIA = ("MEDIA", "VIDEO", "AUDIO")
SAVE = "open the project in BORIS and save it again."
# Beginnings of absolute paths, which are not relative to the folder of the videos.
ABSOLUTE = re.compile(r"/|[A-Za-z]:/|\w+://")
# Maximum number of bouts, counted once per video that they overlap, so that a file cannot exhaust the memory.
MAX_PIECES = 2**20
START, STOP, POINT = "START", "STOP", "POINT"


class Event(NamedTuple):
    """A coded event. Without a `status`, the events of a state alternately start and stop it."""

    place: str  # its place in the file, as the beginning of a sentence: `Line 3`
    time: float  # seconds from the start of the observation
    subject: str
    code: str
    modifiers: str = ""
    status: str = ""


class Observation(NamedTuple):
    """A coding session of one or more consecutive videos."""

    name: str
    files: Sequence[str]
    bouts: list[Segment]  # in seconds from the start of the observation
    lengths: Mapping[str, float]  # duration of each file in seconds, if known
    subset: str | None = None


class Coded(msgspec.Struct):
    """An observation in a project; entries that differ between versions are checked when they are read."""

    type: str
    events: list[list[Any]]
    file: Any = None
    offset: Any = msgspec.field(name="time offset", default=None)
    media_info: Any = None
    independent_variables: Any = None
    media_creation_date_as_offset: bool = False
    interval: Any = msgspec.field(name="observation time interval", default=None)


class Project(Format):
    """A BORIS project: one file for any number of videos."""

    name, suffix = "boris", ".boris"

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        try:
            ethogram = {entry["code"]: entry["type"] for entry in file.json["behaviors_conf"].values()}
            types = msgspec.convert(ethogram, dict[str, str])
            sessions = msgspec.convert(file.json["observations"], dict[str, Coded])
        except (AttributeError, KeyError, TypeError) as error:
            raise LabelsError("The file is not a BORIS project: parts of it are missing.", SAVE) from error
        except msgspec.ValidationError as error:
            raise LabelsError(f"The file is not a BORIS project ({error}).", SAVE) from error
        notes: list[Note] = []
        observations = []
        for name, coded in sessions.items():
            if coded.type in MEDIA:
                observations.append(_observation(name, coded, types, notes))
            else:
                sentence = f"the observation {name!r} is of the type {brief(coded.type)} and is skipped"
                notes.append(Note("no video", sentence))
        if not observations:
            raise LabelsError(
                "The project has no observation of a video.", "create an observation from media files in BORIS."
            )
        rows = [row for coded in sessions.values() for row in coded.events]
        lost = {
            "modifiers": sum(len(row) > 3 and bool(str(row[3] or "").replace("None", "").strip("|")) for row in rows),
            "comments": sum(len(row) > 4 and bool(row[4]) for row in rows),
        }
        notes += [Note(kind, f"{kind} of {count} events are not kept") for kind, count in lost.items() if count]
        return videos_of(observations, list(types), notes)


def _observation(name: str, coded: Coded, types: dict[str, str], notes: list[Note]) -> Observation:
    """Parse an observation of files, and append to the notes. Raises LabelsError."""
    place = f"Observation {name!r}"

    def number(what: str, value: Any, at: str = place) -> float:
        """Parse a number, also if it is a string."""
        try:
            result = float(value) if isinstance(value, int | float | str) else math.nan
        except (ValueError, OverflowError):
            result = math.nan
        if not is_time(result):
            raise LabelsError(f"{at}: the {what} {brief(value)} is not a time.", "correct it in BORIS.")
        return result

    if coded.media_creation_date_as_offset:
        raise LabelsError(
            f"The observation {name!r} uses the creation dates of its media files as time offset.",
            "remove this offset in BORIS (Observations, Edit), or delete the observation.",
        )
    # A list of files per player; the first versions had one file per player.
    players = [[file] for file in coded.file] if isinstance(coded.file, list) else []
    if isinstance(coded.file, dict):
        players = [coded.file[player] for player in sorted(coded.file)]
    if not all(isinstance(files, list) and all(isinstance(file, str) and file for file in files) for files in players):
        raise LabelsError(f"The files of the observation {name!r} are not paths: {brief(coded.file)}.", SAVE)
    players = [files for files in players if files]
    if not players:
        raise LabelsError(f"The observation {name!r} has no media file.", "add one in BORIS, or delete it.")
    files = players[0]
    if len(players) > 1:
        sentence = f"the observation {name!r} has {len(players)} players; its labels are read for {files[0]!r} only"
        notes.append(Note("several players", sentence))
    stated = coded.media_info.get("length") if isinstance(coded.media_info, dict) else None
    lengths = {
        file: seconds
        for file, value in (stated if isinstance(stated, dict) else {}).items()
        if (seconds := number(f"length of {file!r}", value)) > 0  # 0 means unknown
    }
    offset = number("time offset", 0.0 if coded.offset is None else coded.offset)
    events = []
    for count, row in enumerate(coded.events, 1):
        at = f"{place}, event {count}"
        texts = [str(cell or "") for cell in row[1:4]]
        if len(texts) < 2:
            raise LabelsError(f"{at} has no code: {brief(row)}.", SAVE)
        subject, code, modifiers = (*texts, "")[:3]
        if code not in types:
            raise LabelsError(
                f"{at}: {brief(code)} is not in the ethogram.",
                f"add it in BORIS, or delete the event; the ethogram has: {few(list(types)) or 'nothing'}.",
            )
        events.append(Event(at, round(number("time", row[0], at) - offset, 6), subject, code, modifiers))
    bouts = bouts_of(events, [code for code, kind in types.items() if kind.startswith("State")])
    interval = coded.interval
    if isinstance(interval, list) and len(interval) == 2 and any(interval):
        first, last = (number("observation time interval", value or 0) for value in interval)
        total = sum(lengths[file] for file in files) if lengths.keys() >= {*files} else 0.0
        parts = [(0.0, first), (last, total)] if last else [(0.0, first)]
        if unwatched := [Segment(start, end, AMBIGUOUS) for start, end in parts if start < end]:
            bouts += unwatched
            sentence = f"the observation {name!r} covers only a part of its video; the rest is {AMBIGUOUS}"
            notes.append(Note("part of a video", sentence))
    variables = coded.independent_variables
    subset = variables.get("subset") if isinstance(variables, dict) else None
    subset = subset_named(subset) if isinstance(subset, str) else None
    return Observation(name, files, bouts, lengths, subset if subset in SUBSET_NAMES.values() else None)


def bouts_of(events: Iterable[Event], states: Collection[str] = ()) -> list[Segment]:
    """Return the bouts of events: an event of a state starts a bout, and the next one ends it.

    Events of one state have the same subject, code and modifiers. `states` are the codes of behaviours with a duration,
    for events without a status. Raises LabelsError for a start without a stop, or a stop without a start.
    """

    def unpaired(event: Event, what: str) -> LabelsError:
        of = f" of {event.subject!r}" if event.subject else ""
        return LabelsError(
            f"{event.place}: {event.code!r}{of} at {event.time:g} s {what}.",
            "pair its events in BORIS (Observations, Fix unpaired events), or delete this event.",
        )

    bouts = []
    active: dict[tuple[str, str, str], Event] = {}
    for event in sorted(events, key=lambda event: event.time):
        key = (event.subject, event.code, event.modifiers)
        if event.status == POINT or not (event.status or event.code in states):
            bouts.append(Segment(event.time, event.time, event.code, None, event.subject))
        elif key in active and event.status != START:
            bouts.append(Segment(active.pop(key).time, event.time, event.code, None, event.subject))
        elif key in active or event.status == STOP:
            raise unpaired(event, "starts again before it ends" if key in active else "ends without a start")
        else:
            active[key] = event
    if active:
        raise unpaired(next(iter(active.values())), "starts without an end")
    return bouts


def videos_of(observations: Sequence[Observation], classes: Sequence[str], notes: Sequence[Note]) -> AnnotationSet:
    """Return the videos of observations, with times relative to each video.

    A video in several observations has the bouts of all of them. Raises LabelsError if a subject is in two of them.
    """
    ids = _ids(observations)
    segments: dict[str, list[Segment]] = {file: [] for file in ids}
    facts: dict[str, dict[str, Any]] = {file: {} for file in ids}
    coded: dict[str, dict[str, str]] = defaultdict(dict)  # observation of each subject, by file
    several: dict[str, None] = {}
    count = 0
    for observation in observations:
        subjects = {bout.subject for bout in observation.bouts if bout.label != AMBIGUOUS}
        files, lengths = observation.files, observation.lengths
        for file in dict.fromkeys(files):
            if twice := sorted(subjects & coded[file].keys()):
                of = f"the subject {twice[0]!r}" if twice[0] else "no subject"
                raise LabelsError(
                    f"The observations {coded[file][twice[0]]!r} and {observation.name!r} both code {of} in {file!r}.",
                    "delete one of them: only one observation of a video can be used.",
                )
            if coded[file] and subjects:
                several[file] = None
            coded[file] |= dict.fromkeys(subjects, observation.name)
            stated = {"duration": lengths.get(file), "subset": observation.subset}
            facts[file] |= {name: value for name, value in stated.items() if value is not None}
        if missing := next((file for file in files[:-1] if lengths.get(file) is None), None):
            raise LabelsError(
                f"The observation {observation.name!r} plays {len(files)} files in sequence, but the length of "
                f"{missing!r} is missing.",
                "use the project file (.boris) or a newer export, or create one observation per file.",
            )
        starts = list(accumulate((lengths[file] for file in files[:-1]), initial=0.0))  # of each file
        for bout in observation.bouts:
            first = max(0, bisect_right(starts, bout.start) - 1)
            last = max(first, bisect_right(starts, bout.end) - 1)
            if last > first and starts[last] == bout.end:
                last -= 1
            count += last - first + 1
            if count > MAX_PIECES:
                raise LabelsError(
                    f"The observations have more than {MAX_PIECES} bouts.", "split them into several files."
                )
            for at in range(first, last + 1):
                start = bout.start if at == first else starts[at]
                end = bout.end if at == last else starts[at + 1]
                piece = Segment(start - starts[at], end - starts[at], bout.label, None, bout.subject)
                segments[files[at]].append(piece)
    videos = {ids[f]: VideoLabels(segments=tuple(found), media=f, **facts[f]) for f, found in segments.items()}
    bouts = [bout for observation in observations for bout in observation.bouts]
    points = sorted({bout.label for bout in bouts if bout.start == bout.end and bout.label != AMBIGUOUS})
    sentences = {
        "point events": ("point events become segments of zero length", points),
        "several observations": ("several observations of one video are merged", list(several)),
    }
    more = [
        Note(kind, f"{sentence}: {few(list(map(brief, names)))}")
        for kind, (sentence, names) in sentences.items()
        if names
    ]
    return AnnotationSet(videos, tuple(classes), (*notes, *more))


def _ids(observations: Sequence[Observation]) -> dict[str, str]:
    """Return an id per file: the name of its observation if its path ends with it, else its path or its name."""
    ids: dict[str, str] = {}
    for observation in observations:
        for file in observation.files:
            path = file.replace("\\", "/")
            plain = plain_id(path, ())
            if observation.name and f"/{plain}".endswith(f"/{observation.name}"):
                plain = observation.name
            elif ABSOLUTE.match(path) or ".." in path.split("/"):
                plain = plain.rpartition("/")[2]
            ids.setdefault(file, plain)
    counts = Counter(ids.values())
    for file, name in ids.items():
        if counts[name] > 1:  # its path with the suffix, made relative
            parts = file.replace("\\", "/").replace(":", "").split("/")
            ids[file] = "/".join(part for part in parts if part not in ("", ".", ".."))
    if len(set(ids.values())) < len(ids):
        twice = Counter(ids.values()).most_common(1)[0][0]
        raise LabelsError(
            f"Two files have the same video id {twice!r}.", "write the path of each file in the same way everywhere."
        )
    return ids
