"""Tables of events that BORIS exports: a row for each start and stop (tabular), or for each bout (aggregated)."""

import csv
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice

from lstr.errors import LabelsError, brief
from lstr.labels.label_set import Note
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.boris import POINT, START, STOP, Bout, Event, Observation, bouts_of, videos_of
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.tables import Rows, number_of

# Headers of the columns of a table that are read, in all versions.
COLUMNS = {
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
MODIFIERS = "modifier"  # how the headers of their columns begin
# What a header begins with, or in earlier versions the lines above it.
FIRST = "observation id"
# Lines above a header, one per independent variable.
ABOVE = 1000
NOBODY = ("no focal subject", "")
# What a table has instead of a file or a time that is missing.
UNKNOWN = ("na", "nan", "not found", "", "live observation")


class EventTable(Format):
    """Tables of events that BORIS exports, tabular or aggregated."""

    name = "borisevents"

    def recognises(self, file: File) -> bool:
        try:
            return file.ending in (".csv", ".tsv", ".txt") and _header(Rows(file.beginning)) is not None
        except (LabelsError, csv.Error):
            return False

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return from_export(file.decoded, video_id)


def _header(table: Rows) -> tuple[int, dict[str, int], dict[str, list[str]]] | None:
    """Return the line of the header, its columns, and the values above it by name; None for another table."""
    above: dict[str, list[str]] = {}
    for line, cells in islice(table, ABOVE):
        header = {cell.strip().casefold(): at for at, cell in reversed(list(enumerate(cells)))}
        found = {
            what: next((header[name] for name in names if name in header), None) for what, names in COLUMNS.items()
        }
        columns = {what: at for what, at in found.items() if at is not None}
        columns |= {name: at for name, at in header.items() if name.startswith(MODIFIERS)}
        if "code" in columns and "start" in columns and {"stop", "status"} & columns.keys():
            is_alone = {"media", "status"} <= columns.keys()
            return (line, columns, above) if above or "observation" in columns or is_alone else None
        first = cells[0].strip() if cells else ""
        if not above and first.casefold() != FIRST:
            return None
        if first:
            above.setdefault(first.casefold(), []).append(cells[1].strip() if len(cells) > 1 else "")
    return None


def from_export(text: str, name: str) -> AnnotationSet:
    """Return the videos of an export; `name` is the observation if no column names it. Raises LabelsError."""
    table = Rows(text)
    header = _header(table)
    if header is None:
        raise LabelsError(
            "The table is not an export of BORIS.", "export its observations as aggregated events, or give the project."
        )
    begins, columns, above = header
    alone = (above.get(FIRST) or [""])[0] or name
    found: dict[str, Observation] = {}
    shown: dict[str, dict[str, None]] = defaultdict(dict)  # the files of each observation in the order of its rows
    events: dict[str, list[Event]] = defaultdict(list)
    offsets: dict[str, float] = {}
    classes: dict[str, None] = {}
    skipped: dict[str, None] = {}
    lost = dict.fromkeys(("comment", MODIFIERS), 0)
    try:
        for line, cells in table:
            if line <= begins or not any(map(str.strip, cells)):
                continue
            row = {what: cells[at].strip() if at < len(cells) else "" for what, at in columns.items()}
            observation = row.get("observation") or alone
            has_video = row.get("media", "x").casefold() not in UNKNOWN
            has_video = has_video or row.get("source", "NA").casefold() not in UNKNOWN
            if row["start"].casefold() in UNKNOWN or not has_video:
                skipped[observation] = None
                continue
            if observation not in found:
                found[observation] = _listed(observation, row, above, line)
                offset = row.get("offset") or (above.get("time offset (s)") or [""])[0]
                offsets[observation] = 0.0 if offset.casefold() in UNKNOWN else number_of(offset, line)
            if row.get("media", "").casefold() not in UNKNOWN:
                shown[observation][row["media"]] = None
            if not row["code"]:
                raise LabelsError(f"Line {line}: the behaviour is missing.", "write one, or delete the row.")
            event = _event(row, line, offsets[observation])
            if "stop" not in row:
                events[observation].append(event)
            else:
                stop = row["stop"]
                is_point = stop.casefold() in UNKNOWN
                end = event.time if is_point else round(number_of(stop, line) - offsets[observation], 6)
                found[observation].bouts.append(Bout(event.time, end, event.code, event.subject))
            classes[row["code"]] = None
            lost["comment"] += bool(row.get("comment"))
            lost[MODIFIERS] += any(row[what] not in ("", "None") for what in row if what.startswith(MODIFIERS))
    except csv.Error as error:
        raise LabelsError(f"The table cannot be read ({error}).", "export it again.") from error
    for observation, one in found.items():
        one.files = one.files or list(shown[observation]) or [observation]
        one.bouts += bouts_of(sorted(events[observation], key=lambda event: event.time))
    notes = [
        Note("no video", f"rows of the observation {one!r} that name no time or no video are skipped")
        for one in skipped
    ]
    notes += [Note(what, f"{what}s of events are not kept ({count} rows)") for what, count in lost.items() if count]
    if not found and skipped:
        raise LabelsError("No row is of a video.", "export observations of media files.")
    return videos_of(list(found.values()), list(classes), notes)


def _listed(name: str, row: Mapping[str, str], above: Mapping[str, list[str]], line: int) -> Observation:
    """Return the observation of its first row, with the files and lengths that are listed. Raises LabelsError."""
    source = row.get("source", "").split("|player #")[0]
    listed = source.split(":", 1)[1].split(";") if source.startswith("player #") else []
    listed = listed or list(filter(None, above.get("player #1", [])))
    numbers = row.get("lengths", "").split("|")[0].split(";")
    pairs = zip(listed, numbers, strict=True) if len(numbers) == len(listed) else ()
    lengths = {file: number_of(text, line) for file, text in pairs if text.casefold() not in UNKNOWN}
    return Observation(name, listed, lengths=lengths)


def _event(row: Mapping[str, str], line: int, offset: float) -> Event:
    """Return the event of a row. Raises LabelsError for a status that is neither START, STOP nor POINT."""
    status = row.get("status", "").upper()
    if "stop" not in row and status not in (START, STOP, POINT):
        raise LabelsError(
            f"Line {line}: {brief(row['status'])} is neither START, STOP nor POINT.", "export the events again."
        )
    subject = "" if row.get("subject", "").casefold() in NOBODY else row["subject"]
    modifiers = "|".join(row[what] for what in row if what.startswith(MODIFIERS))
    time = round(number_of(row["start"], line) - offset, 6)
    return Event(f"Line {line}", time, subject, row["code"], modifiers, status)
