"""Clips of events: the camera's own packets from before the event until after it, and an image at once.

The folder has ID.mp4, ID.json and ID.jpg of each event. A clip begins with a key frame, and ends early where the camera
changes its frame size or coding, or was lost for seconds. One thread writes all of them. If clips cannot be written,
the log has a line about it and events continue without them.
"""

import errno
import json
import os
import queue
import re
import shutil
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import cv2

from lstr.errors import HistoryError
from lstr.extractors.video.clips import TICKS, ClipFile, PacketRing, image_at, time_at
from lstr.extractors.video.reader import PacketSink
from lstr.files.atomic import check_writable, sweep, temporary_for, unwritable
from lstr.pipelines.watching.config import ClipsConfig
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History
from lstr.timeline import iso

EVENT_ID = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{8}")  # as `event.new_id` makes it
CLIP, ABOUT, IMAGE = SUFFIXES = ".mp4", ".json", ".jpg"
LATE_S = 15.0  # by which the decision on an action may come after its start, besides the delay of its thresholds
GRACE_S = 2.0  # that a clip waits for the packets of its last moment
WRITE_INTERVAL_S = 0.5  # between two looks for new packets while clips are written
BUFFER_BYTES = 64 * 2**20  # of the latest packets of a source in memory: 25 s of a 4K camera with 20 Mbit/s
IDLE_INTERVAL_S = 60.0  # between two looks for clips that are too old
CLOSE_S = 2.5  # for open clips when the service ends
NICENESS = 10  # of the thread: encoding can wait, detection cannot
RESERVED_BYTES = 64 * 2**20  # of the disk that are not for clips, because the history needs them
FULL_DISK = f"less than {RESERVED_BYTES // 2**20} MB are free"
MAX_IMAGE_SIDE = 1280  # pixels
MAX_DECODE_S = 1.0  # to decode an image
JPEG_QUALITY = 85  # percent


def find_file(folder: Path, event_id: str, suffix: str) -> Path | None:
    """Return the file of an event in a folder of clips; None if it is missing, and for text that is not an id."""
    path = folder / f"{event_id}{suffix}"
    return path if EVENT_ID.fullmatch(event_id) and path.is_file() else None


@dataclass(eq=False)
class Recording:
    """A clip that waits for its packets, or is written under a temporary name."""

    event: WatchedEvent
    ring: PacketRing
    # times on the monotonic clock: when the event was decided, and when its last packet arrives
    decided: float
    lag: float  # seconds from the start of the event to its decision
    until: float = inf
    file: ClipFile | None = None
    decided_at: float = 0.0  # seconds from the start of the clip to the decision
    path: Path = Path()
    temporary: ExitStack = field(default_factory=ExitStack)


class Clips:
    """Clips and images of events in a folder. Any method may be called from any thread, and none raises.

    Args:
        folder: Where they are; what a killed process was writing is removed. Raises OutputError if it cannot be made
            or written.
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
        on_attached: Callable[[str], object] = lambda event_id: None,
    ):
        self.folder, self.config = folder, config
        self._history, self._log, self._on_attached = history, log, on_attached
        check_writable(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sweep(folder)
            stems = {path.stem for path in folder.iterdir() if path.suffix in SUFFIXES}
        except OSError as error:
            raise unwritable(folder, error) from error
        # bytes, and the time of the latest file, by the id of an event; changed by the thread alone from now on
        self._sizes: dict[str, tuple[int, float]] = {}
        for event_id in filter(EVENT_ID.fullmatch, stems):
            self._measure(event_id)
        self._rings = defaultdict[str, PacketRing](lambda: PacketRing(BUFFER_BYTES, config.before + LATE_S))
        self._recordings: dict[str, Recording] = {}
        self._expired: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._without_image: queue.SimpleQueue[Recording] = queue.SimpleQueue()
        self._is_full = False
        # sources whose packets make no clip, which the log has said
        self._unusable: set[str] = set()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        # when closing must be over, on the monotonic clock
        self._deadline: float | None = None
        with suppress(HistoryError):  # folder and history may not agree after a kill
            events = {event.id: event for event in history.events()}
            for event_id in sorted(self._sizes.keys() - events.keys()):
                self._remove(event_id)
            for event in events.values():
                clip, image = (path.name if path else "" for path in (self.path(event.id), self.image(event.id)))
                if (clip, image) != (event.clip, event.picture):
                    history.attach(event.id, clip=clip, picture=image)
        self._thread = threading.Thread(target=self._run, name="clips", daemon=True)
        self._thread.start()

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(size for size, _ in [*self._sizes.values()])

    def ring(self, source: str) -> PacketSink:
        """Return what takes the packets of a source, for `Session(packets=clips.ring)`."""
        with self._lock:
            return self._rings[source].take

    def forget(self, source: str) -> None:
        """Keep no packets of a source any more."""
        with self._lock:
            self._rings.pop(source, None)

    def set_delay(self, source: str, seconds: float) -> None:
        """Keep packets for as long as the thresholds of a source delay a decision."""
        with self._lock:
            self._rings[source].most_seconds = self.config.before + LATE_S + seconds

    def begin(self, event: WatchedEvent) -> None:
        """Start the clip and the image of an event that is in the history."""
        with self._lock:
            ring = self._rings.get(event.source)
            if ring is None or self._deadline is not None or event.id in self._recordings:
                return
            lag = max(0.0, (event.decided - event.start).total_seconds())
            recording = self._recordings[event.id] = Recording(event, ring, _to_monotonic(event.decided), lag)
            self._without_image.put(recording)
        self._woken.set()

    def end(self, event: WatchedEvent) -> None:
        """End the clip of an event some seconds after its end."""
        with self._lock:
            if recording := self._recordings.get(event.id):
                recording.event = event
                after = 0.0 if event.still_active else self.config.after  # a source that has ended sends nothing more
                recording.until = _to_monotonic(event.end or event.seen) + after
        self._woken.set()

    def path(self, event_id: str) -> Path | None:
        """Return the clip of an event once it is complete."""
        return find_file(self.folder, event_id, CLIP)

    def image(self, event_id: str) -> Path | None:
        """Return the image of an event once it is made."""
        return find_file(self.folder, event_id, IMAGE)

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

    def _run(self) -> None:
        if sys.platform == "linux":  # only there a thread has its own niceness
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while True:
            self._woken.wait(WRITE_INTERVAL_S if self._recordings else IDLE_INTERVAL_S)
            self._woken.clear()
            while not self._without_image.empty():  # first, because notifications wait for images
                recording = self._without_image.get()
                try:
                    event_id, packets = recording.event.id, recording.ring.since(recording.decided, 0.0)
                    if not packets:
                        continue
                    image = image_at(packets, time_at(packets, recording.decided), MAX_IMAGE_SIDE, MAX_DECODE_S)
                    if image is not None and shutil.disk_usage(self.folder).free >= RESERVED_BYTES:
                        _, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
                        with temporary_for(self.folder / f"{event_id}{IMAGE}") as temporary:
                            temporary.write_bytes(data.tobytes())
                        self._attach(event_id, picture=f"{event_id}{IMAGE}")
                except OSError as error:
                    self._report_disk(error.strerror or str(error))
                except Exception:
                    pass  # packets that make no image make no clip either, and the log says that
            for recording in [*self._recordings.values()]:
                self._guard(recording, self._write)
            while not self._expired.empty():
                self._remove(self._expired.get())
            # the oldest clips beyond the limits, but none that is being written
            writing = {event_id: r.file.size if r.file else 0 for event_id, r in [*self._recordings.items()]}
            oldest, size = time.time() - self.config.days * 86_400, self.size + sum(writing.values())
            for event_id in sorted(self._sizes.keys() - writing.keys()):
                event_size, modified = self._sizes[event_id]
                if (size <= self.config.max_size and modified >= oldest) or not self._remove(event_id):
                    break
                size -= event_size
            if self._deadline is not None:
                for step in (self._write, self._finish):
                    for recording in [*self._recordings.values()]:
                        self._guard(recording, step)
                return

    def _guard(self, recording: Recording, step: Callable[[Recording], None]) -> None:
        """Do a step of a clip; an error ends the clip without a file."""
        try:
            step(recording)
        except Exception as error:
            self._drop(recording)
            if isinstance(error, OSError):
                self._report_disk(error.strerror or str(error))
            elif (source := recording.event.source) not in self._unusable:
                self._unusable.add(source)
                self._log(f"Clips of {source} cannot be written ({error}): its events have no clips.")

    def _write(self, recording: Recording) -> None:
        """Write what has come for a clip, and finish it if it is complete. Raises OSError and FFmpegError.

        A clip begins with a key frame some seconds before the event, or with the first one there is.
        """
        is_full, limits = shutil.disk_usage(self.folder).free < RESERVED_BYTES, self.config
        if recording.file is None:
            if is_full:
                raise OSError(errno.ENOSPC, FULL_DISK)
            packets = recording.ring.since(recording.decided, recording.lag + limits.before)
            if not packets:
                if monotonic() > min(recording.until, recording.decided + LATE_S) + GRACE_S:
                    self._drop(recording)  # the packets of its start can no longer come
                return
            decided = time_at(packets, recording.decided)
            # if the coding changed since, or the camera was lost, take that of the decision
            coding = next((p.coding for p in reversed(packets) if p.dts <= decided), packets[0].coding)
            first = next(p for p in packets if p.coding is coding)
            path = self.folder / f"{recording.event.id}{CLIP}"
            recording.path = recording.temporary.enter_context(temporary_for(path))
            recording.file = ClipFile(recording.path, first)
            recording.decided_at = max(0.0, (decided - first.pts) / TICKS)
        file = recording.file
        # a camera that went away during an event may never come back
        is_complete = is_full or monotonic() > min(recording.until, recording.decided + limits.max_length) + GRACE_S
        for packet in recording.ring.after(file.newest):
            is_late = monotonic() > (self._deadline or inf) or packet.arrival > recording.until
            if is_late or packet.coding is not file.coding:
                is_complete = True
                break
            file.write(packet)
            if file.seconds >= limits.max_length or file.size >= limits.max_size:
                is_complete = True
                break
        if is_complete:
            self._finish(recording)
        if is_full:
            self._report_disk(FULL_DISK)

    def _finish(self, recording: Recording) -> None:
        """Write what is known of a clip, give it its name once it is on the disk, and store that in the history."""
        file, event_id = recording.file, recording.event.id
        if file is None or not file.seconds:
            self._drop(recording)
            return
        file.close()
        with recording.path.open("rb") as written:
            os.fsync(written.fileno())
        start = recording.event.decided - timedelta(seconds=recording.decided_at)
        values: dict[str, Any] = {  # times in wall-clock time as ISO 8601, others in seconds of the clip
            "event": recording.event.to_dict(),
            "start": iso(start),
            "end": iso(start + timedelta(seconds=file.seconds)),
            "seconds": round(file.seconds, 3),
            "event_at": round(max(0.0, recording.decided_at - recording.lag), 3),
            "decided_at": round(recording.decided_at, 3),
            "codec": file.codec,
            "source_codec": file.coding.codec,
            "size": list(file.frame_size),
        }
        with temporary_for(self.folder / f"{event_id}{ABOUT}") as temporary:
            temporary.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        recording.file = None
        recording.temporary.close()
        with self._lock:
            self._recordings.pop(event_id, None)
        self._attach(event_id, clip=f"{event_id}{CLIP}")
        if self._is_full and shutil.disk_usage(self.folder).free >= RESERVED_BYTES:
            self._is_full = False
            self._log("Clips are written again.")

    def _drop(self, recording: Recording) -> None:
        """Remove what was written of a clip."""
        if recording.file:
            recording.file.abandon()
        with suppress(OSError):
            recording.temporary.__exit__(OSError, OSError(), None)
        with self._lock:
            self._recordings.pop(recording.event.id, None)

    def _attach(self, event_id: str, **names: str) -> None:
        """Store the names of new files; if that fails, it is done at the next start."""
        self._measure(event_id)
        with suppress(HistoryError):
            self._history.attach(event_id, **names)
        self._on_attached(event_id)

    def _measure(self, event_id: str) -> None:
        """Measure the files of an event again."""
        paths = [self.folder / f"{event_id}{suffix}" for suffix in SUFFIXES]
        found = [path.stat() for path in paths if path.is_file()]
        self._sizes.pop(event_id, None)
        if found:
            self._sizes[event_id] = sum(f.st_size for f in found), max(f.st_mtime for f in found)

    def _remove(self, event_id: str) -> bool:
        """Delete the files of an event. Returns whether that was possible."""
        try:
            for suffix in SUFFIXES:
                (self.folder / f"{event_id}{suffix}").unlink(missing_ok=True)
            self._measure(event_id)
            self._history.attach(event_id, clip="", picture="")
        except HistoryError:
            pass  # the next start repairs it
        except OSError as error:
            self._report_disk(error.strerror or str(error))
            return False
        return True

    def _report_disk(self, reason: str) -> None:
        if not self._is_full:
            self._is_full = True
            self._log(f"{self.folder} cannot be written ({reason}): events continue without clips.")


def _to_monotonic(wall: datetime) -> float:
    """Return a past wall-clock time on the monotonic clock."""
    return monotonic() - max(0.0, (datetime.now().astimezone() - wall).total_seconds())
