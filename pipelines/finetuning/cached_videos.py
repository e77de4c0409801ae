"""Labelled videos' chunks and flow in the chunk cache: what it has is checked, what it lacks is made."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from lstr.extractors.errors import MissingPathError, OutputError
from lstr.extractors.flow.workers import ALGORITHMS, FlowWorkers, algorithm_of, too_small
from lstr.extractors.networks.build import network_recipe
from lstr.extractors.presets import Preset
from lstr.extractors.recipe import Recipe
from lstr.extractors.video.file_reader import open_chunks
from lstr.extractors.weights.published_files import sha256_of
from lstr.pipelines.extraction.chunk_cache import CachedVideo, ChunkCache, chunk_recipe
from lstr.pipelines.extraction.resume import Outcome, failed, together
from lstr.pipelines.failures import Failure, failure_of
from lstr.pipelines.files.remote import Place
from lstr.pipelines.files.videos import at_hand
from lstr.pipelines.progress import Progress


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
class Made:
    """What became of one video: its Outcome, and its chunks unless it failed."""

    outcome: Outcome
    cached: Cached | None


def chunks_of(preset: Preset) -> dict[str, Any]:
    """The part of a preset that makes chunks and flow, as the cache takes it."""
    parts = {stream: network_recipe(stream, preset.parts[stream]) for stream in preset.streams}
    algorithm = preset.algorithm and ALGORITHMS[preset.algorithm]
    recipe = Recipe(
        parts.get("rgb"),
        parts.get("flow"),
        flow_algorithm=algorithm,
        rgb_frame=preset.rgb_frame,
        long_side=preset.long_side,
    )
    return chunk_recipe(recipe)


def look_at(videos: Mapping[str, Place], cache: ChunkCache) -> tuple[list[SoundVideo], list[Outcome]]:
    """Videos that can be read, and an Outcome of each that cannot.

    Raises OutputError where the cache is too small for those that can.
    """
    looked = [found for _, found in together(lambda video: _look(video[0], video[1], cache), videos.items())]
    sound = [found for found in looked if isinstance(found, SoundVideo)]
    bad = [found for found in looked if isinstance(found, Outcome)]
    needed = sum({video.sha256: video.n_bytes for video in sound}.values())
    if needed > cache.size:
        raise OutputError(
            f"The chunks of {len(sound)} videos need {needed / 1e9:.3g} GB, and the cache may have "
            f"{cache.size / 1e9:.3g} GB.",
            f"use [[cache_size={needed // 10**9 + 1}GB]], or fewer videos.",
        )
    return sound, bad


def _look(video_id: str, source: Place, cache: ChunkCache) -> SoundVideo | Outcome:
    try:
        with at_hand(source) as (path, _):
            video = open_chunks(path, cache.recipe["long_side"])[0]
            planes, height, width = cache.shape(video)
            if too_small(algorithm_of(cache.recipe["flow_algorithm"]), width, height):
                sentence = f"{source} is {width}×{height} pixels, too small for DIS flow."
                return failed(video_id, source, Failure(sentence, "use [[algorithm=tvl1]]."))
            n_bytes = video.n_chunks * planes * height * width
            return SoundVideo(video_id, source, sha256_of(path), video.n_chunks, n_bytes)
    except Exception as error:
        return failed(video_id, source, failure_of(error, source))


def fill(
    videos: list[SoundVideo], cache: ChunkCache, workers: FlowWorkers | None
) -> Generator[Progress | Made, None, None]:
    """The chunks of each video, made where the cache lacks them or they are damaged; Progress by video id.

    What was made is kept whatever happens later. Raises as `failure_of`.
    """
    keep = {video.sha256 for video in videos}
    for video in videos:
        try:
            made = yield from _fill(video, cache, workers, keep)
        except Exception as error:
            made = Made(failed(video.id, video.source, failure_of(error, video.source)), None)
        yield made


def _fill(
    video: SoundVideo, cache: ChunkCache, workers: FlowWorkers | None, keep: set[str]
) -> Generator[Progress, None, Made]:
    """The chunks of one video."""
    start, note = perf_counter(), ""
    found = _find(cache, video.sha256)
    if found and (yield from found.verify(video.id)):
        return Made(Outcome(video.id, video.source, "kept", len(found)), Cached(video.sha256, found))
    if found:
        cache.drop(found)
        note = "damaged in the cache, and was made again"
    with at_hand(video.source) as (path, _):
        opened = open_chunks(path, cache.recipe["long_side"])
        made = yield from cache.fill(video.sha256, path, opened, workers, keep, video.id)
    outcome = Outcome(video.id, video.source, "done", len(made), perf_counter() - start, reason=note)
    return Made(outcome, Cached(video.sha256, made))


def find_cached(cache: ChunkCache, videos: Mapping[str, str]) -> dict[str, Cached]:
    """What another process has filled the cache with, by id; `videos` are SHA-256 of their files.

    Raises MissingPathError where the processes do not share the cache.
    """
    found = {video_id: _find(cache, sha256) for video_id, sha256 in videos.items()}
    missing = [video_id for video_id, chunks in found.items() if chunks is None]
    if missing:
        raise MissingPathError(
            f"{cache.path} has no chunks of {missing[0]}, which the first process has put there.",
            "let [[cache]] be a folder that all machines share.",
        )
    return {i: Cached(videos[i], chunks) for i, chunks in found.items() if chunks is not None}


def _find(cache: ChunkCache, sha256: str) -> CachedVideo | None:
    """Cached chunks; without flow, those with any flow serve too."""
    others = () if cache.recipe["flow_algorithm"] else ALGORITHMS.values()
    caches = (cache, *(ChunkCache(cache.root, cache.recipe | {"flow_algorithm": name}) for name in others))
    return next((found for one in caches if (found := one.find(sha256))), None)
