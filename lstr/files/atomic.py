"""Files that appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name on success and goes away on failure.

    A kill leaves the temporary file, and never the lock on it. Raises OSError.
    """
    # a part of the name, so that a long one stays within what file systems take
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.tmp-")
    temporary = Path(name)
    try:
        with suppress(OSError):  # some file systems know no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
