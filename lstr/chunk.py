"""The unit of time: a chunk of video, with one row of features and one decision."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstr.errors import LstrError, brief

FEATURES_PER_SECOND = 4  # chunks per second: 24 frames per second, 6 frames per chunk (paper, Feature Encoding)

CHUNK_SECONDS = 1 / FEATURES_PER_SECOND

# Chunks. A time this near a chunk's edge is on it: 0.1 + 0.2 s is 0.3 s, and must not label one chunk more.
TOLERANCE = 1e-6
MOST = 1000  # chunks a second, at most
# Features above it, thousands of times what networks give, could become infinite inside a model, and stay in a stream.
LARGEST_FEATURE = 1e9
STORED = re.compile(r"\d{1,9}(/[1-9]\d{0,8})?")  # how a model writes a rate or an offset


@dataclass(frozen=True)
class Clock:
    """The times of chunks: `rate` chunks per second; the first one starts at `offset` seconds of the video.

    Each time is computed from whole numbers by one division, so that no error adds up in a long source.
    """

    rate: Fraction = Fraction(FEATURES_PER_SECOND)
    offset: Fraction = Fraction(0)

    @property
    def seconds(self) -> float:
        """The length of a chunk in seconds."""
        return self.length(1)

    def length(self, chunks: Any) -> Any:
        """Return the length in seconds of a number of chunks, an int or an array."""
        return chunks * self.rate.denominator / self.rate.numerator

    def at(self, chunk: Any) -> Any:
        """Return the start in seconds of a chunk, which is the end of the chunk before it; an int or an array."""
        rate, offset = self.rate, self.offset
        parts = chunk * (rate.denominator * offset.denominator) + offset.numerator * rate.numerator
        return parts / (rate.numerator * offset.denominator)

    def first(self, seconds: float) -> int:
        """Return the chunk that contains a time, the later one at an edge; negative before the first chunk."""
        return math.floor(self._place(seconds) + TOLERANCE)

    def end(self, seconds: float) -> int:
        """Return the chunk after the last one that starts before a time."""
        return math.ceil(self._place(seconds) - TOLERANCE)

    def nearest(self, seconds: float) -> int:
        """Return the chunk with the start nearest to a time."""
        return round(self._place(seconds))

    def whole_chunks(self, seconds: float) -> int:
        """Return the number of whole chunks in a length."""
        return math.floor(seconds * float(self.rate) + TOLERANCE)

    def chunks_for(self, seconds: float) -> int:
        """Return the number of chunks that cover a length."""
        return math.ceil(seconds * float(self.rate) - TOLERANCE)

    def to_dict(self) -> dict[str, str]:
        """Return the JSON object; without the offset if it is 0."""
        return {"rate": str(self.rate), **({"offset": str(self.offset)} if self.offset else {})}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Clock":
        """Return the clock of a JSON object. Raises ValueError if it is invalid."""
        texts = (values.get("rate", "4"), values.get("offset", "0"))
        if not all(isinstance(text, str) and STORED.fullmatch(text) for text in texts):
            raise ValueError(f"rate and offset are {texts[0]!r} and {texts[1]!r}")
        rate, offset = map(Fraction, texts)
        if not 0 < rate <= MOST:
            raise ValueError(f"the rate is {texts[0]}")
        return cls(rate, offset)

    def _place(self, seconds: float) -> float:
        return (seconds - float(self.offset)) * float(self.rate)


CLOCK = Clock()  # the clock of features that are made here: 4 chunks a second from the beginning


def check_streams(streams: Iterable[int], n_streams: int) -> list[int]:
    """Return streams of a state as a list. Raises LstrError unless they are different numbers below `n_streams`."""
    try:
        which = [index(stream) for stream in streams]
        wrong = len({*which}) < len(which) or not all(0 <= stream < n_streams for stream in which)
    except TypeError:  # not a list, or not of whole numbers
        wrong = True
    if wrong:
        hint = f"use a list of different numbers from 0 to {n_streams - 1}."
        raise LstrError(f"The state has no such streams: {brief(streams)}.", hint)
    return which


def check_finite(features: Any) -> None:
    """Raise LstrError unless the features of a chunk, an array or a tensor, are finite and at most LARGEST_FEATURE."""
    if not (abs(features) <= LARGEST_FEATURE).all():  # nor is NaN
        message = f"The features of the chunk are not finite, or above {LARGEST_FEATURE:g}."
        raise LstrError(message, "skip this chunk, or extract it again.")


def taken_features(
    rgb_dim: int, flow_dim: int, rgb: ArrayLike | None, flow: ArrayLike | None, n_streams: int
) -> dict[str, ArrayLike]:
    """Return the features of a chunk that a model takes, by name. Raises LstrError unless each is (B, width), B > 0."""
    if not n_streams:
        raise LstrError("No streams were passed.", "pass the streams that have a next chunk.")
    taken = {}
    for name, values, width in (("rgb", rgb, rgb_dim), ("flow", flow, flow_dim)):
        if width == 0:
            continue
        if values is None:
            raise LstrError(f"The model takes {name} features but the chunk has none.", f"extract {name} features too.")
        if np.shape(values) != (n_streams, width):
            raise LstrError(
                f"The {name} features have shape {(*np.shape(values),)}, but the stream takes ({n_streams}, {width}).",
                "use features from the recipe the model was trained on, one row per stream.",
            )
        taken[name] = values
    return taken
