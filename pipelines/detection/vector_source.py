"""Feature vectors that a program has, one after the other, as a source to detect on."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import VideoError
from lstr.extractors.prefetch import closed_after
from lstr.extractors.run import FeatureRow
from lstr.pipelines.detection.networks import Networks
from lstr.pipelines.detection.sources import Limits, Recorded, Source, Unreadable


@dataclass(frozen=True)
class VectorSource(Recorded):
    """An iterable of the features of one chunk after the other; nobody knows how many will come.

    Each is a vector (D,), appearance first and then motion, or a vector by stream: {"rgb": …, "flow": …}.
    """

    vectors: Iterable[Any] = field(repr=False, compare=False)

    def open(self, networks: Networks, limits: Limits) -> Source | Unreadable:
        return Source(self.id, self.origin, None, None, None, self._rows(networks), [])

    def _rows(self, networks: Networks) -> Iterator[FeatureRow]:
        clock, config = networks.loaded.clock, networks.loaded.config
        widths = {"rgb": config.rgb_dim, "flow": config.flow_dim}
        with closed_after(iter(self.vectors)) as vectors:
            for chunk, item in enumerate(vectors):
                yield FeatureRow(chunk, clock.at(chunk + 1), _by_stream(item, widths, chunk))


def _by_stream(item: Any, widths: Mapping[str, int], chunk: int) -> dict[str, NDArray[np.float32]]:
    """The features of a chunk for each stream that a model takes. Raises VideoError for what is none."""
    wanted = {stream: width for stream, width in widths.items() if width}
    try:
        if isinstance(item, Mapping):
            found = {stream: np.array(item[stream], np.float32) for stream in wanted}
        else:
            whole = np.array(item, np.float32)
            cuts = [wanted["rgb"]] if len(wanted) > 1 else []
            found = dict(zip(wanted, np.split(whole, cuts, axis=-1), strict=True))
    except (TypeError, ValueError, KeyError) as error:
        raise VideoError(f"Item {chunk} is no vector of features ({error!r}).", _hint(wanted)) from error
    if wrong := next((stream for stream, vector in found.items() if vector.shape != (wanted[stream],)), None):
        raise VideoError(f"The {wrong} features of chunk {chunk} have shape {found[wrong].shape}.", _hint(wanted))
    return found


def _hint(wanted: Mapping[str, int]) -> str:
    return f"give a vector of {sum(wanted.values())} numbers for each chunk, or {dict(wanted)} by stream."
