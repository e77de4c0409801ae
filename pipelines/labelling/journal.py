"""The journal of a labels project: one line a change, on the disk before it counts; and what of it can be undone."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lstr.errors import OutputError, RequestError
from lstr.files.atomic import lock, unwritable
from lstr.files.content import read_jsonl, to_json
from lstr.pipelines.labelling.values import OF_VIDEO, Action, Change, Label, change_of

# What a person does to a video, and what a model proposes, which nobody undoes.
Deed = Literal["do", "undo", "redo", "propose"]


@dataclass(frozen=True)
class Entry:
    """One revision of a project: who asked for it, what was done, and which values changed.

    `video` is that whose history it belongs to; "" for the project's own, which is not undone.
    """

    revision: int
    id: str
    deed: Deed
    video: str
    changes: tuple[Change, ...]

    def to_dict(self) -> dict[str, Any]:
        """Its JSON object, a line of the journal."""
        own = {"revision": self.revision, "id": self.id, "deed": self.deed, "video": self.video}
        return {**own, "changes": [change.to_dict() for change in self.changes]}


def entry_of(line: dict[str, Any]) -> Entry:
    """An entry from a line as of `to_dict`. Raises RequestError, KeyError or TypeError where it is none."""
    changes = tuple(map(change_of, line["changes"]))
    return Entry(int(line["revision"]), str(line["id"]), line["deed"], str(line["video"]), changes)


def video_of(changes: Sequence[Change]) -> str:
    """The one video that changes are of; "" where they are the project's own. Raises RequestError for several."""
    videos = {change.video for change in changes}
    if len(videos) > 1 or not changes:
        raise RequestError("A change is of one video.", "reload the page.")
    kinds = {change.kind in OF_VIDEO for change in changes}
    if len(kinds) > 1:
        raise RequestError("A change is of a video or of the project.", "reload the page.")
    return videos.pop()


@dataclass
class History:
    """What can be undone and done again, by video, and the last value of each action that is no more."""

    done: dict[str, list[tuple[Change, ...]]] = field(default_factory=dict)
    undone: dict[str, list[tuple[Change, ...]]] = field(default_factory=dict)
    former: dict[str, Action] = field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        """Remember an entry; what labels of an action that it removes were can be undone no more."""
        for change in entry.changes:
            if isinstance(change.before, Action):
                self.former[change.key] = change.before
                if change.after is None:
                    self._forget(change.key)
        if not entry.video:
            return
        done, undone = (side.setdefault(entry.video, []) for side in (self.done, self.undone))
        if entry.deed == "propose":
            gone = {change.place for change in entry.changes if change.after is None}
            if any(change.place in gone for changes in undone for change in changes):
                undone.clear()  # a decision of a proposal that is no more
        elif entry.deed == "do":
            done.append(entry.changes)
            undone.clear()
        else:
            taken, given = (done, undone) if entry.deed == "undo" else (undone, done)
            if taken:  # earlier versions could still undo what has been forgotten
                given.append(taken.pop())

    def _forget(self, action: str) -> None:
        """Drop the deeds of each video in which a label has an action."""
        for side in (self.done, self.undone):
            for deeds in side.values():
                values = (value for changes in deeds for change in changes for value in (change.before, change.after))
                if any(isinstance(value, Label) and value.action == action for value in values):
                    deeds.clear()

    def next(self, video: str, deed: Deed) -> tuple[Change, ...]:
        """The changes that undo the last thing done to a video, or do again what was undone last; () without any."""
        if deed == "undo":
            last = self.done.get(video)
            return tuple(change.reversed() for change in reversed(last[-1])) if last else ()
        last = self.undone.get(video)
        return last[-1] if last else ()

    def depths(self, video: str) -> tuple[int, int]:
        """How many times a video can be undone and redone."""
        return len(self.done.get(video, ())), len(self.undone.get(video, ()))


def journal_of(labels: Path) -> Path:
    """The journal of a labels file, beside it."""
    return labels.with_name(f"{labels.name}.journal")


class Journal:
    """Lines of JSON in a file that one process at a time has open.

    Raises OutputError where another process has it, OutputError where it cannot be written.
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
            raise OutputError(
                f"Another `lstr label` has {path} open.",
                "use its page, or name another file with -o.",
            )

    def read(self) -> list[dict[str, Any]]:
        """The lines that are whole: a kill or a full disk may have cut one short."""
        return [line for line in read_jsonl(self.path) if isinstance(line, dict)]

    def append(self, line: dict[str, Any]) -> None:
        """Add a line; it is on the disk when this returns, or not at all. Raises OutputError."""
        size = os.fstat(self._file.fileno()).st_size
        data = to_json(line).encode() + b"\n"
        if size and not self._ends_whole(size):
            data = b"\n" + data
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), size)
            raise unwritable(self.path.parent, error) from error

    def close(self, forget: bool = False) -> None:
        """Let others have it; with `forget` nothing stays of one without a line."""
        if forget and not os.fstat(self._file.fileno()).st_size:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _ends_whole(self, size: int) -> bool:
        with self.path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"
