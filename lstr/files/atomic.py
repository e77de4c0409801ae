"""Files that appear whole or not at all."""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name on success and goes away on failure.

    A kill leaves the temporary file, and never the lock on it. Raises OSError.
    """
    while True:
        temporary = path.parent / f".{_part(path.name)}.tmp-{secrets.token_hex(4)}"
        with suppress(FileExistsError):
            # the permissions of any new file, as the system gives them: to ask a process for its umask is to change it
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            break
    try:
        with suppress(OSError):  # some file systems know no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def temporaries_of(name: str) -> str:
    """The pattern of the temporary files that become a file of this name."""
    return f".{glob.escape(_part(name))}.tmp-*"


def _part(name: str) -> str:
    """A part of a name, so that with more a long one stays within what file systems take."""
    return name[:32]


def write_tensors(path: Path, content: Any) -> None:
    """torch.save, on the disk when it returns. Raises OSError where the disk is full, as every other file does."""
    import torch

    with path.open("wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # torch's own writer hides what the file said
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        file.flush()
        os.fsync(file.fileno())
