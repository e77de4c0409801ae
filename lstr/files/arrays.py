"""Arrays in .npy files: mapped without trust in their headers, written row by row, and identified by a few rows."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # labels alone need no torch
    from torch import Tensor

# Python 3.11 keeps one state for all threads that parse source, and numpy parses a header as source: two at once end in
# "SystemError: AST constructor recursion depth mismatch" when the garbage collector runs meanwhile
HEADER_LOCK = threading.Lock()
NUMBERS = "biuf"  # kinds of numpy: bool, integers and floats, which are real numbers
ZIP = b"PK"
HEADER_BYTES = 128  # of an .npy of version 1.0; holds any rows of two or four sides


def open_array(path: Path) -> np.memmap:
    """An .npy file of real numbers of any type, byte order and layout, memory-mapped read-only; safe in threads.

    Nothing is allocated by what the header claims. Raises OSError, or ValueError, saying in a phrase what the file is.
    """
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise ValueError("it is no file on a disk, such as a pipe or a folder")
    with path.open("rb") as file:
        shape, fortran, dtype = read_header(file)
        offset, size = file.tell(), path.stat().st_size
    if dtype.kind not in NUMBERS:
        raise ValueError(f"it holds {_named(dtype)}, no real numbers")
    if min(shape, default=0) < 0:
        raise ValueError(f"its header claims the shape {shape}")
    claimed = offset + math.prod(shape) * dtype.itemsize  # in Python's integers, which do not overflow
    if claimed > size:
        raise ValueError(f"its header claims {claimed:.3g} bytes, and it has {size}")
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


def map_array(path: Path, dtype: np.dtype, shape: tuple[int, ...], offset: int, fortran: bool) -> np.ndarray:
    """Map an array of which all of that is known, so that no header is read again. Raises OSError or ValueError."""
    return np.asarray(np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C"))


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether columns come first, and type; the file then stands at the first number.

    Raises ValueError, saying in a phrase what the file is.
    """
    beginning = file.read(len(np.lib.format.MAGIC_PREFIX))
    if not beginning:
        raise ValueError("it is empty")
    if beginning.startswith(ZIP):
        raise ValueError("it is an .npz archive of arrays, no .npy")
    if beginning != np.lib.format.MAGIC_PREFIX:
        raise ValueError("it is no .npy file")
    file.seek(0)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with HEADER_LOCK:
            return read(file)
    except Exception as error:  # a header is a literal of Python: it is wrong in as many ways as one can be
        raise ValueError("its header is damaged") from error


def tensor_of(values: Any) -> Tensor:
    """Real numbers of any type as a tensor of native float32, or float64 where they are. Raises ValueError."""
    import torch

    if isinstance(values, torch.Tensor):
        if values.is_complex():
            raise ValueError(f"they are complex numbers ({values.dtype})")
        return values
    array = np.asarray(values)
    if array.dtype.kind not in NUMBERS:
        raise ValueError(f"they are {_named(array.dtype)}, no real numbers")
    # torch knows neither other byte orders nor every integer, and does not own a read-only map of a file
    double = array.dtype.kind == "f" and array.dtype.itemsize == 8
    return torch.from_numpy(np.array(array, np.float64 if double else np.float32))


def _named(dtype: np.dtype) -> str:
    """A type for people."""
    if dtype.hasobject:
        return "Python objects"
    return {"U": "text", "S": "text", "c": f"complex numbers ({dtype})", "V": "records"}.get(dtype.kind, str(dtype))


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
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"sha256": sha256, "signature": signature(open_array(path))}
