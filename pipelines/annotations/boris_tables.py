"""Tables of events that BORIS exports: a row for each start and stop (tabular), or for each bout (aggregated)."""

import csv
from collections import defaultdict
from itertools import islice

from lstr.errors import LabelsError, brief
from lstr.labels.label_set import Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.boris import POINT, START, STOP, Event, Observation, bouts_of, videos_of
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.tables import Rows, number_of

# Headers of the columns of an export that are read, in all versions.
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
MAX_ABOVE = 1000
NO_SUBJECT = ("no focal subject", "")
# What a table has instead of a file or a time that is missing.
UNKNOWN = ("na", "nan", "not found", "", "live observation")


class EventTable(Format):
    """A table of events: a row for each start and stop (tabular), or for each bout (aggregated)."""

    name = "borisevents"

    def recognises(self, file: File) -> bool:
        try:
            return file.ending in (".csv", ".tsv", ".txt") and _header(Rows(file.beginning)) is not None
        except (LabelsError, csv.Error):
            return False

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return from_export(file.text, video_id)


def _header(table: Rows) -> tuple[int, dict[str, int], dict[str, list[str]]] | None:
    """Return the line of the header, its columns, and the values above it by name; None for another table."""
    above: dict[str, list[str]] = {}
    for line, cells in islice(table, MAX_ABOVE):
        header = {cell.strip().casefold(): at for at, cell in reversed(list(enumerate(cells)))}
        columns = {name: at for name, at in header.items() if name.startswith(MODIFIERS)}
        for what, names in COLUMNS.items():
            if (name := next((name for name in names if name in header), None)) is not None:
                columns[what] = header[name]
        if "code" in columns and "start" in columns and {"stop", "status"} & columns.keys():
            is_export = above or "observation" in columns or {"media", "status"} <= columns.keys()
            return (line, columns, above) if is_export else None
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
    header_line, columns, above = header
    only_name = (above.get(FIRST) or [""])[0] or name
    found: dict[str, Observation] = {}
    shown: dict[str, dict[str, None]] = defaultdict(dict)  # the files of each observation in the order of its rows
    events: dict[str, list[Event]] = defaultdict(list)
    offsets: dict[str, float] = {}
    classes: dict[str, None] = {}
    skipped: dict[str, None] = {}
    lost = {"comment": 0, MODIFIERS: 0}
    try:
        for line, cells in table:
            if line <= header_line or not any(map(str.strip, cells)):
                continue
            row = {what: cells[at].strip() if at < len(cells) else "" for what, at in columns.items()}
            name, media = row.get("observation") or only_name, row.get("media", "")
            has_media = media.casefold() not in UNKNOWN
            has_video = has_media or "media" not in row or row.get("source", "").casefold() not in UNKNOWN
            if row["start"].casefold() in UNKNOWN or not has_video:
                skipped[name] = None
                continue
            if name not in found:
                # the files of the first player, in a column or above the header
                source = row.get("source", "").split("|player #")[0]
                files = source.split(":", 1)[1].split(";") if source.startswith("player #") else []
                files = files or list(filter(None, above.get("player #1", [])))
                numbers = row.get("lengths", "").split("|")[0].split(";")
                pairs = zip(files, numbers, strict=True) if len(numbers) == len(files) else ()
                lengths = {file: number_of(text, line) for file, text in pairs if text.casefold() not in UNKNOWN}
                found[name] = Observation(name, files, lengths=lengths)
                offset = row.get("offset") or (above.get("time offset (s)") or [""])[0]
                offsets[name] = 0.0 if offset.casefold() in UNKNOWN else number_of(offset, line)
            if has_media:
                shown[name][media] = None
            if not row["code"]:
                raise LabelsError(f"Line {line}: the behaviour is missing.", "write one, or delete the row.")
            subject = "" if row.get("subject", "").casefold() in NO_SUBJECT else row["subject"]
            time = round(number_of(row["start"], line) - offsets[name], 6)
            modifiers = "|".join(row[what] for what in row if what.startswith(MODIFIERS))
            if "stop" in row:
                is_point = row["stop"].casefold() in UNKNOWN
                end = time if is_point else round(number_of(row["stop"], line) - offsets[name], 6)
                found[name].bouts.append(Segment(time, end, row["code"], None, subject))
            elif (status := row["status"].upper()) in (START, STOP, POINT):
                events[name].append(Event(f"Line {line}", time, subject, row["code"], modifiers, status))
            else:
                raise LabelsError(
                    f"Line {line}: {brief(row['status'])} is neither START, STOP nor POINT.", "export the events again."
                )
            classes[row["code"]] = None
            lost["comment"] += bool(row.get("comment"))
            lost[MODIFIERS] += bool(modifiers.replace("None", "").strip("|"))
    except csv.Error as error:
        raise LabelsError(f"The table cannot be read ({error}).", "export it again.") from error
    for name, observation in found.items():
        observation.files = observation.files or list(shown[name]) or [name]
        observation.bouts += bouts_of(events[name])
    notes = [
        Note("no video", f"rows of the observation {name!r} that name no time or no video are skipped")
        for name in skipped
    ]
    notes += [Note(what, f"{what}s of events are not kept ({count} rows)") for what, count in lost.items() if count]
    if not found and skipped:
        raise LabelsError("No row is of a video.", "export observations of media files.")
    return videos_of(list(found.values()), list(classes), notes)
