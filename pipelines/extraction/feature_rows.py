"""A video's feature rows, from its file or from the chunk cache, and what its record says of the decoding."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.extractors.errors import VideoError
from lstr.extractors.flow.workers import FlowWorkers, too_small
from lstr.extractors.run import FeatureRow, TwoStream
from lstr.extractors.video.file_reader import FrameReader
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.probe import Video
from lstr.pipelines.extraction.chunk_cache import CachedVideo, ChunkCache, cached_chunks, decoded_facts


@dataclass(frozen=True)
class VideoRows:
    """Feature rows of one video in order; close them."""

    name: str
    """The name of the video, for people."""
    announced: int
    """Chunks that the video should have."""
    rows: Iterator[FeatureRow]
    facts: Callable[[int], dict[str, Any]]
    """What a record says of the decoding, of so many rows, when they are at their end."""


def rows_of_file(
    source: Path,
    opened: tuple[Video, FrameReader, Iterator[Chunk]],
    twostream: TwoStream,
    workers: FlowWorkers | None,
) -> VideoRows:
    """Decode a file and compute its flow; `opened` is what `open_chunks` returns for it. Raises VideoError."""
    video, reader, chunks = opened
    width, height = video.size(twostream.recipe.long_side)
    if too_small(twostream.recipe.algorithm, width, height):
        raise VideoError(f"{source} is {width}×{height} pixels, too small for DIS flow.", "use [[algorithm=tvl1]].")
    backend = workers.backend if workers else None
    rows = twostream.rows(chunks, workers)
    return VideoRows(str(source), video.n_chunks, rows, lambda n: decoded_facts(video, reader, n, backend))


def rows_of_cache(cached: CachedVideo, twostream: TwoStream, workers: FlowWorkers | None) -> VideoRows:
    """The same rows from cached chunks; they raise CacheError where these are damaged."""
    facts = dict(cached.record["decoded"])
    if "flow" not in twostream.recipe.streams:
        facts["flow_backend"] = None
    rows = twostream.rows_with_flow(cached_chunks(cached), workers.workers if workers else 0)
    return VideoRows(cached.record["source"], facts["announced_chunks"], rows, lambda _: facts)


def find_cached(
    caches: Sequence[ChunkCache], sha256: str | None, twostream: TwoStream, allow_damaged: bool
) -> tuple[ChunkCache, CachedVideo] | None:
    """Cached chunks that make the features of a video file with this SHA-256, and where they are."""
    rgb = twostream.recipe.rgb
    if sha256 is None or (rgb and rgb.segments > 1):
        return None
    found = ((cache, video) for cache in caches if (video := cache.find(sha256)))
    return next((pair for pair in found if allow_damaged or not pair[1].record["decoded"]["decode_errors"]), None)
