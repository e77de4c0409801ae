"""Read the event tables that BORIS exports."""

from collections import defaultdict
from itertools import islice

from lstr.errors import LabelsError, brief, few
from lstr.labels.label_set import Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.boris import POINT, START, STOP, Event, Observation, bouts_of, videos_of
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.tables import Rows, number_of

# Headers of the columns that are read from an export, in all versions.
COLUMNS = {
    "observation": ("Observation id",),
    "media": ("Media file name", "Media file path", "Media file"),
    "source": ("Source",),
    "offset": ("Time offset (s)",),
    "lengths": ("Media duration (s)",),
    "subject": ("Subject",),
    "code": ("Behavior",),
    "status": ("Status", "Behavior type"),
    "start": ("Start (s)", "Time"),
    "stop": ("Stop (s)",),
    "comment": ("Comment", "Comment start"),
}
MODIFIERS = "Modifier"  # beginning of the headers of modifier columns
# The first cell of a header, or in earlier versions of the lines above it.
FIRST = "Observation id"
# Lines above a header, one per independent variable.
MAX_ABOVE = 1000
NO_SUBJECT = ("no focal subject", "")
# Cells for a missing file or time.
UNKNOWN = ("na", "nan", "not found", "", "live observation")


# Rows by the names of COLUMNS, with their line numbers
Lines = list[tuple[int, dict[str, str]]]


class EventTable(Format):
    """A table of events: a row for each start and stop (tabular), or for each bout (aggregated)."""

    name = "borisevents"

    def recognises(self, file: File) -> bool:
        try:
            return file.ending in (".csv", ".tsv", ".txt") and _header(Rows(file.text)) is not None
        except LabelsError:
            return False

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        table = Rows(file.text)
        header = _header(table)
        if header is None:
            raise LabelsError(
                "The table is not an export of BORIS.",
                "export its observations as aggregated events, or use the project file (.boris).",
            )
        header_line, columns, above = header
        only_name = (above.get(FIRST) or [""])[0] or video_id
        rows: dict[str, Lines] = defaultdict(list)  # by observation
        for line, cells in table:
            if line > header_line and any(map(str.strip, cells)):
                row = {what: cells[at].strip() if at < len(cells) else "" for what, at in columns.items()}
                rows[row.get("observation") or only_name].append((line, row))
        observations: list[Observation] = []
        classes: dict[str, None] = {}
        notes: list[Note] = []
        lost = {"comment": 0, MODIFIERS: 0}
        for name, lines in rows.items():
            # A row may have no file: BORIS writes "not found" for an event at 0 s, which belongs to the observation's.
            shown = [row["media"] for _, row in lines if row.get("media", "").casefold() not in UNKNOWN]
            read = [
                (line, row)
                for line, row in lines
                if row["start"].casefold() not in UNKNOWN
                if shown or "media" not in row or row.get("source", "").casefold() not in UNKNOWN
            ]
            if len(read) < len(lines):
                sentence = f"rows of the observation {name!r} without a time or a video are skipped"
                notes.append(Note("no video", sentence))
            if read:
                observations.append(_observation(name, read, list(dict.fromkeys(shown)), above))
            for _, row in read:
                classes[row["code"]] = None
                lost["comment"] += bool(row.get("comment"))
                lost[MODIFIERS] += bool(_modifiers(row).replace("None", "").strip("|"))
        notes += [
            Note(what, f"{what.lower()}s of events are not kept ({count} rows)")
            for what, count in lost.items()
            if count
        ]
        if not observations and notes:
            raise LabelsError("No row belongs to a video.", "export observations of media files.")
        return videos_of(observations, list(classes), notes)


def _observation(name: str, lines: Lines, shown: list[str], above: dict[str, list[str]]) -> Observation:
    """Parse the rows of an observation, in which the files `shown` occur. Raises LabelsError."""
    first_line, row = lines[0]
    # the files of each player, in a column or above the header; times are those of the first player
    source = row.get("source", "").split("|player #") if "player #" in row.get("source", "") else []
    players = [player.split(":", 1)[1].split(";") for player in source if ":" in player]
    above_files = [list(filter(None, files)) for at, files in above.items() if at.startswith("Player #")]
    players = players or [files for files in above_files if files] or [[]]
    files = players[0]
    numbers = row.get("lengths", "").split("|")[0].split(";")
    pairs = zip(files, numbers, strict=True) if len(numbers) == len(files) else ()
    lengths = {file: number_of(text, first_line) for file, text in pairs if text.casefold() not in UNKNOWN}
    listed = {_base(file) for player in players for file in player}
    if listed and (other := next((file for file in shown if _base(file) not in listed), None)):
        if len(files) > 1 or len(shown) > 1:
            line = next(line for line, row in lines if row.get("media") == other)
            raise LabelsError(
                f"Line {line}: the event is in {brief(other)}, but the media files of the observation {name!r} are "
                f"{few(list(map(brief, files)))}.",
                "correct the media files in BORIS (Observations, Edit), and export the events again.",
            )
        files, lengths = [other], {}  # the file was renamed after it was coded
    stated_offset = row.get("offset") or (above.get("Time offset (s)") or [""])[0]
    offset = 0.0 if stated_offset.casefold() in UNKNOWN else number_of(stated_offset, first_line)
    bouts: list[Segment] = []
    events: list[Event] = []
    for line, row in lines:
        if not row["code"]:
            raise LabelsError(f"Line {line}: the behaviour is missing.", "write one, or delete the row.")
        subject = "" if row.get("subject", "").casefold() in NO_SUBJECT else row["subject"]
        time = round(number_of(row["start"], line) - offset, 6)
        if "stop" in row:
            is_point = row["stop"].casefold() in UNKNOWN
            end = time if is_point else round(number_of(row["stop"], line) - offset, 6)
            bouts.append(Segment(time, end, row["code"], None, subject))
        elif (status := row["status"].upper()) in (START, STOP, POINT):
            events.append(Event(f"Line {line}", time, subject, row["code"], _modifiers(row), status))
        else:
            raise LabelsError(
                f"Line {line}: {brief(row['status'])} is neither START, STOP nor POINT.", "export the events again."
            )
    return Observation(name, files or shown or [name], [*bouts, *bouts_of(events)], lengths)


def _modifiers(row: dict[str, str]) -> str:
    return "|".join(row[what] for what in row if what.startswith(MODIFIERS))


def _header(table: Rows) -> tuple[int, dict[str, int], dict[str, list[str]]] | None:
    """Return the line number of the header, its columns, and the values above it by name; None for other tables."""
    above: dict[str, list[str]] = {}
    for line, cells in islice(table, MAX_ABOVE):
        names = [cell.strip() for cell in cells]
        subject = names.index("Subject") if "Subject" in names else 0
        rates = [at for at, name in enumerate(names[:subject]) if name.startswith("FPS")]
        if rates and "Behavior" in names:
            # independent variables are between the frame rate and the subject; one may start with FPS too
            variables = names[rates[0] + 1 : subject]
            names[rates[0] + 1 : subject] = [""] * len(variables)
            # BORIS builds the header from a dictionary, so a variable `Time` removes its own column's name, but not
            # its cells
            if "Time" in variables and "Behavior type" in names and not {"Time", "Start (s)"} & {*names}:
                names.insert(names.index("Behavior type") + 1, "Time")
        header = {name: at for at, name in reversed(list(enumerate(names)))}
        columns = {name: at for name, at in header.items() if name.startswith(MODIFIERS)}
        for what, known in COLUMNS.items():
            if (name := next((name for name in known if name in header), None)) is not None:
                columns[what] = header[name]
        if "code" in columns and "start" in columns and {"stop", "status"} & columns.keys():
            is_export = above or "observation" in columns or {"media", "status"} <= columns.keys()
            return (line, columns, above) if is_export else None
        first = cells[0].strip() if cells else ""
        if not above and first != FIRST:
            return None
        if first:
            above.setdefault(first, []).append(cells[1].strip() if len(cells) > 1 else "")
    return None


def _base(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2]
