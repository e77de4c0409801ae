"""What decisions are made on: videos and stored features, as feature rows that fit a checkpoint."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from extractors.errors import ExtractorError, VideoError
from extractors.flow import FlowWorkers, default_workers
from extractors.recipe import STREAMS
from extractors.stages import torch_threads
from extractors.twostream import FeatureRow, TwoStream, default_device
from extractors.video import CHUNK_SECONDS, find_videos
from lstr.checkpoint import Checkpoint
from pipelines.checkpoint_recipe import check_recipe, networks_of
from pipelines.extract_video import open_chunks
from pipelines.store import FeatureFolder, open_features


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
    warnings: list[str] = field(default_factory=list)
    """What a reader of its scores must know."""


def open_video_source(
    video_id: str, path: Path, twostream: TwoStream, workers: FlowWorkers | None, warnings: Iterable[str] = ()
) -> Source:
    """A video file as a source. Raises VideoError or MissingPathError."""
    video, _, chunks = open_chunks(path, twostream.recipe.long_side)
    rows = twostream.rows(chunks, workers)
    return Source(video_id, str(path), path, video.duration, video.n_chunks, rows, list(warnings))


def open_stored_source(folder: FeatureFolder, video_id: str, warnings: Iterable[str] = ()) -> Source:
    """A video of a feature folder as a source. Raises RecipeError when its arrays are damaged."""
    rgb, flow = folder.load(video_id)
    rows = (FeatureRow(k, (k + 1) * CHUNK_SECONDS, np.array(rgb[k]), np.array(flow[k])) for k in range(len(rgb)))
    duration = len(rgb) * CHUNK_SECONDS
    return Source(video_id, f"{folder.path}:{video_id}", None, duration, len(rgb), rows, list(warnings))


def is_feature_folder(path: Path) -> bool:
    """Whether a folder holds features rather than videos."""
    return path.is_dir() and ((path / "recipe.json").exists() or any(any(path.glob(f"{s}_*/")) for s in STREAMS))


def open_sources(
    given: Iterable[str | Path],
    loaded: Checkpoint,
    rgb_weights: str | None = None,
    flow_weights: str | None = None,
    workers: int | None = None,
    flow_backend: str = "auto",
    device: str | None = None,
    algorithm: str | None = None,
    allow_mismatch: bool = False,
) -> Iterator[Source | ExtractorError]:
    """Videos, folders of videos and feature folders as sources, in order; an unreadable one is its error.

    `algorithm` and `allow_mismatch` as for `networks_of`. Networks and flow workers are made when the first video
    needs them, and end with the generator. Raises MissingPathError for a path that is not there, RecipeError for
    features of another recipe, FlowError where the backend is not there.
    """
    raw: list[Path] = []
    stored: list[tuple[FeatureFolder, str, list[str]]] = []
    for path in map(Path, given):
        if is_feature_folder(path):
            folder = open_features(path)
            warnings = check_recipe(loaded, folder.recipe, path, allow_mismatch)
            stored += [(folder, video_id, warnings) for video_id in folder.ids()]
        else:
            raw.append(path)
    videos = find_videos(raw)
    for folder, video_id, warnings in stored:
        yield open_stored_source(folder, video_id, warnings)
    if not videos:
        return
    device = device or default_device()
    twostream, warnings = networks_of(loaded, rgb_weights, flow_weights, device, algorithm, allow_mismatch)
    algorithm = twostream.recipe.algorithm
    pool_or_none = FlowWorkers(workers or default_workers(), algorithm, flow_backend) if algorithm else nullcontext()
    # the model decides while networks and flow compute the next chunks, so it must leave them their cores
    with torch_threads(1), pool_or_none as pool:
        for video_id, path in videos.items():
            try:
                yield open_video_source(video_id, path, twostream, pool, warnings)
            except VideoError as error:
                yield error
