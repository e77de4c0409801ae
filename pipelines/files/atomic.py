"""Files that appear whole or not at all."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from extractors.errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name on success and goes away on failure.

    Raises OutputError where the folder cannot be written or the disk is full.
    """
    temporary = handle = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # a part of the name, so that a long one stays within what file systems take
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.tmp-")
        with suppress(OSError):  # some file systems know no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


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
        "choose another output folder with -o, or make room.",
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
