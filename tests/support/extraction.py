"""Extraction with given networks and flow threads, and the return values of generators."""

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.run import TwoStream
from lstr.files.remote import Place
from lstr.pipelines.features.chunk_cache import caches_of, chunk_recipe
from lstr.pipelines.features.extraction import Outcome, resume
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import OutputFolder
from lstr.pipelines.features.video import FoldNetworks, VideoExtractor


def return_value(events: Generator[Any, None, Any], on_event: Callable[[Any], object] = lambda event: None) -> Any:
    """Run a generator to its end, and return its return value."""
    while True:
        try:
            on_event(next(events))
        except StopIteration as end:
            return end.value


def features_in(folder: Any, video_id: str) -> list[np.ndarray]:
    """Read the RGB and the flow features of a video again from its folder."""
    return [np.asarray(array) for array in open_features(folder.path).load(video_id)]


def assert_same_features(folder, expected, video_id: str) -> None:
    """Check that the features of a video in two folders have the same bytes."""
    for a, b in zip(features_in(folder, video_id), features_in(expected, video_id), strict=True):
        assert a.tobytes() == b.tobytes()


def extract_all(
    videos: Mapping[str, Place],
    folder: OutputFolder,
    twostream: TwoStream,
    flow: FlowWorkers | None,
    cache: Path | None = None,
    at_once: int = 1,
) -> list[Outcome]:
    """Extract videos in this process; return the Outcome of each."""
    caches = caches_of(cache, chunk_recipe(twostream.recipe)) if cache else []
    extractor = VideoExtractor(folder, FoldNetworks(twostream), flow, caches, at_once=at_once)
    return [event for event in resume(videos, folder, extractor.engine) if isinstance(event, Outcome)]
