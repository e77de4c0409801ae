"""The film of one event while it is written: from before its start until after its end."""

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from pathlib import Path
from time import monotonic

from lstr.extractors.video.clip_file import ClipFile
from lstr.extractors.video.packet_ring import TICKS, PacketRing, time_at
from lstr.files.atomic import temporary_for
from lstr.pipelines.watching.event import WatchedEvent
from lstr.timeline import iso

LATE = 15.0  # seconds that the decision on an action may come after its start, beside what its rule waits for
GRACE = 2.0  # seconds for which a film waits for packets of its last moment


@dataclass(eq=False)
class Film:
    """A film that is to be written, or is being written under a temporary name; all raises OSError, or FFmpegError."""

    event: WatchedEvent
    ring: PacketRing
    decided: float
    """When the event was decided, on the monotonic clock."""
    until: float = inf
    """When its last packet arrives, on the monotonic clock."""
    file: ClipFile | None = None
    decided_at: float = 0.0
    """Second of the film at which the event was decided."""
    _temporary: ExitStack = field(default_factory=ExitStack)
    _path: Path | None = None

    @property
    def lag(self) -> float:
        """Seconds from the start of the event to its decision."""
        return max(0.0, (self.event.decided - self.event.start).total_seconds())

    @property
    def is_late(self) -> bool:
        """Whether nothing can be expected any more that it would begin with."""
        return monotonic() > min(self.until, self.decided + LATE) + GRACE

    def open(self, path: Path, before: float) -> bool:
        """Begin with a key frame so many seconds before the event, or the first one; False where none has come yet."""
        packets = self.ring.since(self.decided, self.lag + before)
        if not packets:
            return False
        decided = time_at(packets, self.decided)
        # of pictures that have changed their coding since, those of the decision
        coding = next((p.coding for p in reversed(packets) if p.dts <= decided), packets[0].coding)
        first = next(p for p in packets if p.coding is coding)
        self._path = self._temporary.enter_context(temporary_for(path))
        self.file = ClipFile(self._path, first)
        self.decided_at = max(0.0, (decided - first.pts) / TICKS)
        return True

    def write(self, longest: float, most_bytes: int, deadline: float | None) -> bool:
        """Write what has come; whether it is over, as by its length in seconds or in bytes, or by the deadline."""
        file = self.file
        assert file
        for packet in self.ring.after(file.newest):
            if deadline is not None and monotonic() > deadline:
                return True
            if packet.coding is not file.coding or packet.arrival > self.until:
                return True
            file.write(packet)
            if file.seconds >= longest or file.size >= most_bytes:
                return True
        # a camera that went away during an event may never come back
        return monotonic() > min(self.until, self.decided + longest) + GRACE

    def close(self, about: Path) -> None:
        """Write what is to be known of it, and give it its name once it is on the disk."""
        assert self.file and self._path
        self.file.close()
        with self._path.open("rb") as written:
            os.fsync(written.fileno())
        with temporary_for(about) as temporary:
            temporary.write_text(json.dumps(self.about(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        self.file = None
        self._temporary.close()

    def abandon(self) -> None:
        """Leave nothing of it."""
        if self.file:
            self.file.abandon()
        with suppress(OSError):
            self._temporary.__exit__(OSError, OSError(), None)

    def about(self) -> dict[str, object]:
        """The event, and where it is in the film; times of the wall as ISO 8601, others in seconds of the film."""
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
            "size": list(self.file.pictures),
        }
