"""A recorded source while it runs, a video file or stored features: it waits for its sinks and never drops a chunk."""

from collections.abc import Generator, Iterator
from time import monotonic

from lstr.errors import VideoError
from lstr.extractors.devices import choose_device, videos_at_once
from lstr.extractors.flow.workers import default_workers
from lstr.extractors.prefetch import Ahead, closed_after
from lstr.extractors.video.stretches import Gap
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.effort import Since
from lstr.pipelines.detection.events import Ended, SourceEvent
from lstr.pipelines.detection.running import Deciding, Ready, Running
from lstr.pipelines.detection.sink import End
from lstr.pipelines.detection.sources import Source
from lstr.pipelines.detection.warnings import warnings_of
from lstr.pipelines.progress import Notice

AHEAD = 1200
"""Decisions, five minutes, that are made of a source before those of the sources before it are out."""

MOST_AT_ONCE = 4
"""Unless more are named: each holds some tens of chunks in memory."""


class RecordedRun(Running):
    """The detection on one source: `begin` makes its decisions in a thread, `events` reports them.

    Close it where `events` is not taken to its end.
    """

    def __init__(self, source_id: str, source: Source, deciding: Deciding):
        super().__init__(source_id, source.origin, deciding, source.n_chunks)
        self.source = source
        self._n_told = 0
        self._ahead: Ahead[Decision] | None = None
        self._since: Since | None = None

    @property
    def can_begin(self) -> bool:
        """Whether it gains from it: networks and threads of flow are shared by several videos."""
        return self.source.video is not None

    def begin(self) -> None:
        """Make decisions from now on, a bounded number ahead of what is taken of them."""
        self._since = Since(self.deciding.effort)
        self._ahead = Ahead(self._made(), AHEAD, f"detection {self.id}")

    def end(self) -> None:
        """Make no more decisions."""
        if self._ahead:
            self._ahead.close()

    def events(self) -> Generator[SourceEvent | Notice, None, None]:
        """Each decision when its sinks have taken it. Raises what the source raises, or a sink that needs all."""
        source = self.source
        yield from self._news()
        self._since = self._since or Since(self.deciding.effort)
        try:
            yield self.open(self._since, source.video)
            with closed_after(self._ahead or self._made()) as decisions:
                for decision in decisions:
                    yield from self._news()
                    yield self.take(decision)
                    yield from self.troubles()
                    if self.left:
                        break
            if source.video and not self.status.decided and not self.left:
                raise _too_short(source.origin)
            warnings = [*warnings_of(self.deciding.loaded), *source.warnings]
            self.close(End(self.finish(), None if self.left else source.duration, warnings))
        except BaseException as error:
            self.close(End(error=error))
            raise
        finally:
            self.end()
        yield from self.troubles()
        if result := self.result:
            timeline, page = result
            yield Ended(self.id, timeline, page, self.last)

    def _news(self) -> Iterator[Notice]:
        """What is known of the source since it was last looked up; of frames some only as they come."""
        news = self.source.warnings[self._n_told :]
        self._n_told += len(news)
        yield from map(Notice, news)

    def _made(self) -> Iterator[Decision]:
        expected: int | None = None  # before the first chunk nothing is missing
        with self.deciding.streams.one() as stream, closed_after(self.source.rows) as rows:
            for row in rows:
                missing = expected is not None and row.index > expected
                gaps = [Gap(expected or 0, row.index, "unseen")] if missing else []
                expected = row.index + 1
                for _, decision in self.deciding.step(stream, [Ready(self, 0, row, monotonic(), gaps)]):
                    yield decision
        if self._since:  # afterwards it may wait until the sources before it are out
            self._since.stop()


def _too_short(origin: str) -> VideoError:
    """What a file fails with whose frames end before those that it promises, and before anything was decided."""
    return VideoError(
        f"{origin} ended before the first decision.",
        "a decision takes a quarter of a second of video, after `--start`; start earlier, or record it again.",
    )


def default_at_once(device: str | None) -> int:
    """Videos at once where nobody says how many: a GPU computes faster than one video is read; elsewhere reading and
    reports of one leave cores to the networks of another."""
    if (chosen := choose_device(device)) != "cpu":
        return videos_at_once(chosen)
    return min(MOST_AT_ONCE, 1 + default_workers() // 2)
