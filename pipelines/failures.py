"""Decide whether an error in a run over several sources affects one source or ends the run, and log failures."""

import errno
import hashlib
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from lstr.errors import ExhaustedError, LstrError, OutputError
from lstr.extractors.stages import WRITE, stage_of
from lstr.files.atomic import write_bytes
from lstr.files.content import append_jsonl, read_jsonl, write_jsonl
from lstr.files.home import home
from lstr.files.names import without_credentials
from lstr.files.remote import Place, has_no_room
from lstr.pipelines.progress import Failed

# Messages of torch and OpenCV, which do not raise MemoryError.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "Insufficient memory")
LOST_DEVICE = "CUDA error"  # after such an error every later use of the GPU fails
LONGEST_REASON = 300  # characters of an unexpected error in a message
LONGEST_NAME = 200  # bytes of the name of a log; file systems allow 255
# In the output folder of a run: a line per failed source, and a folder with the tracebacks of unexpected errors.
FAILED, LOGS = "failed.jsonl", "logs"


class Failure(NamedTuple):
    """The reason why a source failed, and a hint; `traceback` is set only for unexpected errors."""

    reason: str
    hint: str
    traceback: str = ""


def failure_of(error: Exception, subject: object) -> Failure:
    """Return the failure of one source, named `subject`, from its error; re-raise errors that end the run.

    Raises OutputError for a full disk and deleted output, ExhaustedError for lack of memory and a lost GPU, and
    BrokenPipeError for a closed standard output.
    """
    # a name that is too long affects only this source
    is_long_name = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENAMETOOLONG
    if isinstance(error, ExhaustedError) or (isinstance(error, OutputError) and not is_long_name):
        raise error
    if isinstance(error, LstrError):
        return Failure(str(error), error.hint)
    stage = stage_of(error)
    if isinstance(error, OSError) and (stage is WRITE or has_no_room(error)):
        if isinstance(error, BrokenPipeError):
            raise error
        raise OutputError(
            f"The output of {subject} cannot be written ({error.strerror or error}).",
            "make room, or choose another output folder with -o.",
        ) from error
    is_of_library = isinstance(error, RuntimeError) or type(error).__module__.startswith("cv2")
    if (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (is_of_library and any(words in str(error) for words in NO_MEMORY))
    ):
        raise ExhaustedError(
            f"Memory ran out at {subject} ({describe_error(error)}).",
            "use fewer workers or threads, or close other programs; what is finished is kept.",
        ) from error
    if isinstance(error, RuntimeError) and LOST_DEVICE in str(error):
        raise ExhaustedError(
            f"The GPU was lost at {subject} ({describe_error(error)}).",
            "run the same command again, which resumes; `lstr doctor` shows whether the GPU is available.",
        ) from error
    action = stage.action if stage else "the work on it"
    reason = f"{subject}: {action} failed unexpectedly ({describe_error(error)})."
    trace = without_credentials("".join(traceback.format_exception(error)))
    return Failure(reason, "run it again with LSTR_DEBUG=1 and report its output.", trace)


@contextmanager
def skip_failure(subject: object) -> Iterator[None]:
    """Ignore the failure of a source that another step reports. Raises as `failure_of`."""
    try:
        yield
    except Exception as error:
        failure_of(error, subject)


def describe_error(error: Exception) -> str:
    """Describe an unexpected error in one line."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    text = f"{type(error).__name__}: {first}"
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


def log_name(source_id: str) -> str:
    """Return the path of a source's log in the output folder; a name that is too long for a file becomes a hash."""
    path = PurePath(f"{source_id}.log")
    if len(os.fsencode(path.name)) <= LONGEST_NAME:
        return f"{LOGS}/{path}"
    return f"{LOGS}/{hashlib.sha256(os.fsencode(source_id)).hexdigest()[:16]}.log"


class FailureLog:
    """The failures of one run (`events`), written to its output folder immediately.

    Without a folder only the logs are written, to the home folder. `keeps_list` is false if failed.jsonl would repeat
    the printed output, or conflict with another file of the folder.
    """

    def __init__(self, folder: Place | None, keeps_list: bool = True):
        self.folder = folder
        self.keeps_list = keeps_list and folder is not None
        self.events: list[Failed] = []
        self._lines: dict[str, dict[str, Any]] = {}

    def add(self, source_id: str, source: object, failure: Failure) -> Failed:
        """Write a failure, and a log if it was unexpected; return its event. Raises OutputError."""
        line, hint = {"id": source_id, "source": str(source), "reason": failure.reason}, failure.hint
        if failure.traceback:
            line["log"] = log_name(source_id)
            log = (self.folder or home()).joinpath(line["log"])
            try:
                write_bytes(log, [failure.traceback.encode(errors="replace")])
                hint = f"{log} has the traceback: report it, with what `lstr doctor` prints."
            except OutputError:
                if self.folder is not None:  # an error in the home folder must not end the run
                    raise
        if self.folder and self.keeps_list:
            self._lines[source_id] = line
            if isinstance(self.folder, Path):  # a kill must not lose it; object stores cannot append
                append_jsonl(self.folder / FAILED, line)
        self.events.append(Failed(source_id, failure.reason, hint))
        return self.events[-1]

    def finish(self, processed: Iterable[str]) -> None:
        """Rewrite failed.jsonl: add the sources that failed in this run, and remove other sources of `processed`.

        Lines of earlier runs about other sources are kept; logs of sources that did not fail again are deleted. Raises
        OutputError.
        """
        if self.folder is None or not self.keeps_list:
            return
        finished = {*processed, *self._lines}
        before = read_failures(self.folder)
        lines = [line for line in before if line["id"] not in finished] + [*self._lines.values()]
        for source_id in {line["id"] for line in before if "log" in line} & (finished - self._lines.keys()):
            self.folder.joinpath(log_name(source_id)).unlink(missing_ok=True)
        if lines != read_jsonl(self.folder.joinpath(FAILED)):
            write_jsonl(self.folder.joinpath(FAILED), lines)


def read_failures(folder: Place) -> list[dict[str, Any]]:
    """Return the complete lines of a folder's failed.jsonl."""
    return [
        value
        for value in read_jsonl(folder.joinpath(FAILED))
        if isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("id", "reason"))
    ]
