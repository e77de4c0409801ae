"""A source while it runs: what a video and a camera have in common, and the step that makes the decisions of both."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import OutputError
from lstr.extractors.run import FeatureRow
from lstr.extractors.video.stretches import Gap
from lstr.pipelines.detection.decision import Decision, decision_of
from lstr.pipelines.detection.effort import Effort, Since
from lstr.pipelines.detection.events import Decided, Opened
from lstr.pipelines.detection.files import NO_FILES, Files, OutputOptions, dated
from lstr.pipelines.detection.json_lines import JsonLines
from lstr.pipelines.detection.sink import End, Feed, MakeSink, Outlet, Sink
from lstr.pipelines.detection.status import Status
from lstr.pipelines.detection.streams import SharedStreams, Streams
from lstr.pipelines.failures import failure_of
from lstr.pipelines.progress import Notice
from lstr.timeline import Event, Thresholds, Timeline, thresholds_of


class Running:
    """A source that is decided: its timeline, its status, and where its decisions go."""

    live = False
    """Whether it goes on whatever its sinks do."""
    named = False
    """Whether a person has given it a name."""

    def __init__(self, source_id: str, origin: str, deciding: "Deciding", total: int | None = None):
        self.id, self.origin, self.deciding = source_id, origin, deciding
        self.timeline = Timeline(deciding.loaded.classes, deciding.rules, deciding.loaded.clock)
        self.status = Status(source_id, total, chunk_seconds=self.timeline.clock.seconds)
        self.outlets: list[Outlet] = []
        self.left = False
        """Nobody wants more decisions on it."""
        self.lost: Exception | None = None
        """What a sink that needs all has failed with."""
        self._begun: dict[str, datetime] = {}
        """When the actions that are on began, on the clock of the wall."""
        self.last: tuple[Event, ...] = ()
        """Events that its end has brought."""
        self.at: datetime | None = None
        """When the newest decision on a live source was due, on the clock of the wall."""

    @property
    def called(self) -> str:
        """What a person calls it: its name with its path or address, or these alone."""
        return f"{self.id} ({self.origin})" if self.named else self.origin

    def open(self, since: Since, video: Path | None = None) -> Opened:
        """Open its sinks. Raises what one raises that needs all and is waited for."""
        refresh = self.refresh if self.live else None
        folder = self.deciding.output.folder
        name = dated(self.id, folder) if self.live and folder else ""
        classes = self.deciding.loaded.classes
        opened = Opened(self.id, self.status, classes, refresh, self.origin, video, name, self.named)
        for sink in self.deciding.sinks_of(self, since):
            self.outlets.append(Feed(sink, self.deciding.changed) if self.live else Outlet(sink))
            self.outlets[-1].open(opened)
        return opened

    def refresh(self) -> Status:
        """Its status, as of now."""
        return self.status

    def take(self, decision: Decision) -> Decided:
        """Hand a decision to the sinks. Raises what one raises that needs all and is waited for."""
        self.at = decision.at
        self.status.decide(decision.time, decision.latency_ms)
        for outlet in self.outlets:
            outlet.take(decision)
        return Decided(self.id, decision)

    def finish(self) -> list[Event]:
        """The events that its end brings."""
        return self.with_walls(self.timeline.finish(self.status.time), self.at)

    def with_walls(self, events: list[Event], at: datetime | None) -> list[Event]:
        """Events of one moment, `at` on the clock of the wall, with that of each start and end; an action has one."""
        if at is None:
            return events
        dated = []
        for event in events:
            start = at - timedelta(seconds=event.time - event.start)
            if event.event == "started":
                self._begun[event.label] = start
            elif event.event == "ended":
                start = self._begun.pop(event.label, start)
            end = None if event.end is None else max(start, at - timedelta(seconds=event.time - event.end))
            dated.append(replace(event, at=at, start_at=start, end_at=end))
        return dated

    def close(self, end: End) -> None:
        """Close the sinks; raises as `take`."""
        self.last = tuple(end.events)
        for outlet in self.outlets:
            outlet.close(end)

    @property
    def result(self) -> tuple[dict, Path | None] | None:
        """Its timeline, empty where none is kept, and its page, once its sinks are closed; None without a decision."""
        if not self.deciding.output.timeline:
            return ({}, None) if self.status.decided else None
        return self.outlets[0].result if self.outlets else None

    def troubles(self) -> Iterator[Notice]:
        """What its sinks have failed with since the last call. Raises as `failure_of`; a full disk ends no live one."""
        for outlet in self.outlets:
            if outlet.told or (error := outlet.error) is None:
                continue
            outlet.told = True
            try:
                reason = failure_of(error, self.called).reason
            except OutputError as full:
                if not self.live:
                    raise
                error, reason = full, str(full)
            if outlet.sink.needs_all:
                self.lost = self.lost or error
            yield Notice(f"{reason} The decisions on {self.called} go on without {outlet.sink.name}.")

    def fail(self, error: Exception) -> None:
        """It cannot be decided any more."""
        raise error


@dataclass(frozen=True)
class Ready:
    """A chunk of a source whose features are there."""

    source: Running
    place: int
    """In the model's state."""
    row: FeatureRow
    since: float
    """When it was closed, or its features were there, on the monotonic clock."""
    gaps: Sequence[Gap] = ()
    """What of the source is missing before it."""
    at: datetime | None = None
    """When a chunk of a live source was closed, on the clock of the wall."""


@dataclass(frozen=True)
class Deciding:
    """How the decisions on all sources of a session are made, and what becomes of them."""

    loaded: Checkpoint
    thresholds: Thresholds | Mapping[str, Thresholds] | None = None
    """The checkpoint's where it is None."""
    on_gap: str = "keep"
    """What the model remembers after a live source was away: `keep` all, or `reset`."""
    output: OutputOptions = NO_FILES
    sinks: Sequence[MakeSink] = ()
    """What each source has beside its files and lines."""
    named: bool = False
    """Whether lines of live sources in one stream, and what is told of each, say whose they are."""
    effort: Effort = field(default_factory=Effort)
    kept: SharedStreams | None = None
    """Streams of the model that outlive the session."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    """Notified when anything happens to a live source."""

    @cached_property
    def rules(self) -> Thresholds | Mapping[str, Thresholds]:
        """The thresholds in use."""
        return thresholds_of(self.loaded) if self.thresholds is None else self.thresholds

    @cached_property
    def streams(self) -> SharedStreams:
        """Streams of the model, which recorded sources share."""
        return self.kept or SharedStreams(self.loaded)

    def sinks_of(self, source: Running, since: Since) -> Iterator[Sink]:
        """The sinks of a source, the one that gives its timeline first, where one is kept."""
        output = self.output
        if output.timeline:
            yield Files(self.loaded, output, source.timeline.describe(), since)
        if output.lines:
            yield JsonLines(output.lines, source.live and (self.named or source.named), output.events_only)
        if output.folder and "jsonl" in output.formats:
            yield JsonLines(output.folder, events_only=output.events_only)
        yield from (make() for make in self.sinks)

    def step(self, streams: Streams, ready: Sequence[Ready]) -> Iterator[tuple[Running, Decision]]:
        """The causal step of all sources: a chunk's features in, at most one of each; each with its decision out."""
        if self.on_gap == "reset" and (away := [r.place for r in ready if any(g.reason == "unseen" for g in r.gaps)]):
            streams.reset(away)
        for one, scores in _scored(streams, ready):
            latency_ms = (monotonic() - one.since) * 1000
            try:
                decision = decision_of(self.loaded, one.source.timeline, one.row, scores, latency_ms, one.gaps, one.at)
                events = one.source.with_walls(decision.events, one.at)
                decision = replace(decision, events=events, source=one.source.id)
            except Exception as error:
                one.source.fail(error)
                continue
            self.effort.count(self.loaded.clock.seconds)
            yield one.source, decision


def _scored(streams: Streams, ready: Iterable[Ready]) -> Iterator[tuple[Ready, NDArray[np.float32]]]:
    """Each with its scores (1 + n_ahead, C): of all in one step, or where that fails of each in its own."""
    waiting = list(ready)
    if not waiting:
        return
    try:
        scores = streams.step([one.place for one in waiting], [one.row for one in waiting])
    except Exception as error:
        if len(waiting) == 1:
            waiting[0].source.fail(error)
        else:
            for one in waiting:
                yield from _scored(streams, [one])
        return
    yield from zip(waiting, scores, strict=True)
