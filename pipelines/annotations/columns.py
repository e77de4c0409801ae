"""Which column of a table is what: by the names that are documented, or by those that a person gives."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lstr.errors import LabelsError, brief
from lstr.pipelines.annotations.ids import plain_id
from lstr.pipelines.annotations.rows import is_text

# Names of the columns of times, in seconds, in milliseconds, and in frames
TIMES = {
    "start": ("start", "start_ms", "start_frame"),
    "end": ("end", "end_ms", "end_frame"),
    "duration": ("duration", "duration_ms", "duration_frames"),
}
# The names that columns may have
NAMES = ("video", "subset", "label", "score", "subject", *(name for names in TIMES.values() for name in names))
# Rows by which the meaning of a column is guessed
SAMPLE = 200


@dataclass(frozen=True)
class Column:
    """A column: its number, its name, and what its times count."""

    at: int
    name: str
    scale: int = 1
    """How many of its units are a second"""
    counts_frames: bool = False


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are."""

    start: Column
    end: Column
    label: Column
    lasts: bool
    """Whether `end` is the duration of a segment"""
    duration: Column | None
    """The length of the video"""
    others: Mapping[str, Column]
    """The columns `video`, `subset`, `score` and `subject`, where there are such"""
    unread: Sequence[Column]
    """Columns of other names"""

    def columns(self) -> list[Column]:
        """All columns that the table is read by."""
        duration = [self.duration] if self.duration else []
        return [self.start, self.end, self.label, *duration, *self.others.values()]


def layout_of(header: Sequence[str], named: Mapping[str, str], in_frames: bool = False) -> Layout | None:
    """What the columns of a header are; None where one that must be is missing.

    named: the header of columns by what they are, which precede columns that are called so. in_frames: columns that
    count frames precede those in seconds.

    Raises LabelsError where a person names a column that does not exist.
    """
    found = find_columns(header, named)

    def of_times(role: str) -> Column | None:
        names = reversed(TIMES[role]) if in_frames else TIMES[role]
        return next((found[name] for name in names if name in found), None)

    start, end, label, lasting = of_times("start"), of_times("end"), found.get("label"), of_times("duration")
    lasts = end is None
    if start and lasting and lasts and (lasting.counts_frames or not start.counts_frames):
        end = lasting
    if not (start and end and label):
        return None
    duration = None if lasts or (lasting and lasting.counts_frames) else lasting
    others = {name: column for name, column in found.items() if name in ("video", "subset", "score", "subject")}
    known = {column.at for column in found.values()}
    unread = [Column(at, name) for at, name in enumerate(header) if name.strip() and at not in known]
    return Layout(start, end, label, lasts, duration, others, unread)


def find_columns(header: Sequence[str], named: Mapping[str, str]) -> dict[str, Column]:
    """The columns by the names of NAMES. Raises LabelsError where a person names one that does not exist."""
    cells = [cell.strip().casefold() for cell in header]
    names = [cell if cell in NAMES else "" for cell in cells]
    for name, title in named.items():
        if name not in NAMES:
            raise LabelsError(f"Unknown column: {brief(name)}.", f"choose from {', '.join(NAMES)}.")
        if title.strip().casefold() not in cells:
            raise LabelsError(
                f"The table has no column {brief(title)} (it has: {', '.join(header) or 'none'}).",
                "name its columns as its first line does.",
            )
        names = ["" if known == name else known for known in names]
        names[cells.index(title.strip().casefold())] = name
    found: dict[str, Column] = {}
    for at, name in enumerate(names):
        scale = 1000 if name.endswith("_ms") else 1
        found.setdefault(name, Column(at, header[at].strip(), scale, name.endswith(("_frame", "_frames"))))
    found.pop("", None)
    return found


def guess_columns(rows: Iterable[Sequence[str]], present: Collection[str]) -> dict[str, int]:
    """Guess which columns are `video`, `start`, `end` and `label`, for a person to correct.

    rows: those below the header. present: ids of the videos, if they are known, one of which a `video` must have.
    """
    columns: dict[int, list[str]] = {}
    for row in rows:
        for at, cell in enumerate(row):
            if cell.strip():
                columns.setdefault(at, []).append(cell.strip())
    times = [at for at, column in sorted(columns.items()) if not any(map(is_text, column))]
    texts = [at for at in sorted(columns) if at not in times]
    if present:
        videos = [at for at in texts if any(plain_id(cell, present) in present for cell in columns[at])]
    else:
        videos = texts if len(texts) > 1 else []
    labels = [at for at in texts if at not in videos[:1]]
    guess = {"video": videos, "start": times, "end": times[1:], "label": labels}
    return {role: found[0] for role, found in guess.items() if found}


def unknown_columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> LabelsError:
    """The error of a header that lacks columns, whose hint has the command that names them."""
    known = {name: column.at for name, column in find_columns(header, {}).items()}
    missing = {"label"} - known.keys()
    missing |= {role for role in ("start", "end") if not known.keys() & {*TIMES[role]}}
    if known.keys() & ({"duration_frames"} if "start_frame" in known else {*TIMES["duration"]}):
        missing -= {"end"}
    wanted = {"video", *missing} - known.keys()
    guess = {role: at for role, at in guess_columns(rows, ()).items() if role in wanted and at < len(header)}
    taken = {*known.values()}
    parts = [
        f"{role}={header[guess[role]].strip() if role in guess and guess[role] not in taken else '…'}"
        for role in ("video", "start", "end", "label")
        if role in missing or (role in guess and guess[role] not in taken)
    ]
    command = f"lstr labels convert FILE -o labels.json --columns {shlex.quote(','.join(parts))}"
    return LabelsError(
        f"The table has no column {', '.join(sorted(missing))} (it has: {', '.join(header) or 'none'}).",
        f"say which of its columns these are: `{command}`.",
    )
