"""The seconds that mattered: of each event a film of the packets as they were received, and a picture, at once.

A film begins with a key frame before the event and ends after it, or where the pictures change their size or coding. It
is written in a thread of its own, a picture in another one. What cannot be written is said in one sentence; the events
go on without.
"""

import json
import os
import queue
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from time import monotonic

import cv2

from lstr.extractors.video.clip_file import ClipFile, picture_of
from lstr.extractors.video.packet_ring import TICKS, PacketRing, PacketSink, time_at
from lstr.files.atomic import replacing
from lstr.pipelines.watching.clip_folder import ABOUT, FILM, PICTURE, ClipFolder
from lstr.pipelines.watching.config import ClipsConfig
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History, HistoryError
from lstr.timeline import iso

LATE = 15.0  # seconds that the decision on an action may come after its start
TURN = 0.5  # seconds between two looks at what has come for the films that are being written
TURN_IDLE = 60.0  # seconds between two looks at what is too old
GRACE = 2.0  # seconds for which a film waits for packets of its last moment
CLOSING = 2.5  # seconds for the films that are being written when all ends
RESERVE = 64 * 2**20  # bytes on the disk that are not for clips: the history needs them
LONG_SIDE = 1280  # pixels of a picture
PATIENCE = 1.0  # seconds of decoding for one


@dataclass(eq=False)
class _Film:
    """A film that is being written, or is to be."""

    event: WatchedEvent
    ring: PacketRing
    decided: float
    """When the event was decided, on the monotonic clock."""
    until: float = inf
    """When its last packet arrives, on the monotonic clock."""
    file: ClipFile | None = None
    decided_at: float = 0.0
    """Second of the film at which the event was decided."""
    stack: ExitStack = field(default_factory=ExitStack)
    """Its temporary file."""
    path: Path | None = None

    @property
    def lag(self) -> float:
        """Seconds from the start of the event to its decision."""
        return max(0.0, (self.event.decided - self.event.start).total_seconds())

    def about(self) -> dict[str, object]:
        """Its ID.json."""
        assert self.file
        start = self.event.decided - timedelta(seconds=self.decided_at)
        return {
            "event": self.event.to_dict(),
            "start": iso(start),
            "end": iso(start + timedelta(seconds=self.file.seconds)),
            "seconds": round(self.file.seconds, 3),
            "event_at": round(max(0.0, self.decided_at - self.lag), 3),
            "decided_at": round(self.decided_at, 3),
            "codec": self.file.codec,
            "source_codec": self.file.coding.codec,
            "size": list(self.file.coding.size),
        }


class Clips:
    """Films and pictures of events in a folder; any method may be called from any thread, and none raises.

    `say` gets sentences for a person. Raises OutputError where the folder cannot be made or written.
    """

    def __init__(self, folder: Path, config: ClipsConfig, history: History, say: Callable[[str], None]):
        self.config = config
        self._folder, self._history, self._say = ClipFolder(folder), history, say
        self._rings: dict[str, PacketRing] = {}
        self._films: dict[str, _Film] = {}
        self._gone: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[_Film | None] = queue.SimpleQueue()
        self._pictured: dict[str, threading.Event] = {}
        """Of pictures that are being made; set when one is there, or cannot be."""
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

    def configure(self, config: ClipsConfig) -> None:
        """Go on with other settings."""
        with self._lock:
            self.config = config
            for ring in self._rings.values():
                ring.most_bytes, ring.most_seconds = config.ring_bytes, config.before + LATE
        self._woken.set()

    def begin(self, event: WatchedEvent) -> None:
        """Begin the film and the picture of an event, which the history has."""
        with self._lock:
            ring = self._rings.get(event.source)
            if ring is None or self._closing is not None or event.id in self._films:
                return
            film = _Film(event, ring, _arrival(event.decided))
            self._films[event.id] = film
            self._pictured[event.id] = threading.Event()
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

    def picture(self, event_id: str, wait: float = 0.0) -> Path | None:
        """The picture of an event; one that is being made is waited for, so many seconds at most."""
        making = self._pictured.get(event_id)
        if making and wait:
            making.wait(wait)
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
                self._rings[source] = PacketRing(self.config.ring_bytes, self.config.before + LATE)
            return self._rings[source]

    def _write_films(self) -> None:
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
                    self._guarded(film, self._finish)
                return

    def _guarded(self, film: _Film, step: Callable[[_Film], None]) -> None:
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

    def _advance(self, film: _Film) -> None:
        """Write what has come for a film, and end it where it is to end."""
        if film.file is None and not self._open(film):
            if monotonic() > min(film.until, film.decided + LATE) + GRACE:
                self._drop(film)
            return
        file = film.file
        assert file
        for packet in film.ring.after(file.newest):
            late = self._closing is not None and monotonic() > self._closing
            if packet.coding is not file.coding or packet.arrival > film.until or late:
                self._finish(film)
                return
            file.write(packet)
            if file.seconds >= self.config.longest or file.size >= self.config.most_bytes:
                self._finish(film)
                return
        if monotonic() > film.until + GRACE:
            self._finish(film)

    def _open(self, film: _Film) -> bool:
        """Begin the file of a film; False where no key frame has come yet. Raises OSError where the disk is full."""
        packets = film.ring.since(film.decided, film.lag + self.config.before)
        if not packets:
            return False
        if self._folder.free < RESERVE:
            raise OSError(0, f"less than {RESERVE // 2**20} MB are free")
        decided = time_at(packets, film.decided)
        # of pictures that have changed their coding since, those of the decision
        coding = next((p.coding for p in reversed(packets) if p.dts <= decided), packets[0].coding)
        first = next(p for p in packets if p.coding is coding)
        film.path = film.stack.enter_context(replacing(self._folder.file(film.event.id, FILM)))
        film.file = ClipFile(film.path, first)
        film.decided_at = max(0.0, (decided - first.pts) / TICKS)
        return True

    def _finish(self, film: _Film) -> None:
        """Close a film, give it its name, and tell the history."""
        if film.file is None or film.path is None or not film.file.seconds:
            self._drop(film)
            return
        film.file.close()
        with film.path.open("rb") as written:
            os.fsync(written.fileno())
        film.stack.close()
        film.file, about = None, film.about()
        event_id = film.event.id
        with replacing(self._folder.file(event_id, ABOUT)) as temporary:
            temporary.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")
        self._forget(film)
        self._folder.count(event_id)
        self._attach(event_id, clip=f"{event_id}{FILM}")
        if self._full:
            self._full = False
            self._say("Clips are kept again.")

    def _drop(self, film: _Film) -> None:
        """Write a film no further, and leave nothing of it."""
        if film.file:
            film.file.abandon()
        with suppress(OSError):
            film.stack.__exit__(OSError, OSError(), None)
        self._forget(film)

    def _forget(self, film: _Film) -> None:
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
            finally:
                self._pictured.pop(film.event.id).set()

    def _make_picture(self, film: _Film) -> None:
        event_id = film.event.id
        packets = film.ring.since(film.decided, 0.0)
        image = picture_of(packets, time_at(packets, film.decided), LONG_SIDE, PATIENCE) if packets else None
        if image is None or self._folder.free < RESERVE:
            return
        whole, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
        assert whole
        with replacing(self._folder.file(event_id, PICTURE)) as temporary:
            temporary.write_bytes(data.tobytes())
        self._folder.count(event_id)
        self._attach(event_id, picture=f"{event_id}{PICTURE}")

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
