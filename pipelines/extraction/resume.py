"""Videos to a feature folder, resumable by running again: only what is not done is given to an engine."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from lstr.extractors.prefetch import closed_after
from lstr.pipelines.extraction.outcome import Outcome
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.features.folder import Features
from lstr.pipelines.files.remote import Place
from lstr.pipelines.progress import Notice, Progress

LOOKS = 32  # at videos and their features at a time; those may be far away
Engine = Callable[[Mapping[str, Place]], Iterator[Progress | Notice | Outcome]]
"""Extracts videos {id: source}, in any order and anywhere, with an Outcome of each as it ends.

Closing the iterator ends everything it started; what was finished is kept.
"""
Item = TypeVar("Item")
Found = TypeVar("Found")


def resume(
    videos: Mapping[str, Place], folder: Features, engine: Engine
) -> Generator[Progress | Notice | Outcome, None, None]:
    """Have an engine extract each video that is not done; one bad video does not stop the rest.

    Yields one Outcome per video, and what else the engine yields. `videos.jsonl` and `failed.jsonl` are compiled at
    the end, also after an interruption; an error that nobody foresaw leaves its traceback in logs/ID.log.
    """
    folder.sweep()
    log, over, to_do = FailureLog(folder.path), [], {}
    try:
        for (video_id, source), chunks in together(lambda video: chunks_done(folder, *video), videos.items()):
            if chunks:
                over.append(video_id)
                yield Outcome(video_id, source, "kept", chunks)
            else:
                to_do[video_id] = source
        with closed_after(engine(to_do)) as events:
            for event in events:
                if isinstance(event, Outcome):
                    over.append(event.id)
                    if event.state == "failed":
                        event = replace(event, hint=log.add(event.id, event.source, event.failure).hint)
                yield event
    finally:
        folder.compile()
        log.finish(over)


def chunks_done(folder: Features, video_id: str, source: Place) -> int:
    """How many chunks of a finished video there are; 0 where it is not done."""
    record = folder.read_record(video_id) if folder.is_done(video_id, source) else None
    return record["chunks"] if record else 0


def together(look: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[tuple[Item, Found]]:
    """(item, what `look` finds of it) of each item in order, many at once: most of it is waiting."""
    items = list(items)
    pool = ThreadPoolExecutor(LOOKS, "looks")
    try:
        yield from zip(items, pool.map(look, items), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)
