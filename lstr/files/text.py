"""Text that a person names: read whole, but never waited for, and never more than memory takes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

MOST = 1 << 28
"""Bytes of a text that is read whole: labels of a million videos have fewer."""


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """The bytes of a file on a disk. Raises OSError, which says in a phrase what the path is."""
    with open(path, "rb", opener=_opener) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes, and more than {most} are not read")
        return file.read(most + 1)


def read_text(path: Path, encoding: str = "utf-8", most: int = MOST) -> str:
    """The text of a file on a disk, its line endings as newlines. Raises OSError, and UnicodeDecodeError."""
    return read_bytes(path, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def _opener(path: str, flags: int) -> int:
    """Open a path, where it is a file: to open a FIFO is to wait for somebody who writes to it."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise OSError(errno.EINVAL, "it is no file on a disk, such as a pipe")
    return os.open(path, flags)
