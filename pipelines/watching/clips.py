"""The seconds that mattered: of each event a film of the packets as they were received, and a picture, at once.

A film begins with a key frame before the event and ends after it, or where the pictures change their size or coding. It
is written in a thread of its own, a picture in another one. What cannot be written is said in one sentence; the events
go on without.
"""

import errno
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from time import monotonic

import cv2

from lstr.errors import HistoryError
from lstr.extractors.video.clip_file import picture_of
from lstr.extractors.video.packet_ring import PacketRing, PacketSink, time_at
from lstr.files.atomic import temporary_for
from lstr.pipelines.watching.clip_folder import ABOUT, FILM, PICTURE, ClipFolder
from lstr.pipelines.watching.config import ClipsConfig
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.film import LATE, Film
from lstr.pipelines.watching.history import History

TURN = 0.5  # seconds between two looks at what has come for the films that are being written
TURN_IDLE = 60.0  # seconds between two looks at what is too old
CLOSING = 2.5  # seconds for the films that are being written when all ends
NICE = 10  # of the thread that writes films
RESERVE = 64 * 2**20  # bytes on the disk that are not for clips: the history needs them
NEARLY_FULL = f"less than {RESERVE // 2**20} MB are free"
LONG_SIDE = 1280  # pixels of a picture
PATIENCE = 1.0  # seconds of decoding for one


class Clips:
    """Films and pictures of events in a folder; any method may be called from any thread, and none raises.

    `say` gets sentences for a person, `attached` the id of an event that has a film or a picture now. Raises
    OutputError where the folder cannot be made or written.
    """

    def __init__(
        self,
        folder: Path,
        config: ClipsConfig,
        history: History,
        say: Callable[[str], None],
        attached: Callable[[str], None] = lambda event_id: None,
    ):
        self.config, self._attached = config, attached
        self._folder, self._history, self._say = ClipFolder(folder), history, say
        self._rings: dict[str, PacketRing] = {}
        self._late: dict[str, float] = {}
        """Seconds that the rules of a source wait before an action is told"""
        self._films: dict[str, Film] = {}
        self._gone: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[Film | None] = queue.SimpleQueue()
        self._full = False
        self._unusable: set[str] = set()
        """Sources whose packets make no film, of which that was said."""
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing: float | None = None
        """When closing must be over, on the monotonic clock."""
        self._threads = [
            threading.Thread(target=self._write_films, name="clips", daemon=True),
            threading.Thread(target=self._make_pictures, name="pictures of clips", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._folder.size

    @property
    def writing(self) -> int:
        """How many films are being written."""
        return len(self._films)

    def ring(self, source: str) -> PacketSink:
        """What is to get the packets of a source, for `Session(packets=clips.ring)`."""
        return self._ring(source).take

    def leave(self, source: str) -> None:
        """Keep no packets of a source any more."""
        with self._lock:
            self._rings.pop(source, None)
            self._late.pop(source, None)

    def expect(self, source: str, late: float) -> None:
        """Keep what actions of a source need whose rules let them be told so many seconds after their start."""
        with self._lock:
            self._late[source] = late
            if source in self._rings:
                self._rings[source].most_seconds = self._seconds(source)

    def configure(self, config: ClipsConfig) -> None:
        """Go on with other settings."""
        with self._lock:
            self.config = config
            for source, ring in self._rings.items():
                ring.most_bytes, ring.most_seconds = config.ring_bytes, self._seconds(source)
        self._woken.set()

    def begin(self, event: WatchedEvent) -> None:
        """Begin the film and the picture of an event, which the history has."""
        with self._lock:
            ring = self._rings.get(event.source)
            if ring is None or self._closing is not None or event.id in self._films:
                return
            film = Film(event, ring, _arrival(event.decided))
            self._films[event.id] = film
            self._asked.put(film)
        self._woken.set()

    def end(self, event: WatchedEvent) -> None:
        """End the film of an event, which is over, some seconds after its end."""
        with self._lock:
            film = self._films.get(event.id)
            if film is None:
                return
            film.event = event
            # a source that has ended sends nothing more
            after = 0.0 if event.still_on else self.config.after
            film.until = _arrival(event.end or event.seen) + after
        self._woken.set()

    def path(self, event_id: str) -> Path | None:
        """The film of an event, once it is whole."""
        return self._folder.find(event_id, FILM)

    def picture(self, event_id: str) -> Path | None:
        """The picture of an event, once it is made."""
        return self._folder.find(event_id, PICTURE)

    def remove(self, event_ids: Iterable[str]) -> None:
        """Delete the clips of events, such as those that the history has forgotten."""
        for event_id in event_ids:
            self._gone.put(event_id)
        self._woken.set()

    def close(self) -> None:
        """End the films that are being written with what is there; takes 3 s at most."""
        with self._lock:
            self._closing = monotonic() + CLOSING
        self._asked.put(None)
        self._woken.set()
        for thread in self._threads:
            thread.join(max(0.0, self._closing + 0.4 - monotonic()))

    def _ring(self, source: str) -> PacketRing:
        with self._lock:
            if source not in self._rings:
                self._rings[source] = PacketRing(self.config.ring_bytes, self._seconds(source))
            return self._rings[source]

    def _seconds(self, source: str) -> float:
        return self.config.before + LATE + self._late.get(source, 0.0)

    def _write_films(self) -> None:
        if sys.platform == "linux":  # where a thread has its own; to encode has time, the decisions have none
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        self._tidy()
        while True:
            self._woken.wait(TURN if self._films else TURN_IDLE)
            if self._closing is None:
                self._woken.clear()
            for film in [*self._films.values()]:
                self._guarded(film, self._advance)
            while not self._gone.empty():
                self._remove(self._gone.get())
            self._keep_within()
            if self._closing is not None:
                for film in [*self._films.values()]:
                    self._guarded(film, self._end_now)
                return

    def _guarded(self, film: Film, step: Callable[[Film], None]) -> None:
        """Do a step of a film; one that fails ends it, without a file."""
        try:
            step(film)
        except Exception as error:
            self._drop(film)
            if isinstance(error, OSError):
                self._fail(error.strerror or str(error))
            elif film.event.source not in self._unusable:
                self._unusable.add(film.event.source)
                self._say(f"What {film.event.source} sends makes no clip ({error}); its events go on without.")

    def _advance(self, film: Film) -> None:
        """Write what has come for a film, and end it where it is to end."""
        full = self._folder.free < RESERVE
        if film.file is None:
            if full:
                raise OSError(errno.ENOSPC, NEARLY_FULL)
            if not film.open(self._folder.file(film.event.id, FILM), self.config.before):
                if film.is_late:
                    self._drop(film)
                return
        over = film.write(self.config.longest, self.config.most_bytes, self._closing)
        if over or full:
            self._finish(film)
        if full:
            self._fail(NEARLY_FULL)

    def _end_now(self, film: Film) -> None:
        """End a film with what has come."""
        self._advance(film)
        if film.event.id in self._films:
            self._finish(film)

    def _finish(self, film: Film) -> None:
        """Close a film, give it its name, and tell the history."""
        if film.file is None or not film.file.seconds:
            self._drop(film)
            return
        event_id = film.event.id
        film.close(self._folder.file(event_id, ABOUT))
        self._forget(film)
        self._folder.count(event_id)
        self._attach(event_id, clip=f"{event_id}{FILM}")
        self._attached(event_id)
        if self._full and self._folder.free >= RESERVE:
            self._full = False
            self._say("Clips are kept again.")

    def _drop(self, film: Film) -> None:
        """Write a film no further, and leave nothing of it."""
        film.abandon()
        self._forget(film)

    def _forget(self, film: Film) -> None:
        with self._lock:
            self._films.pop(film.event.id, None)

    def _fail(self, reason: str) -> None:
        """Say once that the disk takes no clips."""
        if not self._full:
            self._full = True
            self._say(f"No clips are kept for now: {self._folder.folder} cannot be written ({reason}). Events go on.")

    def _make_pictures(self) -> None:
        while film := self._asked.get():
            try:
                self._make_picture(film)
            except OSError as error:
                self._fail(error.strerror or str(error))
            except Exception:
                pass  # packets that make no picture make no film either, which says so

    def _make_picture(self, film: Film) -> None:
        event_id = film.event.id
        packets = film.ring.since(film.decided, 0.0)
        image = picture_of(packets, time_at(packets, film.decided), LONG_SIDE, PATIENCE) if packets else None
        if image is None or self._folder.free < RESERVE:
            return
        whole, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
        assert whole
        with temporary_for(self._folder.file(event_id, PICTURE)) as temporary:
            temporary.write_bytes(data.tobytes())
        self._folder.count(event_id)
        self._attach(event_id, picture=f"{event_id}{PICTURE}")
        self._attached(event_id)

    def _attach(self, event_id: str, clip: str | None = None, picture: str | None = None) -> None:
        """Tell the history; what it cannot store now it is told when all begins again."""
        with suppress(HistoryError):
            self._history.attach(event_id, clip, picture)

    def _tidy(self) -> None:
        """Make folder and history agree, as they do not after a kill."""
        with suppress(HistoryError):
            for event_id in self._folder.ids:
                if self._history.find(event_id) is None:
                    self._remove(event_id)
            named = {event_id: names for event_id, *names in self._history.filmed()}
            for event_id in {*named, *self._folder.ids} - {*self._films}:
                files = [self._folder.find(event_id, suffix) for suffix in (FILM, PICTURE)]
                there = [path.name if path else "" for path in files]
                if there != named.get(event_id, ["", ""]):
                    self._attach(event_id, *there)

    def _remove(self, event_id: str) -> bool:
        """Whether the clip of an event could be deleted."""
        try:
            self._folder.remove(event_id)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return False
        self._attach(event_id, clip="", picture="")
        return True

    def _keep_within(self) -> None:
        writing = {event_id: film.file.size if film.file else 0 for event_id, film in [*self._films.items()]}
        more = sum(writing.values())
        for event_id in [*self._folder.too_much(self.config.most_bytes, self.config.days, writing, more)]:
            if not self._remove(event_id):
                return


def _arrival(wall: datetime) -> float:
    """On the monotonic clock, what was then on the clock of the wall."""
    return monotonic() - max(0.0, (datetime.now().astimezone() - wall).total_seconds())
