"""Videos to a feature folder, resumable by running again."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from extractors.flow.workers import FlowWorkers
from extractors.prefetch import closed_after
from extractors.twostream import TwoStream
from pipelines.extraction.chunk_cache import caches_of
from pipelines.extraction.outcome import Outcome
from pipelines.extraction.video import attempt
from pipelines.features.remote_folder import Features
from pipelines.files.remote import Place
from pipelines.networks.fold_networks import FoldNetworks
from pipelines.progress import Tell

LOOKS = 32  # at videos and their features at a time; those may be far away
Engine = Callable[[dict[str, Place]], Iterator[Outcome]]
"""Extracts the videos {id: source} it is given, in any order and anywhere, with an Outcome of each as it ends.

Closing the iterator ends everything it started; what was finished is kept.
"""


def extract(
    videos: dict[str, Place],
    folder: Features,
    twostream: TwoStream,
    workers: FlowWorkers | None,
    progress: Tell,
    allow_damaged: bool = False,
    cache: Path | None = None,
) -> Iterator[Outcome]:
    """Extract each video that is not done, one after the other in this process. As `run`.

    `cache` is a folder of `pipelines.extraction.chunk_cache`. Raises WeightsError as `FoldNetworks`.
    """
    networks, caches = FoldNetworks(twostream), caches_of(cache, twostream.recipe) if cache else []

    def one_by_one(to_do: dict[str, Place]) -> Iterator[Outcome]:
        for video_id, source in to_do.items():
            yield attempt(video_id, source, folder, networks, workers, progress, allow_damaged, caches)

    return run(videos, folder, one_by_one)


def run(videos: dict[str, Place], folder: Features, engine: Engine) -> Iterator[Outcome]:
    """Have an engine extract each video that is not done; one bad video does not stop the rest.

    Yields an Outcome a video. `videos.jsonl` and `failed.jsonl` are compiled at the end, also after an interruption.
    """
    folder.sweep()
    failures = {failure["id"]: failure for failure in folder.failures()}
    to_do = {}
    try:
        for (video_id, source), chunks in together(lambda video: chunks_done(folder, *video), videos.items()):
            if chunks:
                failures.pop(video_id, None)
                yield Outcome(video_id, source, "kept", chunks)
            else:
                to_do[video_id] = source
        with closed_after(engine(to_do)) as outcomes:
            for outcome in outcomes:
                failures.pop(outcome.id, None)
                if outcome.state == "failed":
                    failure = {"id": outcome.id, "source": str(outcome.source), "reason": outcome.reason}
                    failures[outcome.id] = failure
                    folder.note_failure(failure)
                yield outcome
    finally:
        folder.compile(list(failures.values()))


def chunks_done(folder: Features, video_id: str, source: Place) -> int:
    """How many chunks of a finished video there are; 0 where it is not done."""
    return folder.read_record(video_id)["chunks"] if folder.is_done(video_id, source) else 0


def together(look: Callable, items: Iterable) -> Iterator[tuple]:
    """(item, what `look` finds of it) of each item in order, many at once: most of it is waiting."""
    items = list(items)
    pool = ThreadPoolExecutor(LOOKS, "looks")
    try:
        yield from zip(items, pool.map(look, items), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)
