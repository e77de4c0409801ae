"""An MP4 that comes through a pipe. Its index may be at its end: then nothing can be decoded before it is whole."""

import struct
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import BinaryIO

from lstr.errors import VideoError

FIRST = (b"ftyp", b"wide", b"free", b"skip", b"mdat")  # what an MP4 or QuickTime file may begin with, its index aside
LOOKED = 2**20  # bytes in which the index is expected, unless the pictures come first
BLOCK = 2**20
MOST_KEPT = 8 * 2**30  # bytes of a temporary file
FASTSTART = "put its index first with `ffmpeg -i FILE -c copy -movflags +faststart NEW.mp4`"


class Looked:
    """A pipe of which `head` has been read already; `name` is for messages."""

    def __init__(self, name: str, head: bytes, read: Callable[[int], bytes]):
        self.name, self._head, self._read = name, head, read

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        if not self._head:
            return self._read(size)
        block, self._head = self._head[:size], self._head[size:]
        return block


def look(read: Callable[[int], bytes]) -> tuple[bytes, bool]:
    """The first bytes of a pipe, and whether they are of an MP4 whose pictures come before its index."""
    head, at = b"", 0
    while at <= LOOKED:
        while len(head) < at + 16:  # of a box: its size, its kind, and for a large one its size again
            block = read(at + 16 - len(head))
            if not block:
                return head, False
            head += block
        size, kind = struct.unpack_from(">I4s", head, at)
        if at == 0 and kind not in FIRST:
            return head, False
        if kind == b"mdat":
            return head, True
        if kind in (b"moov", b"moof"):
            return head, False
        at += max(struct.unpack_from(">Q", head, at + 8)[0], 16) if size == 1 else max(size, 8)
    return head, False


def keep(head: bytes, read: Callable[[int], bytes], name: str) -> BinaryIO:
    """All that comes, in a temporary file that goes away with the object.

    Raises VideoError where it is more than MOST_KEPT, or finds no room.
    """
    file = TemporaryFile(prefix="lstr-")
    block = head
    try:
        while block:
            if file.tell() + len(block) > MOST_KEPT:
                raise VideoError(
                    f"{name} is an MP4 with its index at the end, and too large to keep ({MOST_KEPT / 2**30:g} GiB).",
                    f"name the file instead of piping it, or {FASTSTART}.",
                )
            file.write(block)
            block = read(BLOCK)
        file.seek(0)
    except OSError as error:
        file.close()
        raise VideoError(
            f"{name} is an MP4 with its index at the end, and cannot be kept ({error.strerror or error}).",
            f"set TMPDIR to a folder with room, name the file instead of piping it, or {FASTSTART}.",
        ) from error
    except BaseException:
        file.close()
        raise
    return file
