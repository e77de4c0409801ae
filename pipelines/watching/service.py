"""The service of `lstr watch`: its sources are decided, what they do is stored and told, until it is ended."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic

from lstr.errors import CheckpointError, HistoryError, LstrError
from lstr.extractors.video.zones import Zones
from lstr.files.home import home
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.checkpoint import find_checkpoint
from lstr.pipelines.detection.decision import Status
from lstr.pipelines.detection.sinks import MakeSink
from lstr.pipelines.failures import described
from lstr.pipelines.pages.guard import kept_address
from lstr.pipelines.pages.server import Server
from lstr.pipelines.watching.action_rules import overruled
from lstr.pipelines.watching.board import Board
from lstr.pipelines.watching.capacity import Capacity
from lstr.pipelines.watching.checking import check
from lstr.pipelines.watching.clips import Clips
from lstr.pipelines.watching.config import SourceConfig, WatchConfig
from lstr.pipelines.watching.config_file import read_config
from lstr.pipelines.watching.decider import Decider
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.health import PATHS, Health, tell_supervisor
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.known_sources import KnownSources
from lstr.pipelines.watching.location import CLIPS, HISTORY, hold
from lstr.pipelines.watching.policy import Policy
from lstr.pipelines.watching.site import WatchSite
from lstr.pipelines.watching.storing import Storage, Storing, alarms_of
from lstr.pipelines.watching.telling import Telling

ROTATED_SECONDS = 3600.0  # between two looks for what is too old to be kept
DAY = 86_400.0  # seconds
SILENT_SECONDS = 60.0  # a decider that shows no sign of life for so long is stuck


class Service:
    """All of it while it runs; use it as a context manager. `say` takes each sentence for the log.

    Raises ConfigError, HistoryError, and as its parts do when it begins.
    """

    def __init__(self, config: WatchConfig, say: Callable[[str], None]):
        self.config, self.say = config, say
        self._held = hold(config.data)
        self.history = History(config.data / HISTORY)
        self.deciders: dict[Path | None, Decider] = {}
        self._lock = threading.RLock()
        self._stack = ExitStack()
        self._ended = threading.Event()
        self._rotated = -ROTATED_SECONDS
        self.known = KnownSources(config.sources, config.path, self.history)
        self.board = Board(self.sources, self.history)
        self.capacity = Capacity()
        self.clips: Clips | None = None
        if config.clips:
            self.clips = Clips(config.data / CLIPS, config.clips, self.history, say, self._attached)
        self.policy = Policy(config, self.history)
        self._show_snoozes()
        self.telling = self._make_telling(config)
        self.server: Server | None = None
        self.storage = Storage(self.history, lambda *asked: self.policy.channels_of(*asked), self._stored, say)
        self._trouble = ""
        """What went wrong when it was looked at everything last, as it was said."""

    @property
    def sources(self) -> dict[str, SourceConfig]:
        """All sources that are known, those too that are paused, by name."""
        return self.known.all

    @property
    def paused(self) -> list[str]:
        """Names of the sources that nobody wants decided now."""
        return self.known.paused

    def status(self) -> dict[str, Status]:
        """Where each source stands that is read now."""
        return {name: status for decider in [*self.deciders.values()] for name, status in decider.status().items()}

    def resume(self, name: str) -> None:
        """Decide on a paused source again. Raises LstrError for one that is not known."""
        self.pause(name, False)

    def pause(self, name: str, paused: bool = True) -> None:
        """Decide on a source no more; kept over a restart. Raises LstrError for one that is not known."""
        with self._lock:
            self.known.pause(name, paused)
            self.board.source(name, paused=paused, trouble="")
            self._direct()

    def add(self, name: str, address: str) -> None:
        """Decide on a source too, which the file does not name; kept over a restart. Raises LstrError."""
        with self._lock:
            try:
                find_checkpoint(self.config.model)
            except CheckpointError as error:
                raise LstrError(
                    str(error), f'name one in {self.config.path}: model = "FILE", and send SIGHUP.'
                ) from error
            self.known.add(name, address)
            self._direct()

    def remove(self, name: str) -> None:
        """Forget a source that was added. Raises LstrError for one of the file, and for one that is not known."""
        with self._lock:
            self.known.remove(name)
            self.policy.forget(name)
            self._show_snoozes()
            self._leave(name)
            self._direct()

    def draw(self, name: str, zones: Zones | None) -> None:
        """Let motion of a source count in these zones alone from its next chunk on; kept over a restart.

        None takes those of the file again. Raises LstrError for a source that is not known.
        """
        with self._lock:
            self.known.draw(name, zones)
            self._direct()

    def _leave(self, name: str) -> None:
        self.board.remove(name)
        if self.clips:
            self.clips.leave(name)

    def reload(self) -> None:
        """Read the file again; streams that it does not change go on. With a mistake in it, all stays as it was."""
        tell_supervisor("RELOADING=1")
        try:
            config = read_config(self.config.path)
            check(config)
            telling = self._make_telling(config)  # before anything is changed: it may fail
        except Exception as error:  # of a library too, whose text may hold a secret: what runs goes on
            path, hint = self.config.path, getattr(error, "hint", "")
            told = (
                str(error) if isinstance(error, LstrError) else f"{path} cannot be read: it met {type(error).__name__}."
            )
            self.say("\n".join(filter(None, (told, hint and f"hint: {hint}", "Nothing was changed."))))
        else:
            with self._lock:
                before, self.config = self.config, config
                self.known.named = config.sources
                if config.data != before.data or config.page != before.page:
                    self.say("data and page are read at the start alone: start it again for these.")
                if config.timeout != before.timeout:
                    self.say(f"timeout is {config.timeout:g} s for each source from when it is opened next.")
                    for decider in self.deciders.values():
                        decider.give_up_after(config.timeout)
                if config.actions != before.actions:
                    for decider in self.deciders.values():
                        decider.rule(config.actions)
                if self.clips and config.clips:
                    self.clips.configure(config.clips)
                elif bool(self.clips) != bool(config.clips):
                    self.say("whether there are clips is read at the start alone: start it again for that.")
                self.telling.close()
                self.policy, self.telling = Policy(config, self.history), telling
                self.telling.__enter__()
                for name in before.sources.keys() - self.sources.keys():
                    self._leave(name)
                self._direct()
            self.say(f"{config.path} was read again.")
        tell_supervisor("READY=1")

    def __enter__(self) -> "Service":
        try:
            self._begin()
        except BaseException:  # Ctrl-C too, while it begins
            self.__exit__()
            raise
        tell_supervisor("READY=1")
        return self

    def _begin(self) -> None:
        left = self.history.end_all(datetime.now().astimezone())
        if left:
            self.say(f"{left} events were on when it was ended last: they end when they were last seen.")
        self.telling.__enter__()
        self.server = self._stack.enter_context(self._make_server())
        self._direct()
        threading.Thread(target=self._tick, name="service", daemon=True).start()

    def __exit__(self, *exception: object) -> None:
        """End within seconds: the events that are on are stored as ended, what was not told stays to be told."""
        tell_supervisor("STOPPING=1")
        self._ended.set()
        for decider in self.deciders.values():
            decider.end()
        self._stack.close()
        if self.clips:
            self.clips.close()
        self.telling.close()
        self.history.close()
        self._held.close()

    @property
    def goes_on(self) -> bool:
        """Whether something of it goes on after its end, within a library."""
        return any(decider.goes_on for decider in self.deciders.values())

    def wait(self, seconds: float) -> None:
        """Wait, for as long as nothing ends it."""
        self._ended.wait(seconds)

    def _make_server(self) -> Server:
        page, app = self.config.page, WatchSite(self.board, self, lambda: self._ended).app()
        app.router.routes += Health(self.board, lambda: self.telling.deliveries, self.clips).routes()
        kept = kept_address(self.config.path, home() / "pages")
        return Server(
            app, page.host, page.port, kept, page.hosts, page.trusted_proxy, is_impatient=True, open_paths=PATHS
        )

    def clip(self, event_id: str) -> Path | None:
        """The film of an event."""
        return self.clips.path(event_id) if self.clips else None

    def picture(self, event_id: str) -> Path | None:
        """The picture of an event."""
        return self.clips.picture(event_id) if self.clips else None

    def _direct(self) -> None:
        """Tell each decider which sources it has; a model that is new gets one."""
        self.known.settle_zones()
        groups: dict[Path | None, dict[str, SourceConfig]] = {model: {} for model in self.deciders}
        paused = {*self.paused}
        for name, source in self.sources.items():
            self.board.source(name, address=source.address, paused=name in paused)
            self.board.zone(name, self.known.zones_of(name), name in self.known.drawn)
            group = groups.setdefault(source.model or self.config.model, {})
            if name not in paused:
                group[name] = source
        for model, wanted in groups.items():
            if model not in self.deciders:
                config, shown, zones = self.config, (self.board, self.clips), self.known.zones_of
                made = Decider(model, config.actions, config.timeout, self._sinks, self.say, *shown, zones)
                self.deciders[model] = self._stack.enter_context(made)
            self.deciders[model].want(wanted)

    def _sinks(self, loaded: Checkpoint) -> list[MakeSink]:
        model = loaded.path.name
        others = overruled(loaded, self.config.actions)
        rates = {action: rate for action, rate in alarms_of(loaded).items() if action not in others}
        return [partial(Storing, self.storage, model, rates), self.board.sink]

    def _make_telling(self, config: WatchConfig) -> Telling:
        picture = self.clips.picture if self.clips else None
        return Telling(config, self.history, self.say, picture, self._switch)

    def _switch(self, name: str, watched: bool) -> None:
        try:
            self.pause(name, not watched)
        except LstrError as error:
            self.say(str(error))

    def snooze(self, source: str | None, action: str | None, seconds: float) -> None:
        """Tell nobody of a source, an action, or either (None is all), for so many seconds; 0 ends that one alone."""
        until = datetime.now().astimezone() + timedelta(seconds=seconds) if seconds else None
        if until:
            self.policy.snooze(source, action, until)
        else:
            self.policy.end(source, action)
        self._show_snoozes()

    def _show_snoozes(self) -> None:
        self.board.snooze({(one.source, one.action): one.until for one in self.policy.snoozed()})

    def _show_sources(self) -> None:
        """Tell the channels, and whoever looks, what has changed of the sources."""
        sources, paused, status = self.sources, {*self.paused}, self.status()
        models = {name: source.model or self.config.model for name, source in sources.items()}
        self.telling.sources({name: self.deciders[model].actions for name, model in models.items()})
        for name in sources:
            is_seen = name in status and status[name].link == "reading"
            self.telling.source_changed(name, is_seen, name not in paused)

    def _stored(self, event: WatchedEvent, phase: str) -> None:
        if self.clips:
            if phase == "new":
                self.clips.begin(event)
            elif phase == "end":
                self.clips.end(event)
        self.board.tell(event, phase)
        self.telling.wake()
        if phase == "new":
            self.say(f"{event.source}: {event.action} since {event.start:%H:%M:%S}, score {event.score:.2f}")
        elif phase == "end":
            self.say(f"{event.source}: {event.action} ended after {event.seconds:.1f} s")

    def _attached(self, event_id: str) -> None:
        """Tell what has changed of an event, as its picture, and its film once it is whole: after the event's end."""
        with suppress(HistoryError):
            if event := self.history.find(event_id):
                self.board.tell(event, "update")

    def _tick(self) -> None:
        """What has to be done now and then, until it is ended."""
        while not self._ended.wait(1.0):
            deciders = [*self.deciders.values()]
            if all(monotonic() - decider.alive < SILENT_SECONDS for decider in deciders if decider.wanted):
                tell_supervisor("WATCHDOG=1")
            try:
                with self._lock:
                    self._show_sources()
                for sentence in self.capacity.look(self.board.states):
                    self.say(sentence)
                self._show_snoozes()
                self.storage.write_what_waits()
                if monotonic() - self._rotated > ROTATED_SECONDS:
                    self._rotated = monotonic()
                    gone = self.history.forget(self.config.keeping.days * DAY)
                    if self.clips:
                        self.clips.remove(event.id for event in gone)
            except Exception as error:  # whatever it is, the sources go on, and a supervisor hears that they do
                told = str(error) if isinstance(error, LstrError) else f"The service goes on after {described(error)}."
                if not self._ended.is_set() and told != self._trouble:
                    self.say(told)
                self._trouble = told
            else:
                self._trouble = ""
