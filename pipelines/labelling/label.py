"""`lstr label`: open the project of some videos and serve its page."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lstr.errors import LabelsError, few
from lstr.extractors.video.inputs import find_videos
from lstr.files.atomic import check_writable
from lstr.files.content import read_jsonl
from lstr.files.home import home
from lstr.labels.label_set import Labels
from lstr.labels.video_ids import mismatch_of
from lstr.pipelines.annotations.label_files import read_label_files
from lstr.pipelines.annotations.videos import footage_of_files
from lstr.pipelines.labelling.project import Project, journal_of
from lstr.pipelines.labelling.search import Proposer, check_model
from lstr.pipelines.labelling.site import Site, Videos
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.pages.server import SavedAddress, Server

NAME = "labels.json"
# Kinds of notes that need no attention here: videos need no subset, and ids come from the names of the files
USUAL_NOTES = ("no subsets", "id with ending")


@contextmanager
def label(
    videos: Sequence[str],
    output: Path | None = None,
    labels: Sequence[str] = (),
    *,
    port: int | None = None,
    model: Path | None = None,
    notify: Callable[[str], object] = lambda text: None,
) -> Iterator[Site]:
    """Serve the page of some videos; yield its application. The labels are in their file at the end.

    Args:
        videos: Files, folders and patterns.
        output: The labels file; by default labels.json in the folder of the videos.
        labels: Label files of any format with which a new project starts.
        port: Where the page is served; by default where it was last.
        model: A model file or checkpoint that proposes labels while the page is open.
        notify: Called with sentences for a person, also from other threads.

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
    others = [path.name for path in (own, *map(Path, labels))]
    found = find_videos(videos, None, notify, others)
    if output is None:
        first = Path(videos[0])
        output = first if first.is_dir() else next((path for path in first.parents if path.is_dir()), Path())
    path = output / NAME if output.is_dir() else output
    if path.suffix.lower() != ".json":
        raise LabelsError(f"{path} is not a JSON file.", "name a file ending in .json with -o.")
    check_writable(path.parent)
    durations = {name: round(seconds, 6) for name, (seconds, *_) in footage_of_files(found).items()}
    sources = [str(Path(name).absolute()) for name in labels]
    lines = read_jsonl(journal_of(path)) if journal_of(path).is_file() else []
    origins = [line["origin"] for line in lines if isinstance(line, dict) and "origin" in line]
    # the same command resumes what it began, instead of reporting that the labels exist
    is_new = not (origins and origins[-1].get("labels") == sources)
    begin = read_label_files(labels, present=found) if labels and is_new else None
    # its port before the project, because a port in use must not leave a new project
    server = Server(lambda *call: site.app(*call), port=port, saved=SavedAddress(path, home() / "pages"))
    with ExitStack() as stack:
        project = stack.enter_context(Project(path, begin, durations, {"labels": sources} if begin else None))
        for sentence in remarks(begin, found) if begin else ():
            notify(sentence)
        served = stack.enter_context(Videos(found))
        proposer = stack.enter_context(Proposer(project, found, notify))
        trainer = stack.enter_context(Training(project, videos, proposer.begin))
        if model:
            proposer.begin(model)
        site = Site(served, proposer, trainer, server)
        stack.enter_context(server)
        yield site


def remarks(begin: Labels, videos: Collection[str]) -> Iterator[str]:
    """Yield sentences on how labels were read for a project of these videos, and on labels that it does not show."""
    yield from (note.sentence for note in begin.notes if note.kind not in USUAL_NOTES)
    segments = [segment for video in begin.videos.values() for segment in video.segments]
    points = [segment.label for segment in segments if segment.end <= segment.start]
    if points:
        names = few(sorted(set(points)))
        yield f"{len(points)} of {len(segments)} labels have no duration (point events) and are skipped: {names}"
    missing = sorted(name for name in begin.videos if name not in videos)
    if sentence := mismatch_of(begin.videos, videos):
        yield sentence
    elif missing:
        yield f"{len(missing)} of {len(begin.videos)} labelled videos are not open here: {few(missing)}"
