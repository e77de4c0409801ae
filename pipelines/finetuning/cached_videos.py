"""Labelled videos' chunks and flow in the chunk cache: what is there is checked, what is not is made."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from extractors.errors import MissingPathError, OutputError, VideoError
from extractors.flow.workers import ALGORITHMS, DIS_SMALLEST, FlowWorkers
from extractors.networks.build import asked
from extractors.networks.published_files import sha256_of
from extractors.presets import Preset
from extractors.recipe import Recipe
from extractors.video.file_reader import open_chunks
from pipelines.extraction.chunk_cache import CachedVideo, ChunkCache, chunk_recipe
from pipelines.extraction.outcome import Outcome, failed
from pipelines.extraction.resume import together
from pipelines.files.remote import Place
from pipelines.files.videos import at_hand
from pipelines.progress import Progress, Tell

Result = TypeVar("Result")


@dataclass(frozen=True)
class SoundVideo:
    """A video that can be read, as far as its packets say."""

    id: str
    source: Place
    sha256: str
    n_chunks: int
    n_bytes: int
    """That its chunks take in the cache."""


@dataclass(frozen=True)
class Cached:
    """A video's chunks in the cache."""

    sha256: str
    chunks: CachedVideo


def chunks_of(preset: Preset) -> dict:
    """What of a preset makes chunks and flow, as the cache asks for it."""
    parts = {stream: asked(stream, preset.parts[stream]) for stream in preset.streams}
    algorithm = preset.algorithm and ALGORITHMS[preset.algorithm]
    sizes = {"rgb_frame": preset.rgb_frame, "long_side": preset.long_side}
    return chunk_recipe(Recipe(parts.get("rgb"), parts.get("flow"), flow_algorithm=algorithm, **sizes))


def look_at(videos: Mapping[str, Place], cache: ChunkCache) -> tuple[list[SoundVideo], list[Outcome]]:
    """Videos that can be read, and an Outcome of each that cannot.

    Raises OutputError where the cache is too small for those that can.
    """
    sound, bad = [], []
    for _, looked in together(lambda video: _look(*video, cache), videos.items()):
        (sound if isinstance(looked, SoundVideo) else bad).append(looked)
    needed = sum({video.sha256: video.n_bytes for video in sound}.values())
    if needed > cache.size:
        raise OutputError(
            f"The chunks of {len(sound)} videos need {needed / 1e9:.3g} GB, and the cache may have "
            f"{cache.size / 1e9:.3g} GB.",
            f"give --cache-size {needed // 10**9 + 1}GB, or fewer videos.",
        )
    return sound, bad


def _look(video_id: str, source: Place, cache: ChunkCache) -> SoundVideo | Outcome:
    try:
        with at_hand(source) as (path, _):
            video = open_chunks(path, cache.recipe["long_side"])[0]
            planes, height, width = cache.shape(video)
            if cache.recipe["flow_algorithm"] == ALGORITHMS["dis"] and min(height, width) < DIS_SMALLEST:
                sentence = f"{source} is {width}×{height} pixels, too small for DIS flow."
                return failed(video_id, source, sentence, "use --flow tvl1.")
            n_bytes = video.n_chunks * planes * height * width
            return SoundVideo(video_id, source, sha256_of(path), video.n_chunks, n_bytes)
    except (VideoError, MissingPathError) as error:
        return failed(video_id, source, str(error), error.hint)


def fill(
    videos: list[SoundVideo], cache: ChunkCache, workers: FlowWorkers | None, progress: Tell
) -> Iterator[tuple[Outcome, Cached | None]]:
    """The chunks of each video, made where they are not there or damaged: an Outcome, and them unless it failed.

    What was made is kept whatever happens later. Raises OutputError or FlowError, which would meet every other too.
    """
    keep = {video.sha256 for video in videos}
    for video in videos:
        start, note = perf_counter(), ""
        there = _find(cache, video.sha256)
        if there and _shown(there.verify(video.id), progress):
            yield Outcome(video.id, video.source, "kept", len(there)), Cached(video.sha256, there)
            continue
        if there:
            cache.drop(there)
            note = "damaged in the cache, and was made again"
        try:
            with at_hand(video.source) as (path, _):
                opened = open_chunks(path, cache.recipe["long_side"])
                made = _shown(cache.fill(video.sha256, path, opened, workers, keep, video.id), progress)
        except (VideoError, MissingPathError) as error:
            yield failed(video.id, video.source, str(error), error.hint), None
            continue
        seconds = perf_counter() - start
        outcome = Outcome(video.id, video.source, "done", len(made), seconds, reason=note)
        yield outcome, Cached(video.sha256, made)


def _find(cache: ChunkCache, sha256: str) -> CachedVideo | None:
    """Cached chunks; without flow, those with any flow serve too."""
    others = () if cache.recipe["flow_algorithm"] else ALGORITHMS.values()
    caches = (cache, *(ChunkCache(cache.root, cache.recipe | {"flow_algorithm": name}) for name in others))
    return next((found for one in caches if (found := one.find(sha256))), None)


def _shown(events: Generator[Progress, None, Result], progress: Tell) -> Result:
    """What comes of it, each of its events told to `progress`."""
    with closing(events):
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                return end.value
            progress(event.what, event.done, event.total)
