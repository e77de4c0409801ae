"""Files that appear whole or not at all, and what is left of them by a kill."""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lstr.extractors.errors import OutputError
from lstr.extractors.stages import WRITE, stage_of
from lstr.files import atomic


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """As `lstr.files.atomic.replacing`, with the folder made.

    Raises OutputError where the folder cannot be written or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as temporary:
            yield temporary
    except OSError as error:
        if stage_of(error) not in (None, WRITE):  # of reading a source, while its result is written
            raise
        raise unwritable(path.parent, error) from error


def leftovers(folder: Path) -> list[Path]:
    """Temporary files below a folder that no living process writes: a kill leaves the file, never the lock on it."""
    found = []
    for path in folder.rglob(".*.tmp-*"):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(path)
    return found


def sweep(folder: Path) -> None:
    """Remove the temporary files of killed runs."""
    for path in leftovers(folder):
        with suppress(OSError):
            path.unlink()


def unwritable(folder: Path, error: OSError) -> OutputError:
    """The typed error for a folder that cannot be written."""
    return OutputError(
        f"{folder} cannot be written ({error.strerror or error}).",
        "choose another output folder with [[output]], or make room.",
    )


def check_writable(folder: Path) -> None:
    """Raise OutputError for an output folder that cannot be made or written, before the work whose output it gets."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise unwritable(folder, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(there, os.W_OK | os.X_OK):
        reason = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
        raise unwritable(folder, OSError(reason, os.strerror(reason)))


def write_text(path: Path, text: str | Iterable[str]) -> None:
    """Write a text file, which may come in pieces, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines([text] if isinstance(text, str) else text)
