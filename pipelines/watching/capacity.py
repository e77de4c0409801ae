"""Whether the machine can decide on all sources: by the measured cost of its networks, and by what is dropped.

A camera does not wait. Of a source whose chunks come faster than the networks take them, the oldest chunk that waits is
left out (`LiveOptions.waiting`), and counted as dropped; memory does not grow.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic, perf_counter, process_time
from typing import Any

import cv2
import numpy as np

from lstr.extractors.flow.workers import FlowWorkers, default_workers
from lstr.extractors.run import TwoStream
from lstr.extractors.video.frames import CHUNK, CHUNK_SECONDS, Chunk

TRIES = 9  # chunks that are measured
ROOM = 0.8  # of the machine that networks may take; decoding, the page and clips need the rest
LOOKED_SECONDS = 60.0  # between two looks at what was dropped
TOLD_SECONDS = 3600.0  # before the same source is told of again
TOLERATED = 0.01  # of the chunks of a minute, that may be dropped without a word
_MEASURING = Lock()  # the time of one measurement would be counted in another


def measure_share(twostream: TwoStream, workers: FlowWorkers | None) -> float:
    """The part of this machine that the networks of one camera take, flow included; the median of a few chunks.

    Of a processor it is processor time, which other programs hardly change; of a GPU it is time.
    """
    on_processor = twostream.device == "cpu"
    clock = process_time if on_processor else perf_counter
    chunk = _moving(twostream.recipe.long_side)
    with _MEASURING, ThreadPoolExecutor(1, "measuring", twostream.begin_thread) as pool:
        twostream.prepare(1)
        spent: list[float] = []
        for _ in range(TRIES):
            start = clock()
            twostream.submit(pool, [chunk], workers).result()
            spent.append(clock() - start)
    return float(np.median(spent)) / CHUNK_SECONDS / (default_workers() if on_processor else 1)


def _moving(long_side: int) -> Chunk:
    """A texture that moves by a pixel a frame, for flow takes longest where things move."""
    noise = np.random.default_rng(0).integers(0, 256, (long_side * 3 // 4, long_side + CHUNK, 3), np.uint8)
    texture = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 3), None, 0, 255, cv2.NORM_MINMAX)
    frames = np.stack([texture[:, shift : shift + long_side] for shift in range(CHUNK)])
    return Chunk(0, CHUNK_SECONDS, np.ascontiguousarray(frames))


@dataclass
class Capacity:
    """What is said of the machine's limits, and when it was said last."""

    shares: dict[Any, float] = field(default_factory=dict)
    """The part of the machine that one source of a model takes, by model."""
    _counts: dict[Any, int] = field(default_factory=dict)
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Chunks decided and dropped of each source at the last look."""
    _told: dict[str, float] = field(default_factory=dict)
    _looked: tuple[float, float] = field(default_factory=lambda: (monotonic(), process_time()))
    _whole_told: bool = False

    def load(self, counts: Mapping[Any, int]) -> str | None:
        """What so many sources by model need of the machine, in a sentence; None where it is unknown, or was said."""
        counts = {model: count for model, count in counts.items() if count}
        if not counts or counts == self._counts or not counts.keys() <= self.shares.keys():
            return None
        self._counts, self._whole_told = counts, False
        return load_of([(count, self.shares[model]) for model, count in counts.items()])

    def look(self, states: Callable[[], Iterable[Mapping[str, Any]]]) -> list[str]:
        """Once a minute: what all of it takes, said once, and of which sources more was dropped than is worth no word.

        states: what tells the name, and the chunks decided and dropped, of each; asked once a minute too.
        """
        (last, before_used), now, used = self._looked, monotonic(), process_time()
        minute = now - last
        if minute < LOOKED_SECONDS:
            return []
        self._looked = now, used
        before, self._seen = self._seen, {s["name"]: (s["decided"], s["dropped"]) for s in states()}
        self._told = {name: at for name, at in self._told.items() if name in self._seen}
        sentences: list[str] = []
        if not self._whole_told and self._counts and all(before.get(name, (0, 0))[0] for name in self._seen):
            self._whole_told = True
            share = (used - before_used) / minute / default_workers()
            sentences.append(f"All of it, decoding too, took {share:.2f} of this machine in the last minute.")
        for name, counts in self._seen.items():
            decided, dropped = (after - was for after, was in zip(counts, before.get(name, counts), strict=True))
            known = name in self._told and now - self._told[name] < TOLD_SECONDS
            if dropped > TOLERATED * (decided + dropped) and not known:
                self._told[name] = now
                sentences.append(
                    f"{name}: {dropped} of {decided + dropped} chunks of the last {minute:.0f} s were dropped, the "
                    "oldest first: this machine is too slow for all its sources."
                )
        return sentences


def load_of(sources: Iterable[tuple[int, float]]) -> str:
    """What numbers of sources need of the machine in all, each with the share of one, in a sentence or two."""
    known = [*sources]
    count, load = sum(count for count, _ in known), sum(count * share for count, share in known)
    cores = default_workers()
    text = (
        f"The networks of {count} {'source' if count == 1 else 'sources'} need {load:.2f} of this machine "
        f"({cores} {'core' if cores == 1 else 'cores'}), as measured now."
    )
    if load <= ROOM:
        return text
    fewer = int(count * ROOM / load)
    return (
        f"{text} That is too much for it: about {fewer} can be decided without gaps. The oldest chunk of a source that "
        "waits for too long is dropped, and counted. A model of `lstr learn --recipe live` needs less."
    )
