"""Standard input, output and error as a caller left them: closed, or on a disk that is full."""

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


def occupy() -> None:
    """Put the null device in the place of what is closed, so that no file which is opened later takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    before = sys.stderr
    if before is sys.__stderr__ and before and not isinstance(getattr(before.buffer, "raw", None), Messages):
        buffer = io.BufferedWriter(Messages(before.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(buffer, before.encoding, before.errors, line_buffering=True)


def refuses(stream: TextIO) -> bool:
    """Whether what was written to a stream cannot leave it; it is then sent nowhere, also when the process ends.

    A reader that has gone, as `head` does, has refused nothing.
    """
    try:
        stream.flush()
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            stream.flush()
        return not isinstance(error, BrokenPipeError)
    return False
