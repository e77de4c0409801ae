"""`lstr label`: open the project of some videos and serve its page, after a form for tables with unknown columns."""

import csv
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
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

from lstr.errors import ExtractorError, LabelsError, LstrError, few
from lstr.extractors.video.inputs import VIDEO_SUFFIXES, find_videos
from lstr.files.atomic import check_writable
from lstr.files.content import read_jsonl
from lstr.files.home import home
from lstr.labels.label_set import BACKGROUND, Labels
from lstr.labels.video_ids import check_ids, mismatch_of
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.annotations.format import ConvertOptions, File
from lstr.pipelines.annotations.formats import recognise
from lstr.pipelines.annotations.label_files import labels_from, read_label_files, with_plain_ids
from lstr.pipelines.annotations.tables import SAMPLE, TIMES, Rows, guess_columns, layout_of
from lstr.pipelines.annotations.videos import Rates, footage_of_files
from lstr.pipelines.labelling.journal import journal_of
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.search import Proposer, check_model
from lstr.pipelines.labelling.site import Site
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.videos import Videos
from lstr.pipelines.pages.guard import kept_address
from lstr.pipelines.pages.page import Script, build_page
from lstr.pipelines.pages.server import Server, page_response, read_json, refused

NAME = "labels.json"
USUAL_NOTES = ("no subsets", "id with ending")  # kinds of notes that need no attention here
N_SHOWN = 8  # rows of a table, and labels read from it, that the form shows
MAX_BYTES = 2**16  # of a request of the form
ROLES = ("video", "start", "end", "duration", "label", "subject")
UNITS = ("seconds", "milliseconds", "frames")  # in the order of the names in TIMES


@dataclass
class Labelling:
    """A project that is served. It has no project before the columns of its table are chosen."""

    path: Path
    project: Project = field(init=False)
    server: Server = field(init=False)
    proposer: Proposer = field(init=False)
    training: Training = field(init=False)


@contextmanager
def label(
    videos: Sequence[str],
    output: Path | None = None,
    labels: Sequence[str] = (),
    *,
    port: int | None = None,
    model: Path | None = None,
    training: Sequence[str] = (),
    tell: Callable[[str], object] = lambda text: None,
) -> Iterator[Labelling]:
    """Serve the page of some videos; the labels are in their file at the end.

    Args:
        videos: Files, folders and patterns.
        output: The labels file; by default labels.json in the folder of the videos.
        labels: Label files of any format with which a new project starts.
        port: Where the page is served; by default where it was last.
        model: A model file or checkpoint that proposes labels while the page is open.
        training: More arguments for `lstr learn`, which trains from the page.
        tell: Called with sentences for a person, also from other threads.

    Raises:
        MissingPathError: An input does not exist.
        LabelsError: The labels cannot be read or resumed.
        OutputError: The labels cannot be written.
        ServingError: The port is not available.
        CheckpointError: The model is not valid.
    """
    if model:
        check_model(model)
    own = Path(NAME) if output is None or output.is_dir() else output
    others = [path.name for path in (own, journal_of(own), *map(Path, labels))]
    found = find_videos(videos, VIDEO_SUFFIXES, None, tell, others)
    if output is None:
        first = Path(videos[0])
        output = first if first.is_dir() else next((path for path in first.parents if path.is_dir()), Path())
    path = output / NAME if output.is_dir() else output
    if path.suffix.lower() != ".json":
        raise LabelsError(f"{path} is not the name of a labels file.", "name a file ending in .json with -o.")
    check_writable(path.parent)
    durations = {name: round(footage.seconds, 6) for name, footage in footage_of_files(found).items()}
    sources = [str(Path(name).absolute()) for name in labels]
    is_new = not (labels and _origin_of(path).get("labels") == sources)
    table = read_unnamed(Path(labels[0])) if len(labels) == 1 and is_new and not path.exists() else None
    begin = read_label_files(labels, present=found) if labels and is_new and not table else None
    with ExitStack() as stack:
        opened = stack.enter_context(ExitStack())  # closed after the server has ended
        labelling = Labelling(path)

        def open_project(begin: Labels | None, columns: Mapping[str, str] | None = None) -> ASGIApp:
            origin = {"labels": sources, **({"columns": columns} if columns else {})} if begin else None
            project = labelling.project = opened.enter_context(Project(path, begin, durations, origin))
            for sentence in remarks(begin, found) if begin and not columns else ():  # else the form has shown them
                tell(sentence)
            served = opened.enter_context(Videos(found))
            proposer = labelling.proposer = opened.enter_context(Proposer(project, found, tell))
            trainer = Training(project, videos, training, on_trained=proposer.begin)
            labelling.training = opened.enter_context(trainer)
            if model:
                proposer.begin(model)
            return Site(project, served, proposer, trainer, lambda: labelling.server.ending).app()

        app = ColumnForm(table, found, open_project).app if table else open_project(begin)
        labelling.server = Server(app, port=port, kept=kept_address(path, home() / "pages"))
        stack.enter_context(labelling.server)
        yield labelling


def _origin_of(path: Path) -> dict[str, Any]:
    """Return where the labels of a project came from, as its journal says; empty without one."""
    lines = read_jsonl(journal_of(path)) if journal_of(path).is_file() else []
    origins = [line["origin"] for line in lines if isinstance(line, dict) and "origin" in line]
    return origins[-1] if origins else {}


def remarks(begin: Labels, videos: Collection[str]) -> Iterator[str]:
    """Yield sentences on how labels were read for a project of these videos, and on what it does not show."""
    yield from (note.sentence for note in begin.notes if note.kind not in USUAL_NOTES)
    segments = [segment for video in begin.videos.values() for segment in video.segments]
    points = [segment.label for segment in segments if segment.end <= segment.start]
    if points:
        names = few(sorted(set(points)))
        yield f"{len(points)} of {len(segments)} labels have no duration, as point events, and are skipped: {names}"
    missing = sorted(name for name in begin.videos if name not in videos)
    if sentence := mismatch_of(begin.videos, videos):
        yield sentence
    elif missing:
        yield f"{len(missing)} of {len(begin.videos)} labelled videos are not open here: {few(missing)}"


class Choice(msgspec.Struct, frozen=True):
    """The columns of a table by number, by what they are, and the unit of its times, as a person chooses them."""

    columns: dict[str, int]
    unit: str = "seconds"


@dataclass(frozen=True)
class UnnamedTable:
    """A table whose header does not say what its columns are."""

    path: Path
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def columns(self, choice: Choice) -> dict[str, str]:
        """Return the header of each column, by the names that `--columns` takes. Raises LabelsError."""
        columns = choice.columns
        if not {*columns} <= {*ROLES} or choice.unit not in UNITS or len({*columns.values()}) < len(columns):
            raise LabelsError("The choice of columns is not valid.", "reload the page.")
        if not all(0 <= at < len(self.header) for at in columns.values()):
            raise LabelsError("The table has no such column.", "reload the page.")
        missing = [what for role, what in (("start", "the start"), ("label", "the action")) if role not in columns]
        missing += [] if {"end", "duration"} & columns.keys() else ["the end or the duration"]
        if missing:
            raise LabelsError(f"No column is {missing[0]} yet.", "choose it above that column.")
        unit = UNITS.index(choice.unit)
        return {TIMES[role][unit] if role in TIMES else role: self.header[at] for role, at in columns.items()}

    def read(self, choice: Choice, videos: Mapping[str, Any]) -> Labels:
        """Return the labels of a choice. Raises LabelsError.

        If no column names the video, all rows belong to the only one, or to the one that the file is named after.
        """
        rates = Rates(lambda: videos)
        options = ConvertOptions(rate_of=rates, seconds_of=rates.seconds, columns=self.columns(choice))
        name = next(iter(videos)) if len(videos) == 1 else self.path.stem
        text = File(self.path).decoded
        labels = labels_from(from_csv(text, name, options).plausible().checked(), str(self.path))
        labels = with_plain_ids(labels, videos)
        check_ids(labels.videos, str(self.path))
        return labels


def read_unnamed(path: Path) -> UnnamedTable | None:
    """Return the table in a file, if it is one and its columns are unknown."""
    with suppress(LabelsError, ExtractorError, csv.Error, OSError):
        form = recognise(path) if path.is_file() else None
        if form and form.name in ("csv", "tsv"):
            rows = [cells for _, cells in Rows(File(path).decoded) if any(map(str.strip, cells))]
            if len(rows) > 1 and len(rows[0]) > 2 and not layout_of(rows[0], {}):
                return UnnamedTable(path, rows[0], rows[1:])
    return None


class ColumnForm:
    """The page that asks for the columns of a table; `begin` then returns the application of the project."""

    def __init__(
        self,
        table: UnnamedTable,
        videos: Mapping[str, Any],
        begin: Callable[[Labels, Mapping[str, str]], ASGIApp],
    ):
        self.table, self.videos, self.begin = table, videos, begin
        self._project: ASGIApp | None = None
        self._lock = threading.Lock()
        handlers: Any = {LstrError: self._explain, HTTPException: refused}
        routes = [
            Route("/", self._page),
            Route("/columns/try", self._try, methods=["POST"]),
            Route("/columns/begin", self._begin, methods=["POST"]),
        ]
        self._form = Starlette(routes=routes, exception_handlers=handlers)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the form, and from its end on as the project."""
        await (self._project or self._form)(scope, receive, send)

    async def _page(self, request: Request) -> Response:
        table, width = self.table, len(self.table.header)
        guess = await run_in_threadpool(guess_columns, table.rows[:SAMPLE], self.videos)
        document = {
            "file": table.path.name,
            "header": table.header,
            "rows": [[*cells, *[""] * (width - len(cells))] for cells in table.rows[:N_SHOWN]],
            "count": len(table.rows),
            "videos": len(self.videos),
            "roles": ROLES,
            "units": UNITS,
            "guess": guess,
        }
        script = Script(("served.js", "columns.js"), document, is_served=True)
        return page_response(build_page("app.html", "Which column is what?", ("report.css", "columns.css"), script))

    async def _try(self, request: Request) -> Response:
        choice = await self._choice(request)
        labels = await run_in_threadpool(self.table.read, choice, self.videos)
        return JSONResponse(await run_in_threadpool(self._describe, labels))

    def _describe(self, labels: Labels) -> dict[str, Any]:
        """Return what the form shows of the labels that a choice makes."""
        segments = [(name, s) for name, video in labels.videos.items() for s in video.segments]
        notes = list(remarks(labels, self.videos))
        files = {name: self.videos[name] for name in labels.videos if name in self.videos}
        seconds = {name: footage.seconds for name, footage in footage_of_files(files).items()}
        n_late = sum(name in seconds and s.start >= seconds[name] for name, s in segments)
        if n_late:
            notes.append(f"{n_late} of {len(segments)} labels start after their video ends: is the unit right?")
        shown = [{"video": name, "label": s.label, "start": s.start, "end": s.end, "subject": s.subject}
                 for name, s in segments[:N_SHOWN]]  # fmt: skip
        return {
            "labels": len(segments),
            "actions": [name for name in labels.classes if name != BACKGROUND],
            "subjects": sorted({s.subject for _, s in segments} - {""}),
            "videos": len(files),
            "rows": shown,
            "notes": notes,
        }

    async def _begin(self, request: Request) -> Response:
        await run_in_threadpool(self._begin_with, await self._choice(request))
        return JSONResponse({})

    def _begin_with(self, choice: Choice) -> None:
        labels = self.table.read(choice, self.videos)
        with self._lock:  # a second click, or a second tab
            self._project = self._project or self.begin(labels, self.table.columns(choice))

    async def _choice(self, request: Request) -> Choice:
        """Return the choice in a request. Raises HTTPException."""
        data = await read_json(request, MAX_BYTES)
        try:
            return msgspec.json.decode(data, type=Choice)
        except msgspec.DecodeError as error:
            raise HTTPException(400) from error

    async def _explain(self, request: Request, error: Exception) -> Response:
        hint = getattr(error, "hint", "")  # one that names a command does not help on the page
        return JSONResponse({"error": str(error), "hint": "" if "`" in hint or "--" in hint else hint}, 400)
