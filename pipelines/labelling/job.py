"""Label videos in a browser: their project, opened and served until somebody ends it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from lstr.errors import LabelsError
from lstr.extractors.video.inputs import VIDEO_SUFFIXES, Tell, find_videos
from lstr.files.atomic import check_writable
from lstr.files.content import read_jsonl
from lstr.files.home import home
from lstr.labels.label_set import Labels
from lstr.pipelines.annotations.label_files import read_label_files
from lstr.pipelines.annotations.videos import footage_of_files
from lstr.pipelines.labelling.columns import Choice, ColumnSite, UnnamedTable, remarks, unnamed_table
from lstr.pipelines.labelling.journal import journal_of
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposer import Proposer, check_model
from lstr.pipelines.labelling.site import Site
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.watched import Watched
from lstr.pipelines.pages.guard import kept_address
from lstr.pipelines.pages.server import Server

NAME = "labels.json"


@dataclass(frozen=True)
class LabelOptions:
    """What is labelled, where the labels go, and where the page is served."""

    videos: Sequence[str]
    output: Path | None = None
    """The labels file; by default labels.json in the folder of the videos."""
    labels: Sequence[str] = ()
    """Label files of any form that a new project begins with."""
    endings: Sequence[str] = ()
    """Endings of videos in folders; the usual ones where there are none."""
    port: int | None = None
    model: Path | None = None
    """A model file or checkpoint that proposes labels while the page is in use."""
    training: Sequence[str] = ()
    """More words for `lstr learn`, which trains from the page."""


@dataclass
class Labelling:
    """A project that is served; it begins when the page has been told what the columns of a table are."""

    path: Path
    """The labels file."""
    project: Project = field(init=False)
    server: Server = field(init=False)
    proposer: Proposer = field(init=False)
    training: Training = field(init=False)


@contextmanager
def label(options: LabelOptions, tell: Tell | None = None) -> Iterator[Labelling]:
    """Serve the page of some videos; the labels are in their file at the end.

    tell: gets sentences about what else a folder holds, and how labels to begin with are taken. Raises
    MissingPathError, LabelsError, OutputError, ServingError, CheckpointError where the model is none, and OutputError
    where the labels cannot be written.
    """
    if options.model:
        check_model(options.model)
    own = Path(NAME) if options.output is None or options.output.is_dir() else options.output
    known = [path.name for path in (own, journal_of(own), *map(Path, options.labels))]
    videos = find_videos(options.videos, tuple(options.endings) or VIDEO_SUFFIXES, None, tell, known)
    output = options.output or folder_of(options.videos) / NAME
    if output.is_dir():
        output = output / NAME
    if output.suffix.lower() != ".json":
        raise LabelsError(f"{output} is no name of a labels file.", "name a file ending in .json with -o.")
    check_writable(output.parent)
    durations = {name: round(found.seconds, 6) for name, found in footage_of_files(videos).items()}
    goes_on = began_with(output, options.labels)
    table = None if goes_on or output.exists() else _unnamed(options.labels)
    begin = read_label_files([*options.labels], present=videos) if options.labels and not (goes_on or table) else None
    with ExitStack() as stack:
        opened = stack.enter_context(ExitStack())  # closed when the server has ended
        labelling = Labelling(output)

        def served(begin: Labels | None, choice: Choice | None = None) -> ASGIApp:
            origin = origin_of(options.labels, choice) if begin else None
            project = labelling.project = opened.enter_context(Project(output, begin, durations, origin))
            if begin and tell and not choice:  # else the page has told it
                for sentence in remarks(begin, videos):
                    tell(sentence)
            watched = opened.enter_context(Watched(videos))
            proposer = labelling.proposer = opened.enter_context(Proposer(project, videos, tell or (lambda text: None)))
            training = Training(project, options.videos, options.training, on_trained=proposer.begin)
            labelling.training = opened.enter_context(training)
            if options.model:
                proposer.begin(options.model)
            return Site(project, watched, proposer, lambda: labelling.server.ending, training).app()

        app = ColumnSite(table, videos, served).app() if table else served(begin)
        labelling.server = Server(app, port=options.port, kept=kept_address(output, home() / "pages"))
        stack.enter_context(labelling.server)
        yield labelling


def _unnamed(labels: Sequence[str]) -> UnnamedTable | None:
    """The one label file, where it is a table whose columns the page is to ask for."""
    return unnamed_table(Path(labels[0])) if len(labels) == 1 else None


def folder_of(videos: Sequence[str]) -> Path:
    """The folder of the first input: itself, or what holds the file or the pattern."""
    first = Path(videos[0])
    if first.is_dir():
        return first
    return next((path for path in first.parents if path.is_dir()), Path())


def origin_of(labels: Sequence[str], choice: Choice | None = None) -> dict[str, Any]:
    """The origin of a project that begins with label files, in JSON's types; empty without any."""
    if not labels:
        return {}
    said = {"columns": dict(choice.columns), "unit": choice.unit} if choice else {}
    return {"labels": [str(Path(path).absolute()) for path in labels], **said}


def began_with(output: Path, labels: Sequence[str]) -> bool:
    """Whether the project of a labels file has begun with these label files, so that it goes on."""
    journal = journal_of(output)
    if not labels or not journal.is_file():
        return False
    origins = [line["origin"] for line in read_jsonl(journal) if isinstance(line, dict) and "origin" in line]
    return bool(origins) and origins[-1].get("labels") == origin_of(labels)["labels"]
