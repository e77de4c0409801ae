"""Arrays in .npy files: memory-map with checked headers, write row by row, and identify by a few rows."""

import hashlib
import math
import os
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # labels alone need no torch
    from torch import Tensor

# numpy parses a header as Python source, and Python 3.11 shares one parser state between threads: two threads at once
# raise "SystemError: AST constructor recursion depth mismatch" if the garbage collector runs at the same time.
HEADER_LOCK = threading.Lock()
NUMBERS = "biuf"  # numpy's kinds of real numbers: bool, integers and floats
ZIP = b"PK"
HEADER_BYTES = 128  # size of the header of .npy version 1.0; enough for two to four dimensions


def open_array(path: Path) -> np.memmap:
    """Memory-map an .npy file of real numbers read-only, with any type, byte order and layout; thread-safe.

    The header is checked before memory is allocated. Raises OSError, or ValueError with a phrase about the file.
    """
    if path.exists() and not path.is_file():  # opening a FIFO would block
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        shape, fortran, dtype = read_header(file)
        offset, size = file.tell(), path.stat().st_size
    if dtype.kind not in NUMBERS:
        raise ValueError(f"it contains {_named(dtype)}, not real numbers")
    if min(shape, default=0) < 0:
        raise ValueError(f"its header claims the shape {shape}")
    claimed = offset + math.prod(shape) * dtype.itemsize  # in Python's integers, which do not overflow
    if claimed > size:
        raise ValueError(f"its header claims {claimed} bytes, but it has {size}")
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, whether the layout is Fortran order, and type; leaves the file position at the first number.

    Raises ValueError with a phrase about the file.
    """
    beginning = file.read(len(np.lib.format.MAGIC_PREFIX))
    if not beginning:
        raise ValueError("it is empty")
    if beginning.startswith(ZIP):
        raise ValueError("it is an .npz archive, not an .npy file")
    if beginning != np.lib.format.MAGIC_PREFIX:
        raise ValueError("it is not an .npy file")
    file.seek(0)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with HEADER_LOCK:
            return read(file)
    except Exception as error:  # numpy parses a header as a Python literal, which raises many types
        raise ValueError("its header is damaged") from error


def tensor_of(values: Any) -> "Tensor":
    """Convert real numbers of any type to a float32 tensor, or float64 if they are float64. Raises ValueError."""
    import torch

    if isinstance(values, torch.Tensor):
        if values.is_complex():
            raise ValueError(f"they are complex numbers ({values.dtype})")
        return values
    array = np.asarray(values)
    if array.dtype.kind not in NUMBERS:
        raise ValueError(f"they are {_named(array.dtype)}, not real numbers")
    # torch supports neither other byte orders nor all integer types nor read-only memory maps
    double = array.dtype.kind == "f" and array.dtype.itemsize == 8
    return torch.from_numpy(np.array(array, np.float64 if double else np.float32))


def _named(dtype: np.dtype) -> str:
    """Return the name of a type for messages."""
    if dtype.hasobject:
        return "Python objects"
    return {"U": "text", "S": "text", "c": f"complex numbers ({dtype})", "V": "records"}.get(dtype.kind, str(dtype))


class RowFile:
    """An .npy file that is written row by row, so that a long video needs little memory."""

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
        """Write the header with the number of rows, and flush to disk."""
        entry = repr({"descr": self.dtype, "fortran_order": False, "shape": (self.rows, *self.shape)})
        header = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little") + entry.encode()
        self._file.seek(0)
        self._file.write(header.ljust(HEADER_BYTES - 1) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Close the unfinished file."""
        self._file.close()


def signature(array: np.memmap) -> str:
    """Return 16 hex digits that identify a stored array by its type, shape, surplus bytes and three rows."""
    # only three rows, so that a check of a large folder does not read all its data
    assert array.filename is not None, "a map of a file has its name"
    excess = os.stat(array.filename).st_size - array.offset - array.nbytes
    rows = np.ascontiguousarray(array[[0, len(array) // 2, -1]])
    return signature_of(array.dtype, array.shape, excess, rows.tobytes())


def signature_of(dtype: np.dtype, shape: tuple[int, ...], excess: int, rows: bytes) -> str:
    """Return the signature of an array by its first, middle and last row."""
    return hashlib.sha256(f"{dtype.str} {shape} {excess}".encode() + rows).hexdigest()[:16]


def fingerprints(path: Path) -> dict[str, str]:
    """Return the entries of an array for a record: the SHA-256 of its file, and its signature."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"sha256": sha256, "signature": signature(open_array(path))}
