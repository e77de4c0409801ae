"""The service of `lstr watch`: detects on its sources, stores and announces events, and serves its page."""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from lstr.errors import CheckpointError, LstrError
from lstr.extractors.video.inputs import parse_live
from lstr.extractors.video.zones import Zones, parse_zones
from lstr.files.home import home
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import MakeSink, Status
from lstr.pipelines.detection.model import find_checkpoint
from lstr.pipelines.failures import describe_error
from lstr.pipelines.pages.server import SavedAddress, Server
from lstr.pipelines.watching.clips import Clips
from lstr.pipelines.watching.config import CLIPS, HISTORY, Address, SourceConfig, WatchConfig
from lstr.pipelines.watching.dashboard import Dashboard, DashboardSink
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History, lock_folder
from lstr.pipelines.watching.notifications import Notifications
from lstr.pipelines.watching.recorder import Policy, Recorder, RecorderSink
from lstr.pipelines.watching.site import OPEN_PATHS, WatchSite
from lstr.pipelines.watching.worker import Worker, rules_of

TICK_S = 1.0  # between two updates of workers, notifications and history
CLEAN_INTERVAL_S = 3600.0  # between two searches for events that are too old
STUCK_S = 60.0  # without a sign of life, after which a worker counts as stuck
MAX_SOURCES = 64  # each has a connection and threads of its own
# What the history keeps across restarts: names of paused sources, added sources with their addresses, and zones that
# were drawn on the page by the name of their source, which may be an empty list.
PAUSED, ADDED, ZONES = "paused", "added", "zones"


class Service:
    """All of it while it runs, by the file `path`; a context manager. `log` takes sentences for the log.

    Raises ConfigError, HistoryError, and the errors of its parts when it starts.
    """

    def __init__(self, path: Path, config: WatchConfig, log: Callable[[str], None]):
        self.path, self.config, self.log = path, config, log
        self._folder_lock = lock_folder(config.data)
        self.history = History(config.data / HISTORY)
        self.workers: dict[Path | None, Worker] = {}
        self.zones: dict[str, Zones] = {}
        """The current zones by the name of a source."""
        self._lock = threading.RLock()
        self._stack = ExitStack()
        self.ended = threading.Event()
        """Set when it ends."""
        self.dashboard = Dashboard(self.history, config.images)
        self.clips: Clips | None = None
        if config.clips:
            self.clips = Clips(config.data / CLIPS, config.clips, self.history, log, self.dashboard.refresh_event)
        self.policy = Policy(config, self.history)
        self.notifications = Notifications(
            config.channels,
            self.history,
            log,
            self.clips.image if self.clips else None,
            lambda name, is_watched: self.pause(name, not is_watched),
        )
        self.recorder = Recorder(self)
        self.server: Server | None = None

    @property
    def sources(self) -> dict[str, SourceConfig]:
        """All sources by name, paused ones too, first those of the file. A name of the file is the file's."""
        added, own = self.history.value(ADDED) or {}, {**self.config.sources}
        return own | {name: SourceConfig(Address(address)) for name, address in added.items() if name not in own}

    @property
    def paused(self) -> list[str]:
        """Names of paused sources."""
        return list(self.history.value(PAUSED) or ())

    def status(self) -> dict[str, Status]:
        """Return the status of each source that is read now."""
        return {name: status for worker in [*self.workers.values()] for name, status in worker.status().items()}

    def pause(self, name: str, paused: bool = True) -> None:
        """Pause a source or watch it again, also after a restart. Raises LstrError for an unknown one."""
        with self._lock:
            self._check_source(name)
            names = {*self.paused, name} if paused else {*self.paused} - {name}
            self.history.set_value(PAUSED, sorted(names))
            self.dashboard.update_source(name, paused=paused, trouble="")
            self._distribute()

    def add(self, name: str, address: str) -> None:
        """Watch a source that the file does not name, also after a restart. Raises LstrError."""
        with self._lock:
            try:
                find_checkpoint(self.config.model)
            except CheckpointError as error:
                hint = f'name one in {self.path}: model = "FILE", and start the service again.'
                raise LstrError(str(error), hint) from error
            if address == "-" or parse_live(address) is None:
                hint = "enter one such as rtsp://camera/stream."
                raise LstrError("The address is neither a camera nor a stream.", hint)
            sources = self.sources
            if name in sources:
                raise LstrError(f"A source named {name!r} exists already.", "choose another name.")
            if len(sources) >= MAX_SOURCES:
                raise LstrError(f"The limit of {MAX_SOURCES} sources is reached.", "remove a source first.")
            self._keep(ADDED, name, address)
            self._distribute()

    def remove(self, name: str) -> None:
        """Forget a source that was added. Raises LstrError for one of the file and an unknown one."""
        with self._lock:
            self._check_source(name)
            if name in self.config.sources:
                raise LstrError(f"{name!r} is in {self.path}.", "remove it there, and start the service again.")
            self._keep(ADDED, name, None)
            self._keep(ZONES, name, None)
            self.history.set_value(PAUSED, sorted({*self.paused} - {name}))
            self.policy.forget(name)
            self.dashboard.snoozes = self.policy.snoozes()
            self.dashboard.remove_source(name)
            if self.clips:
                self.clips.forget(name)
            self._distribute()

    def draw(self, name: str, zones: Zones | None) -> None:
        """Use these zones of a source from its next chunk on, also after a restart. None uses the zones of the file.

        Raises LstrError for an unknown source.
        """
        with self._lock:
            self._check_source(name)
            self._keep(ZONES, name, zones)
            self._distribute()

    def snooze(self, source: str | None, action: str | None, seconds: float) -> None:
        """Announce no event of a source, an action or both for a time; None means all. 0 ends such a snooze."""
        until = datetime.now().astimezone() + timedelta(seconds=seconds) if seconds else None
        self.policy.snooze(source, action, until)
        self.dashboard.snoozes = self.policy.snoozes()

    def __enter__(self) -> "Service":
        try:
            ended = self.history.end_all()
            if ended:
                self.log(f"active when the service was killed: {ended}; each event ends when it was last stored.")
            self.dashboard.snoozes = self.policy.snoozes()
            self.notifications.__enter__()
            app, page = WatchSite(self).app, self.config.page
            saved = SavedAddress(self.path, home() / "pages")
            server = Server(app, page.host, page.port, saved, page.hosts, page.trusted_proxy, OPEN_PATHS)
            self.server = self._stack.enter_context(server)
            self._distribute()
            threading.Thread(target=self._tick_until_ended, name="service", daemon=True).start()
        except BaseException:  # Ctrl-C too
            self.__exit__()
            raise
        notify_supervisor("READY=1")
        return self

    def __exit__(self, *exception: object) -> None:
        """End within seconds. Active events are stored as ended; pending notifications stay in the history."""
        notify_supervisor("STOPPING=1")
        self.ended.set()
        for worker in self.workers.values():
            worker.end()
        self._stack.close()
        if self.clips:
            self.clips.close()
        self.notifications.__exit__()
        self.history.close()
        self._folder_lock.close()

    def _check_source(self, name: str) -> None:
        if name not in self.sources:
            raise LstrError(f"Unknown source: {name!r}.", f"choose one of {', '.join(self.sources)}.")

    def _keep(self, key: str, name: str, value: Any) -> None:
        """Keep a value of a source across restarts; None deletes it."""
        values = (self.history.value(key) or {}) | {name: value}
        self.history.set_value(key, {other: kept for other, kept in values.items() if kept is not None})

    def _distribute(self) -> None:
        """Give each worker its sources, and a new model a worker."""
        sources, paused, drawn = self.sources, {*self.paused}, self.history.value(ZONES) or {}
        groups: dict[Path | None, dict[str, SourceConfig]] = {model: {} for model in self.workers}
        zones = {name: source.zones for name, source in sources.items()}
        self.zones = zones | {name: parse_zones(kept) for name, kept in drawn.items() if name in zones}
        for name, source in sources.items():
            shown = {"zones": self.zones[name], "drawn": name in drawn}
            self.dashboard.update_source(name, address=source.address, paused=name in paused, **shown)
            group = groups.setdefault(source.model or self.config.model, {})
            if name not in paused:
                group[name] = source
        for model, group in groups.items():
            if model not in self.workers:
                self.workers[model] = self._stack.enter_context(Worker(model, self))
            self.workers[model].set_sources(group)

    def make_sinks(self, loaded: Checkpoint) -> list[MakeSink]:
        """Return the sinks of each source of a model."""
        found: Any = loaded.about
        for name in ("metrics", "events", "per_class"):
            found = found.get(name) if isinstance(found, Mapping) else None
        # false alarms were measured with the thresholds of the model: they do not hold for other thresholds
        own, rules = rules_of(loaded, {}), rules_of(loaded, self.config.actions)
        rates: dict[str, float] = {}
        for label, values in found.items() if isinstance(found, Mapping) else ():
            rate = values.get("false_alarms_per_hour") if isinstance(values, Mapping) else None
            if isinstance(rate, int | float) and rules.get(label) == own.get(label):
                rates[label] = float(rate)
        return [partial(RecorderSink, self.recorder, loaded.path.name, rates), partial(DashboardSink, self.dashboard)]

    def show_stored(self, event: WatchedEvent, phase: str) -> None:
        """Log, show, record and announce an event that was stored, in its phase: `new`, `update` or `end`."""
        if self.clips and phase == "new":
            self.clips.begin(event)
        elif self.clips and phase == "end":
            self.clips.end(event)
        self.dashboard.show_event(event, phase)
        if phase == "new":
            self.log(f"{event.source}: {event.action} since {event.start:%H:%M:%S}, score {event.score:.2f}")
        elif phase == "end":
            self.log(f"{event.source}: {event.action} ended after {event.seconds:.1f} s")
        if phase != "update":
            self.notifications.wake()

    def _tick_until_ended(self) -> None:
        """Do what has to be done from time to time."""
        cleaned, last_error = -CLEAN_INTERVAL_S, ""
        while not self.ended.wait(TICK_S):
            workers = [*self.workers.values()]
            # systemd restarts a service that does not send this
            if all(monotonic() - worker.alive < STUCK_S for worker in workers if worker.wanted):
                notify_supervisor("WATCHDOG=1")
            error = ""
            try:
                for worker in workers:
                    worker.tick()
                with self._lock:
                    sources, paused, status = self.sources, {*self.paused}, self.status()
                    actions = {name: self.workers[s.model or self.config.model].actions for name, s in sources.items()}
                    reading = {name for name, read in status.items() if read.link == "reading"}
                    states = {name: (name in reading, name not in paused) for name in sources}
                    self.notifications.show_sources(actions, states)
                self.dashboard.snoozes = self.policy.snoozes()
                self.recorder.flush()
                if monotonic() - cleaned > CLEAN_INTERVAL_S:
                    cleaned = monotonic()
                    old = self.history.delete_old(self.config.history.days * 86_400)
                    if self.clips:
                        self.clips.remove(event.id for event in old)
            except Exception as caught:  # sources continue, and the supervisor is notified
                known = isinstance(caught, LstrError)
                error = str(caught) if known else f"The service continues after {describe_error(caught)}."
                if not self.ended.is_set() and error != last_error:
                    self.log(error)
            last_error = error


def notify_supervisor(state: str) -> None:
    """Send systemd a state such as READY=1 by the protocol of sd_notify(3), if NOTIFY_SOCKET names its socket."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):  # of the abstract namespace
        address = "\0" + address[1:]
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), address)
