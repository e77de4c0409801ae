"""The process that looks for proposals: a model detects in one video after the other, beside the page and below it.

`main` is that process, which its parent sends a SearchJob; it sends Progress, Found, Failed and Notice, or an error.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.checkpoints.loaded import Checkpoint
from lstr.chunk import CHUNK_SECONDS
from lstr.extractors.flow.workers import default_workers
from lstr.pipelines.child_process import ChildProcess, serve_parent, tell_parent
from lstr.pipelines.labelling.candidates import Candidate, candidates_of
from lstr.pipelines.progress import Failed, Notice, Progress
from lstr.pipelines.thresholds.choice import choose_thresholds

NICE = 10
"""So much lower than the page's is the priority of the process."""


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
