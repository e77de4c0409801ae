"""Standard input, output and error as a caller left them: closed, or on a disk that is full."""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO


class Messages(io.FileIO):
    """Standard error, which goes nowhere once it cannot be written: no work is lost for what was to be said."""

    def write(self, data: Any) -> int:
        """See FileIO. Raises BrokenPipeError where its reader has gone."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes


class Results(io.FileIO):
    """Standard output, which refuses once, as soon as it cannot be written; what is written later goes nowhere."""

    refused: OSError | None = None
    """Why it could not be written."""
    was_closed = False

    def write(self, data: Any) -> int:
        """See FileIO. Raises BrokenPipeError where its reader has gone, else OSError the first time."""
        if self.refused:
            return memoryview(data).nbytes
        try:
            if self.was_closed:
                raise OSError(errno.EBADF, "it is closed")
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.refused = error
            raise


def occupy() -> None:
    """Put the null device in the place of what is closed, so that no file which is opened later takes its number."""
    closed = []
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            closed.append(name)
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
            setattr(sys, f"__{name}__", getattr(sys, name))
    _watch_results("stdout" in closed)
    before = sys.stderr
    if before is sys.__stderr__ and before and not isinstance(getattr(before.buffer, "raw", None), Messages):
        buffer = io.BufferedWriter(Messages(before.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(buffer, before.encoding, before.errors, line_buffering=True)


def _watch_results(was_closed: bool) -> None:
    before = sys.stdout
    if before is not sys.__stdout__ or not before:
        return
    raw = Results(before.fileno(), "w", closefd=False)
    raw.was_closed = was_closed
    unbuffered = isinstance(before.buffer, io.RawIOBase)
    sys.stdout = io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        before.encoding,
        before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def refusal(stream: TextIO) -> str:
    """Why what was written to a stream cannot leave it, else nothing; it is then sent nowhere, also at the very end.

    A reader that has gone, as `head` does, has refused nothing.
    """
    raw = getattr(stream.buffer, "raw", stream.buffer) if hasattr(stream, "buffer") else None
    try:
        stream.flush()
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            stream.flush()
        if isinstance(error, BrokenPipeError):
            return ""
        return getattr(error, "strerror", None) or str(error)
    refused = raw.refused if isinstance(raw, Results) else None
    return (refused.strerror or str(refused)) if refused else ""
