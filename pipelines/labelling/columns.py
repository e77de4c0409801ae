"""Tables whose columns nobody can tell by their names: a person says on a form what each column is.

The form is served before the project can begin; then it is the project's page, at the same address.
"""

import csv
import io
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lstr.errors import ExtractorError, LabelsError, LstrError, brief, few
from lstr.labels.label_set import BACKGROUND, Labels
from lstr.labels.video_ids import check_ids, mismatch_of
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.annotations.format import ConvertOptions, File
from lstr.pipelines.annotations.formats import recognise
from lstr.pipelines.annotations.label_files import labels_from, with_plain_ids
from lstr.pipelines.annotations.tables import SAMPLE, Rows, guess_columns, is_text, layout_of
from lstr.pipelines.annotations.videos import Rates, footage_of_files
from lstr.pipelines.pages.page import Script, build_page
from lstr.pipelines.pages.responses import page_response, read_json, refused

# Kinds of notes on what is as it should be
UNTOLD = ("no subsets", "id with ending")
# Rows of the table, and labels that come of it, that a person sees.
SHOWN = 8
ROLES = ("video", "start", "end", "duration", "label", "subject")
TIMED = ("start", "end", "duration")
# What follows the names of times, and of durations, that count these.
UNITS = {"seconds": ("", ""), "milliseconds": ("_ms", "_ms"), "frames": ("_frame", "_frames")}


@dataclass(frozen=True)
class Choice:
    """What a person says of a table: the columns by what they are, by number from 0, and what times count."""

    columns: Mapping[str, int]
    unit: str = "seconds"


@dataclass(frozen=True)
class UnnamedTable:
    """A table whose columns are not known; `rows` begin with its header."""

    path: Path
    rows: Sequence[tuple[int, Sequence[str]]]

    @property
    def header(self) -> Sequence[str]:
        """The names of its columns."""
        return self.rows[0][1]

    @property
    def width(self) -> int:
        """How many columns any of its first rows has."""
        return max(len(cells) for _, cells in self.rows[: SAMPLE + 1])

    def read(self, choice: Choice, videos: Mapping[str, Any]) -> Labels:
        """The labels that come of a choice, of the videos at hand. Raises LabelsError and LabelsError.

        Where no column names the video, all rows are of the one that is at hand, or that the file is called as.
        """
        self._check(choice)
        rates = Rates(lambda: videos)
        options = ConvertOptions(rate_of=rates, seconds_of=rates.seconds)
        alone = next(iter(videos)) if len(videos) == 1 else self.path.stem
        read = from_csv(self._text(choice), alone, options).plausible().checked()
        labels = with_plain_ids(labels_from(read, str(self.path)), videos)
        check_ids(labels.videos, str(self.path))
        return labels

    def guess(self, videos: Mapping[str, Any]) -> Choice:
        """What the columns may be, by what stands in them; a person corrects it."""
        return Choice(guess_columns((cells for _, cells in self.rows[1 : SAMPLE + 1]), videos))

    def _check(self, choice: Choice) -> None:
        columns = choice.columns
        if not {*columns} <= {*ROLES} or choice.unit not in UNITS or len({*columns.values()}) < len(columns):
            raise LabelsError("That is no choice of columns.", "reload the page.")
        if not all(0 <= at < self.width for at in columns.values()):
            raise LabelsError("The table has no such column.", "reload the page.")
        wanted = {"start": "the start", "label": "the action"}
        missing = [name for role, name in wanted.items() if role not in columns]
        missing += [] if {"end", "duration"} & columns.keys() else ["the end, or how long it lasts"]
        if missing:
            raise LabelsError(f"No column is {missing[0]} yet.", "choose it above that column.")
        if {"end", "duration"} <= columns.keys():
            raise LabelsError("One column is the end, and another how long it lasts.", "choose one of them.")

    def _text(self, choice: Choice) -> str:
        """The table with names that are known, a line for each of its rows."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        time, lasting = UNITS[choice.unit]
        ending = {"start": time, "end": time, "duration": lasting}
        writer.writerow([role + ending.get(role, "") for role in choice.columns])
        line = 2
        for at, cells in self.rows[1:]:
            out.write("\n" * max(0, at - line))  # so that what is told of a line is found in it
            row = [" ".join(cells[column].split()) if column < len(cells) else "" for column in choice.columns.values()]
            writer.writerow(row)
            line = max(at, line) + 1
        return out.getvalue()


def unnamed_table(path: Path) -> UnnamedTable | None:
    """The table in a file, where it is one and nobody knows what its columns are; else None."""
    with suppress(LabelsError, ExtractorError, csv.Error, OSError):
        form = recognise(path) if path.is_file() else None
        if form and form.name in ("csv", "tsv"):
            return _unnamed(path, Rows(File(path).decoded))
    return None


def _unnamed(path: Path, table: Rows) -> UnnamedTable | None:
    rows = [(line, cells) for line, cells in table if any(map(str.strip, cells))]
    if len(rows) < 2 or len(rows[0][1]) < 3 or layout_of(rows[0][1], {}):
        return None
    return UnnamedTable(path, rows)


def described(labels: Labels, videos: Mapping[str, Any]) -> dict[str, Any]:
    """What comes of a choice, for people: how much, of which videos at hand, and the first labels."""
    segments = [(name, s) for name, video in labels.videos.items() for s in video.segments]
    actions = [name for name in labels.classes if name != BACKGROUND]
    unknown = sorted(name for name in labels.videos if name not in videos)
    subjects = {s.subject for _, s in segments} - {""}
    rows = [
        {"video": name, "label": s.label, "start": s.start, "end": s.end, "subject": s.subject}
        for name, s in segments[:SHOWN]
    ]
    return {
        "labels": len(segments),
        "actions": actions,
        "subjects": sorted(subjects),
        "videos": len(labels.videos) - len(unknown),
        "unknown": unknown,
        "rows": rows,
        "notes": [note.sentence for note in labels.notes if note.kind not in UNTOLD],
        "doubts": _doubts(labels, videos),
    }


def _doubts(labels: Labels, videos: Mapping[str, Any]) -> list[str]:
    """What is likely not meant."""
    doubts = [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in (without_length(labels),) if sentence]
    footage = footage_of_files({name: videos[name] for name in labels.videos if name in videos})
    lengths = {name: one.seconds for name, one in footage.items()}
    late = [s for name, end in lengths.items() for s in labels.videos[name].segments if s.start >= end]
    if late:
        many = sum(len(labels.videos[name].segments) for name in lengths)
        doubts.append(f"{len(late)} of {many} labels start after their video ends: do times count something else?")
    names = {s.label for video in labels.videos.values() for s in video.segments}
    if names and all(not is_text(name) for name in names):
        doubts.append(f"All actions are numbers, such as {brief(min(names))}: is it the right column?")
    if labels.videos and not any(name in videos for name in labels.videos):
        doubts.append("No row is of a video that is open here.")
    return doubts


def rows_shown(table: UnnamedTable) -> list[list[str]]:
    """The first rows below the header, as wide as the table."""
    return [[*cells, *[""] * (table.width - len(cells))] for _, cells in islice(table.rows, 1, SHOWN + 1)]


def remarks(begin: Labels, videos: Collection[str]) -> Iterator[str]:
    """Sentences on how labels were taken for a project of these videos, and on what of them it does not show."""
    yield from (note.sentence for note in begin.notes if note.kind not in UNTOLD)
    if sentence := without_length(begin):
        yield sentence
    missing = sorted(name for name in begin.videos if name not in videos)
    if sentence := mismatch_of(begin.videos, videos):
        yield sentence
    elif missing:
        yield f"{len(missing)} of {len(begin.videos)} labelled videos are not open here: {few(missing)}"


def without_length(begin: Labels) -> str:
    """A sentence where labels last no time, for which a project has no place; else empty."""
    segments = [segment for video in begin.videos.values() for segment in video.segments]
    points = [segment.label for segment in segments if segment.end <= segment.start]
    if not points:
        return ""
    names = few(sorted(set(points)))
    return f"{len(points)} of {len(segments)} labels last no time, such as point events, and are left out: {names}"


# Bytes that a request may have.
MOST_BYTES = 2**16


@dataclass
class ColumnSite:
    """The application of the form; `begin` makes the project's application of the labels, once, and serves it then."""

    table: UnnamedTable
    videos: Mapping[str, Any]
    begin: Callable[[Labels, Choice], ASGIApp]
    _begun: ASGIApp | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def app(self) -> ASGIApp:
        """The application."""
        routes = [
            Route("/", self._page),
            Route("/columns/try", self._try, methods=["POST"]),
            Route("/columns/begin", self._begin, methods=["POST"]),
        ]
        handlers: Any = {LstrError: _told, HTTPException: refused}
        form = Starlette(routes=routes, exception_handlers=handlers)

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            await (self._begun or form)(scope, receive, send)

        return application

    async def _page(self, request: Request) -> Response:
        guess = await run_in_threadpool(self.table.guess, self.videos)
        document = {
            "file": self.table.path.name,
            "header": [*self.table.header, *[""] * (self.table.width - len(self.table.header))],
            "rows": rows_shown(self.table),
            "count": len(self.table.rows) - 1,
            "videos": len(self.videos),
            "roles": ROLES,
            "units": list(UNITS),
            "guess": asdict(guess),
        }
        script = Script(("columns.js",), document, is_served=True)
        text = build_page("app.html", "Which column is what?", ("report.css", "columns.css"), script)
        return page_response(text)

    async def _try(self, request: Request) -> Response:
        choice = await _choice(request)
        labels = await run_in_threadpool(self.table.read, choice, self.videos)
        return JSONResponse(await run_in_threadpool(described, labels, self.videos))

    async def _begin(self, request: Request) -> Response:
        choice = await _choice(request)
        await run_in_threadpool(self._begin_with, choice)
        return JSONResponse({})

    def _begin_with(self, choice: Choice) -> None:
        labels = self.table.read(choice, self.videos)
        with self._lock:  # a second click, or a second tab
            if self._begun is None:
                self._begun = self.begin(labels, choice)


async def _choice(request: Request) -> Choice:
    """The choice in a request. Raises HTTPException where it is none."""
    data = await read_json(request, MOST_BYTES)
    try:
        return msgspec.json.decode(data, type=Choice)
    except msgspec.DecodeError as error:
        raise HTTPException(400) from error


async def _told(request: Request, error: Exception) -> Response:
    hint = getattr(error, "hint", "")  # one of a command is no help on the page
    return JSONResponse({"error": str(error), "hint": "" if "`" in hint or "--" in hint else hint}, 400)
