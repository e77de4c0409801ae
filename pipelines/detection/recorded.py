"""Detection on recorded sources, video files or stored features: several are decided at once, and come in order."""

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

from lstr.checkpoints.loaded import Checkpoint
from lstr.extractors.devices import choose_device, videos_at_once
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.prefetch import Ahead, closed_after
from lstr.extractors.stages import WRITE
from lstr.pipelines.detection.checkpoint import warnings_of
from lstr.pipelines.detection.decision import Decision, decide
from lstr.pipelines.detection.effort import Effort, Since
from lstr.pipelines.detection.events import Decided, Ended, Opened
from lstr.pipelines.detection.sources import Source, Unreadable
from lstr.pipelines.detection.status import Status
from lstr.pipelines.detection.streams import SharedStreams
from lstr.pipelines.detection.writer import NO_FILES, OutputOptions, SourceWriter
from lstr.timeline import Thresholds, Timeline, thresholds_of

AHEAD = 1200
"""Decisions, five minutes, that are made of a source before those of the sources before it are out."""

MOST_AT_ONCE = 4
"""Unless more are named: each holds some tens of chunks in memory."""


@dataclass(frozen=True)
class Deciding:
    """How the decisions on a job's recorded sources are made."""

    loaded: Checkpoint
    thresholds: Thresholds | Mapping[str, Thresholds] | None = None
    """The checkpoint's where it is None."""
    precision: str = "float32"
    """As for `lstr.streaming.create`."""
    effort: Effort = field(default_factory=Effort)

    @cached_property
    def streams(self) -> SharedStreams:
        """Of the model, which its sources share."""
        return SharedStreams(self.loaded.model, self.precision)


class RecordedRun:
    """The detection on one source: `begin` makes its decisions in a thread, `run` writes and reports them.

    Close it where `run` is not taken to its end.
    """

    def __init__(self, source: Source, deciding: Deciding):
        self.source, self.deciding = source, deciding
        thresholds = thresholds_of(deciding.loaded) if deciding.thresholds is None else deciding.thresholds
        self._timeline = Timeline(deciding.loaded.classes, thresholds)
        self._ahead: Ahead[Decision] | None = None
        self._since: Since | None = None

    @property
    def can_begin(self) -> bool:
        """Whether it gains from it: networks and threads of flow are shared by several videos."""
        return self.source.video is not None

    def begin(self) -> None:
        """Make decisions from now on, a bounded number ahead of what is taken of them."""
        self._since = Since(self.deciding.effort)
        self._ahead = Ahead(self._decisions(), AHEAD, f"detection {self.source.id}")

    def close(self) -> None:
        """Make no more."""
        if self._ahead:
            self._ahead.close()

    def run(self, output: OutputOptions = NO_FILES) -> Generator[Opened | Decided | Ended, None, dict]:
        """Write as it goes: each decision comes after its line is out. Returns the timeline."""
        source, loaded = self.source, self.deciding.loaded
        status = Status(source.id, source.n_chunks)
        since = self._since = self._since or Since(self.deciding.effort)
        with closing(self), SourceWriter(source.id, source.origin, loaded, self._timeline, output, since) as writer:
            yield Opened(source.id, status, loaded.classes)
            with closed_after(self._ahead or self._decisions()) as decisions:
                for decision in decisions:
                    status.decide(decision.time, decision.latency_ms, status.decided + 1, loaded.config)
                    with WRITE:
                        writer.take(decision)
                    yield Decided(source.id, decision)
            with WRITE:
                document = writer.finish(source.duration, source.video, [*warnings_of(loaded), *source.warnings])
        yield Ended(source.id, document, writer.page)
        return document

    def _decisions(self) -> Iterator[Decision]:
        deciding = self.deciding
        with (
            deciding.streams.one() as state,
            closed_after(decide(deciding.loaded, self.source.rows, self._timeline, state)) as made,
        ):
            for decision in made:
                deciding.effort.count()
                yield decision
        if self._since:  # afterwards it may wait until the sources before it are out
            self._since.stop()


def default_at_once(device: str | None) -> int:
    """Videos at once where nobody says how many: a GPU computes faster than one video is read; elsewhere reading and
    reports of one leave cores to the networks of another."""
    if (chosen := choose_device(device)) != "cpu":
        return videos_at_once(chosen)
    return min(MOST_AT_ONCE, 1 + default_workers() // 2)


def runs_of(
    opened: Iterator[Source | Unreadable], deciding: Deciding, at_once: int
) -> Generator[RecordedRun | Unreadable, None, None]:
    """The runs of sources in their order, each to be taken to its end; of videos the next `at_once` - 1 are begun too.

    What `opened` raises is raised after the runs that it yielded before.
    """
    waiting: deque[RecordedRun | Unreadable] = deque()
    failure: Exception | None = None
    ended = False
    try:
        while True:
            # stored features run alone: with the networks of a video behind them they would have other threads
            while not ended and len(waiting) < at_once and (not waiting or _lets_begin(waiting[-1])):
                try:
                    source = next(opened)
                except StopIteration:
                    ended = True
                    continue
                except Exception as error:
                    failure, ended = error, True
                    continue
                run = source if isinstance(source, Unreadable) else RecordedRun(source, deciding)
                waiting.append(run)
                if at_once > 1 and isinstance(run, RecordedRun) and run.can_begin:
                    run.begin()
            if not waiting:
                break
            yield waiting.popleft()
        if failure:
            raise failure
    finally:
        for run in waiting:
            if isinstance(run, RecordedRun):
                run.close()


def _lets_begin(run: RecordedRun | Unreadable) -> bool:
    return isinstance(run, Unreadable) or run.can_begin


def run_recorded(
    source: Source,
    loaded: Checkpoint,
    output: OutputOptions = NO_FILES,
    thresholds: Thresholds | Mapping[str, Thresholds] | None = None,
    precision: str = "float32",
) -> Generator[Opened | Decided | Ended, None, dict]:
    """Detect on one source, writing as it goes: each decision comes after its line is out. Returns the timeline.

    Files other than the JSONL appear when the source is over, and not where it fails or the run is interrupted.
    `thresholds` are the checkpoint's without others. Raises what reading the source raises, and OutputError.
    """
    return (yield from RecordedRun(source, Deciding(loaded, thresholds, precision)).run(output))
