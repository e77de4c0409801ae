"""Clips of events: the camera's own packets from before the event until after it, and an image at once.

A clip begins with a key frame, and ends early where the camera changes its frame size or coding. One thread writes all
of them. If clips cannot be written, the log says so once and events continue without them.
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
from lstr.pipelines.watching.config import ClipsConfig
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.film import ABOUT, CLIP, IMAGE, LATE_S, ClipFolder, Film, find_file
from lstr.pipelines.watching.history import History

WRITE_INTERVAL_S = 0.5  # between two looks for new packets while clips are written
IDLE_INTERVAL_S = 60.0  # between two looks for clips that are too old
CLOSE_S = 2.5  # for open clips when the service ends
NICENESS = 10  # of the thread: encoding can wait, detection cannot
RESERVED_BYTES = 64 * 2**20  # of the disk that are not for clips, because the history needs them
FULL_DISK = f"less than {RESERVED_BYTES // 2**20} MB are free"
MAX_IMAGE_SIDE = 1280  # pixels
MAX_DECODE_S = 1.0  # to decode an image


class Clips:
    """Clips and images of events in a folder. Any method may be called from any thread, and none raises.

    Args:
        folder: Where they are. Raises OutputError if it cannot be made or written.
        config: Their limits.
        history: Gets their names.
        log: Takes sentences for the log.
        on_attached: Called with the id of an event that has a clip or an image now.
    """

    def __init__(
        self,
        folder: Path,
        config: ClipsConfig,
        history: History,
        log: Callable[[str], None],
        on_attached: Callable[[str], None] = lambda event_id: None,
    ):
        self.config, self._on_attached = config, on_attached
        self._folder, self._history, self._log = ClipFolder(folder), history, log
        self._rings: dict[str, PacketRing] = {}
        self._delays: dict[str, float] = {}
        """Seconds by which the thresholds of a source delay a decision."""
        self._films: dict[str, Film] = {}
        self._expired: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._without_image: queue.SimpleQueue[Film] = queue.SimpleQueue()
        self._is_full = False
        self._unusable: set[str] = set()
        """Sources whose packets make no clip, which the log has said."""
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._deadline: float | None = None
        """When closing must be over, on the monotonic clock."""
        self._thread = threading.Thread(target=self._run, name="clips", daemon=True)
        self._thread.start()

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._folder.size

    @property
    def writing(self) -> int:
        """Number of clips that are being written."""
        return len(self._films)

    def ring(self, source: str) -> PacketSink:
        """Return what takes the packets of a source, for `Session(packets=clips.ring)`."""
        with self._lock:
            if source not in self._rings:
                self._rings[source] = PacketRing(self.config.ring_bytes, self._ring_seconds(source))
            return self._rings[source].take

    def forget(self, source: str) -> None:
        """Keep no packets of a source any more."""
        with self._lock:
            self._rings.pop(source, None)
            self._delays.pop(source, None)

    def set_delay(self, source: str, seconds: float) -> None:
        """Keep packets for as long as the thresholds of a source delay a decision."""
        with self._lock:
            self._delays[source] = seconds
            if source in self._rings:
                self._rings[source].most_seconds = self._ring_seconds(source)

    def configure(self, config: ClipsConfig) -> None:
        """Continue with other settings."""
        with self._lock:
            self.config = config
            for source, ring in self._rings.items():
                ring.most_bytes, ring.most_seconds = config.ring_bytes, self._ring_seconds(source)
        self._woken.set()

    def begin(self, event: WatchedEvent) -> None:
        """Start the clip and the image of an event that is in the history."""
        with self._lock:
            ring = self._rings.get(event.source)
            if ring is None or self._deadline is not None or event.id in self._films:
                return
            film = self._films[event.id] = Film(event, ring, _to_monotonic(event.decided))
            self._without_image.put(film)
        self._woken.set()

    def end(self, event: WatchedEvent) -> None:
        """End the clip of an event some seconds after its end."""
        with self._lock:
            film = self._films.get(event.id)
            if film:
                film.event = event
                after = 0.0 if event.still_on else self.config.after  # a source that has ended sends nothing more
                film.until = _to_monotonic(event.end or event.seen) + after
        self._woken.set()

    def path(self, event_id: str) -> Path | None:
        """Return the clip of an event once it is complete."""
        return find_file(self._folder.folder, event_id, CLIP)

    def image(self, event_id: str) -> Path | None:
        """Return the image of an event once it is made."""
        return find_file(self._folder.folder, event_id, IMAGE)

    def remove(self, event_ids: Iterable[str]) -> None:
        """Delete the clips of events."""
        for event_id in event_ids:
            self._expired.put(event_id)
        self._woken.set()

    def close(self) -> None:
        """Complete the open clips with the packets so far; takes at most 3 s."""
        with self._lock:
            self._deadline = monotonic() + CLOSE_S
        self._woken.set()
        self._thread.join(CLOSE_S + 0.4)

    def _ring_seconds(self, source: str) -> float:
        return self.config.before + LATE_S + self._delays.get(source, 0.0)

    def _run(self) -> None:
        if sys.platform == "linux":  # only there a thread has its own niceness
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        self._repair()
        while True:
            self._woken.wait(WRITE_INTERVAL_S if self._films else IDLE_INTERVAL_S)
            self._woken.clear()
            while not self._without_image.empty():  # first, because notifications wait for images
                try:
                    self._make_image(self._without_image.get())
                except OSError as error:
                    self._report_disk(error.strerror or str(error))
                except Exception:
                    pass  # packets that make no image make no clip either, and the log says that
            for film in [*self._films.values()]:
                self._guard(film, self._write)
            while not self._expired.empty():
                self._remove(self._expired.get())
            writing = {event_id: film.file.size if film.file else 0 for event_id, film in [*self._films.items()]}
            limits = self.config.max_bytes, self.config.days
            for event_id in [*self._folder.find_excess(*limits, writing, sum(writing.values()))]:
                if not self._remove(event_id):
                    break
            if self._deadline is not None:
                for film in [*self._films.values()]:
                    self._guard(film, self._write)
                for film in [*self._films.values()]:
                    self._guard(film, self._finish)
                return

    def _guard(self, film: Film, step: Callable[[Film], None]) -> None:
        """Do a step of a clip; an error ends the clip without a file."""
        try:
            step(film)
        except Exception as error:
            self._drop(film)
            if isinstance(error, OSError):
                self._report_disk(error.strerror or str(error))
            elif film.event.source not in self._unusable:
                self._unusable.add(film.event.source)
                self._log(f"The packets of {film.event.source} make no clip ({error}); its events have none.")

    def _write(self, film: Film) -> None:
        """Write what has come for a clip, and finish it if it is complete."""
        is_full = self._folder.free < RESERVED_BYTES
        if film.file is None:
            if is_full:
                raise OSError(errno.ENOSPC, FULL_DISK)
            if not film.open(self._folder.file(film.event.id, CLIP), self.config.before):
                if film.is_late:
                    self._drop(film)
                return
        if film.write(self.config.max_seconds, self.config.max_bytes, self._deadline) or is_full:
            self._finish(film)
        if is_full:
            self._report_disk(FULL_DISK)

    def _finish(self, film: Film) -> None:
        """Close a clip, give it its name, and store that in the history."""
        if film.file is None or not film.file.seconds:
            self._drop(film)
            return
        event_id = film.event.id
        film.close(self._folder.file(event_id, ABOUT))
        with self._lock:
            self._films.pop(event_id, None)
        self._attach(event_id, clip=f"{event_id}{CLIP}")
        if self._is_full and self._folder.free >= RESERVED_BYTES:
            self._is_full = False
            self._log("Clips are kept again.")

    def _drop(self, film: Film) -> None:
        film.abandon()
        with self._lock:
            self._films.pop(film.event.id, None)

    def _report_disk(self, reason: str) -> None:
        if not self._is_full:
            self._is_full = True
            folder = self._folder.folder
            self._log(f"No clips are kept for now: {folder} cannot be written ({reason}). Events continue.")

    def _make_image(self, film: Film) -> None:
        event_id, packets = film.event.id, film.ring.since(film.decided, 0.0)
        if not packets:
            return
        image = picture_of(packets, time_at(packets, film.decided), MAX_IMAGE_SIDE, MAX_DECODE_S)
        if image is not None and self._folder.free >= RESERVED_BYTES:
            _, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
            with temporary_for(self._folder.file(event_id, IMAGE)) as temporary:
                temporary.write_bytes(data.tobytes())
            self._attach(event_id, picture=f"{event_id}{IMAGE}")

    def _attach(self, event_id: str, clip: str | None = None, picture: str | None = None) -> None:
        """Store the names of new files; if that fails, it is done at the next start."""
        self._folder.count(event_id)
        with suppress(HistoryError):
            self._history.attach(event_id, clip, picture)
        self._on_attached(event_id)

    def _repair(self) -> None:
        """Make folder and history agree, as they may not after a kill."""
        with suppress(HistoryError):
            for event_id in self._folder.ids:
                if self._history.find(event_id) is None:
                    self._remove(event_id)
            stored = self._history.clip_names()
            for event_id in {*stored, *self._folder.ids} - {*self._films}:
                files = [path.name if path else "" for path in (self.path(event_id), self.image(event_id))]
                if files != stored.get(event_id, ["", ""]):
                    self._history.attach(event_id, *files)

    def _remove(self, event_id: str) -> bool:
        """Delete the files of an event. Returns whether that was possible."""
        try:
            self._folder.remove(event_id)
            self._history.attach(event_id, clip="", picture="")
        except HistoryError:
            pass  # the next start repairs it
        except OSError as error:
            self._report_disk(error.strerror or str(error))
            return False
        return True


def _to_monotonic(wall: datetime) -> float:
    """Return a past wall-clock time on the monotonic clock."""
    return monotonic() - max(0.0, (datetime.now().astimezone() - wall).total_seconds())
