"""The folder of clips: ID.mp4, ID.json and ID.jpg of each event, within bounds of size and age."""

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.files.atomic import check_writable, sweep, unwritable

# What `event.new_id` makes; nothing else is a name in the folder.
ID = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{8}")
FILM, ABOUT, PICTURE = ".mp4", ".json", ".jpg"
DAY = 86_400  # seconds


@dataclass(frozen=True)
class _Entry:
    size: int
    """Bytes of its files."""
    modified: float
    """When the newest of them was written, in seconds since 1970."""


class ClipFolder:
    """Its files are counted when it is opened, and what is added and removed from then on.

    What a killed process was writing is removed. Raises OutputError where it cannot be made or written.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        check_writable(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sweep(folder)
            names = {path.stem for path in folder.iterdir() if path.suffix in (FILM, ABOUT, PICTURE)}
        except OSError as error:
            raise unwritable(folder, error) from error
        self.size = 0
        """Bytes of all of them."""
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()
        for event_id in sorted(filter(ID.fullmatch, names)):
            self.count(event_id)

    @property
    def ids(self) -> list[str]:
        """The ids of events that have files, the oldest first."""
        return sorted([*self._entries])

    @property
    def free(self) -> int:
        """Bytes that are free on its disk. Raises OSError."""
        return shutil.disk_usage(self.folder).free

    def file(self, event_id: str, suffix: str) -> Path:
        """Where a file of an event is, or would be."""
        assert ID.fullmatch(event_id)
        return self.folder / f"{event_id}{suffix}"

    def find(self, event_id: str, suffix: str) -> Path | None:
        """The file of an event; None where it has none, and for what is no id."""
        return find_file(self.folder, event_id, suffix)

    def count(self, event_id: str) -> None:
        """Count the files of an event anew."""
        found: list[os.stat_result] = []
        with self._lock:  # which keeps an older look from replacing a newer one
            for suffix in (FILM, ABOUT, PICTURE):
                with suppress(FileNotFoundError):
                    found.append(self.file(event_id, suffix).stat())
            if old := self._entries.pop(event_id, None):
                self.size -= old.size
            if found:
                entry = _Entry(sum(f.st_size for f in found), max(f.st_mtime for f in found))
                self._entries[event_id] = entry
                self.size += entry.size

    def remove(self, event_id: str) -> None:
        """Delete the files of an event. Raises OSError."""
        for suffix in (FILM, ABOUT, PICTURE):
            self.file(event_id, suffix).unlink(missing_ok=True)
        self.count(event_id)

    def too_much(self, most_bytes: int, days: float, writing: Collection[str], more: int = 0) -> Iterator[str]:
        """Ids to be removed, the oldest first, until all is within bounds; never one that is being written.

        `more` are bytes that are being written.
        """
        oldest, size = time.time() - days * DAY, self.size + more
        for event_id in self.ids:
            entry = self._entries.get(event_id)
            if entry is None or event_id in writing:
                continue
            if size <= most_bytes and entry.modified >= oldest:
                return
            size -= entry.size
            yield event_id


def find_file(folder: Path, event_id: str, suffix: str) -> Path | None:
    """The file of an event in a folder of clips; None where it has none, and for what is no id."""
    if not ID.fullmatch(event_id):
        return None
    path = folder / f"{event_id}{suffix}"
    return path if path.is_file() else None


def about_clip(folder: Path, event_id: str) -> dict[str, Any] | None:
    """What the ID.json of an event with a film says; None where nothing can be read."""
    path = find_file(folder, event_id, ABOUT)
    if path is None or find_file(folder, event_id, FILM) is None:
        return None
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None
