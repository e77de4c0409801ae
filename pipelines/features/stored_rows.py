"""The rows of a video in a store of features, read when they are asked for, whatever the order of its axes."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.errors import RecipeError

WIDTHS = (128, 192, 256, 320, 384, 400, 512, 576, 640, 768, 896, 960, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304)
WIDE = (2560, 2816, 3072, 3200, 4096)
"""With WIDTHS: what networks give; tells time from width where all videos are of one length."""
CROPS = (5, 10)
"""How many crops of a picture features come of."""


class Array(Protocol):
    """An array of a store, of which parts are read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as it is stored."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The type of its numbers."""
        ...

    def read(self, axis: int, places: NDArray[np.int64]) -> NDArray[Any]:
        """Its parts at some places of an axis, in rising order. Raises OSError or ValueError."""
        ...


@dataclass(frozen=True)
class Layout:
    """Which axis of an array is time, which the width, and which are crops; others have a length of 1."""

    time: int
    width: int
    crops: int | None = None

    @property
    def text(self) -> str:
        """The layout as a person states it."""
        axes = [(self.time, "T"), (self.width, "D"), *([(self.crops, "C")] if self.crops is not None else [])]
        return "".join(letter for _, letter in sorted(axes))

    def rows(self, block: NDArray[Any]) -> NDArray[np.float32]:
        """The rows (n, D) of a part of an array, of crops the mean."""
        own = [self.time, *([self.crops] if self.crops is not None else []), self.width]
        ones = [axis for axis in range(block.ndim) if axis not in own]
        moved = block.transpose([*own[:-1], *ones, self.width])
        grouped = np.asarray(moved, np.float32).reshape(block.shape[self.time], -1, block.shape[self.width])
        return grouped[:, 0] if grouped.shape[1] == 1 else grouped.mean(axis=1, dtype=np.float32)


class StoredRows:
    """A video's features (L, D) in a store, of which those are read that are asked for, and checked to be numbers.

    `name` is for messages. Rows come as float32.
    """

    ndim = 2

    def __init__(self, array: Array, layout: Layout, name: str, length: int | None = None):
        self._array, self._layout, self._name = array, layout, name
        whole = array.shape[layout.time]
        self.shape = (whole if length is None else min(whole, length), array.shape[layout.width])
        kept = array.dtype == np.float16 and layout.crops is None  # exact in half the memory
        self.dtype = np.dtype(np.float16 if kept else np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def until(self, length: int | None) -> "StoredRows":
        """The first rows, `length` at most."""
        return StoredRows(self._array, self._layout, self._name, length)

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        """Rows, by any index of numpy. Raises RecipeError where they cannot be read, or are no finite numbers."""
        wanted = np.arange(len(self))[key]
        places, back = np.unique(wanted, return_inverse=True)
        if not len(places):
            return np.zeros((*wanted.shape, self.shape[1]), np.float32)
        try:
            rows = self._layout.rows(self._array.read(self._layout.time, places))
        except (OSError, ValueError, KeyError, RuntimeError, BadZipFile, zlib.error) as error:
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


def layout_of(shapes: Mapping[str, tuple[int, ...]], stated: str, where: object) -> Layout:
    """The order of the axes of all arrays of a store, by what their shapes have in common, or as it is stated.

    Raises RecipeError where it cannot be told, and, naming the first, where some array is of another width.
    """
    dims = {len(shape) for shape in shapes.values()}
    if min(dims) < 2 or len(dims) > 1:
        odd = next(name for name, shape in shapes.items() if len(shape) == min(dims))
        raise RecipeError(
            f"{odd!r} in {where} has the shape {shapes[odd]}, which is not one row of features after the other.",
            "store an array (rows, width) for each video.",
        )
    every = list(shapes.values())
    # an axis that is 1 in all arrays says nothing; of the others two are needed, and a third may be crops
    open_axes = [axis for axis in range(dims.pop()) if any(shape[axis] != 1 for shape in every)]
    open_axes = open_axes if len(open_axes) > 1 else _filled(open_axes, len(every[0]))
    if len(open_axes) > 3:
        raise _untold(shapes, where)
    layout = _as_stated(open_axes, stated, shapes, where) if stated else _as_found(open_axes, every, shapes, where)
    widths = {name: shape[layout.width] for name, shape in shapes.items()}
    usual = max(set(widths.values()), key=list(widths.values()).count)
    if wrong := next((name for name, width in widths.items() if width != usual), None):
        raise RecipeError(
            f"{wrong!r} in {where} is {widths[wrong]} wide, and the others are {usual}.",
            "make the features of this video again, or move it out of the store.",
        )
    return layout


def _filled(axes: Sequence[int], ndim: int) -> list[int]:
    """Two axes, where all but one have a length of 1: a video of one row, or features of one number."""
    return [ndim - 2, ndim - 1] if not axes or axes[0] == ndim - 1 else [axes[0], ndim - 1]


def _as_stated(axes: Sequence[int], stated: str, shapes: Mapping[str, tuple[int, ...]], where: object) -> Layout:
    letters = stated if len(axes) > 2 else stated.replace("C", "")
    if len(letters) != len(axes):
        raise RecipeError(
            f"{next(iter(shapes))!r} in {where} has the shape {next(iter(shapes.values()))}, which is not {stated}.",
            "say the order of its axes: T for time, C for crops, D for the width of a feature.",
        )
    place: dict[str, int] = dict(zip(letters, axes, strict=True))
    return Layout(place["T"], place["D"], place.get("C"))


def _as_found(
    axes: list[int], every: Sequence[tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]], where: object
) -> Layout:
    crops = None
    if len(axes) == 3:
        first = [axis for axis in axes[:2] if {shape[axis] for shape in every} <= {*CROPS}]
        if len(first) != 1:
            raise _untold(shapes, where)
        crops, axes = first[0], [axis for axis in axes if axis != first[0]]
    usual = [all(shape[axis] in (*WIDTHS, *WIDE) for shape in every) for axis in axes]
    one = [len({shape[axis] for shape in every}) == 1 for axis in axes]
    if one == [True, False] and (usual[0] or not _most_alike([shape[axes[1]] for shape in every])):
        return Layout(axes[1], axes[0], crops)
    if one == [True, True] and usual[0]:  # it may be (D, T): nothing but a person can tell
        raise _untold(shapes, where)
    if one == [False, False] and usual == [True, False]:
        return Layout(axes[1], axes[0], crops)
    return Layout(axes[0], axes[1], crops)


def _most_alike(sizes: Sequence[int]) -> bool:
    """Whether more than half of the sizes are one: those of an axis of time are not."""
    return 2 * max(map(sizes.count, {*sizes})) > len(sizes)


def _untold(shapes: Mapping[str, tuple[int, ...]], where: object) -> RecipeError:
    name, shape = next(iter(shapes.items()))
    return RecipeError(
        f"Which axis of {shape}, the shape of {name!r} in {where}, is time cannot be told.",
        "say it: --set features.layout=TD for (rows, width), DT for (width, rows), TCD for crops between them.",
    )
