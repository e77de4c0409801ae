"""A labels project: changes in one order, each in the journal before it counts, and a labels file that follows."""

import hashlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import msgspec

from lstr.errors import ConflictError, LabelsError, OutputError, RequestError, brief
from lstr.files.atomic import lock, replacing, sweep, unwritable
from lstr.files.content import read_jsonl, to_json
from lstr.files.names import fault_of
from lstr.labels.label_set import Labels, read_json
from lstr.pipelines.labelling.document import OURS, from_document, from_labels, is_ours, to_document
from lstr.pipelines.labelling.values import OF_VIDEO, Changes, Deed, Entry, History, State, change_of

# The file is written again after ten times as long as it takes, at most this long (seconds): serialising a large
# project takes the processor from the page, and the journal has each change anyway.
PAUSE_PER_SECOND, MAX_PAUSE_S = 10, 3.0


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

    def append(self, line: Any) -> None:
        """Add a line; it is on the disk when this returns, or not at all. Raises OutputError."""
        size = os.fstat(self._file.fileno()).st_size
        data = to_json(line).encode() + b"\n"
        if size:
            with self.path.open("rb") as file:
                file.seek(size - 1)
                data = data if file.read(1) == b"\n" else b"\n" + data  # a kill cut the last line short
        try:
            while data:  # an unbuffered write may take only a part
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):  # a half-written change must not come back with the next start
                os.ftruncate(self._file.fileno(), size)
            raise unwritable(self.path.parent, error) from error

    def close(self) -> None:
        """Let others open it; remove it if it has no line."""
        if not self._file.closed and not os.fstat(self._file.fileno()).st_size:
            self.path.unlink(missing_ok=True)
        self._file.close()


class Project(AbstractContextManager["Project"]):
    """The labels in a file, open for changes from any thread; use it as a context manager.

    The journal is next to the file. After a kill the project resumes where it was.

    Args:
        path: The labels file.
        begin: Labels with which a new project starts.
        durations: Seconds by video, if known.
        origin: Where `begin` came from, for the journal.

    Raises:
        LabelsError: The file cannot be resumed.
        OutputError: Another process has it open, or it cannot be written.
    """

    def __init__(
        self,
        path: Path,
        begin: Labels | None = None,
        durations: Mapping[str, float] | None = None,
        origin: Mapping[str, Any] | None = None,
    ):
        self.path = path
        # the server refuses a tab of another project
        self.id = hashlib.sha256(os.fsencode(path.absolute().resolve())).hexdigest()[:16]
        self.trouble = ""  # why the file could not be written, though the journal was
        self._origin = origin
        self._changed = threading.Condition()
        self._asked = self._saved = self._waiting = 0
        self._is_closing = False
        self._entries: list[Entry] = []
        self._made: dict[str, Entry] = {}  # by the id of the request
        self.history = History()
        self.journal = Journal(journal_of(path))
        try:
            # from the last start of the project on; a kill or a full disk may have cut a line short
            lines = [line for line in read_jsonl(self.journal.path) if isinstance(line, dict)]
            starts = [at for at, line in enumerate(lines) if "begin" in line]
            lines = lines[starts[-1] :] if starts else []
            content = read_json(path) if path.exists() else None
            if begin and (len(lines) > 1 or content is not None):
                hint = "leave out --labels to resume it, or name another file with -o."
                raise LabelsError(f"{path} already exists.", hint)
            written, stated = from_document(content, str(path)) if content is not None else (State(), {})
            if content is not None and not is_ours(content):  # before ours takes its place
                shutil.copy2(path, path.with_name(f"{path.name}.before"))
            if begin:
                written, stated = from_labels(begin)
                self._asked += 1
            if lines and not begin:
                stated = self._resume(lines, content, written, stated)
            else:
                self._begin(written, stated, 0)
            self.durations = {**stated, **(durations or {})}
            sweep(path.parent, path.name)
        except BaseException:
            self.journal.close()
            raise
        self._thread = threading.Thread(target=self._save, name="saving labels", daemon=True)
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def revision(self) -> int:
        """The number of the last change; the first is 1."""
        return self._base + len(self._entries)

    def change(self, change_id: str, changes: Changes | Callable[[State], Changes]) -> Entry:
        """Make changes, given as a list or by a function that derives them from the current values.

        A second request with the same id returns the entry of the first. After an error nothing has changed. Raises
        ConflictError if a value differs from its `before`, RequestError if the changes do not fit together, OutputError
        if the journal cannot be written.
        """
        with self._changed:
            if change_id in self._made:
                return self._made[change_id]
            made = changes(self.state) if callable(changes) else changes
            if len({(change.video, change.kind in OF_VIDEO) for change in made}) != 1:
                raise RequestError("The changes belong to more than one video, or to none.", "reload the page.")
            video = made[0].video
            if fault := fault_of(video) if video else "":
                raise RequestError(f"The id {brief(video)} of a video is {fault}.", "reload the page.")
            return self._commit(change_id, "do", video, made)

    def propose(self, video: str, make: Callable[[State, History], Changes]) -> Entry | None:
        """Make changes for a model, which cannot be undone. Return None without one. Raises what `change` raises."""
        with self._changed:
            changes = make(self.state, self.history)
            return self._commit(uuid.uuid4().hex, "propose", video, changes) if changes else None

    def turn(self, change_id: str, video: str, deed: Deed) -> Entry | None:
        """Undo or redo the last change of a video. Return None without one. Raises what `change` raises."""
        with self._changed:
            if change_id in self._made:
                return self._made[change_id]
            changes = self.history.next(video, deed)
            return self._commit(change_id, deed, video, changes) if changes else None

    def since(self, revision: int) -> list[Entry]:
        """Return the entries after a revision. Raises ConflictError if the project does not reach back to it."""
        with self._changed:
            if not self._base <= revision <= self.revision:
                raise ConflictError("The project was restarted from its file.", "reload the page.")
            return self._entries[revision - self._base :]

    def snapshot(self) -> tuple[int, State]:
        """Return the revision and a copy of its values."""
        with self._changed:
            return self.revision, self.state.copy()

    def set_duration(self, video: str, seconds: float) -> None:
        """Set the exact duration of a video, instead of the one in its header."""
        with self._changed:
            if self.durations.get(video) != seconds:
                self.durations[video] = seconds
                self._asked += video in self.state.videos()
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait until the file has all changes, or `trouble` says why not."""
        with self._changed:
            asked = self._asked
            self._waiting += 1  # ends the pause of the thread that writes
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._saved >= asked)
            self._waiting -= 1

    def close(self) -> None:
        """Write the file and release the project. Raises OutputError if the file could not be written."""
        self.settle()
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        self.journal.close()
        if self.trouble:
            hint = f"free disk space and run the command again: {self.journal.path.name} has every change."
            raise OutputError(f"{self.path} is not up to date: {self.trouble.rstrip('.')}.", hint)

    def _save(self) -> None:
        """Write the file after changes, until the project is closed."""
        took = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or self._asked > self._saved)
                if self._is_closing:
                    return
                self._changed.wait_for(lambda: self._waiting > 0, min(MAX_PAUSE_S, PAUSE_PER_SECOND * took))
                asked, state, durations = self._asked, self.state.copy(), dict(self.durations)
                stamp = {"journal": self._name, "revision": self.revision}
            began, trouble = time.monotonic(), ""
            try:
                text = to_json(to_document(state, durations, stamp), indent=1) + "\n"
                with replacing(self.path) as temporary, temporary.open("wb") as file:
                    file.write(text.encode())
                    file.flush()
                    os.fsync(file.fileno())  # before it gets its name: the power may fail
            except Exception as error:  # reported on the page and at the end; the next change tries again
                trouble = str(error)
            took = time.monotonic() - began
            with self._changed:
                self._saved, self.trouble = asked, trouble
                self._changed.notify_all()

    def _commit(self, change_id: str, deed: Deed, video: str, changes: Changes) -> Entry:
        entry = Entry(self.revision + 1, change_id, deed, video, tuple(changes))
        # applied first, so that no change reaches the journal that does not fit the values
        self.state.apply(entry.changes)
        try:
            self.journal.append(msgspec.to_builtins(entry))
        except BaseException:
            for change in reversed(entry.changes):
                self.state.put(change.reversed())
            raise
        self._remember(entry)
        self._asked += 1
        self._changed.notify_all()
        return entry

    def _remember(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._made[entry.id] = entry
        self.history.add(entry)

    def _begin(self, state: State, durations: Mapping[str, float], revision: int) -> None:
        """Start the journal again from these values."""
        # a file that another journal wrote may have the same revision
        self._name, self._base, self.state = uuid.uuid4().hex[:12], revision, state
        stamp = {"journal": self._name, "revision": revision}
        origin = {"origin": self._origin} if self._origin else {}
        self.journal.append({"begin": to_document(state, durations, stamp), **origin})

    def _resume(
        self, lines: Sequence[dict[str, Any]], content: Any, written: State, stated: dict[str, float]
    ) -> dict[str, float]:
        """Replay the journal. If a person has edited the file, its content replaces what the journal led to."""
        base = lines[0]["begin"]
        self.state, durations = from_document(base, str(self.journal.path))
        self._name, self._base, self._origin = base[OURS]["journal"], base[OURS]["revision"], lines[0].get("origin")
        is_own = is_ours(content) and content[OURS].get("journal") == self._name
        entries: list[Entry] = []
        for line in lines[1:]:
            with suppress(KeyError, TypeError, ValueError, RequestError):  # a line of a disk that failed
                changes = tuple(map(change_of, line["changes"]))
                entries.append(Entry(int(line["revision"]), str(line["id"]), line["deed"], str(line["video"]), changes))
        # the last revision that the file contains: after a kill it may be older than the journal
        seen = self._base
        if is_own:
            seen = content[OURS].get("revision", seen)
        elif content is None:
            seen = entries[-1].revision if entries else seen
        later = [entry for entry in entries if entry.revision > seen]
        self._replay([entry for entry in entries if entry.revision <= seen])
        if content is not None and to_document(written, {}, {}) != to_document(self.state, {}, {}):
            later = later if is_own else []  # else another file has been put in its place
            for entry in later:
                with suppress(ConflictError, RequestError):
                    written.apply(entry.changes)
            # a new base, so that open pages, which have other values, load everything again
            revision = 1 + (later[-1].revision if later else self.revision)
            self._entries, self._made, self.history = [], {}, History()
            self._begin(written, stated, revision)
        else:
            self._replay(later)
        self._asked += bool(later) or (content is None and bool(entries))
        return stated if content is not None else durations

    def _replay(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            with suppress(ConflictError, RequestError):
                if entry.revision == self.revision + 1:
                    self.state.apply(entry.changes)
                    self._remember(entry)
