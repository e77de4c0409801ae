"""The journal of a labels project: one line per change, on the disk before it counts, and what can be undone."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from lstr.errors import OutputError
from lstr.files.atomic import lock, unwritable
from lstr.files.content import read_jsonl, to_json
from lstr.pipelines.labelling.values import Action, Change, Label

# What a person does to a video, and what a model proposes, which cannot be undone
Deed = Literal["do", "undo", "redo", "propose"]
Changes = Sequence[Change[Any]]


class Entry(msgspec.Struct, frozen=True):
    """A revision of a project and a line of its journal: the id of the request, what was done, and the changes.

    `video` is empty for changes of the project's own values, which cannot be undone.
    """

    revision: int
    id: str
    deed: Deed
    video: str
    changes: tuple[Change[Any], ...]


@dataclass
class History:
    """The changes that can be undone and redone, by video, and the last value of each removed action."""

    done: dict[str, list[Changes]] = field(default_factory=dict)
    undone: dict[str, list[Changes]] = field(default_factory=dict)
    former: dict[str, Action] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Add an entry. If it removes an action, changes of labels of that action can no longer be undone."""
        for change in entry.changes:
            if isinstance(change.before, Action):
                self.former[change.key] = change.before
                for deeds in (*self.done.values(), *self.undone.values()) if change.after is None else ():
                    values = (value for made in deeds for one in made for value in (one.before, one.after))
                    if any(isinstance(value, Label) and value.action == change.key for value in values):
                        deeds.clear()
        if not entry.video:
            return
        done, undone = (side.setdefault(entry.video, []) for side in (self.done, self.undone))
        if entry.deed == "propose":
            gone = {(change.kind, change.key) for change in entry.changes if change.after is None}
            if any((change.kind, change.key) in gone for changes in undone for change in changes):
                undone.clear()  # among them is a decision about a proposal that no longer exists
        elif entry.deed == "do":
            done.append(entry.changes)
            undone.clear()
        else:
            taken, given = (done, undone) if entry.deed == "undo" else (undone, done)
            if taken:  # earlier versions could still undo changes of a removed action
                given.append(taken.pop())

    def next(self, video: str, deed: Deed) -> Changes:
        """Return the changes that undo the last deed in a video, or redo the one undone last; empty without one."""
        deeds = (self.done if deed == "undo" else self.undone).get(video)
        if not deeds:
            return ()
        return tuple(change.reversed() for change in reversed(deeds[-1])) if deed == "undo" else deeds[-1]


def journal_of(labels: Path) -> Path:
    """Return the path of the journal of a labels file, next to it."""
    return labels.with_name(f"{labels.name}.journal")


class Journal:
    """A file of JSON lines that one process at a time has open.

    Raises OutputError if another process has it open or it cannot be written.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise unwritable(path.parent, error) from error
        if not lock(self._file):
            self._file.close()
            raise OutputError(f"Another `lstr label` has {path} open.", "use its page, or name another file with -o.")

    def read(self) -> list[dict[str, Any]]:
        """Return the lines from the last start of the project on; a kill or a full disk may have cut one short."""
        lines = [line for line in read_jsonl(self.path) if isinstance(line, dict)]
        starts = [at for at, line in enumerate(lines) if "begin" in line]
        return lines[starts[-1] :] if starts else []

    def append(self, line: Any) -> None:
        """Add a line; it is on the disk when this returns, or not at all. Raises OutputError."""
        size = os.fstat(self._file.fileno()).st_size
        data = to_json(line).encode() + b"\n"
        if size:
            with self.path.open("rb") as file:
                file.seek(size - 1)
                data = data if file.read(1) == b"\n" else b"\n" + data  # a kill cut the last line short
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), size)
            raise unwritable(self.path.parent, error) from error

    def close(self) -> None:
        """Let others open it; remove it if it has no line."""
        if not self._file.closed and not os.fstat(self._file.fileno()).st_size:
            self.path.unlink(missing_ok=True)
        self._file.close()
