"""TV-L1 on a GPU: one thread takes the chunks that wait, many at a time, for a GPU is filled by pairs side by side."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
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
    """TV-L1 of grey images (6, H, W) of chunks of one size → (B, 10, H, W), x and y of a pair one after the other."""
    with lane.working():
        wait = lane.fetch(flow_planes(lane.send(chunks)))
    return wait()


@dataclass
class _Waiting:
    grey: Planes
    flow: TimedPlanes = field(default_factory=Future)


class GatheringThread:
    """Gives `compute` the chunks that wait, those of one size together, at most `most` at a time, in their order.

    It never waits for more than there are, so that a camera's chunk goes at once. What `compute` raises is raised for
    each chunk of the batch; where memory ran out, halves of it are tried. `close` drops what has not begun.
    """

    def __init__(self, compute: Callable[[Sequence[Planes]], Planes], most: int = MOST):
        self._compute, self.most = compute, most
        self._waiting: deque[_Waiting] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="flow", daemon=True)
        self._thread.start()

    def submit(self, grey: Planes) -> TimedPlanes:
        """The flow of a chunk's grey images (6, H, W), on its way."""
        waiting = _Waiting(grey)
        with self._change:
            if self._closed:
                raise RuntimeError("cannot submit a chunk after close")
            self._waiting.append(waiting)
            self._change.notify()
        return waiting.flow

    def close(self) -> None:
        """Cancel what waits, and return when the batch that is computed has ended."""
        with self._change:
            self._closed = True
            dropped, self._waiting = self._waiting, deque()
            self._change.notify()
        for waiting in dropped:
            waiting.flow.cancel()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            self._solve(batch)

    def _next(self) -> list[_Waiting]:
        """The oldest chunk, and those of its size; none when closed."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            batch: list[_Waiting] = []
            others: deque[_Waiting] = deque()
            for waiting in self._waiting:
                alike = not batch or waiting.grey.shape == batch[0].grey.shape
                (batch if alike and len(batch) < self.most else others).append(waiting)
            self._waiting = others
        return batch

    def _solve(self, batch: list[_Waiting]) -> None:
        start = perf_counter()
        try:
            planes = self._compute([waiting.grey for waiting in batch])
        except Exception as error:  # for those who wait, whatever it is
            if isinstance(error, torch.OutOfMemoryError) and len(batch) > 1:
                half = len(batch) // 2
                self._solve(batch[:half])
                self._solve(batch[half:])
                return
            for waiting in batch:
                waiting.flow.set_exception(_as_flow_error(error))
            return
        seconds = (perf_counter() - start) / len(batch)
        for waiting, flow in zip(batch, planes, strict=True):
            waiting.flow.set_result((flow, seconds))


def _as_flow_error(error: Exception) -> Exception:
    """What a device raises, as a sentence; errors of ours stay."""
    if not isinstance(error, RuntimeError):
        return error
    sentence = f"The GPU could not compute the flow of a chunk ({first_line(error)})."
    failure = FlowError(sentence, "set LSTR_FLOW_BACKEND=native.")
    failure.__cause__ = error
    return failure
