"""What decisions are made on: videos and stored features, as feature rows that fit a checkpoint."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from extractors.errors import ExtractorError, RecipeError, VideoError
from extractors.flow import ALGORITHMS, FlowWorkers, default_workers
from extractors.frames import CHUNK_SECONDS, Chunk, chunks_of
from extractors.recipe import Recipe, differences
from extractors.stages import closed_after, torch_threads
from extractors.twostream import FeatureRow, TwoStream, WeightSources, default_device, rebuild_twostream
from extractors.video import find_videos
from lstr.checkpoint import Checkpoint
from lstr.errors import CheckpointError
from pipelines.extract import open_chunks
from pipelines.store import FeatureFolder, open_features
from pipelines.timeline import TOLERANCE


def recipe_of(loaded: Checkpoint) -> Recipe | None:
    """The recipe of the features a checkpoint was trained on; None when it does not say."""
    return Recipe.from_dict(loaded.recipe) if loaded.recipe else None


def check_recipe(loaded: Checkpoint, recipe: Recipe | None, features: str | Path) -> None:
    """Raise RecipeError, with the difference, when features and checkpoint have different recipes."""
    trained = recipe_of(loaded)
    if trained and recipe and trained != recipe:
        raise RecipeError(
            f"{features} and {loaded.path} were made by different recipes ({'; '.join(differences(recipe, trained))}).",
            "extract the videos with the options the checkpoint's features were made with (`lstr info` shows them).",
        )


def networks_of(loaded: Checkpoint, rgb_weights: str | None, flow_weights: str | None, device: str) -> TwoStream:
    """The feature networks a checkpoint needs for raw video: of the streams its model takes.

    Raises CheckpointError when it does not record its recipe, WeightsError when the weights are not at hand.
    """
    recipe = recipe_of(loaded)
    if recipe is None:
        raise CheckpointError(
            f"{loaded.path} does not say how its features were made, so raw video cannot be scored with it.",
            "give a feature folder instead of a video, or train with `lstr train` on extracted features.",
        )
    sources = WeightSources(rgb_weights, flow_weights, loaded.calibration, recipe.calibrated_on)
    streams = [stream for stream in ("rgb", "flow") if getattr(loaded.config, f"{stream}_dim")]
    return rebuild_twostream(recipe, sources, device, streams)


@dataclass(frozen=True)
class Source:
    """Something to detect on: its id, where it came from, its length, and its feature rows in order."""

    id: str
    origin: str
    video: Path | None
    """The file to show beside the timeline; None for stored features."""
    duration: float
    n_chunks: int
    rows: Iterable[FeatureRow]


@dataclass(frozen=True)
class Limits:
    """Which chunks are decided: from `start` on, for `duration`, in seconds of the source, and `max_chunks` at most."""

    start: float = 0.0
    duration: float | None = None
    max_chunks: int | None = None

    @property
    def first(self) -> int:
        """The chunk in which `start` lies."""
        return math.floor(self.start / CHUNK_SECONDS + TOLERANCE)

    @property
    def end(self) -> int | None:
        """The chunk before which `duration` is over; None without one."""
        if self.duration is None:
            return None
        return max(self.first + 1, math.ceil((self.start + self.duration) / CHUNK_SECONDS - TOLERANCE))

    def of(self, n_chunks: int, name: str) -> range:
        """Those of a source of `n_chunks`. Raises VideoError where there is none."""
        chosen = range(self.first, n_chunks if self.end is None else min(n_chunks, self.end))[: self.max_chunks]
        if not chosen:
            raise VideoError(
                f"{name} ends after {n_chunks * CHUNK_SECONDS:g} s, before --start {self.start:g}.",
                "start earlier; `lstr info` says how long a video is.",
            )
        return chosen


ALL = Limits()


def open_video_source(
    video_id: str, path: Path, twostream: TwoStream, workers: FlowWorkers | None, limits: Limits = ALL
) -> Source:
    """A video file as a source. Raises VideoError or MissingPathError."""
    long_side = twostream.recipe.long_side
    video, reader, _ = open_chunks(path, long_side)
    chosen = limits.of(video.n_chunks, str(path))
    rows = twostream.rows(_first_of(chunks_of(reader.frames(long_side), chosen.start), len(chosen)), workers)
    duration = video.duration if chosen.stop == video.n_chunks else chosen.stop * CHUNK_SECONDS
    return Source(video_id, str(path), path, duration, len(chosen), rows)


def _first_of(chunks: Iterator[Chunk], n: int) -> Iterator[Chunk]:
    with closed_after(chunks) as source:
        yield from islice(source, n)


def open_stored_source(folder: FeatureFolder, video_id: str, limits: Limits = ALL) -> Source:
    """A video of a feature folder as a source. Raises RecipeError when its arrays are damaged."""
    rgb, flow = folder.load(video_id)
    chosen = limits.of(len(rgb), f"{folder.path}:{video_id}")
    rows = (FeatureRow(k, (k + 1) * CHUNK_SECONDS, np.array(rgb[k]), np.array(flow[k])) for k in chosen)
    return Source(video_id, f"{folder.path}:{video_id}", None, chosen.stop * CHUNK_SECONDS, len(chosen), rows)


def is_feature_folder(path: Path) -> bool:
    """Whether a folder holds features rather than videos."""
    return path.is_dir() and ((path / "recipe.json").exists() or any(path.glob("rgb_*/")))


def open_sources(
    given: Iterable[str | Path],
    loaded: Checkpoint,
    rgb_weights: str | None = None,
    flow_weights: str | None = None,
    workers: int | None = None,
    flow_backend: str = "auto",
    device: str | None = None,
    limits: Limits = ALL,
) -> Iterator[Source | ExtractorError]:
    """Videos, folders of videos and feature folders as sources, in order; an unreadable one is its error.

    Networks and flow workers are made when the first video needs them, and end with the generator. Raises
    MissingPathError for a path that is not there, RecipeError for features of another recipe, FlowError where the
    backend is not there.
    """
    raw: list[Path] = []
    stored: list[tuple[FeatureFolder, str]] = []
    for path in map(Path, given):
        if is_feature_folder(path):
            folder = open_features(path)
            check_recipe(loaded, folder.recipe, path)
            stored += [(folder, video_id) for video_id in folder.ids()]
        else:
            raw.append(path)
    videos = find_videos(raw)
    for folder, video_id in stored:
        try:
            yield open_stored_source(folder, video_id, limits)
        except VideoError as error:
            yield error
    if not videos:
        return
    with open_networks(loaded, rgb_weights, flow_weights, workers, flow_backend, device) as (twostream, pool):
        for video_id, path in videos.items():
            try:
                yield open_video_source(video_id, path, twostream, pool, limits)
            except VideoError as error:
                yield error


@contextmanager
def open_networks(
    loaded: Checkpoint,
    rgb_weights: str | None = None,
    flow_weights: str | None = None,
    workers: int | None = None,
    flow_backend: str = "auto",
    device: str | None = None,
) -> Iterator[tuple[TwoStream, FlowWorkers | None]]:
    """The networks for raw video and the threads for its flow, if the model takes any. Raises as `networks_of`."""
    twostream = networks_of(loaded, rgb_weights, flow_weights, device or default_device())
    algorithm = next(name for name, entry in ALGORITHMS.items() if entry == twostream.recipe.flow_algorithm)
    count = workers or default_workers()
    pool_or_none = FlowWorkers(count, algorithm, flow_backend) if loaded.config.flow_dim else nullcontext()
    # the model decides while networks and flow compute the next chunks, so it must leave them their cores
    with torch_threads(1), pool_or_none as pool:
        yield twostream, pool
