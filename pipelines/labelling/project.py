"""A labels project: changes in one order, each in the journal before it counts, and a file that follows."""

import hashlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lstr.errors import ConflictError, LabelsError, OutputError, RequestError, brief
from lstr.files.atomic import replacing, sweep
from lstr.files.content import to_json
from lstr.files.names import fault_of
from lstr.labels.label_set import Labels, read_json
from lstr.pipelines.labelling.document import OURS, from_document, from_labels, is_ours, to_document
from lstr.pipelines.labelling.journal import Deed, Entry, History, Journal, entry_of, journal_of, video_of
from lstr.pipelines.labelling.values import Change, State

# Between two writings lies at least so many times what one takes: a large file takes the processor from the page.
LEAST_SHARE = 10
MOST_PAUSE = 3.0  # seconds
# Seconds in which a change is answered, before a large file is written, which would delay the answer.
ANSWERED = 0.3


class Saving:
    """Calls `write` after `ask`, once for all that was asked meanwhile; `trouble` is why the last one failed.

    The first time it writes at once, then with pauses, in which the journal alone has what was asked for.
    """

    def __init__(self, write: Callable[[], Any]):
        self._write = write
        self._wanted = threading.Condition()
        self._asked = self._written = self._hurried = 0
        self._rests_until = self._took = 0.0
        self._over = False
        self.trouble = ""
        self._thread = threading.Thread(target=self._work, name="saving labels", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Write soon."""
        with self._wanted:
            self._asked += 1
            self._wanted.notify_all()

    def settle(self) -> None:
        """Wait until all that was asked for has been written, or could not be."""
        with self._wanted:
            asked = self._asked
            self._hurried += 1
            self._wanted.notify_all()
            self._wanted.wait_for(lambda: self._written >= asked)
            self._hurried -= 1

    def close(self) -> None:
        """Write what was asked for, and end."""
        self.settle()
        with self._wanted:
            self._over = True
            self._wanted.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wanted:
                self._wanted.wait_for(lambda: self._over or self._asked > self._written)
                if self._over:
                    return
                pause = max(self._rests_until - time.monotonic(), min(ANSWERED, LEAST_SHARE * self._took))
                self._wanted.wait_for(lambda: self._hurried > 0, max(0.0, pause))
                asked = self._asked
            began = time.monotonic()
            try:
                self._write()
                trouble = ""
            except Exception as error:  # told on the page and at the end; later changes are tried again
                trouble = str(error)
            self._took = time.monotonic() - began
            self._rests_until = time.monotonic() + min(MOST_PAUSE, LEAST_SHARE * self._took)
            with self._wanted:
                self.trouble, self._written = trouble, asked
                self._wanted.notify_all()


# Values that one change may change.
MOST_CHANGES = 10_000
Listener = Callable[[Entry], object]


class Project:
    """The labels in the file `path`, open for changes from any thread; use it as a context manager.

    begin: labels of any form that a new project begins with; origin: what the journal says of them. durations: seconds
    by video, where they are known.
    The journal is beside the file, PATH.journal; what was killed goes on where it was. Raises LabelsError where the
    file is none that can be gone on with, OutputError where another process has it open, OutputError.
    """

    def __init__(
        self,
        path: Path,
        begin: Labels | None = None,
        durations: Mapping[str, float] | None = None,
        origin: Mapping[str, Any] | None = None,
    ):
        self.path = path
        self._origin = origin
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._entries: list[Entry] = []
        self._ids: dict[str, int] = {}
        self.history = History()
        self.journal = Journal(journal_of(path))
        try:
            stated = self._open(begin)
            self.durations = {**stated, **(durations or {})}
            sweep(path.parent, path.name)
        except BaseException:
            self.journal.close(forget=True)
            raise
        self._saving = Saving(self._write)
        if self._is_stale:
            self._saving.ask()

    def __enter__(self) -> "Project":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        """What a page calls it by, the same while its file has its place; a tab of another project is refused by it."""
        return hashlib.sha256(os.fsencode(self.path.absolute().resolve())).hexdigest()[:16]

    @property
    def revision(self) -> int:
        """The number of the last change; that of the first is 1."""
        return self._base + len(self._entries)

    @property
    def trouble(self) -> str:
        """Why the file could not be written, though the journal was; empty where it was."""
        return self._saving.trouble

    def change(self, change_id: str, changes: Sequence[Change]) -> Entry:
        """Do something; a second time with the same id is the first time.

        Raises ConflictError where a value is not what it was, RequestError where they do not go together, OutputError
        where the journal cannot be written; nothing has changed then.
        """
        with self._lock:
            if known := self._known(change_id):
                return known
            if len(changes) > MOST_CHANGES:
                raise RequestError(f"That are more than {MOST_CHANGES:,} changes at once.", "make them in parts.")
            video = video_of(changes)
            if fault := fault_of(video) if video else "":
                raise RequestError(f"The id {brief(video)} of a video is {fault}.", "reload the page.")
            return self._commit(change_id, "do", video, changes)

    def decide(self, change_id: str, make: Callable[[State, Mapping[str, float]], Sequence[Change]]) -> Entry:
        """Do what `make` makes of the values as they then are, and of durations of videos; otherwise as `change`."""
        with self._lock:
            return self._known(change_id) or self.change(change_id, make(self.state, self.durations))

    def propose(self, video: str, make: Callable[[State, History], Sequence[Change]]) -> Entry | None:
        """Take what a model proposes in a video, with new actions; it is never undone. None where nothing changes.

        make: as of `decide`, of the history too. Raises as `change`.
        """
        with self._lock:
            changes = make(self.state, self.history)
            return self._commit(uuid.uuid4().hex, "propose", video, changes) if changes else None

    def turn(self, change_id: str, video: str, deed: Deed) -> Entry | None:
        """Undo the last thing done to a video, or do it again; None where there is nothing. Raises as `change`."""
        with self._lock:
            if known := self._known(change_id):
                return known
            changes = self.history.next(video, deed)
            if not changes:
                return None
            return self._commit(change_id, deed, video, changes)

    def since(self, revision: int) -> list[Entry]:
        """What has changed after a revision. Raises ConflictError where the project does not reach back so far."""
        with self._lock:
            if not self._base <= revision <= self.revision:
                raise ConflictError("The project has begun anew.", "reload the page.")
            return self._entries[revision - self._base :]

    def listen(self, revision: int, listener: Listener) -> list[Entry]:
        """What has changed after a revision; from then on the listener is called with each entry, in its order."""
        with self._lock:
            missed = self.since(revision)
            self._listeners.append(listener)
            return missed

    def leave(self, listener: Listener) -> None:
        """Call a listener no more."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def snapshot(self) -> tuple[int, State]:
        """The revision, and the values at it."""
        with self._lock:
            return self.revision, self.state.copy()

    def tell_duration(self, video: str, seconds: float) -> None:
        """Let a video's duration be known better than by its header."""
        with self._lock:
            if self.durations.get(video) == seconds:
                return
            self.durations[video] = seconds
            if video in self.state.videos():
                self._saving.ask()

    def settle(self) -> None:
        """Wait until the file is as the values are, or `trouble` says why not."""
        self._saving.settle()

    def close(self) -> None:
        """Write the file, and let others open the project. Raises OutputError where it could not be written."""
        self._saving.close()
        self.journal.close()
        if self.trouble:
            hint = f"make room and run it again: {self.journal.path.name} holds every change."
            raise OutputError(f"{self.path} is not up to date: {self.trouble.rstrip('.')}.", hint)

    def _known(self, change_id: str) -> Entry | None:
        revision = self._ids.get(change_id)
        return self._entries[revision - self._base - 1] if revision is not None else None

    def _commit(self, change_id: str, deed: Deed, video: str, changes: Sequence[Change]) -> Entry:
        entry = Entry(self.revision + 1, change_id, deed, video, tuple(changes))
        self.state.apply(entry.changes)
        try:
            self.journal.append(entry.to_dict())
        except BaseException:
            for change in reversed(entry.changes):
                self.state.put(change.reversed())
            raise
        self._remember(entry)
        self._saving.ask()
        for listener in list(self._listeners):
            listener(entry)
        return entry

    def _remember(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._ids[entry.id] = entry.revision
        self.history.take(entry)

    def _write(self) -> None:
        with self._lock:
            state, durations = self.state.copy(), dict(self.durations)
            stamp = {"journal": self._name, "revision": self.revision}
        document = to_document(state, durations, stamp)
        with replacing(self.path) as temporary, temporary.open("wb") as file:
            file.write((to_json(document, indent=1) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())  # before it takes the name: power may fail

    def _open(self, begin: Labels | None) -> dict[str, float]:
        """Set the values from the journal, the file, or what it begins with; the durations that are stated."""
        lines = self.journal.read()
        starts = [at for at, line in enumerate(lines) if "begin" in line]
        lines = lines[starts[-1] :] if starts else []
        self._is_stale = bool(begin)
        content = read_json(self.path) if self.path.exists() else None
        if begin and (len(lines) > 1 or content is not None):
            raise LabelsError(
                f"{self.path} is there already.", "leave out --labels to go on with it, or name another file with -o."
            )
        if lines and not begin:
            return self._go_on(lines, content)
        if content is not None:
            state, stated = from_document(content, str(self.path))
            self._keep(content)
        else:
            state, stated = from_labels(begin) if begin else (State(), {})
        self._begin(state, stated, 0)
        return stated

    def _keep(self, content: Any) -> None:
        """Copy a file that something else has written, before ours takes its place."""
        if not is_ours(content):
            shutil.copy2(self.path, self.path.with_name(f"{self.path.name}.before"))

    def _begin(self, state: State, durations: Mapping[str, float], revision: int) -> None:
        """Let the journal go on from these values."""
        self._name, self._base, self.state = uuid.uuid4().hex[:12], revision, state
        stamp = {"journal": self._name, "revision": revision}
        origin = {"origin": self._origin} if self._origin else {}
        self.journal.append({"begin": to_document(state, durations, stamp), **origin})

    def _go_on(self, lines: Sequence[dict[str, Any]], content: Any) -> dict[str, float]:
        """Replay the journal; a file that a person has changed since counts more than what led to it."""
        where = str(self.journal.path)
        self.state, stated = from_document(lines[0]["begin"], where)
        stamp, self._origin = lines[0]["begin"][OURS], lines[0].get("origin")
        self._name, self._base = stamp["journal"], stamp["revision"]
        ours = content[OURS] if is_ours(content) and content[OURS].get("journal") == self._name else {}
        seen = ours.get("revision", self._base)
        is_theirs = content is not None and not ours  # another file has been put in its place
        later: list[Entry] = []
        for line in lines[1:]:
            with suppress(KeyError, TypeError, RequestError, ConflictError):  # a line of a disk that failed
                entry = entry_of(line)
                if entry.revision > seen and content is not None:
                    later.append(entry)
                    continue
                if entry.revision == self.revision + 1:
                    self.state.apply(entry.changes)
                    self._remember(entry)
        if content is not None:
            written, stated = from_document(content, str(self.path))
            self._keep(content)
            if not _alike(written, self.state):
                self._take_over(written, stated, [] if is_theirs else later)
                return stated
        for entry in later:
            with suppress(ConflictError, RequestError):
                if entry.revision == self.revision + 1:
                    self.state.apply(entry.changes)
                    self._remember(entry)
        self._is_stale = bool(later) or (content is None and bool(self._entries))
        return stated

    def _take_over(self, written: State, stated: Mapping[str, float], later: Sequence[Entry]) -> None:
        """Begin anew from a file that was changed elsewhere, with what the journal knows beyond it."""
        for entry in later:
            with suppress(ConflictError, RequestError):
                written.apply(entry.changes)
        self._is_stale = bool(later)
        revision = later[-1].revision if later else self.revision
        self._entries, self._ids, self.history = [], {}, History()
        self._begin(written, stated, revision + 1)


def _alike(one: State, other: State) -> bool:
    """Whether two states make the same file."""
    return to_document(one, {}, {}) == to_document(other, {}, {})
