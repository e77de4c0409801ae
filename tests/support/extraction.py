"""Extraction with networks and flow threads that a test has made itself, and what a generator returns."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.run import TwoStream
from lstr.files.remote import Place
from lstr.pipelines.features.any_folder import Features
from lstr.pipelines.features.chunk_cache import caches_of
from lstr.pipelines.features.fold_networks import FoldNetworks
from lstr.pipelines.features.resume import Outcome, resume
from lstr.pipelines.features.video import VideoExtractor


def returned(events: Generator[Any, None, Any]) -> Any:
    """What a generator returns when it is run to its end."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value


def extracted(
    videos: Mapping[str, Place],
    folder: Features,
    twostream: TwoStream,
    flow: FlowWorkers | None,
    cache: Path | None = None,
    at_once: int = 1,
) -> list[Outcome]:
    """The Outcome of each video, extracted in this process where it is not done."""
    caches = caches_of(cache, twostream.recipe) if cache else []
    extractor = VideoExtractor(folder, FoldNetworks(twostream), flow, caches, at_once=at_once)
    return [event for event in resume(videos, folder, extractor.engine) if isinstance(event, Outcome)]
