"""TV-L1 on a GPU: one thread takes the chunks that wait, many at a time, for a GPU is filled by pairs side by side."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from lstr.errors import FlowError, first_line
from lstr.extractors.flow.tvl1_torch import flow_planes
from lstr.extractors.lanes import Lane

MOST = 16  # chunks of a batch, 80 pairs; with more a model of the kernel gains nothing
# Grey images (6, H, W) of a chunk, or its flow (10, H, W).
Planes = NDArray[np.uint8]
# Flow, and the seconds of the GPU's thread that it took.
TimedPlanes = Future[tuple[Planes, float]]


@torch.inference_mode()
def flow_on(lane: Lane, chunks: Sequence[Planes]) -> Planes:
    """Return TV-L1 of chunks' grey images (6, H, W) of one size: (B, 10, H, W), x and y of a pair in turn."""
    with lane.working():
        wait = lane.fetch(flow_planes(lane.send(chunks)))
    return wait()


class GatheringThread:
    """Gives `compute` the waiting chunks, those of one size together, at most `most` at a time, in their order.

    It never waits for more chunks than there are, so that a camera's chunk goes at once. What `compute` raises is
    raised for each chunk of the batch; where memory ran out, halves of it are tried. `close` drops waiting chunks.
    """

    def __init__(self, compute: Callable[[Sequence[Planes]], Planes], most: int = MOST):
        self._compute, self.most = compute, most
        self._waiting: deque[tuple[Planes, TimedPlanes]] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="flow", daemon=True)
        self._thread.start()

    def submit(self, grey: Planes) -> TimedPlanes:
        """Return the future flow of a chunk's grey images (6, H, W)."""
        flow: TimedPlanes = Future()
        with self._change:
            if self._closed:
                raise RuntimeError("cannot submit a chunk after close")
            self._waiting.append((grey, flow))
            self._change.notify()
        return flow

    def close(self) -> None:
        """Cancel waiting chunks, and return when the batch in progress has ended."""
        with self._change:
            self._closed = True
            dropped, self._waiting = self._waiting, deque()
            self._change.notify()
        for _, flow in dropped:
            flow.cancel()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                shape = self._waiting[0][0].shape
                batch = [waiting for waiting in self._waiting if waiting[0].shape == shape][: self.most]
                taken = {id(flow) for _, flow in batch}
                self._waiting = deque(waiting for waiting in self._waiting if id(waiting[1]) not in taken)
            self._solve(batch)

    def _solve(self, batch: Sequence[tuple[Planes, TimedPlanes]]) -> None:
        start = perf_counter()
        try:
            planes = self._compute([grey for grey, _ in batch])
        except Exception as error:  # it belongs to those who wait
            if isinstance(error, torch.OutOfMemoryError) and len(batch) > 1:
                half = len(batch) // 2
                self._solve(batch[:half])
                self._solve(batch[half:])
                return
            failure = error
            if isinstance(error, RuntimeError):  # of the device; errors of ours stay
                sentence = f"The GPU could not compute the flow of a chunk ({first_line(error)})."
                failure = FlowError(sentence, "set LSTR_FLOW_BACKEND=native.")
                failure.__cause__ = error
            for _, flow in batch:
                flow.set_exception(failure)
            return
        seconds = (perf_counter() - start) / len(batch)
        for (_, flow), found in zip(batch, planes, strict=True):
            flow.set_result((found, seconds))
