"""Atomic writing of files, scratch folders, locks, and clean-up after killed processes."""

import errno
import fcntl
import glob
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from lstr.errors import OutputError, VideoError
from lstr.files.remote import Place, RemoteFile, has_no_room

SCRATCH_PREFIX = "lstr-scratch-"
SCRATCH_AGE_S = 60  # an unlocked scratch folder that is older belongs to a killed process
STAGE = "lstr_stage"  # attribute of an error: the stage of the work that raised it (extractors/stages.py)


@contextmanager
def temporary_for(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which is renamed to `path` on success and removed on failure.

    If the process is killed, the temporary file remains without a lock, and `sweep` removes it. Raises OSError.
    """
    # the name is cut, because with the suffix a long name would exceed the limit of file systems
    temporary = path.parent / f".{path.name[:32]}.tmp-{secrets.token_hex(8)}"
    # not tempfile: the file should have the usual permissions, and reading the umask is only possible by changing it
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        lock(handle)
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Create the folder, and yield a temporary path like `temporary_for`.

    Raises OutputError if the folder cannot be written or the disk is full. An OSError of reading a source inside the
    block is passed on unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_for(path) as temporary:
            yield temporary
    except OSError as error:
        if getattr(error, STAGE, "write") != "write":
            raise
        raise unwritable(path.parent, error) from error


def leftovers(folder: Path, file_name: str = "") -> list[Path]:
    """Return the temporary files in a folder that no running process writes.

    Args:
        folder: The folder; it is searched recursively.
        file_name: Restricts the result to temporary files of this file, directly in the folder.
    """
    found = []
    for path in folder.glob(f".{glob.escape(file_name[:32])}.tmp-*") if file_name else folder.rglob(".*.tmp-*"):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(path)
    return found


def sweep(folder: Path, file_name: str = "") -> None:
    """Remove the temporary files of killed processes; arguments as for `leftovers`."""
    for path in leftovers(folder, file_name):
        with suppress(OSError):
            path.unlink()


def unwritable(folder: Path, error: OSError) -> OutputError:
    """Return the error for a folder that cannot be written."""
    hint = "choose another output folder with -o"
    hint += ", or free some space." if has_no_room(error) and error.errno != errno.EROFS else "."
    return OutputError(f"{folder} cannot be written ({error.strerror or error}).", hint)


def check_exists(path: Path) -> None:
    """Raise OutputError if a file was deleted during the job: other results in its folder are probably lost too."""
    if not path.exists():
        raise unwritable(path.parent, OSError(errno.ENOENT, "it was deleted while in use"))


def check_writable(folder: Path) -> None:
    """Raise OutputError if an output folder cannot be created or written."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise unwritable(folder, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(there, os.W_OK | os.X_OK):
        reason = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
        raise unwritable(folder, OSError(reason, os.strerror(reason)))


def write_bytes(place: Place, pieces: Iterable[bytes]) -> None:
    """Write a local or remote file atomically."""
    if isinstance(place, RemoteFile):
        place.write(b"".join(pieces))
        return
    with replacing(place) as temporary, temporary.open("wb") as file:
        file.writelines(pieces)


def write_text(place: Place, text: str | Iterable[str]) -> None:
    """Write a local or remote text file in UTF-8 atomically. The text may be an iterable of pieces."""
    write_bytes(place, (piece.encode() for piece in ([text] if isinstance(text, str) else text)))


def write_tensors(path: Path, content: Any) -> None:
    """Save with `torch.save`, and flush to disk. Raises OSError if the disk is full, like other writers."""
    import torch

    with path.open("wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # torch's writer wraps the error of the file
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        file.flush()
        os.fsync(file.fileno())


def lock(file: IO[Any] | int) -> bool:
    """Lock an open file or folder until it is closed; the operating system releases the lock of a killed process.

    Returns:
        False if another process holds the lock. Always True on a file system without locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new folder in $TMPDIR, and remove it at the end. Removes the folders of killed processes first."""
    top = Path(tempfile.gettempdir())
    for left in top.glob(f"{SCRATCH_PREFIX}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > SCRATCH_AGE_S:
                handle = os.open(left, os.O_RDONLY)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left, ignore_errors=True)
                finally:
                    os.close(handle)
    try:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=top))
    except OSError as error:
        raise VideoError(f"{top} cannot be written ({error.strerror}).", "set TMPDIR to a folder with room.") from error
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)
