"""Labelled videos' chunks and flow in the chunk cache: what it has is checked, what it lacks is made."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from lstr.errors import MissingPathError, OutputError, VideoError
from lstr.extractors.flow.workers import ALGORITHMS, FlowWorkers, algorithm_of, too_small
from lstr.extractors.networks.build import network_recipe
from lstr.extractors.networks.weights_file import sha256_of
from lstr.extractors.presets import Preset
from lstr.extractors.recipe import Recipe
from lstr.extractors.streams import MODEL_STREAMS
from lstr.extractors.video.inputs import at_hand
from lstr.extractors.video.reader import open_chunks
from lstr.files.remote import Place
from lstr.pipelines.failures import Failure, FailureLog, failure_of
from lstr.pipelines.features.chunk_cache import CachedVideo, ChunkCache, chunk_recipe, serving
from lstr.pipelines.features.extraction import Outcome
from lstr.pipelines.features.output_folder import map_in_threads
from lstr.pipelines.progress import Failed, Notice, Progress


@dataclass(frozen=True)
class SoundVideo:
    """A video that can be read, as far as its packets show."""

    id: str
    source: Place
    sha256: str
    n_chunks: int
    n_bytes: int
    """Bytes that its chunks take in the cache."""


@dataclass(frozen=True)
class Cached:
    """A video's chunks in the cache."""

    sha256: str
    chunks: CachedVideo


@dataclass(frozen=True)
class Filling:
    """The chunks of videos are computed next, where the cache lacks them; their numbers by id."""

    chunks: Mapping[str, int]


@dataclass(frozen=True)
class Filled:
    """The cache has all chunks that the networks learn from."""

    n_chunks: int
    n_videos: int
    n_made: int
    """videos whose chunks were computed now"""
    cache: Path


def chunks_of(preset: Preset) -> dict[str, Any]:
    """The part of a preset that makes chunks and flow, as the cache takes it."""
    parts: dict[str, Any] = {stream: network_recipe(stream, preset.parts[stream]) for stream in preset.streams}
    algorithm = preset.algorithm and ALGORITHMS[preset.algorithm]
    parts |= {stream: None for stream in MODEL_STREAMS if stream not in parts}
    recipe = Recipe(**parts, flow_algorithm=algorithm, rgb_frame=preset.rgb_frame, long_side=preset.long_side)
    return chunk_recipe(recipe)


def look_at(
    videos: Mapping[str, Place], cache: ChunkCache, failed: FailureLog
) -> Generator[Failed, None, dict[str, SoundVideo]]:
    """The videos that can be read, as far as their packets show; the others are added to `failed`.

    Raises VideoError where none can be read, OutputError where the cache is too small for those that can.
    """
    sound = {}
    for (video_id, source), found in map_in_threads(lambda video: _look(*video, cache), videos.items()):
        if isinstance(found, Failure):
            yield failed.add(video_id, source, found)
        else:
            sound[video_id] = found
    if not sound:
        raise VideoError("None of the videos can be read.", "each is named above, with what to do.")
    check_room(len(sound), sum({video.sha256: video.n_bytes for video in sound.values()}.values()), cache.size)
    return sound


def check_room(n_videos: int, needed: int, size: int) -> None:
    """Raises OutputError where the chunks of videos need more bytes than the `size` that the cache may have."""
    if needed > size:
        raise OutputError(
            f"The chunks of {n_videos} videos need {needed / 1e9:.3g} GB, and the cache may have {size / 1e9:.3g} GB.",
            f"use --set cache_size={needed // 10**9 + 1}GB, or fewer videos.",
        )


def _look(video_id: str, source: Place, cache: ChunkCache) -> SoundVideo | Failure:
    try:
        with at_hand(source) as (path, _):
            video = open_chunks(path, cache.recipe["long_side"])[0]
            planes, height, width = cache.shape(video)
            if too_small(algorithm_of(cache.recipe["flow_algorithm"]), width, height):
                sentence = f"{source} is {width}×{height} pixels, too small for DIS flow."
                return Failure(sentence, "use --set recipe.flow_algorithm=tvl1.")
            n_bytes = video.n_chunks * planes * height * width
            return SoundVideo(video_id, source, sha256_of(path), video.n_chunks, n_bytes)
    except Exception as error:
        return failure_of(error, source)


def fill(
    videos: Mapping[str, SoundVideo], cache: ChunkCache, workers: FlowWorkers | None, failed: FailureLog
) -> Generator[Filling | Progress | Outcome | Notice | Failed | Filled, None, dict[str, Cached]]:
    """The chunks of each video, made where the cache lacks them or they are damaged; Progress by video id.

    Videos that cannot be read to their end are added to `failed`. What was made is kept whatever happens later. Raises
    VideoError where no video can be read to its end, and as `failure_of`.
    """
    keep = {video.sha256 for video in videos.values()}
    cached, n_made = {}, 0
    yield Filling({video_id: video.n_chunks for video_id, video in videos.items()})
    for video_id, video in videos.items():
        start = perf_counter()
        try:
            chunks = _find(cache, video.sha256)
            state = "kept" if chunks and (yield from chunks.verify(video_id)) else "done"
            damaged = chunks if state == "done" else None
            if damaged:
                cache.drop(damaged)
            if state == "done":
                with at_hand(video.source) as (path, _):
                    opened = open_chunks(path, cache.recipe["long_side"])
                    chunks = yield from cache.fill(video.sha256, path, opened, workers, keep, video_id)
            assert chunks
        except Exception as error:
            yield failed.add(video_id, video.source, failure_of(error, video.source))
            continue
        seconds = perf_counter() - start if state == "done" else 0.0
        yield Outcome(video_id, video.source, state, len(chunks), seconds)
        cached[video_id] = Cached(video.sha256, chunks)
        n_made += state == "done"
        if damaged:
            yield Notice(f"{video_id} was damaged in the cache, and was made again.")
    if not cached:
        raise VideoError("None of the videos can be read to its end.", "each is named above, with what to do.")
    yield Filled(sum(len(video.chunks) for video in cached.values()), len(cached), n_made, cache.path)
    return cached


def find_cached(cache: ChunkCache, videos: Mapping[str, str]) -> dict[str, Cached]:
    """What another process has filled the cache with, by id; `videos` are SHA-256 of their files.

    Raises MissingPathError where the processes do not share the cache.
    """
    found = {video_id: _find(cache, sha256) for video_id, sha256 in videos.items()}
    missing = [video_id for video_id, chunks in found.items() if chunks is None]
    if missing:
        raise MissingPathError(
            f"{cache.path} has no chunks of {missing[0]}, which the first process has put there.",
            "name a folder that all machines share: --set cache=DIR.",
        )
    return {i: Cached(videos[i], chunks) for i, chunks in found.items() if chunks is not None}


def _find(cache: ChunkCache, sha256: str) -> CachedVideo | None:
    """Cached chunks, also those that serve in place of what is wanted."""
    caches = (ChunkCache(cache.root, made) for made in serving(cache.recipe))
    return next((found for place in caches if (found := place.find(sha256))), None)
