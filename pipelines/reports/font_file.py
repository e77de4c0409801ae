"""What a font file says of itself, without a program that draws: which letters it has outlines of."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

OUTLINES = (b"glyf", b"CFF ", b"CFF2")
KINDS = (b"\0\1\0\0", b"OTTO", b"true")
MOST = 1 << 24  # bytes of a table of letters
Record = tuple[int, int]


def letters_in(path: Path) -> frozenset[int]:
    """The code points that a TrueType or OpenType font, or the first of a collection, has glyphs for.

    None where the file is no such font, is damaged, or has pictures of one size in place of outlines.
    """
    try:
        with path.open("rb") as file:
            tables = _tables(file)
            if b"cmap" not in tables or not any(name in tables for name in OUTLINES):
                return frozenset()
            offset, length = tables[b"cmap"]
            file.seek(offset)
            cmap = file.read(min(length, MOST))
            return frozenset(code for at in _subtables(cmap) for code in _codes(cmap, at))
    except (OSError, ValueError, IndexError):
        return frozenset()


def _tables(file: BinaryIO) -> dict[bytes, Record]:
    """Offset and length of each table by its tag."""
    if (head := file.read(12))[:4] == b"ttcf":
        file.seek(_number(file.read(4), 0, 4))
        head = file.read(12)
    if head[:4] not in KINDS:
        return {}
    entries = (file.read(16) for _ in range(_number(head, 4, 2)))
    return {entry[:4]: (_number(entry, 8, 4), _number(entry, 12, 4)) for entry in entries}


def _subtables(cmap: bytes) -> list[int]:
    """Where the tables of Unicode begin."""
    found = []
    for at in range(4, 4 + 8 * _number(cmap, 2, 2), 8):
        platform, encoding = _number(cmap, at, 2), _number(cmap, at + 2, 2)
        if platform == 0 and encoding != 5 or platform == 3 and encoding in (1, 10):
            found.append(_number(cmap, at + 4, 4))
    return found


def _codes(cmap: bytes, at: int) -> Iterator[int]:
    """The code points of one table, of the two forms that fonts have."""
    form = _number(cmap, at, 2)
    if form == 4:
        n = _number(cmap, at + 6, 2) // 2
        ends = np.frombuffer(cmap, ">u2", n, at + 14)
        starts = np.frombuffer(cmap, ">u2", n, at + 16 + 2 * n)
    elif form == 12:
        groups = np.frombuffer(cmap, ">u4", 3 * _number(cmap, at + 12, 4), at + 16).reshape(-1, 3)
        starts, ends = groups[:, 0], groups[:, 1]
    else:
        return
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if start <= end < 0x110000 and (form, end) != (4, 0xFFFF):  # the last of form 4 marks the end
            yield from range(start, end + 1)


def _number(content: bytes, at: int, size: int) -> int:
    """An unsigned number; raises ValueError where the content ends before it."""
    if len(part := content[at : at + size]) < size:
        raise ValueError("the font file is cut")
    return int.from_bytes(part, "big")
