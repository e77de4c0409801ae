"""The folder of clips, and the clip of one event while it is written."""

import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from lstr.extractors.video.clip_file import ClipFile
from lstr.extractors.video.packet_ring import TICKS, PacketRing, time_at
from lstr.files.atomic import check_writable, sweep, temporary_for, unwritable
from lstr.pipelines.watching.event import WatchedEvent
from lstr.timeline import iso

EVENT_ID = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{8}")  # as `event.new_id` makes it
CLIP, ABOUT, IMAGE = ".mp4", ".json", ".jpg"
DAY_S = 86_400
LATE_S = 15.0  # by which the decision on an action may come after its start, besides the delay of its thresholds
GRACE_S = 2.0  # that a clip waits for the packets of its last moment


class ClipFolder:
    """ID.mp4, ID.json and ID.jpg of each event. Changed by one thread; files may be found by any.

    What a killed process was writing is removed. Raises OutputError if the folder cannot be made or written.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        check_writable(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sweep(folder)
            names = {path.stem for path in folder.iterdir() if path.suffix in (CLIP, ABOUT, IMAGE)}
        except OSError as error:
            raise unwritable(folder, error) from error
        self._files: dict[str, tuple[int, float]] = {}
        """Bytes, and the time of the newest file, by the id of an event."""
        for event_id in filter(EVENT_ID.fullmatch, names):
            self.count(event_id)

    @property
    def ids(self) -> list[str]:
        """The ids of events that have files, the oldest first."""
        return sorted([*self._files])

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in [*self._files.values()])

    @property
    def free(self) -> int:
        """Bytes that are free on its disk. Raises OSError."""
        return shutil.disk_usage(self.folder).free

    def file(self, event_id: str, suffix: str) -> Path:
        """Return the path of a file of an event."""
        assert EVENT_ID.fullmatch(event_id)
        return self.folder / f"{event_id}{suffix}"

    def count(self, event_id: str) -> None:
        """Count the files of an event again."""
        found: list[os.stat_result] = []
        for suffix in (CLIP, ABOUT, IMAGE):
            with suppress(FileNotFoundError):
                found.append(self.file(event_id, suffix).stat())
        self._files.pop(event_id, None)
        if found:
            self._files[event_id] = sum(f.st_size for f in found), max(f.st_mtime for f in found)

    def remove(self, event_id: str) -> None:
        """Delete the files of an event. Raises OSError."""
        for suffix in (CLIP, ABOUT, IMAGE):
            self.file(event_id, suffix).unlink(missing_ok=True)
        self.count(event_id)

    def find_excess(self, max_bytes: int, days: float, writing: Collection[str], more: int) -> Iterator[str]:
        """Yield the oldest ids beyond the limits, except those of clips that are being written, with `more` bytes."""
        oldest, size = time.time() - days * DAY_S, self.size + more
        for event_id in self.ids:
            if event_id in writing:
                continue
            event_size, modified = self._files[event_id]
            if size <= max_bytes and modified >= oldest:
                return
            size -= event_size
            yield event_id


def find_file(folder: Path, event_id: str, suffix: str) -> Path | None:
    """Return the file of an event in a folder of clips; None if it is missing, and for text that is not an id."""
    if not EVENT_ID.fullmatch(event_id):
        return None
    path = folder / f"{event_id}{suffix}"
    return path if path.is_file() else None


@dataclass(eq=False)
class Film:
    """A clip that waits for its packets, or is written under a temporary name. Raises OSError and FFmpegError."""

    event: WatchedEvent
    ring: PacketRing
    decided: float
    """When the event was decided, on the monotonic clock."""
    until: float = inf
    """When its last packet arrives, on the monotonic clock."""
    file: ClipFile | None = None
    decided_at: float = 0.0
    """Seconds from the start of the clip to the decision."""
    _temporary: ExitStack = field(default_factory=ExitStack)
    _path: Path | None = None

    @property
    def lag(self) -> float:
        """Seconds from the start of the event to its decision."""
        return max(0.0, (self.event.decided - self.event.start).total_seconds())

    @property
    def is_late(self) -> bool:
        """Whether the packets of its start can no longer come."""
        return monotonic() > min(self.until, self.decided + LATE_S) + GRACE_S

    def open(self, path: Path, before: float) -> bool:
        """Start with a key frame `before` seconds before the event, or the first one. False before the first packet."""
        packets = self.ring.since(self.decided, self.lag + before)
        if not packets:
            return False
        decided = time_at(packets, self.decided)
        # if the coding changed since, take that of the decision
        coding = next((p.coding for p in reversed(packets) if p.dts <= decided), packets[0].coding)
        first = next(p for p in packets if p.coding is coding)
        self._path = self._temporary.enter_context(temporary_for(path))
        self.file = ClipFile(self._path, first)
        self.decided_at = max(0.0, (decided - first.pts) / TICKS)
        return True

    def write(self, max_seconds: float, max_bytes: int, deadline: float | None) -> bool:
        """Write the packets that have come. Returns whether the clip is complete."""
        file = self.file
        assert file
        for packet in self.ring.after(file.newest):
            if deadline is not None and monotonic() > deadline:
                return True
            if packet.coding is not file.coding or packet.arrival > self.until:
                return True
            file.write(packet)
            if file.seconds >= max_seconds or file.size >= max_bytes:
                return True
        # a camera that went away during an event may never come back
        return monotonic() > min(self.until, self.decided + max_seconds) + GRACE_S

    def close(self, about: Path) -> None:
        """Write what is known of the clip, and give it its name once it is on the disk."""
        file = self.file
        assert file and self._path
        file.close()
        with self._path.open("rb") as written:
            os.fsync(written.fileno())
        start = self.event.decided - timedelta(seconds=self.decided_at)
        values: dict[str, Any] = {  # times in wall-clock time as ISO 8601, others in seconds of the clip
            "event": self.event.to_dict(),
            "start": iso(start),
            "end": iso(start + timedelta(seconds=file.seconds)),
            "seconds": round(file.seconds, 3),
            "event_at": round(max(0.0, self.decided_at - self.lag), 3),
            "decided_at": round(self.decided_at, 3),
            "codec": file.codec,
            "source_codec": file.coding.codec,
            "size": list(file.pictures),
        }
        with temporary_for(about) as temporary:
            temporary.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        self.file = None
        self._temporary.close()

    def abandon(self) -> None:
        """Remove what was written."""
        if self.file:
            self.file.abandon()
        with suppress(OSError):
            self._temporary.__exit__(OSError, OSError(), None)
