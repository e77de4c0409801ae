"""Queues of work for networks and flow, on a CPU or a GPU: ordered work, copies, and captured CUDA graphs.

In each process every network and the optical flow have a separate lane. On a GPU a lane is a CUDA stream, so that no
lane waits for another. It is not called a stream because a stream is appearance, motion or a camera in this package.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.extractors.devices import CAPTURING

WARM_UPS = 2  # runs before a capture: cuDNN and cuBLAS allocate and choose algorithms then, which a graph must not hold


class Lane:
    """A lane on a CPU: plain calls in the calling threads, finished when they return."""

    captures = False
    """Whether work of a fixed shape runs faster after `capture`."""

    @contextmanager
    def working(self) -> Iterator[None]:
        """Start the work of this block on the lane."""
        yield

    def send(self, arrays: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> Tensor:
        """Return arrays of one shape as one tensor (N, ...) on the device."""
        return torch.from_numpy(arrays if isinstance(arrays, np.ndarray) else np.stack(arrays))

    def fetch(self, result: Tensor) -> Callable[[], np.ndarray]:
        """Start copying a tensor from the device; return a function that waits for it, to call outside `working`."""
        return result.numpy

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Return a function that repeats `work` on the same memory; each call overwrites the previous result."""
        return work


class CudaLane(Lane):
    """A lane on a GPU: a CUDA stream, on which one thread at a time starts work."""

    captures = True

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.queue = torch.cuda.Stream(self.device)
        # weights, for example, were written on the current stream
        self.queue.wait_stream(torch.cuda.current_stream(self.device))
        self._turn = Lock()

    @contextmanager
    def working(self) -> Iterator[None]:
        """See Lane; one thread at a time."""
        with self._turn, torch.cuda.stream(self.queue):
            yield

    def send(self, arrays: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> Tensor:
        """See Lane; by pinned memory: no thread waits for the copy."""
        staged = torch.empty((len(arrays), *arrays[0].shape), dtype=torch.uint8, pin_memory=True)
        np.stack(list(arrays), out=staged.numpy())
        return staged.to(self.device, non_blocking=True)

    def fetch(self, result: Tensor) -> Callable[[], np.ndarray]:
        """See Lane; waits for this tensor, not for later work."""
        staged = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        staged.copy_(result, non_blocking=True)
        arrived = torch.cuda.Event(blocking=True)  # a thread that waits leaves its core to others
        arrived.record(self.queue)

        def wait() -> np.ndarray:
            arrived.synchronize()
            return staged.numpy()

        return wait

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """See Lane; the kernels that `work` launches, as a CUDA graph."""
        with CAPTURING:
            for _ in range(WARM_UPS):
                work()
            self.queue.synchronize()
            graph = torch.cuda.CUDAGraph()
            # allocations and copies of other threads are not part of the graph, and must not abort the capture
            with torch.cuda.graph(graph, stream=self.queue, capture_error_mode="thread_local"):
                result = work()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


def open_lane(device: str) -> Lane:
    """Return a new lane on a device."""
    return Lane() if torch.device(device).type == "cpu" else CudaLane(device)
