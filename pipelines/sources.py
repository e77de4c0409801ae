"""What decisions are made on: videos and stored features, as feature rows that fit a checkpoint."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from extractors.errors import ExtractorError, RecipeError, VideoError
from extractors.flow import ALGORITHMS, FlowWorkers, default_workers
from extractors.recipe import Recipe, differences
from extractors.stages import torch_threads
from extractors.twostream import FeatureRow, TwoStream, WeightSources, default_device, rebuild_twostream
from extractors.video import CHUNK_SECONDS, find_videos
from lstr.checkpoint import Checkpoint
from lstr.errors import CheckpointError
from pipelines.extract_video import open_chunks
from pipelines.store import FeatureFolder, open_features


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


def open_video_source(video_id: str, path: Path, twostream: TwoStream, workers: FlowWorkers | None) -> Source:
    """A video file as a source. Raises VideoError or MissingPathError."""
    video, _, chunks = open_chunks(path, twostream.recipe.long_side)
    return Source(video_id, str(path), path, video.duration, video.n_chunks, twostream.rows(chunks, workers))


def open_stored_source(folder: FeatureFolder, video_id: str) -> Source:
    """A video of a feature folder as a source. Raises RecipeError when its arrays are damaged."""
    rgb, flow = folder.load(video_id)
    rows = (FeatureRow(k, (k + 1) * CHUNK_SECONDS, np.array(rgb[k]), np.array(flow[k])) for k in range(len(rgb)))
    return Source(video_id, f"{folder.path}:{video_id}", None, len(rgb) * CHUNK_SECONDS, len(rgb), rows)


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
        yield open_stored_source(folder, video_id)
    if not videos:
        return
    twostream = networks_of(loaded, rgb_weights, flow_weights, device or default_device())
    algorithm = next(name for name, entry in ALGORITHMS.items() if entry == twostream.recipe.flow_algorithm)
    count = workers or default_workers()
    pool_or_none = FlowWorkers(count, algorithm, flow_backend) if loaded.config.flow_dim else nullcontext()
    # the model decides while networks and flow compute the next chunks, so it must leave them their cores
    with torch_threads(1), pool_or_none as pool:
        for video_id, path in videos.items():
            try:
                yield open_video_source(video_id, path, twostream, pool)
            except VideoError as error:
                yield error
