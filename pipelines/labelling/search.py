"""The search for proposals: a model goes through the videos of a project in another process.

`main` is that process. Its parent sends the model and the videos; it sends Progress, candidates, Failed, Notice and
errors.
"""

import os
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from lstr.chunk import CHUNK_SECONDS
from lstr.errors import CheckpointError, LstrError
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.networks.weights_file import sha256_of
from lstr.pipelines.child_process import ChildProcess, end, serve_parent
from lstr.pipelines.detection.options import choose_thresholds
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import find_candidates, propose
from lstr.pipelines.labelling.values import About, Proposal, Search
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.progress import Failed, Notice, Progress

PRIORITY = 10  # niceness of the process: the page comes first
HASH_DIGITS = 16  # of the SHA-256 of a model file, by which its proposals are known
POLL_S = 0.2


def find_proposals(
    model: Path, videos: Mapping[str, Path]
) -> Generator[Progress | tuple[str, list[Proposal]] | Failed | Notice, None, None]:
    """Search each video; yield its id with its candidates, or Failed. Raises the errors of `detect_sources`."""
    # Here, because they bring torch, which the page does not need.
    from lstr.pipelines.detection.decision import Decision, Ended, Opened
    from lstr.pipelines.detection.detect import DetectOptions, detect_sources
    from lstr.pipelines.detection.model import load_checkpoint
    from lstr.pipelines.detection.source import VideoSource

    loaded = load_checkpoint(model)
    thresholds = choose_thresholds(loaded)
    rows: list[np.ndarray] = []
    total = 0
    sources = [VideoSource(video, str(path)) for video, path in videos.items()]
    # one at a time, as all sources that are not paths: the first proposals come sooner, and it takes less memory
    with closing(detect_sources(sources, DetectOptions(loaded))) as events:
        for event in events:
            if isinstance(event, Opened):
                rows, total = [], event.status.total or 0
            elif isinstance(event, Decision):
                scores = event.scores
                n_missing = round(event.time / CHUNK_SECONDS) - 1 - len(rows)  # chunks without a decision
                rows += [np.zeros_like(scores)] * n_missing + [scores]
                yield Progress(event.source, len(rows), total)
            elif isinstance(event, Ended):
                yield event.id, find_candidates(np.stack(rows), loaded.classes, thresholds) if rows else []
            elif isinstance(event, Failed):
                yield Failed(event.id, event.reason, event.hint)
            elif isinstance(event, Notice):
                yield event


def main() -> None:
    """Run the process."""
    os.nice(PRIORITY)
    hint = "run it again with LSTR_DEBUG=1 and report the output."
    serve_parent(lambda connection: find_proposals(*connection.recv()), hint)


def check_model(model: Path) -> None:
    """Raise CheckpointError for what is not a model file or checkpoint, as far as that is known without torch."""
    if is_model(model):
        open_model(model)
    elif not model.is_file():
        hint = "name a model file, as `lstr learn` makes it, with -m FILE."
        raise CheckpointError(f"Model file not found: {model}.", hint)


@dataclass
class SearchStatus:
    """How far a search is: `done` of `total` videos, and the share of the current one.

    Attributes:
        model: Name of the model file; empty before the first search.
        failed: Videos that could not be read, with the reasons.
        trouble: Why the search ended early; empty if it did not.
    """

    model: str = ""
    is_running: bool = False
    done: int = 0
    total: int = 0
    video: str = ""
    share: float = 0.0
    failed: list[tuple[str, str]] = field(default_factory=list)
    trouble: str = ""


class Proposer(AbstractContextManager["Proposer"]):
    """Searches the videos of a project for proposals, one model at a time; use it as a context manager.

    Args:
        project: The labels.
        videos: The files by id.
        notify: Called with sentences for a person, from another thread.
    """

    def __init__(
        self, project: Project, videos: Mapping[str, Path], notify: Callable[[str], object] = lambda text: None
    ):
        self.project, self.videos, self.notify = project, videos, notify
        self.status = SearchStatus()
        self.process: ChildProcess | None = None
        self._models: queue.Queue[Path | None] = queue.Queue()  # None ends the thread
        self._thread = threading.Thread(target=self._work, name="proposals", daemon=True)
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._models.put(None)
        self._thread.join()

    def begin(self, model: Path) -> None:
        """Search with a model from now on, instead of the one before; return at once.

        Videos that are complete or that it has already searched are skipped.
        """
        self.status.model, self.status.is_running = model.name, True
        self._models.put(model)

    def _work(self) -> None:
        while (model := self._models.get()) is not None:
            self.status = SearchStatus(model.name, is_running=True)
            try:
                if self._models.empty():
                    self._search(model)
            except (LstrError, OSError) as error:
                self.status.trouble = f"{error} {getattr(error, 'hint', '')}".strip()
                self.notify(f"The search for proposals with {model} has stopped: {error}")
            self.status.is_running, self.status.video = not self._models.empty(), ""
        self.status.is_running = False

    def _search(self, model: Path) -> None:
        """Run a process until it has searched all videos, or another model or the end is waiting."""
        name, durations = sha256_of(model)[:HASH_DIGITS], self.project.durations
        _, state = self.project.snapshot()
        videos = {
            video: path
            for video, path in self.videos.items()
            if not state.abouts.get(video, About()).complete and state.searches.get(video) != Search(name)
        }
        self.status.total = len(videos)
        if not videos:
            return
        child = self.process = ChildProcess(__name__, default_workers())
        try:
            child.send((model, videos))
            while self._models.empty():  # another model, or the end, stops this search
                try:
                    event = child.connection.recv() if child.connection.poll(POLL_S) else None
                except (EOFError, OSError):
                    if child.process.wait() and self._models.empty():
                        hint = "run the same command again, with more free memory; proposals found so far are kept."
                        reason = f"The process that searches for proposals ended ({child.describe_exit()})."
                        raise LstrError(reason, hint) from None
                    return
                match event:
                    case LstrError():
                        raise event
                    case Progress(video, done, total):
                        self.status.video, self.status.share = video, done / max(1, total)
                    case Notice(text):
                        self.notify(text)
                    case Failed(video, reason):
                        self.status.done += 1
                        self.status.failed.append((video, reason))
                        self.notify(f"{video} is skipped in the search for proposals: {reason}")
                    case (video, found):
                        make = partial(
                            propose, video=video, model=name, candidates=found, duration=durations.get(video)
                        )
                        self.project.propose(video, make)
                        self.status.done, self.status.share = self.status.done + 1, 0.0
        finally:
            child.connection.close()
            end([child])
