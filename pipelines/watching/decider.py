"""The sources of one model, decided in a thread: a session that is begun again whenever sources are wanted.

A source that ends or fails is wanted all the same, and added again after a while: at first after seconds, then after
minutes. Nothing that a source does ends the thread.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import msgspec

from lstr.errors import CheckpointError, ExhaustedError, ExtractorError, LstrError, brief
from lstr.extractors.video.live_input import parse_live
from lstr.extractors.video.live_reader import LiveOptions
from lstr.extractors.video.zones import Zones
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.checkpoint import find_checkpoint, load_checkpoint
from lstr.pipelines.detection.decision import Decided, Ended, Opened, Status, Undecided
from lstr.pipelines.detection.networks import Networks
from lstr.pipelines.detection.options import NO_TIMELINE
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.sinks import MakeSink
from lstr.pipelines.detection.track import Event
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed, Notice
from lstr.pipelines.watching.action_rules import lateness, rules_of
from lstr.pipelines.watching.board import Board
from lstr.pipelines.watching.checking import actions_in
from lstr.pipelines.watching.clips import Clips
from lstr.pipelines.watching.config import ActionConfig, SourceConfig

# Seconds before a source that has ended or failed is added again, time after time.
AGAIN = (5.0, 15.0, 60.0, 300.0)
SOUND = 600.0  # seconds after which a source that was decided counts as sound: its next failure is a first one
SPARE = 8  # places for sources that are added later
GLANCE = 0.5  # seconds between two looks at what is wanted


@dataclass
class Attempt:
    """When a source is added next, and how often it has failed."""

    at: float = 0.0
    failures: int = 0
    opened: float = 0.0
    said: str = ""
    """Why it could not be added, as it was said last."""
    is_over: bool = False
    """Whether it has ended by itself, as an event does that is a recording since."""


class Decider:
    """A model and its sources; `wanted` may be changed from any thread. Use it as a context manager.

    make_sinks: the sinks of every source of it. board: hears of the sources; clips: get their packets. zones: by the
    name of a source, where motion counts now.
    """

    def __init__(
        self,
        model: Path | None,
        actions: Mapping[str, ActionConfig],
        timeout: float,
        make_sinks: Callable[[Checkpoint], Sequence[MakeSink]],
        say: Callable[[str], None],
        board: Board,
        clips: Clips | None,
        zones: Callable[[str], Zones],
    ):
        self.model, self._actions, self._live = model, actions, LiveOptions(timeout=timeout)
        self._make_sinks, self._say, self._zones = make_sinks, say, zones
        self._board, self._clips = board, clips
        self.loaded: Checkpoint | None = None
        self._in_file: list[str] | None = None
        """What its file says that its model knows."""
        self.alive = monotonic()
        """When the thread last showed that it goes on."""
        self._changed = threading.Condition()
        self._wanted: dict[str, SourceConfig] = {}
        self._attempts: dict[str, Attempt] = {}
        self._inside: set[str] = set()
        """Sources of the session that runs."""
        self._leaving: set[str] = set()
        """The sources that were taken out of it, and whose end is under way."""
        self._session: Session | None = None
        self._places = 0  # of that session
        self._is_stale = False
        """Whether it has the thresholds or the places of before: nothing is added to it, so that it ends."""
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="decider", daemon=True)
        self._ticking = threading.Thread(target=self._tick, name="decider's sources", daemon=True)

    @property
    def wanted(self) -> dict[str, SourceConfig]:
        """The sources that are to be decided, by name."""
        with self._changed:
            return dict(self._wanted)

    def want(self, sources: Mapping[str, SourceConfig]) -> None:
        """Decide on these sources from now on; those that were decided before go on, with other zones too."""
        with self._changed:
            for name, source in self._wanted.items():
                if name not in sources or msgspec.structs.replace(sources[name], zones=source.zones) != source:
                    self._attempts.pop(name, None)
                    self._remove(name)
            self._wanted = dict(sources)
            if self._session and not self._is_stale and len(sources) > self._places:
                self._say(f"{self._called} had no place for {len(sources)} sources: all of them begin anew.")
                self._begin_anew()
            self._changed.notify_all()

    def rule(self, actions: Mapping[str, ActionConfig]) -> None:
        """Decide by the thresholds of these actions from now on; where they differ, its sources begin anew."""
        with self._changed:
            before, self._actions = self._rules(), actions
            if before != self._rules():
                self._begin_anew()

    def _rules(self) -> dict[str, Mapping[str, float]]:
        """What is configured of the thresholds of the actions that its model knows, or may know."""
        known = self.loaded.classes if self.loaded else self._actions
        return {name: action.rule for name, action in self._actions.items() if action.rule and name in known}

    def _begin_anew(self) -> None:
        """Let the session that runs end, and a new one have its sources."""
        self._is_stale = True
        for name in [*self._inside]:
            self._attempts.pop(name, None)
            self._remove(name)

    def give_up_after(self, timeout: float) -> None:
        """Take a source for lost after so many seconds without a frame, each from when it is opened next."""
        with self._changed:
            self._live = LiveOptions(timeout=timeout)
            if self._session:
                self._session.read_by(self._live)

    @property
    def actions(self) -> list[str]:
        """What its model knows; before it is loaded, as of sources that are paused, its file says so."""
        if self.loaded:
            return [name for name in self.loaded.classes if name not in (BACKGROUND, AMBIGUOUS)]
        if self._in_file is None:
            self._in_file = []
            with suppress(CheckpointError, ExtractorError):  # its thread says what is wrong
                self._in_file = actions_in(find_checkpoint(self.model))
        return self._in_file

    def status(self) -> dict[str, Status]:
        """Where each source stands that is read now."""
        session = self._session
        return session.status() if session else {}

    def __enter__(self) -> "Decider":
        self._thread.start()
        self._ticking.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """End it; what the sources have seen is handed to their sinks."""
        self.end()
        self._thread.join(4)

    @property
    def goes_on(self) -> bool:
        """Whether its thread is within something that cannot be cut short, such as the making of networks."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Let the thread end soon."""
        with self._changed:
            self._ending = True
            for name in [*self._inside]:
                self._remove(name)
            self._changed.notify_all()

    def _remove(self, name: str) -> None:
        if self._session and name in self._inside:
            with suppress(KeyError):  # it has ended meanwhile, and its event is under way
                (self._leaving.add if self._session.remove(name) else self._inside.discard)(name)

    def _run(self) -> None:
        failures = 0
        while not self._ending:
            began = monotonic()
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._ending or self._due(), GLANCE)
                    self.alive = monotonic()
                    if self._ending or not self._due():
                        continue
                self._decide()
            except LstrError as error:
                self._fail(f"{error} {getattr(error, 'hint', '')}".strip())
                is_lost = isinstance(error, ExhaustedError)
            except Exception as error:  # whatever a library does, the other models and the page go on
                self._fail(f"The decisions of {self._called} stopped unexpectedly ({brief(error)}); they begin again.")
                is_lost = False
            else:
                continue
            finally:
                with self._changed:
                    self._leave()
            failures = 0 if monotonic() - began > SOUND else failures + 1
            until = monotonic() + AGAIN[min(failures, len(AGAIN)) - 1]
            with self._changed:
                while not self._ending and monotonic() < until:
                    self._changed.wait_for(lambda: self._ending, min(GLANCE, until - monotonic()))
                    if not is_lost:  # what is lost with a GPU comes back when the service is started again
                        self.alive = monotonic()

    def _fail(self, sentence: str) -> None:
        """Say what ended the decisions on all sources."""
        self._say(sentence)
        for name in self.wanted:
            self._board.source(name, trouble=sentence)

    def _leave(self) -> None:
        """Forget the session that has ended."""
        self._session, self._inside, self._leaving = None, set(), set()

    @property
    def _called(self) -> str:
        return self.model.name if self.model else "the default model"

    def _due(self) -> list[str]:
        now = monotonic()
        return [name for name in self._wanted if self._attempts.setdefault(name, Attempt()).at <= now]

    def _decide(self) -> None:
        """A session, until none of its sources is left."""
        # anew each time: the networks are read from the file, which may have been replaced since
        loaded = self.loaded = load_checkpoint(self.model)
        log = FailureLog(None, keeps_list=False)
        with closing(Networks(loaded)) as networks:
            networks.open()
            while not self._ending and self._due():
                with self._changed:  # what is changed from here on is of this session
                    self._is_stale, self._places = False, len(self._wanted) + SPARE
                    session = self._session = Session(
                        loaded,
                        networks,
                        self._places,
                        thresholds=rules_of(loaded, self._actions),
                        output=NO_TIMELINE,  # of weeks it would be gigabytes
                        sinks=self._make_sinks(loaded),
                        log=log,
                        packets=self._clips.ring if self._clips else None,
                        pictures=self._board.see,
                        zones=self._zones,
                    )
                    session.read_by(self._live)
                with session:
                    with self._changed:
                        self._add()
                    self._follow(session.events(), log)
                    with self._changed:
                        self._leave()
                with self._changed:
                    self._changed.wait_for(lambda: self._ending or self._due(), GLANCE)

    def _follow(self, events: Iterator[Event], log: FailureLog) -> None:
        for event in events:
            self.alive = monotonic()
            if isinstance(event, Notice):
                self._say(event.text)
            elif isinstance(event, Opened):
                with self._changed:
                    attempt = self._attempts.setdefault(event.id, Attempt())
                    attempt.opened, attempt.said = monotonic(), ""
                if self.loaded:
                    rules = rules_of(self.loaded, self._actions)
                    self._board.source(event.id, thresholds=rules)
                    if self._clips:
                        self._clips.expect(event.id, lateness(rules))
            elif isinstance(event, Failed):
                self._say(f"{event.id}: {event.reason}")
                self._board.source(event.id, trouble=event.reason)
                self._gone(event.id, failed=True)
                log.events.clear()  # which would grow for weeks
            elif isinstance(event, Ended | Undecided):
                self._gone(event.id)
            else:
                assert isinstance(event, Decided)

    def _gone(self, name: str, failed: bool = False) -> None:
        """A source is over: when it is added again, if it is wanted still."""
        with self._changed:
            self._inside.discard(name)
            if name in self._leaving:
                self._leaving.discard(name)
                self._attempts.pop(name, None)
                self._changed.notify_all()
                return
            attempt = self._attempts.setdefault(name, Attempt())
            attempt.is_over |= not failed
            if attempt.opened and monotonic() - attempt.opened > SOUND:
                attempt.failures = 0
            attempt.opened = 0.0  # the next try may end before it is opened
            wait = AGAIN[min(attempt.failures, len(AGAIN) - 1)]
            attempt.failures += failed
            attempt.at = monotonic() + wait
            self._changed.notify_all()

    def _add(self) -> None:
        """Add the sources that are due to the session that runs."""
        session = self._session
        if session is None or self._ending or self._is_stale:
            return
        for name in self._due():
            if name in self._inside:
                continue
            try:
                live = parse_live(self._wanted[name].address)
            except LstrError as error:  # a camera that was unplugged
                self._miss(name, error)
                continue
            assert live, "the configuration was checked"
            self._inside.add(name)
            session.add(replace(live, id=name, named=True, is_over=self._attempts[name].is_over))

    def _miss(self, name: str, error: LstrError) -> None:
        """Go on without a source that cannot be added, say so once, and try it again later."""
        attempt = self._attempts.setdefault(name, Attempt())
        if attempt.said != str(error):
            attempt.said = str(error)
            self._say(f"{name}: {error} {error.hint}".strip())
        self._board.source(name, trouble=str(error))
        self._gone(name, failed=True)

    def _tick(self) -> None:
        """Add what is wanted and not decided yet, now and then."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ending, GLANCE)
                if self._ending:
                    return
                if self._session and not any(status.waiting for status in self._session.status().values()):
                    self.alive = max(self.alive, self._session.alive)  # there is nothing to decide, and all is well
                self._add()
