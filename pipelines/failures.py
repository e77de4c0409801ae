"""What an error means for a run over several sources: one of them has failed, or nothing can go on."""

import errno
import hashlib
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from lstr.errors import ExhaustedError, LstrError, OutputError
from lstr.extractors.stages import WRITE, stage_of
from lstr.files.atomic import write_bytes
from lstr.files.content import append_jsonl, read_jsonl, write_jsonl
from lstr.files.home import home
from lstr.files.names import without_credentials
from lstr.files.remote import Place, has_no_room
from lstr.pipelines.progress import Failed

# In what torch and OpenCV raise, which is no MemoryError.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "Insufficient memory")
LOST_DEVICE = "CUDA error"  # after one every later use of the GPU fails
LONGEST_REASON = 300  # characters of an unforeseen error that are shown
LONGEST_NAME = 200  # bytes of the name of a log
# Beside what a run writes: a line per source that failed, and a folder with the traceback of each unforeseen error.
FAILED, LOGS = "failed.jsonl", "logs"


@dataclass(frozen=True)
class Failure:
    """Why one source has failed, and what to do; `traceback` is empty where the error was foreseen."""

    reason: str
    hint: str
    traceback: str = ""


def failure_of(error: Exception, subject: object) -> Failure:
    """What an error says of the one source that was worked on; `subject` is its name.

    Every error is that source's failure, foreseen or not, but for a full disk, lost output and memory. Those raise
    OutputError, ExhaustedError, or BrokenPipeError where nobody reads what is written.
    """
    _raise_if_exhausted(error, subject)
    if isinstance(error, LstrError):
        return Failure(str(error), error.hint)
    stage = stage_of(error)
    action = stage.action if stage else "the work on it"
    reason = f"{subject}: {action} failed unexpectedly ({described(error)})."
    trace = without_credentials("".join(traceback.format_exception(error)))
    return Failure(reason, "run it again with LSTR_DEBUG=1 and report what it prints.", trace)


@contextmanager
def left_out(subject: object) -> Iterator[None]:
    """Leave out a source that fails, where another step names it. Raises as `failure_of`."""
    try:
        yield
    except Exception as error:
        failure_of(error, subject)


def described(error: Exception) -> str:
    """An error that nobody foresaw, in one line."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    text = f"{type(error).__name__}: {first}"
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


def _raise_if_exhausted(error: Exception, subject: object) -> None:
    """Raise where an error ends the run."""
    if isinstance(error, OutputError):
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENAMETOOLONG:
            return  # the others have shorter names
        raise error
    if isinstance(error, ExhaustedError):
        raise error
    if isinstance(error, LstrError):
        return
    if isinstance(error, OSError) and (stage_of(error) is WRITE or has_no_room(error)):
        if isinstance(error, BrokenPipeError):
            raise error
        raise OutputError(
            f"What came of {subject} cannot be written ({error.strerror or error}).",
            "make room, or choose another output folder with -o.",
        ) from error
    if _lacks_memory(error):
        raise ExhaustedError(
            f"Memory ran out at {subject} ({described(error)}).",
            "use fewer workers or threads, or close other programs; what is finished is kept.",
        ) from error
    if isinstance(error, RuntimeError) and LOST_DEVICE in str(error):
        raise ExhaustedError(
            f"The GPU was lost at {subject} ({described(error)}).",
            "run the same command again, which goes on from here; `lstr doctor` shows whether the GPU is there.",
        ) from error


def _lacks_memory(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    by_library = isinstance(error, RuntimeError) or type(error).__module__.startswith("cv2")
    return isinstance(error, MemoryError) or (by_library and any(words in str(error) for words in NO_MEMORY))


def log_name(source_id: str) -> str:
    """Where below its folder a source's log is, also where the source has a name too long for one."""
    path = PurePath(f"{source_id}.log")
    if len(os.fsencode(path.name)) <= LONGEST_NAME:
        return f"{LOGS}/{path}"
    return f"{LOGS}/{hashlib.sha256(os.fsencode(source_id)).hexdigest()[:16]}.log"


def logged(failure: Failure, folder: Place, source_id: str) -> Failure:
    """The failure with a hint that names its log, which is written below `folder`. Raises OutputError.

    A foreseen one has none, and stays as it is.
    """
    if not failure.traceback:
        return failure
    log = folder.joinpath(log_name(source_id))
    write_bytes(log, [failure.traceback.encode(errors="replace")])
    return replace(failure, hint=f"{log} has the traceback: report it, with what `lstr doctor` prints.")


def entry(source_id: str, source: object, failure: Failure) -> dict[str, Any]:
    """The line of a source in failed.jsonl."""
    log = {"log": log_name(source_id)} if failure.traceback else {}
    return {"id": source_id, "source": str(source), "reason": failure.reason, **log}


class FailureLog:
    """The failures of one run, written to its output folder as they come; `events` has them.

    Without a folder the logs alone are kept, in that of `lstr.files.home`. `keeps_list` is false where
    failed.jsonl would say no more than the run does, or has the name of another file of the folder.
    """

    def __init__(self, folder: Place | None, keeps_list: bool = True):
        self.folder = folder
        self.keeps_list = keeps_list and folder is not None
        self.events: list[Failed] = []
        self._lines: dict[str, dict[str, Any]] = {}

    def add(self, source_id: str, source: object, failure: Failure) -> Failed:
        """Write it down; its event. Raises OutputError."""
        if self.folder is None:
            with suppress(OutputError):
                failure = logged(failure, home(), source_id)
        else:
            failure = logged(failure, self.folder, source_id)
        if self.folder and self.keeps_list:
            line = self._lines[source_id] = entry(source_id, source, failure)
            if isinstance(self.folder, Path):  # at once: a kill must not lose it; elsewhere nothing can be appended
                append_jsonl(self.folder / FAILED, line)
        self.events.append(Failed(source_id, failure.reason, failure.hint))
        return self.events[-1]

    def finish(self, worked_on: Iterable[str]) -> None:
        """Leave in failed.jsonl one line of each source that has failed, and none of another that was worked on.

        The file is not begun for nothing, and logs of sources that have not failed again go. Raises OutputError.
        """
        if self.folder is None or not self.keeps_list:
            return
        over = {*worked_on, *self._lines}
        before = read_failures(self.folder)
        lines = [line for line in before if line["id"] not in over] + [*self._lines.values()]
        for source_id in {line["id"] for line in before if "log" in line} & (over - self._lines.keys()):
            self.folder.joinpath(log_name(source_id)).unlink(missing_ok=True)
        if lines != read_jsonl(self.folder.joinpath(FAILED)):
            write_jsonl(self.folder.joinpath(FAILED), lines)


def read_failures(folder: Place) -> list[dict[str, Any]]:
    """The lines of a folder's failed.jsonl that are whole, whatever else it holds."""
    return [
        value
        for value in read_jsonl(folder.joinpath(FAILED))
        if isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("id", "reason"))
    ]
