"""A folder for what one step makes and the next takes away."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lstr.extractors.errors import VideoError

SCRATCH = "lstr-scratch-"
SCRATCH_SECONDS = 60  # an unlocked one that is older was left by a killed process


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
