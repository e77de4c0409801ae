"""Arrays of equal length side by side, read as one without a copy of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np


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
