"""Features in one file of HDF5: a dataset for each video, or a group with datasets."""

import threading
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import ConfigError
from lstr.extractors.errors import RecipeError
from lstr.extractors.streams import MODEL_STREAMS
from lstr.files.arrays import NUMBERS
from lstr.pipelines.features.loose_files import USUAL, chosen, part_of
from lstr.pipelines.features.stated import Stated, stated_from
from lstr.pipelines.features.stored_rows import Array

SUFFIXES = (".h5", ".hdf5")
ATTRIBUTES = ("rate", "fps", "stride", "offset", "name")
"""Attributes of a file that say what its features are."""
INSTALL = "pip install 'lstr-video[stores]'"


class Dataset:
    """A dataset in an open file."""

    def __init__(self, dataset: Any):
        self._dataset = dataset
        self.shape, self.dtype = tuple(dataset.shape), dataset.dtype

    def read(self, axis: int, places: NDArray[np.int64]) -> NDArray[Any]:
        """Its parts at places of an axis."""
        return part_of(self._dataset, axis, places)


@dataclass(frozen=True)
class H5Store:
    """An .h5 file. Of groups a dataset by the name `stream` is a video's, or the one that `key` names."""

    path: Path
    key: str = ""
    stream: str = ""
    format = "h5"
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    @cached_property
    def file(self) -> Any:
        """The open file. Raises RecipeError without h5py, and for a file that is none."""
        try:
            import h5py
        except ImportError as error:
            raise RecipeError(f"{self.path} needs h5py, which is not installed.", f"install it: {INSTALL}") from error
        try:
            return h5py.File(self.path, "r", locking=False)
        except OSError as error:
            raise RecipeError(
                f"{self.path} is no file of HDF5 that can be read ({error}).", "copy it again."
            ) from error

    @cached_property
    def names(self) -> dict[str, dict[str, str]]:
        """By video, or group of a video, the names of its datasets of two axes or more, each with its path."""
        found: list[str] = []

        def note(name: str, one: Any) -> None:
            if getattr(one, "dtype", None) is not None and len(one.shape) > 1 and one.dtype.kind in NUMBERS:
                found.append(name)

        with self._lock:
            self.file.visititems(note)
        grouped: dict[str, dict[str, str]] = {}
        last = {name.rpartition("/")[2] for name in found if "/" in name}
        in_groups = bool(last) and last <= {*MODEL_STREAMS, *USUAL, self.key}
        in_groups |= bool(last) and 2 * len(last) <= len(found)  # names that come again are of arrays, not of videos
        for name in found:
            group, _, own = name.rpartition("/")
            if in_groups and group:
                grouped.setdefault(group, {})[own] = name
            else:
                grouped[name] = {"": name}
        return grouped

    @property
    def streams(self) -> tuple[str, ...]:
        """`rgb` and `flow`, where its groups have datasets of these names."""
        owned = {own for names in self.names.values() for own in names}
        return tuple(name for name in ("rgb", "flow") if name in owned) if not self.key else ()

    def stated(self, said: Stated) -> Stated:
        """What is said, and what its attributes say of the rest. Raises RecipeError."""
        with self._lock:
            known = {name: _plain(self.file.attrs[name]) for name in ATTRIBUTES if name in self.file.attrs}
        try:
            return stated_from(known, said)
        except ConfigError as error:
            raise RecipeError(f"The attributes of {self.path}: {error}", error.hint) from error

    def ids(self) -> list[str]:
        """Its videos."""
        return [video_id for video_id, names in self.names.items() if not self.stream or self.stream in names]

    def array(self, video_id: str) -> Array:
        """A video's array. Raises RecipeError where several may be it."""
        names = self.names[video_id]
        own = self.stream or ("" if "" in names else chosen([*names], self.key, f"{self.path}, {video_id}"))
        with self._lock:
            return Dataset(self.file[names[own]])


def _plain(attribute: Any) -> Any:
    """The one number or text of an attribute, which may be an array of it."""
    one = attribute.flat[0] if isinstance(attribute, np.ndarray) and attribute.size == 1 else attribute
    return one.decode() if isinstance(one, bytes) else one
