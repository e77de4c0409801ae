"""Which column of a table is what, by its header; a row has one segment, or several in a wide table."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from lstr.errors import brief, few
from lstr.labels.label_set import Note
from lstr.pipelines.annotations.annotation import AnnotationError

COLUMNS = {
    "video": ("video", "video_id", "video_name", "id", "file", "filename", "video-id", "media file name"),
    "subset": ("subset", "split", "set"),
    "duration": ("duration",),
    "start": ("start", "begin", "from", "onset", "t-start"),
    "end": ("end", "stop", "to", "offset", "t-end"),
    "label": ("label", "class", "action", "activity", "behavior", "behaviour", "category", "event"),
    "score": ("score", "confidence", "conf"),
    "subject": ("subject", "individual"),
}
"""Names that a column may have."""
FRAME_COLUMNS = {
    "start": ("start_frame", "begin_frame", "frame_start", "first_frame"),
    "end": ("end_frame", "stop_frame", "frame_end", "last_frame"),
    "duration": ("duration_frames", "duration_frame", "frame_duration"),
}
"""Names of columns that count frames."""
KNOWN = (
    *((column, names, False) for column, names in COLUMNS.items()),
    *((column, names, True) for column, names in FRAME_COLUMNS.items()),
)
NAMEABLE = (*COLUMNS, "start_frame", "end_frame", "duration_frames", "duration_seconds")
"""What a person may say that a column is."""
TIMED = ("duration", "start", "end")
"""Columns whose name a unit may follow; they are in milliseconds where that is `_ms`, ` ms` or ` (ms)`."""
OF_A_SEGMENT = (*TIMED, "label", "score", "subject")
"""Columns that a wide table has several times."""
UNIT = re.compile(r"([_ ](ms|sec|seconds|time|timestamp|\((ms|s|sec|seconds)\))){0,4}$", re.IGNORECASE)
SECONDS = re.compile(r"[_ ](ms|sec|seconds|\((ms|s|sec|seconds)\))$", re.IGNORECASE)
"""How a name ends that says its unit."""
FRAMES = re.compile(r"[_ ]frames?$", re.IGNORECASE)
MILLISECONDS = re.compile(r"[_ ](ms|\(ms\))$")
NUMBERED = re.compile(r"(.*?)[ _.#-]?(\d{1,3})")
"""A name with a number, as the second start of a row has it: `start2`, `start_2`, or `start.1` of pandas."""
NO_CLASSES = ("t", "time", "frame", "segment", "clip", "video", "label", "action", "event", "behavior", "behaviour")
"""What stands beside start and end in a header, and is no class."""
LAST_WORD = re.compile(r"(.+)[ _.:-]([^ _.:-]+)")
"""`fall_start`, the start of a class that the header names."""


@dataclass(frozen=True)
class Column:
    """A column: its number, its name, and what its times count."""

    at: int
    name: str
    scale: int = 1
    """How many of its units are a second"""
    counts_frames: bool = False
    is_beside_frames: bool = False
    """Whether it holds seconds after a start that is a number of a frame"""


@dataclass(frozen=True)
class Piece:
    """Where a row has one segment."""

    start: Column
    end: Column
    lasts: bool
    """Whether `end` is how long it lasts"""
    label: Column | str
    """The class itself, where the header names it"""
    score: Column | None = None
    subject: Column | None = None


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are."""

    whole: Mapping[str, Column]
    """The columns of the video: `video`, `subset` and `duration`, where there are such"""
    pieces: tuple[Piece, ...]
    notes: tuple[Note, ...] = ()
    unread: tuple[Column, ...] = ()
    """Columns of other names"""

    def columns(self) -> Iterator[Column]:
        """All columns that the table is read by."""
        yield from self.whole.values()
        for piece in self.pieces:
            parts = (piece.start, piece.end, piece.label, piece.score, piece.subject)
            yield from (one for one in parts if isinstance(one, Column))


Groups = dict[str, dict[str, Column]]
"""Columns by what they are, of each segment of a row by its number"""


def layout_of(header: Sequence[str], named: Mapping[str, str], in_frames: bool) -> Layout:
    """What the columns of a header are. Raises AnnotationError where one that must be is missing.

    named: the header of columns, by what they are, which go before any known name. in_frames: columns that count frames
    go before others; else they are taken where there are no others.
    """
    cells = _with_names([cell.strip() for cell in header], named)
    seconds, frames = _grouped(cells)
    first, second = (frames, seconds) if in_frames else (seconds, frames)
    groups = {number: {**second.get(number, {}), **first.get(number, {})} for number in {**first, **second}}
    for number, one in groups.items():
        if "duration" in frames.get(number, {}) and "start" in one and one["start"].counts_frames:
            one["duration"] = frames[number]["duration"]
    alone = groups.get("", {})
    pieces = []
    for one in filter(_is_timed, groups.values()):
        if label := one.get("label", alone.get("label")):
            score, subject = (one.get(name, alone.get(name)) for name in ("score", "subject"))
            pieces.append(replace(_piece(one, label, score), subject=subject))
    if not pieces and "label" not in alone:
        pieces = _of_classes(cells)
    if not pieces:
        _refuse(cells, groups)
    whole: dict[str, Column] = {name: alone[name] for name in ("video", "subset") if name in alone}
    lasting = alone.get("duration")
    if lasting and not lasting.counts_frames and not any(piece.end.at == lasting.at for piece in pieces):
        whole["duration"] = lasting
    known = {column.at for groups in (seconds, frames) for one in groups.values() for column in one.values()}
    unread = (Column(at, cell) for at, cell in enumerate(cells) if cell and at not in known)
    return Layout(whole, tuple(pieces), _notes(pieces), tuple(unread))


def _with_names(cells: list[str], named: Mapping[str, str]) -> list[str]:
    """The header with known names in the place of those that a person has named. Raises AnnotationError."""
    for column, name in named.items():
        if column not in NAMEABLE:
            hint = f"name one of {', '.join(NAMEABLE)}, as in start=Beginn."
            raise AnnotationError(f"A table has no column called {brief(column)} here.", hint)
        wanted = name.strip().casefold()
        at = next((i for i, cell in enumerate(cells) if wanted in (cell.casefold(), _plain(cell).casefold())), None)
        if at is None:
            raise AnnotationError(
                f"The table has no column {brief(name)} (it has: {', '.join(cells) or 'none'}).",
                "name its columns as its first line does.",
            )
        unit = cells[at].removeprefix(_plain(cells[at]))
        others = {*COLUMNS.get(column, ()), column}
        cells = ["" if _plain(cell).lower() in others else cell for cell in cells]
        cells[at] = column + (unit if column in TIMED else "")
    return cells


def scale_of(cell: str) -> int:
    """How many units of a column of times are a second, by its name in small letters."""
    return 1000 if MILLISECONDS.search(cell) else 1


def _plain(cell: str) -> str:
    """A name without its unit."""
    return UNIT.sub("", cell)


def _grouped(cells: Sequence[str]) -> tuple[Groups, Groups]:
    """The columns that hold seconds or no time, and those that count frames, by number: "" of those without one."""
    found: tuple[Groups, Groups] = {}, {}
    seen: Counter[str] = Counter()
    for at, cell in enumerate(map(str.lower, cells)):
        for column, names, counts_frames in KNOWN:
            number = _number(cell, column, names, seen[cell])
            if number is not None:
                scale = scale_of(cell) if column in TIMED else 1
                one = Column(at, cell, scale, counts_frames)
                found[counts_frames].setdefault(number, {}).setdefault(column, one)
        seen[cell] += 1
    return found


def _number(cell: str, column: str, names: Sequence[str], earlier: int) -> str | None:
    """The segment of a row that a column is of, by number; None where it is no such column.

    earlier: how many columns before it have the same name.
    """
    plain = _plain(cell) if column in TIMED else cell
    if cell in names or plain in names:
        return str(earlier or "")
    numbered = NUMBERED.fullmatch(plain)
    is_one = column in OF_A_SEGMENT and numbered and _plain(numbered[1]) in names
    return numbered[2] if numbered and is_one else None


def _is_timed(one: Mapping[str, Column]) -> bool:
    """Whether columns tell when a segment begins and ends."""
    return "start" in one and bool({"end", "duration"} & one.keys())


def _piece(one: Mapping[str, Column], label: Column | str, score: Column | None) -> Piece:
    """The segment of these columns. Raises AnnotationError where nobody knows what its duration counts."""
    start, end = one["start"], one.get("end") or one["duration"]
    if start.counts_frames and "end" not in one and not end.counts_frames:
        if not SECONDS.search(end.name):
            frames, seconds = (SECONDS.sub("", end.name) + unit for unit in ("_frames", "_seconds"))
            raise AnnotationError(
                f"The column {start.name!r} counts frames, and {end.name!r} does not say whether it does so too.",
                f"call it {frames} or {seconds}.",
            )
        end = replace(end, is_beside_frames=True)
    return Piece(start, end, "end" not in one, label, score)


def _of_classes(cells: Sequence[str]) -> list[Piece]:
    """The segments of a row whose classes the header names: `fall_start` and `fall_end`, or `start_fall`, …"""
    found: dict[str, dict[str, Column]] = {}
    for at, cell in enumerate(cells):
        plain = _plain(cell)
        counts_frames = bool(FRAMES.search(plain))
        two = LAST_WORD.fullmatch(FRAMES.sub("", plain))
        for name, word in [(two[1], two[2]), (two[2], two[1])] if two else []:
            column = next((key for key in TIMED if word.lower() in COLUMNS[key]), None)
            if column and name.lower() not in NO_CLASSES:
                scale = scale_of(cell.lower())
                found.setdefault(name.strip(), {}).setdefault(column, Column(at, cell, scale, counts_frames))
                break
    return [_piece(one, name, None) for name, one in found.items() if _is_timed(one)]


def _notes(pieces: Sequence[Piece]) -> tuple[Note, ...]:
    """What is said of a wide table."""
    named = [piece.label for piece in pieces if isinstance(piece.label, str)]
    if len(pieces) < 2 and not named:
        return ()
    what = f"of {few(named)}, by its header" if named else f"{len(pieces)} at most"
    return (Note("wide table", f"a row has several segments, {what}"),)


def _refuse(cells: Sequence[str], groups: Groups) -> NoReturn:
    """Raise AnnotationError for a header that lacks what must be."""
    header, present = [cell.lower() for cell in cells], {column for one in groups.values() for column in one}
    missing = {"start", "end", "label"} - present - ({"end"} if {"start", "duration"} <= present else set())
    if not missing:  # each is there, but not of one segment
        missing = {"label"} if any(map(_is_timed, groups.values())) else {"start", "end"}
    asked = missing if "video" in present else {"video", *missing}
    named = ",".join(f"{column}=…" for column in ("video", "start", "end", "label") if column in asked)
    command = "lstr labels convert FILE -o labels.json --columns " + named
    lasting = " (duration=… in the place of end=…)" if "end" in missing else ""
    raise AnnotationError(
        f"The table has no column {', '.join(sorted(missing))} (it has: {', '.join(header) or 'none'}).",
        "give it a first line such as: video,start,end,label; or say which of its columns are these: "
        f"`{command}`{lasting}.",
    )
