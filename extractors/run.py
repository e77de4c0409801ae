"""Run feature networks on chunks with any runtime; features are numpy arrays."""

import os
import threading
from collections import UserDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstr.errors import ExtractorError, NetworkRuntimeError
from lstr.extractors.flow.workers import ChunkFlow, FlowWorkers, TimedFlow, default_workers
from lstr.extractors.networks.crops import frames_seen, views_of
from lstr.extractors.networks.runtime import AUTO, NetworkJob, RunningNetwork, choose_runtime
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.recipe import Recipe
from lstr.extractors.stages import DECODE, NETWORK, closed_after, torch_threads
from lstr.extractors.streams import STREAMS
from lstr.extractors.video.frames import Chunk
from lstr.files.home import home

if TYPE_CHECKING:  # converted networks run without torch
    from torch import nn

IMAGES = {"cpu": 4, "cuda": 64}  # approximate batch size for files; on a CPU larger batches are no faster
GPU_THREADS = 2  # one resizes images while the other waits for its features
CONVERTED = "runtimes"  # folder of converted networks in the home folder
STEPS = ("decode", "flow", "rgb_network", "flow_network")  # `rgb_network` is all streams but flow

T = TypeVar("T")
_computing: set[int] = set()  # id of the process that has run networks; a fork inherits it and can tell that it is one


@dataclass(frozen=True)
class FeatureRow:
    """The features of one chunk by stream, each (D,); `end_time` is in seconds.

    `others` are the poses of people who are not in the features, and then their change, each 56 values as in `Poses`.
    """

    index: int
    end_time: float
    features: Mapping[str, NDArray[np.float32]]
    others: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True)
class RunOptions:
    """The runtime of the networks, and its number of threads."""

    runtime: str = "torch"  # one of RUNTIMES, or `auto`
    store: Path | None = None  # folder of converted networks; None converts them again in each process
    # batches computed at once on a CPU, unless the threads of flow set the number
    threads: int = field(default_factory=default_workers)


Pending = tuple[Chunk, ChunkFlow | None]  # A chunk, and its flow, which may still be computed.


class Ahead(Generic[T]):
    """A queue that a thread called `name` fills from `items`, in order, at most `n` items ahead.

    Iterate over it, or call `take` while items are `waiting`. `changed` is notified of each item, and of the end. After
    the end `error` is the exception of the thread; an iteration raises it after the last item.
    """

    def __init__(self, items: Iterable[T], n: int, name: str, changed: threading.Condition | None = None):
        self._items, self._n = items, n
        self._made: deque[T] = deque()
        self._change = changed or threading.Condition()
        self.error: BaseException | None = None
        self.ended = self._stopped = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with closed_after(self._items) as source:
                for item in source:
                    with self._change:
                        self._made.append(item)
                        self._change.notify_all()
                        self._change.wait_for(lambda: len(self._made) < self._n or self._stopped)
                        if self._stopped:
                            break
        except BaseException as error:  # raised again in the thread that takes the items
            DECODE.mark(error)
            self.error = error
        with self._change:
            self.ended = True
            self._change.notify_all()

    @property
    def waiting(self) -> int:
        """Number of items that can be taken."""
        return len(self._made)

    def take(self) -> T:
        """Return the oldest item; one must be waiting."""
        with self._change:
            item = self._made.popleft()
            self._change.notify_all()
        return item

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._made or self.ended)
            if not self._made:
                break
            yield self.take()
        if self.error:
            raise self.error

    def stop(self) -> None:
        """Stop the thread after its current item."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    def close(self) -> None:
        """Stop the thread, and wait until it has closed `items`."""
        self.stop()
        self._thread.join()


class LazyNetworks(UserDict[str, Any]):
    """Networks by stream, each built at its first use; a stored converted network makes that unnecessary."""

    def __init__(self, streams: Iterable[str], build: "Callable[[str], nn.Module]"):
        super().__init__({stream: cache(partial(build, stream)) for stream in streams})

    def __getitem__(self, stream: str) -> "nn.Module":
        return self.data[stream]()


class TwoStream:
    """The networks of a recipe's streams, such as RGB and flow, in evaluation mode on one device.

    `device` is a torch device name. Features are computed by a copy of each network with fused batch norm, in the
    precision of the recipe and according to `options`; the networks themselves keep their weights. `sources` are the
    files of these weights.
    """

    def __init__(
        self,
        networks: "Mapping[str, nn.Module]",
        recipe: Recipe,
        device: str,
        sources: WeightSources | None = None,
        options: RunOptions | None = None,
    ):

        def move_network(stream: str) -> "nn.Module":
            import torch

            return networks[stream].to(device=device).to(memory_format=torch.channels_last).eval()

        self.networks = LazyNetworks(networks, move_network)
        self.recipe = recipe
        self.views = views_of(recipe)
        self.frames_seen = frames_seen(recipe.streams, recipe.rgb_frame)
        self.streams = [stream for stream in STREAMS if stream in networks]
        """Its streams, in the order in which their features are joined."""
        self.device = device
        crops = max(recipe.parts[stream].crops for stream in networks)
        kind = device.partition(":")[0]
        # the maps of MoveNet fill the cache of a CPU: one pair of images at a time takes 0.8 of the time of four
        self.batch = 1 if kind == "cpu" and "pose" in networks else max(1, IMAGES[kind] // crops)
        """Maximum number of chunks that go through the networks together."""
        self.sources = sources or WeightSources()
        self.options = options or RunOptions()
        self.seconds = dict.fromkeys(STEPS, 0.0)
        """Seconds of work of each step, summed over its threads. Steps overlap, so the sum is not a duration."""
        self.warnings: list[str] = []
        """Why a runtime that was to be used is not; `prepare` adds to it."""
        self._running: dict[str, RunningNetwork] = {}
        self._lock = threading.Lock()

    def copy(self, recipe: Recipe | None = None, options: RunOptions | None = None) -> "TwoStream":
        """Return the same networks with another recipe or other options."""
        return TwoStream(self.networks, recipe or self.recipe, self.device, self.sources, options or self.options)

    def job(self, stream: str) -> NetworkJob:
        """Return the network of a stream with its precision, device and image size, for a runtime."""
        network, part = partial(self.networks.__getitem__, stream), self.recipe.parts[stream]
        return NetworkJob(
            network, part, self.recipe.precision, self.recipe.size_of(stream), self.device, self.options.threads
        )

    def _network(self, stream: str) -> RunningNetwork:
        """Return the network of a stream on its runtime, and open it at the first call.

        Raises NetworkRuntimeError if the named runtime cannot be used; `auto` falls back to torch.
        """
        # A fork does not copy the threads of libraries, so a call that waits for them would wait forever.
        if not _computing:
            _computing.add(os.getpid())
        if os.getpid() not in _computing:
            raise ExtractorError(
                "This process was forked after feature networks had run; a fork does not copy their threads.",
                'start processes with `multiprocessing.get_context("spawn")`, or fork before the first detection.',
            )
        options = self.options
        with self._lock:
            if stream in self._running:
                return self._running[stream]
            # imported here, because jobs on stored features run no networks
            from lstr.extractors.networks.converted_networks import open_graph, open_network

            if read := self.sources.graphs.get(stream):
                self._running[stream] = open_graph(read(), stream, options.runtime, options.threads)
                return self._running[stream]
            job, runtime = self.job(stream), choose_runtime(options.runtime, self.device)
            try:
                self._running[stream] = open_network(job, runtime, options.store)
            except NetworkRuntimeError as error:
                if options.runtime != AUTO:
                    raise
                self.warnings.append(f"{error} Torch computes it.")
                self._running[stream] = open_network(job, "torch", None)
            return self._running[stream]

    @property
    def runtimes(self) -> dict[str, str]:
        """The runtime of each open network, by stream."""
        return {stream: network.runtime for stream, network in self._running.items()}

    def prepare(self, *batches: int) -> None:
        """Open the networks on their runtime, and compile them for these batch sizes, in chunks.

        A network is converted if no converted network is stored. Raises NetworkRuntimeError if the named runtime cannot
        be used.
        """
        for stream in self.networks:
            crops = self.recipe.parts[stream].crops
            self._network(stream).prepare(batch * crops for batch in batches)

    def pooled(self, stream: str, crops: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return features (B, D) of crops (B, crops, H, W, C), averaged over space and the crops of a chunk."""
        network = self._network(stream)
        if network.averages:
            return network(crops)
        features = network(crops.reshape(-1, *crops.shape[2:]))  # (B · crops, D)
        return features.reshape(*crops.shape[:2], -1).mean(1)

    def rows(
        self,
        chunks: Iterable[Chunk | tuple[Chunk, NDArray[np.uint8]]],
        workers: FlowWorkers | None = None,
        live: bool = False,
        threads: int = 0,
    ) -> Iterator[FeatureRow]:
        """Yield feature rows of chunks in order, while later chunks are decoded and computed in threads.

        A bounded number of chunks is read ahead. A row never depends on later chunks. Close the generator to end it.

        Args:
            chunks: The chunks, or pairs of a chunk and its flow (10, H, W).
            workers: Threads that compute flow; None if no network takes flow or if `chunks` are pairs.
            live: Compute each chunk by itself as soon as it arrives, instead of in batches.
            threads: Number of threads without `workers`.

        Raises FlowError, and the errors of `chunks`.
        """

        def read() -> Iterator[Pending]:
            with closed_after(chunks) as source:
                while True:
                    start = perf_counter()
                    item = next(source, None)
                    self.seconds["decode"] += perf_counter() - start
                    if item is None:
                        return
                    if isinstance(item, tuple):
                        computed: TimedFlow = Future()
                        computed.set_result((item[1], 0.0))
                        yield item[0], ChunkFlow([computed])
                    else:
                        yield item, workers.submit(item.frames) if workers else None

        workers = workers if "flow" in self.networks and not threads else None
        batch, more = 1 if live else self.batch, workers.ahead if workers else 2 * threads
        if self.device != "cpu":
            self.prepare(1, batch)  # capture CUDA graphs while the GPU computes no flow
        with closing(Ahead(read(), batch + more, "reader")) as pending:  # reads while the networks are compiled
            self.prepare(batch)
            pool, threads = self.open_pool(workers, threads)
            source, started = iter(pending), deque[Future[list[FeatureRow]]]()
            # as many batches wait as there are threads, so that none is idle while the rows are used
            max_started = 1 if live else 2 * threads
            with torch_threads() if "torch" in self.runtimes.values() else nullcontext():
                try:
                    while True:
                        while len(started) < max_started and (ready := tuple(islice(source, batch))):
                            started.append(self._start(pool, ready))
                        if not started:
                            return
                        yield from started.popleft().result()
                finally:
                    wait(started)
                    if not workers:
                        pool.shutdown()

    def open_pool(self, workers: FlowWorkers | None, threads: int = 0) -> tuple[ThreadPoolExecutor, int]:
        """Return the thread pool for `submit`, and its size; call `prepare` first.

        If a network takes flow this is the pool of `workers`. The caller shuts down any other pool.
        """
        # One torch thread per batch, and one batch per core or flow thread: cores switch between flow and networks when
        # either has work, and no thread waits for another within a layer.
        workers = workers if "flow" in self.networks else None
        assert not workers or workers.algorithm == self.recipe.algorithm, "they compute the flow of the recipe"
        n = workers.workers if workers else threads or self.options.threads
        n = n if self.device == "cpu" else GPU_THREADS
        return workers.pool if workers else ThreadPoolExecutor(n, "networks"), n

    def submit(
        self, pool: ThreadPoolExecutor, chunks: Iterable[Chunk], workers: FlowWorkers | None
    ) -> Future[list[FeatureRow]]:
        """Start the features of a batch of chunks, after `prepare`: a future list of FeatureRows in their order."""
        workers = workers if "flow" in self.networks else None
        return self._start(pool, [(chunk, workers.submit(chunk.frames) if workers else None) for chunk in chunks])

    def _start(self, pool: ThreadPoolExecutor, ready: Sequence[Pending]) -> Future[list[FeatureRow]]:
        """Compute the features of chunks as soon as their flow is ready.

        No thread waits for flow, so that flow and networks share the threads of `pool`.
        """
        parts = [part for _, flow in ready if flow for part in flow.parts]
        rows, missing, lock = Future[list[FeatureRow]](), len(parts) + 1, threading.Lock()

        def compute() -> None:
            try:
                if "torch" in self.runtimes.values():
                    import torch

                    torch.set_num_threads(1)
                rows.set_result(self._batch(ready))
            except BaseException as error:  # for the caller that waits for the rows
                NETWORK.mark(error)
                rows.set_exception(error)

        def count(_: object) -> None:
            nonlocal missing
            with lock:
                missing -= 1
                if missing:
                    return
            try:
                pool.submit(compute)
            except RuntimeError as error:  # the pool was shut down, and the caller must not wait forever
                rows.set_exception(error)

        for part in parts:
            part.add_done_callback(count)
        count(None)
        return rows

    def _batch(self, ready: Sequence[Pending]) -> list[FeatureRow]:
        seconds = dict.fromkeys(STEPS[1:], 0.0)  # the reader's thread counts the first one
        features: dict[str, NDArray[np.float32]] = {}
        for stream in self.streams:
            flows = [part.result() if part and stream == "flow" else None for _, part in ready]
            start = perf_counter()
            view, network = self.views[stream], self._network(stream)
            images = [view.image(chunk.frames, flow) for (chunk, _), flow in zip(ready, flows, strict=True)]
            if network.makes_crops:
                features[stream] = network.of_fitted(images, view)
            else:
                features[stream] = self.pooled(stream, np.stack([view.of(image) for image in images]))
            seconds["flow_network" if stream == "flow" else "rgb_network"] += perf_counter() - start
        seconds["flow"] = sum(part.seconds for _, part in ready if part)  # which `result` has set
        others = np.zeros((len(ready), 0), np.float32)
        if "pose" in features:
            features["pose"], others = np.hsplit(features["pose"], [self.recipe.parts["pose"].dim])
        with self._lock:  # batches run in several threads
            for step, spent in seconds.items():
                self.seconds[step] += spent
        return [
            FeatureRow(chunk.index, chunk.end_time, {stream: rows[n] for stream, rows in features.items()}, others[n])
            for n, (chunk, _) in enumerate(ready)
        ]

    def calibrate(self, stream: str, images: NDArray[np.uint8], batch: int = 32) -> None:
        """Set a random network's batch-norm statistics from images (N, H, W, C).

        The network's hash in the recipe changes; build the recipe again to record the videos.
        """
        from lstr.extractors.networks.build import calibrate, fingerprint

        network, part = self.networks[stream], self.recipe.parts[stream]
        calibrate(network, images, part, self.device, batch)
        self.recipe = self.recipe.having({stream: replace(part, sha256=fingerprint(network))})
        self._running.pop(stream, None)


def run_on(twostream: TwoStream, wanted: str = AUTO, threads: int | None = None) -> TwoStream:
    """Return the same networks on a runtime with this many threads; None for one per core.

    Raises NetworkRuntimeError if the runtime is not installed or does not support the networks' device.
    """
    choose_runtime(wanted, twostream.device)
    return twostream.copy(options=RunOptions(wanted, home() / CONVERTED, threads or default_workers()))
