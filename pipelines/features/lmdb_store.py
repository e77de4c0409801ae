"""Features in an LMDB with a vector for each frame, as EPIC-Kitchens' are published: P01_01_frame_0000000001.jpg."""

import re
import threading
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.errors import RecipeError
from lstr.pipelines.features.stored_rows import Array

DATA = "data.mdb"
SUFFIXES = (".mdb", ".lmdb")
INSTALL = "pip install 'lstr-video[stores]'"
KEY = re.compile(rb"(?P<video>.+?)(?P<joint>[_/-](?:(?:frame|img|image)[_-]?)?)(?P<number>\d+)(?P<ending>\.\w+)?")
FRAME = re.compile(rb"(\d+)(\.\w+)?")
"""What stands in a key after the video and the joint."""
NUMBER_BYTES = 4  # float32
PICKLE, NPY = b"\x80", b"\x93NUMPY"

_opened: WeakValueDictionary[Path, Any] = WeakValueDictionary()
"""Environments that are open in this process, which may open a file once."""
_opening = threading.Lock()


@dataclass(frozen=True)
class Frames:
    """The keys of a video's frames: `video_frame_`, a number of so many digits from `first` to `last`, an ending."""

    beginning: bytes
    digits: int
    ending: bytes
    first: int
    last: int

    def key(self, number: int) -> bytes:
        """The key of a frame."""
        return self.beginning + str(number).zfill(self.digits).encode() + self.ending

    def number(self, key: bytes) -> int | None:
        """The number in a key; None where it is of no frame of this video, or has another number of digits."""
        told = FRAME.fullmatch(key, len(self.beginning)) if key.startswith(self.beginning) else None
        return int(told[1]) if told and len(told[1]) == self.digits else None


class FrameVectors:
    """The vectors (L, D) of a video's frames. Of a frame that is missing it is that of the one before."""

    def __init__(self, environment: Any, frames: Frames, width: int):
        self._environment, self._frames = environment, frames
        self._begin = min(frames.first, 1)  # the first frame is called 0 or 1
        self.shape, self.dtype = (frames.last - self._begin + 1, width), np.dtype(np.float32)

    def read(self, axis: int, places: NDArray[np.int64]) -> NDArray[Any]:
        """The vectors of frames; axis 0 is that of frames."""
        with self._environment.begin() as transaction:
            rows = np.stack([self._vector(transaction, int(place) + self._begin) for place in places])
        return rows if axis == 0 else rows.T

    def _vector(self, transaction: Any, number: int) -> NDArray[np.float32]:
        frames = self._frames
        number = max(number, frames.first)
        value = transaction.get(frames.key(number))
        if value is None:
            cursor = transaction.cursor()
            there = cursor.set_range(frames.key(number)) and cursor.prev()  # the newest before it: the first is there
            while there and frames.number(bytes(cursor.key())) is None:  # a frame of a video whose id begins alike
                there = cursor.prev()
            value = cursor.value()
        vector = np.frombuffer(value, "<f4")
        if len(vector) != self.shape[1]:
            raise ValueError(f"frame {number} is {len(vector)} wide, the first {self.shape[1]}")
        return vector


@dataclass(frozen=True)
class LmdbStore:
    """An LMDB, opened to be read alone and without a lock: a folder with data.mdb, or its file."""

    path: Path
    format = "lmdb"

    @cached_property
    def environment(self) -> Any:
        """The open database. Raises RecipeError without the package, and for a file that is none."""
        try:
            import lmdb
        except ImportError as error:
            raise RecipeError(f"{self.path} needs lmdb, which is not installed.", f"install it: {INSTALL}") from error
        place = self.path.resolve()
        with _opening:
            if (known := _opened.get(place)) is not None:
                return known
            try:
                options = {"readonly": True, "lock": False, "readahead": False, "create": False}
                environment = lmdb.open(str(place), subdir=place.is_dir(), **options)
            except lmdb.Error as error:
                raise RecipeError(f"{self.path} is no LMDB that can be read ({error}).", "copy it again.") from error
            _opened[place] = environment
            return environment

    @cached_property
    def videos(self) -> dict[str, Frames]:
        """The keys of each video's frames. Raises RecipeError.

        They are found by one look at each video where a word stands before the number. Where none does, each key is
        looked at: among the keys of a video `v` may lie those of `v_1`.
        """
        found: dict[str, Frames] = {}
        with self.environment.begin() as transaction:
            cursor = transaction.cursor()
            there = cursor.first()
            while there:
                key = bytes(cursor.key())
                video_id, has_word, begun = self._begun(key)
                frames = found.setdefault(video_id, begun)
                if (last := frames.number(key)) is None:
                    raise RecipeError(
                        f"{self.path} numbers the frames of {video_id!r} without leading zeros: they have no order.",
                        "store each frame's vector under VIDEO_frame_0000000001.jpg.",
                    )
                if has_word:
                    beyond = cursor.set_range(frames.beginning + b":")  # after the digits
                    newest = cursor.prev() if beyond else cursor.last()
                    if not newest or frames.number(bytes(cursor.key())) is None:
                        cursor.set_key(key)
                while there and (number := frames.number(bytes(cursor.key()))) is not None:
                    last, there = number, cursor.next()
                found[video_id] = replace(frames, last=last)
        if not found:
            raise RecipeError(f"{self.path} is empty.", "copy it again.")
        return found

    def _begun(self, key: bytes) -> tuple[str, bool, Frames]:
        """Which video a key is of, whether a word stands before its number, and the frames that begin with it.

        Raises RecipeError.
        """
        told = KEY.fullmatch(key)
        if told is None:
            raise RecipeError(
                f"{self.path} has the key {key[:80]!r}, which names no frame of a video.",
                "store each frame's vector under VIDEO_frame_0000000001.jpg.",
            )
        number, beginning = int(told["number"]), told["video"] + told["joint"]
        frames = Frames(beginning, len(told["number"]), told["ending"] or b"", number, number)
        return told["video"].decode("utf-8", "replace"), len(told["joint"]) > 1, frames

    def ids(self) -> list[str]:
        """Its videos."""
        return [*self.videos]

    def array(self, video_id: str) -> Array:
        """A video's vectors. Raises RecipeError where its first is none."""
        frames = self.videos[video_id]
        with self.environment.begin() as transaction:
            value = bytes(transaction.get(frames.key(frames.first)) or b"")
        if not value or len(value) % NUMBER_BYTES or value.startswith((NPY, PICKLE)):
            raise RecipeError(
                f"The values of {self.path} are no float32 vectors (the first of {video_id!r} has {len(value)} bytes).",
                "store the bytes of one float32 vector under each frame's key, as EPIC-Kitchens' features have them.",
            )
        return FrameVectors(self.environment, frames, len(value) // NUMBER_BYTES)
