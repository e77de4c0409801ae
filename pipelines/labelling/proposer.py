"""Proposals that come while a page is in use: a model looks through the videos in a process of its own, below the page.

`main` is that process, which its parent sends a SearchJob; it sends Progress, Found, Failed and Notice, or an error.
"""

import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CHUNK_SECONDS
from lstr.errors import CheckpointError, LstrError
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.networks.published_files import sha256_of
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.child_process import ChildProcess, end, serve_parent, tell_parent
from lstr.pipelines.evaluation.threshold_choice import choose_thresholds
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import Candidate, candidates_of, proposed
from lstr.pipelines.labelling.values import About, Search
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.progress import Failed, Notice, Progress

# So much lower than the page's is the priority of the process.
NICE = 10


@dataclass(frozen=True)
class SearchJob:
    """A model file or checkpoint, and the videos in which it looks, by id."""

    model: Path
    videos: Mapping[str, Path]


@dataclass(frozen=True)
class Found:
    """A video has been looked through."""

    video: str
    candidates: tuple[Candidate, ...]


SearchEvent = Progress | Found | Failed | Notice


class ScoredChunks:
    """Rows of scores (C,); chunks without a decision have none above 0."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.floating]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, time: float, scores: NDArray[Any]) -> None:
        """Add the scores (C,) of the chunk that ends at `time`, in seconds."""
        while len(self._rows) < round(time / CHUNK_SECONDS) - 1:
            self._rows.append(np.zeros_like(scores))
        self._rows.append(scores)

    def rows(self) -> NDArray[np.floating]:
        """All of them (L, C). Raises ValueError where there are none."""
        return np.stack(self._rows)


class SearchProcess(ChildProcess):
    """A process that does a SearchJob."""

    def __init__(self, job: SearchJob):
        super().__init__(__name__, default_workers())
        self.send(job)


def search(job: SearchJob) -> Generator[SearchEvent, None, None]:
    """Look for candidates in each video; one that cannot be read has Failed. Raises as `detect_sources`."""
    # Here, because they bring torch, which the page does not need.
    from lstr.pipelines.detection.checkpoint import load_checkpoint
    from lstr.pipelines.detection.decision import Decided, Ended, Opened
    from lstr.pipelines.detection.detect import DetectOptions, detect_sources
    from lstr.pipelines.detection.source import VideoSource

    loaded = load_checkpoint(job.model)
    scored: dict[str, ScoredChunks] = {}
    totals: dict[str, int] = {}
    sources = [VideoSource(video, str(path)) for video, path in job.videos.items()]
    with closing(detect_sources(sources, DetectOptions(loaded, at_once=1))) as events:
        for event in events:
            if isinstance(event, Opened):
                scored[event.id], totals[event.id] = ScoredChunks(), event.status.total or 0
            elif isinstance(event, Decided):
                scored[event.id].take(event.decision.time, event.decision.scores)
                yield Progress(event.id, len(scored[event.id]), totals[event.id])
            elif isinstance(event, Ended):
                yield Found(event.id, _proposed(loaded, scored.pop(event.id)))
            elif isinstance(event, Failed):
                yield Failed(event.id, event.reason, event.hint)
            elif isinstance(event, Notice):
                yield event


def _proposed(loaded: Checkpoint, scored: ScoredChunks) -> tuple[Candidate, ...]:
    """What the scores of a video propose by the model's own thresholds."""
    return tuple(candidates_of(scored.rows(), loaded.classes, choose_thresholds(loaded))) if scored else ()


def _serve(connection: Connection) -> None:
    os.nice(NICE)
    tell_parent(connection, search(connection.recv()), "run it again with LSTR_DEBUG=1, and report what it prints.")


def main() -> None:
    """What the process runs."""
    serve_parent(_serve)


# So many first digits of the SHA-256 of a model file tell its proposals from those of others.
HASH_DIGITS = 16
GLANCE = 0.2  # seconds between two looks at whether a search is to end


def check_model(model: Path) -> None:
    """Raise CheckpointError for what is no model file or checkpoint, as far as that is told without torch."""
    if is_model(model):
        open_model(model)
    elif not model.is_file():
        raise CheckpointError(
            f"There is no model {model}.", "name a model file, as `lstr learn` makes it, with -m FILE."
        )


@dataclass(frozen=True)
class Searched:
    """How far a search is: `done` of `total` videos, and the chunks of the one that is looked through now."""

    model: str = ""
    """The name of its file; empty before the first search."""
    is_running: bool = False
    done: int = 0
    total: int = 0
    video: str = ""
    share: float = 0.0
    """How much of that video, from 0 to 1."""
    failed: tuple[tuple[str, str], ...] = ()
    """Videos that could not be read, and why."""
    trouble: str = ""
    """Why the search ended before its time; empty where it did not."""

    def to_dict(self) -> dict[str, Any]:
        """Its JSON object."""
        return asdict(self)


@dataclass
class Proposer:
    """Lets models propose in the videos of a project, one model at a time; use it as a context manager.

    tell: gets a sentence of what a person should know, from another thread.
    """

    project: Project
    videos: Mapping[str, Path]
    tell: Callable[[str], object] = lambda text: None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _running: "_Running | None" = field(default=None, repr=False)

    def begin(self, model: Path) -> None:
        """Let this model file or checkpoint propose from now on, in place of the one before; returns at once.

        Videos that are complete, or through which it has looked already, are passed over.
        """
        with self._lock:
            before, self._running = self._running, _Running(self, model)
            self._running.start(before)

    def searched(self) -> Searched:
        """How far the newest search is."""
        running = self._running
        return running.searched if running else Searched()

    @property
    def process(self) -> Popen[bytes] | None:
        """The process of the newest search; None before it has one."""
        return self._running.process.process if self._running and self._running.process else None

    def settle(self) -> None:
        """Wait until the newest search is over."""
        if self._running:
            self._running.thread.join()

    def close(self) -> None:
        """End the search; what it has found in whole videos stays."""
        with self._lock:
            if self._running:
                self._running.end()

    def __enter__(self) -> "Proposer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Running:
    """A search, in a thread that waits for its process."""

    def __init__(self, proposer: Proposer, model: Path):
        self.proposer, self.model = proposer, model
        self.searched = Searched(model.name, is_running=True)
        self.process: SearchProcess | None = None
        self._leaving = threading.Event()
        self.thread = threading.Thread(target=self._work, name=f"proposals of {model.name}", daemon=True)
        self._before: _Running | None = None

    def start(self, before: "_Running | None") -> None:
        """Begin when the search before has ended."""
        self._before = before
        if before:
            before.leave()
        self.thread.start()

    def leave(self) -> None:
        """Let it end soon."""
        self._leaving.set()

    def end(self) -> None:
        """End it now."""
        self.leave()
        self.thread.join()

    def _work(self) -> None:
        if self._before:
            self._before.thread.join()
            self._before = None
        try:
            self._search()
        except (LstrError, OSError) as error:
            self._tell(trouble=" ".join(filter(None, [str(error), getattr(error, "hint", "")])))
            self.proposer.tell(f"{self.model} proposes no more: {error}")
        finally:
            self._tell(is_running=False, video="")

    def _tell(self, **changes: Any) -> None:
        self.searched = replace(self.searched, **changes)

    def _search(self) -> None:
        project = self.proposer.project
        self._hash = sha256_of(self.model)[:HASH_DIGITS]
        _, state = project.snapshot()
        left = {
            video: path
            for video, path in self.proposer.videos.items()
            if not state.abouts.get(video, About()).complete and state.searches.get(video) != Search(self._hash)
        }
        self._tell(total=len(left))
        if not left or self._leaving.is_set():
            return
        process = self.process = SearchProcess(SearchJob(self.model, left))
        try:
            for event in self._events(process):
                self._take(event)
        finally:
            process.connection.close()
            end([process] if process.process.poll() is None else [])

    def _events(self, process: SearchProcess) -> Iterator[object]:
        """What a process sends, until it ends or is to. Raises LstrError where it dies."""
        while not self._leaving.is_set():
            try:
                if process.connection.poll(GLANCE):
                    yield process.connection.recv()
            except (EOFError, OSError):
                if process.process.wait() and not self._leaving.is_set():
                    hint = "is memory short? run the same command again; what it has found stays."
                    raise LstrError(f"The process that looks for proposals ended ({process.death()}).", hint) from None
                return

    def _take(self, event: object) -> None:
        if isinstance(event, LstrError):
            raise event
        done = self.searched.done
        if isinstance(event, Progress):
            self._tell(video=event.what, share=event.done / max(1, event.total))
        elif isinstance(event, Notice):
            self.proposer.tell(event.text)
        elif isinstance(event, Failed):
            self._tell(done=done + 1, failed=(*self.searched.failed, (event.id, event.reason)))
            self.proposer.tell(f"no proposals in {event.id}: {event.reason}")
        elif isinstance(event, Found):
            project, duration = self.proposer.project, self.proposer.project.durations.get(event.video)
            project.propose(
                event.video,
                lambda state, history: proposed(state, history, event.video, self._hash, event.candidates, duration),
            )
            self._tell(done=done + 1, share=0.0)
