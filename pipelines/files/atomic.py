"""Files that appear whole or not at all, folders for what one step makes, and what is left of them by a kill."""

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lstr.errors import OutputError, VideoError
from lstr.extractors.stages import WRITE, stage_of
from lstr.files import atomic
from lstr.pipelines.files.remote import Place, RemoteFile

SCRATCH = "lstr-scratch-"
SCRATCH_SECONDS = 60  # an unlocked one that is older was left by a killed process


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Do as `lstr.files.atomic.replacing`, and make the folder.

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


def leftovers(folder: Path, beside: str = "") -> list[Path]:
    """Temporary files below a folder that no living process writes: a kill leaves the file, never the lock on it.

    `beside` is the name of a file in the folder; then only those that were to become that one.
    """
    found = []
    for path in folder.glob(atomic.temporaries_of(beside)) if beside else folder.rglob(".*.tmp-*"):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(path)
    return found


def sweep(folder: Path, beside: str = "") -> None:
    """Remove the temporary files of killed runs; `beside` as of `leftovers`."""
    for path in leftovers(folder, beside):
        with suppress(OSError):
            path.unlink()


def unwritable(folder: Path, error: OSError) -> OutputError:
    """The typed error for a folder that cannot be written."""
    return OutputError(
        f"{folder} cannot be written ({error.strerror or error}).",
        "choose another output folder with -o, or make room.",
    )


def check_kept(path: Path) -> None:
    """Raise OutputError where a file that the work began with is gone, and with its folder what was done before."""
    if not path.exists():
        raise unwritable(path.parent, OSError(errno.ENOENT, "it was deleted meanwhile"))


def check_writable(folder: Path) -> None:
    """Raise OutputError for an output folder that cannot be made or written, before the work whose output it gets."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise unwritable(folder, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(there, os.W_OK | os.X_OK):
        reason = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
        raise unwritable(folder, OSError(reason, os.strerror(reason)))


def write_bytes(place: Place, pieces: Iterable[bytes]) -> None:
    """Write a file here or elsewhere, whole or not at all."""
    if isinstance(place, RemoteFile):
        place.write(b"".join(pieces))
        return
    with replacing(place) as temporary, temporary.open("wb") as file:
        file.writelines(pieces)


def write_text(place: Place, text: str | Iterable[str]) -> None:
    """Write a text file in UTF-8, which may come in pieces, whole or not at all."""
    write_bytes(place, (piece.encode() for piece in ([text] if isinstance(text, str) else text)))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder below $TMPDIR that is removed at the end; those of killed processes are removed first."""
    top = Path(tempfile.gettempdir())
    for left in top.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > SCRATCH_SECONDS and _unlocked(left):
                shutil.rmtree(left, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=top))
    except OSError as error:
        raise VideoError(f"{top} cannot be written ({error.strerror}).", "set TMPDIR to a folder with room.") from error
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems know no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _unlocked(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
