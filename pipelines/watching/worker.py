"""Detection on the sources of one model, in a thread: a session that starts again whenever sources are wanted.

A source that ends or fails is opened again after a while: first after seconds, later after minutes. No error of a
source ends the thread.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from lstr.errors import CheckpointError, ExhaustedError, ExtractorError, LstrError, brief
from lstr.extractors.video.inputs import LiveOptions, parse_live
from lstr.labels.label_set import actions_of
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Decision, Ended, Opened, SourceEvent, Status
from lstr.pipelines.detection.model import Networks, find_checkpoint, load_checkpoint
from lstr.pipelines.detection.session import Session
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed, Notice
from lstr.pipelines.watching.config import ActionConfig, SourceConfig, actions_in
from lstr.timeline import DEFAULT, Thresholds, changed, thresholds_of

RETRY_S = (5.0, 15.0, 60.0, 300.0)  # before a source that has ended or failed is opened again
STABLE_S = 600.0  # of detection after which the next failure of a source counts as its first
SPARE_PLACES = 8  # for sources that are added later
POLL_S = 0.5


@dataclass
class Attempt:
    """When a source is opened next, and how often it has failed."""

    at: float = 0.0
    failures: int = 0
    opened: float = 0.0
    error: str = ""  # the error that the log has, until the source is decided again
    # whether it has ended by itself. An HLS event is a recording then, which is not decided again.
    is_over: bool = False


class Worker(AbstractContextManager["Worker"]):
    """A model and its sources; use it as a context manager, call `tick` every second. Usable from any thread.

    Args:
        model: The model file, None for the default model.
        service: The service of its sources.
    """

    def __init__(self, model: Path | None, service: Any):
        self.model, self._service = model, service
        self._name = model.name if model else "the default model"
        self._log, self._dashboard, self._clips = service.log, service.dashboard, service.clips
        self.actions: list[str] = []
        """The actions that its model knows; before it is loaded, as the file says."""
        with suppress(CheckpointError, ExtractorError):  # the thread reports it
            self.actions = actions_in(find_checkpoint(model))
        self.alive = monotonic()
        """When the thread was last seen to make progress."""
        self._changed = threading.Condition()
        self._wanted: dict[str, SourceConfig] = {}
        self._attempts: dict[str, Attempt] = {}
        self._session: Session | None = None
        # sources of the session
        self._inside: set[str] = set()
        # sources that were removed from it and have not ended yet
        self._leaving: set[str] = set()
        self._places = 0
        # whether the session has too few places: nothing is added to it, so that it ends
        self._is_stale = False
        self._ending = False
        self.thread = threading.Thread(target=self._run, name="detection", daemon=True)
        self.thread.start()

    @property
    def wanted(self) -> list[str]:
        """The names of its sources."""
        with self._changed:
            return list(self._wanted)

    def set_sources(self, sources: Mapping[str, SourceConfig]) -> None:
        """Detect on these sources from now on. Those that it had continue."""
        with self._changed:
            for name in self._wanted.keys() - sources.keys():
                self._remove(name)
            self._wanted = dict(sources)
            if self._session and not self._is_stale and len(sources) > self._places:
                self._log(f"{self._name}: all sources are opened again, to make room for {len(sources)}.")
                self._is_stale = True
                for name in [*self._inside]:
                    self._remove(name)
            self._add_due()
            self._changed.notify_all()

    def status(self) -> dict[str, Status]:
        """Return the status of each source that is read now."""
        session = self._session
        return session.status() if session else {}

    def tick(self) -> None:
        """Open sources that are due."""
        with self._changed:
            if self._session and not any(status.waiting for status in self._session.status().values()):
                self.alive = max(self.alive, self._session.alive)  # there is nothing to decide
            self._add_due()

    def __exit__(self, *exception: object) -> None:
        """End the thread; the sources' sinks get what was decided."""
        self.end()
        self.thread.join(4)

    def end(self) -> None:
        """Let the thread end soon."""
        with self._changed:
            self._ending = True
            for name in [*self._inside]:
                self._remove(name)
            self._changed.notify_all()

    def _remove(self, name: str) -> None:
        self._attempts.pop(name, None)
        if self._session and name in self._inside:
            with suppress(KeyError):  # it has ended, and its event is on its way
                (self._leaving.add if self._session.remove(name) else self._inside.discard)(name)

    def _run(self) -> None:
        failures = 0
        while not self._ending:
            began, is_lost = monotonic(), False
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._ending or self._due(), POLL_S)
                    self.alive = monotonic()
                    if self._ending or not self._due():
                        continue
                self._detect()
                continue
            except LstrError as error:
                reason = f"{error} {error.hint}".strip()
                is_lost = isinstance(error, ExhaustedError)
            except Exception as error:  # an error of a library must not end other models and the page
                reason = f"Detection with {self._name} stopped unexpectedly ({brief(error)}) and starts again."
            finally:
                with self._changed:
                    self._session, self._inside, self._leaving = None, set(), set()
            self._log(reason)
            for name in self.wanted:
                self._dashboard.update_source(name, trouble=reason)
            failures = 0 if monotonic() - began > STABLE_S else failures + 1
            until = monotonic() + RETRY_S[min(failures, len(RETRY_S)) - 1]
            with self._changed:
                while not self._ending and monotonic() < until:
                    self._changed.wait_for(lambda: self._ending, min(POLL_S, until - monotonic()))
                    if not is_lost:  # a lost GPU comes back only when a supervisor starts the service again
                        self.alive = monotonic()

    def _detect(self) -> None:
        """Run sessions until no source is due."""
        # loaded each time, because the model file may have been replaced
        loaded = load_checkpoint(self.model)
        self.actions = actions_of(loaded.classes)
        log = FailureLog(None, keeps_list=False)
        with closing(Networks(loaded)) as networks:
            networks.open()
            while not self._ending and self._due():
                with self._changed:
                    self._is_stale, self._places = False, len(self._wanted) + SPARE_PLACES
                    rules = rules_of(loaded, self._service.config.actions)
                    session = self._session = Session(
                        loaded,
                        networks,
                        self._places,
                        thresholds=rules,
                        output=None,  # of weeks it would be gigabytes
                        sinks=self._service.make_sinks(loaded),
                        log=log,
                        packets=self._clips.ring if self._clips else None,
                        frames=self._dashboard.take_frame,
                        zones=lambda name: self._service.zones.get(name, ()),
                        live=LiveOptions(timeout=self._service.config.timeout),
                    )
                with session:
                    with self._changed:
                        self._add_due()
                    self._follow(session.events(), log, rules)
                    with self._changed:
                        self._session, self._inside, self._leaving = None, set(), set()
                with self._changed:
                    self._changed.wait_for(lambda: self._ending or self._due(), POLL_S)

    def _follow(self, events: Iterator[SourceEvent], log: FailureLog, rules: Mapping[str, Thresholds]) -> None:
        """Report what happens to the sources of a session until it ends."""
        for event in events:
            self.alive = monotonic()
            if isinstance(event, Notice):
                self._log(event.text)
            elif isinstance(event, Opened):
                with self._changed:
                    self._attempts.setdefault(event.id, Attempt()).opened = monotonic()
                self._dashboard.update_source(event.id, thresholds=rules)
                if self._clips:
                    delays = [rule.min_length + rule.backdate for rule in rules.values()]
                    self._clips.set_delay(event.id, max(delays, default=0.0))
            elif isinstance(event, Decision):
                with self._changed:
                    attempt = self._attempts.setdefault(event.source, Attempt())
                    is_back, attempt.error = bool(attempt.error), ""
                if is_back:  # not when it is opened: a camera that was found may send nothing
                    self._log(f"{event.source}: connected again.")
            elif isinstance(event, Failed):
                self._fail(event.id, event.reason)
                log.events.clear()  # it would grow for weeks
            elif isinstance(event, Ended):
                self._schedule(event.id)

    def _due(self) -> list[str]:
        now = monotonic()
        return [name for name in self._wanted if self._attempts.setdefault(name, Attempt()).at <= now]

    def _fail(self, name: str, reason: str, hint: str = "") -> None:
        """Log why a source cannot be read, once until it is decided again, and schedule the next attempt."""
        with self._changed:
            attempt = self._attempts.setdefault(name, Attempt())
            is_new, attempt.error = attempt.error != reason, reason
        if is_new:
            self._log(f"{name}: {reason} {hint}".strip())
        self._dashboard.update_source(name, trouble=reason)
        self._schedule(name, failed=True)

    def _schedule(self, name: str, failed: bool = False) -> None:
        """Determine when a source that is over is opened again, if it is wanted then."""
        with self._changed:
            self._inside.discard(name)
            if name in self._leaving:
                self._leaving.discard(name)
                self._attempts.pop(name, None)
            else:
                attempt = self._attempts.setdefault(name, Attempt())
                attempt.is_over |= not failed
                if attempt.opened and monotonic() - attempt.opened > STABLE_S:
                    attempt.failures = 0
                attempt.opened = 0.0  # the next attempt may fail before it is opened
                attempt.at = monotonic() + RETRY_S[min(attempt.failures, len(RETRY_S) - 1)]
                attempt.failures += failed
            self._changed.notify_all()

    def _add_due(self) -> None:
        """Add the sources that are due to the session."""
        session = self._session
        if session is None or self._ending or self._is_stale:
            return
        for name in self._due():
            if name in self._inside:
                continue
            attempt = self._attempts[name]
            try:
                live = parse_live(self._wanted[name].address)
            except LstrError as error:  # an unplugged camera
                self._fail(name, str(error), error.hint)
                continue
            assert live, "the configuration was checked"
            self._inside.add(name)
            session.add(replace(live, id=name, named=True, is_over=attempt.is_over))


def rules_of(loaded: Checkpoint, actions: Mapping[str, ActionConfig]) -> dict[str, Thresholds]:
    """Return the thresholds of each class: the configuration's where it has some, else the model's."""
    own = thresholds_of(loaded)
    rules = {label: own if isinstance(own, Thresholds) else own.get(label, DEFAULT) for label in loaded.classes}
    for name, action in actions.items():
        if action.rule and name in rules:
            rules[name] = changed(rules[name].stored(), action.rule)
    return rules
