"""BORIS's exports of events: a row for each start and stop (tabular), or for each bout (aggregated)."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from lstr.errors import LabelsError, brief
from lstr.labels.label_set import Note
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.observations import (
    POINT,
    START,
    STOP,
    Bout,
    Event,
    Observation,
    bouts_of,
    videos_of,
)
from lstr.pipelines.annotations.rows import Rows
from lstr.pipelines.annotations.times import number_of

# Names of the columns that are read, in all versions.
NAMES = {
    "observation": ("observation id",),
    "media": ("media file name", "media file path", "media file"),
    "source": ("source",),
    "offset": ("time offset (s)",),
    "lengths": ("media duration (s)",),
    "subject": ("subject",),
    "code": ("behavior",),
    "status": ("status", "behavior type"),
    "start": ("start (s)", "time"),
    "stop": ("stop (s)",),
    "comment": ("comment", "comment start"),
}
# How the names of their columns begin.
MODIFIERS = "modifier"
# What a header begins with, or in earlier versions what stands above it.
FIRST = "observation id"
# Lines above a header, of which each independent variable has one.
ABOVE = 1000
NOBODY = ("no focal subject", "")
# What stands for a file or a time that is not there.
UNKNOWN = ("na", "nan", "not found", "", "live observation")
KINDS = {"START": START, "STOP": STOP, "POINT": POINT, "STATE": ""}


class BorisEvents(Format):
    """Tables that BORIS exports."""

    name = "borisevents"

    def recognises(self, file: File) -> bool:
        return file.ending in (".csv", ".tsv", ".txt") and is_export(Rows(file.beginning))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        text, notes = file.text_and_notes
        return from_export(Rows(text), video_id).noted(notes)


@dataclass
class Sitting:
    """What rows say of one observation."""

    files: dict[str, None] = field(default_factory=dict)
    """In the order of the rows, where none lists them"""
    listed: Sequence[str] = ()
    lengths: dict[str, float] = field(default_factory=dict)
    offset: float = 0.0
    events: list[Event] = field(default_factory=list)
    bouts: list[Bout] = field(default_factory=list)


def is_export(table: Rows) -> bool:
    """Whether a table begins as an export of BORIS."""
    try:
        return _header(table) is not None
    except (LabelsError, csv.Error):
        return False


def _header(table: Rows) -> tuple[int, dict[str, int], dict[str, list[str]]] | None:
    """The line of the header, its columns, and what stands above it by name; None where it is no export of BORIS."""
    above: dict[str, list[str]] = {}
    for line, cells in islice(table, ABOVE):
        columns = _columns(cells)
        if "code" in columns and "start" in columns and {"stop", "status"} & columns.keys():
            is_alone = {"media", "status"} <= columns.keys()
            return (line, columns, above) if above or "observation" in columns or is_alone else None
        first = cells[0].strip() if cells else ""
        if not above and first.casefold() != FIRST:
            return None
        if first:
            above.setdefault(first.casefold(), []).append(cells[1].strip() if len(cells) > 1 else "")
    return None


def _columns(cells: Sequence[str]) -> dict[str, int]:
    """The columns that are read, by what they are; those of modifiers by their whole names."""
    header = {cell.strip().casefold(): at for at, cell in reversed(list(enumerate(cells)))}
    found = {what: next((header[name] for name in names if name in header), None) for what, names in NAMES.items()}
    modifiers = {name: at for name, at in header.items() if name.startswith(MODIFIERS)}
    return {what: at for what, at in found.items() if at is not None} | modifiers


def from_export(table: Rows, name: str) -> AnnotationSet:
    """The videos of an export, of one observation or several; `name` is of the observation that no column names.

    Raises LabelsError.
    """
    found = _header(table)
    if found is None:
        raise LabelsError(
            "The table is no export of BORIS.", "export its observations as aggregated events, or give the project."
        )
    begins, columns, above = found
    sittings: dict[str, Sitting] = {}
    classes: dict[str, None] = {}
    left_out: dict[str, None] = {}
    lost = dict.fromkeys(("comment", MODIFIERS), 0)
    alone = (above.get(FIRST) or [""])[0] or name
    try:
        for line, cells in table:
            if line <= begins or not any(map(str.strip, cells)):
                continue
            row = {what: cells[at].strip() if at < len(cells) else "" for what, at in columns.items()}
            observation = row.get("observation") or alone
            if row["start"].casefold() in UNKNOWN or _is_without_video(row):
                left_out[observation] = None
                continue
            sitting = sittings.get(observation)
            if sitting is None:
                sitting = sittings[observation] = _sitting(row, above, line)
            _add(sitting, row, line)
            classes[row["code"]] = None
            lost["comment"] += bool(row.get("comment"))
            lost[MODIFIERS] += any(row[what] not in ("", "None") for what in row if what.startswith(MODIFIERS))
    except csv.Error as error:
        raise LabelsError(f"The table cannot be read ({error}).", "export it again.") from error
    observations = [_observation(named, sitting) for named, sitting in sittings.items()]
    notes = [
        Note("no video", f"rows of the observation {named!r} that name no time or no video are left out")
        for named in left_out
    ]
    notes += [Note(what, f"{what}s of events are not kept ({count} rows)") for what, count in lost.items() if count]
    if not observations and left_out:
        raise LabelsError("No row is of a video.", "export observations of media files.")
    return videos_of(observations, list(classes), notes)


def _is_without_video(row: dict[str, str]) -> bool:
    """Whether a row is of a live observation or of pictures."""
    return row.get("media", "x").casefold() in UNKNOWN and row.get("source", "NA").casefold() in UNKNOWN


def _sitting(row: dict[str, str], above: dict[str, list[str]], line: int) -> Sitting:
    """The observation that a row is the first of. Raises LabelsError."""
    source = row.get("source", "").split("|player #")[0]
    listed = source.split(":", 1)[1].split(";") if source.startswith("player #") else []
    listed = listed or list(filter(None, above.get("player #1", [])))
    sitting = Sitting(listed=listed)
    numbers = row.get("lengths", "").split("|")[0].split(";")
    if len(numbers) == len(listed):
        pairs = zip(listed, numbers, strict=True)
        sitting.lengths = {file: number_of(text, line) for file, text in pairs if text.casefold() not in UNKNOWN}
    offset = row.get("offset") or (above.get("time offset (s)") or [""])[0]
    if offset.casefold() not in UNKNOWN:
        sitting.offset = number_of(offset, line)
    return sitting


def _add(sitting: Sitting, row: dict[str, str], line: int) -> None:
    """Put a row into its observation. Raises LabelsError."""
    if not row["code"]:
        raise LabelsError(f"Line {line}: the behaviour is missing.", "write one, or delete the row.")
    if row.get("media", "").casefold() not in UNKNOWN:
        sitting.files[row["media"]] = None
    subject = "" if row.get("subject", "").casefold() in NOBODY else row["subject"]
    start = round(number_of(row["start"], line) - sitting.offset, 6)
    status = KINDS.get(row.get("status", "STATE").upper())
    if "stop" in row:
        stop = row["stop"]
        end = start if stop.casefold() in UNKNOWN else round(number_of(stop, line) - sitting.offset, 6)
        sitting.bouts.append(Bout(start, end, row["code"], subject))
        return
    if not status:
        raise LabelsError(
            f"Line {line}: {brief(row['status'])} is neither START, STOP nor POINT.", "export the events again."
        )
    modifiers = "|".join(row[what] for what in row if what.startswith(MODIFIERS))
    sitting.events.append(Event(f"Line {line}", start, subject, row["code"], modifiers, status))


def _observation(name: str, sitting: Sitting) -> Observation:
    """What rows say of an observation. Raises LabelsError for a state that is begun or ended alone."""
    files = list(sitting.listed) or list(sitting.files) or [name]
    bouts = sitting.bouts + bouts_of(sorted(sitting.events, key=lambda event: event.time))
    return Observation(name, files, bouts, sitting.lengths)
