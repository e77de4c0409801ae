"""Arrays of features (L, D) of which only the rows that are asked for are read."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lstr.errors import RecipeError
from lstr.files.arrays import file_of


class Array(Protocol):
    """An array (L, D) in a file."""

    shape: tuple[int, int]
    dtype: np.dtype

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Rows, by numbers in rising order. Raises RecipeError, or what reading a damaged file ends in."""
        ...


class MappedArray:
    """An array in a file, or in a zip without compression, that is mapped only while it is read.

    A data set may have more files than one process may map. No header is read again: that would be done in many
    threads at once. `stored_shape` is that of the file, of whose rows the first `length` count.
    """

    def __init__(
        self,
        path: Path,
        dtype: np.dtype,
        stored_shape: tuple[int, ...],
        offset: int,
        fortran: bool,
        length: int | None = None,
    ):
        rows, width = stored_shape
        self.path, self.dtype, self._stored_shape, self._offset = path, dtype, stored_shape, offset
        self.shape = (rows if length is None else min(rows, length), width)
        self._order: Literal["C", "F"] = "F" if fortran else "C"

    @classmethod
    def of(cls, array: np.memmap, length: int | None = None) -> "MappedArray":
        """The array that a map is of, without the map."""
        return cls(file_of(array), array.dtype, array.shape, int(array.offset), np.isfortran(array), length)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Rows, by any index of numpy; the file stays mapped only as long as a slice of it lives. Raises RecipeError.

        The file is not opened for no rows, as of a memory that a model does not have.
        """
        if isinstance(key, np.ndarray) and not key.size:
            return np.zeros((*key.shape, self.shape[1]), np.float32)
        try:
            array = np.memmap(self.path, self.dtype, "r", self._offset, self._stored_shape, self._order)
            return np.asarray(array)[: len(self)][key]
        except (OSError, ValueError) as error:
            raise RecipeError(f"{self.path} cannot be read any more ({error}).", "run the command again.") from error


class CheckedRows:
    """A video's features (L, D) as float32 from a file of other people, whose rows are checked to be finite numbers.

    `name` is for messages.
    """

    ndim = 2

    def __init__(self, array: Array, name: str, length: int | None = None):
        self._array, self._name = array, name
        rows, width = array.shape
        self.shape = (rows if length is None else min(rows, length), width)
        # float16 is exact in half the memory
        self.dtype = np.dtype(np.float16 if array.dtype == np.float16 else np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def until(self, length: int | None) -> "CheckedRows":
        """The first rows, `length` at most."""
        return CheckedRows(self._array, self._name, length)

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        """Rows, by any index of numpy. Raises RecipeError where they cannot be read, or are no finite numbers."""
        wanted = np.arange(len(self))[key]
        places, back = np.unique(wanted, return_inverse=True)
        if not len(places):
            return np.zeros((*wanted.shape, self.shape[1]), np.float32)
        try:
            rows = np.asarray(self._array[places], np.float32)
        except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise RecipeError(f"{self._name} cannot be read any more ({error}).", "run the command again.") from error
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            raise RecipeError(
                f"{self._name} has numbers that are not finite in row {int(places[int(np.argmin(finite))])}.",
                "make the features of this video again, or take it out of the labels.",
            )
        return rows[back.reshape(wanted.shape)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


class Columns:
    """Arrays (L, D), (L, E) … as (L, D + E + …) float32, of which only the rows that are read are joined."""

    def __init__(self, arrays: Sequence[Any]):
        self.arrays = arrays
        self.shape = (len(arrays[0]), sum(array.shape[1] for array in arrays))
        self.dtype, self.ndim = np.dtype(np.float32), 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Rows, by any index of numpy."""
        return np.concatenate([array[rows] for array in self.arrays], axis=-1, dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


def joined(arrays: Sequence[Any], length: int) -> Any:
    """Several arrays as one, one as it is, none as (length, 0)."""
    if len(arrays) > 1:
        return Columns(arrays)
    return arrays[0] if arrays else np.zeros((length, 0), np.float32)


def stored(array: Any, length: int | None = None) -> Any:
    """A memory-mapped array without its map, or that of a missing stream, (L, 0); of `length` rows at most."""
    if isinstance(array, Columns):
        return Columns([stored(part, length) for part in array.arrays])
    if isinstance(array, CheckedRows):
        return array.until(length)
    return MappedArray.of(array, length) if isinstance(array, np.memmap) else array[:length]
