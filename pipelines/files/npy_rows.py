"""Features as .npy files: written row by row, and recognised by a few of their rows."""

import hashlib
import os
from pathlib import Path

import numpy as np

from lstr.extractors.weights.published_files import sha256_of
from lstr.files.arrays import open_array

HEADER_BYTES = 128  # of an .npy of version 1.0; holds any rows of two or four sides


class RowFile:
    """An .npy of rows of one shape that grows a row at a time, so that a long video needs no memory."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: str = "<f4"):
        self.path = path
        self.shape = shape
        self.dtype = dtype
        self.rows = 0
        self._file = path.open("wb")
        self._file.write(b"\0" * HEADER_BYTES)

    def append(self, row: np.ndarray) -> None:
        """Add one row."""
        self._file.write(np.ascontiguousarray(row, dtype=self.dtype).data)
        self.rows += 1

    def finish(self) -> None:
        """Write the header, now that the number of rows is known, and put everything on disk."""
        entry = repr({"descr": self.dtype, "fortran_order": False, "shape": (self.rows, *self.shape)})
        header = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little") + entry.encode()
        self._file.seek(0)
        self._file.write(header.ljust(HEADER_BYTES - 1) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Give up the file unfinished."""
        self._file.close()


def file_of(array: np.memmap) -> Path:
    """The file that an array is a map of."""
    assert array.filename is not None, "it is the map of a file with a name"
    return Path(array.filename)


def signature(array: np.memmap) -> str:
    """16 hex digits that distinguish a stored array from any other, or one with bytes more, by reading three rows."""
    excess = file_of(array).stat().st_size - array.offset - array.nbytes
    rows = np.ascontiguousarray(array[[0, len(array) // 2, -1]])
    return signature_of(array.dtype, array.shape, excess, rows.tobytes())


def signature_of(dtype: np.dtype, shape: tuple[int, ...], excess: int, rows: bytes) -> str:
    """The signature of an array of which only its first, middle and last row are at hand."""
    return hashlib.sha256(f"{dtype.str} {shape} {excess}".encode() + rows).hexdigest()[:16]


def fingerprints(path: Path) -> dict[str, str]:
    """What a record keeps of an array: the SHA-256 of its file, and its signature."""
    return {"sha256": sha256_of(path), "signature": signature(open_array(path))}
