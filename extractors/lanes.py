"""What a device does for networks and flow, on a processor and on a GPU: work in order, copies, captured work.

Each network and the flow of a process have a lane of their own. On a GPU it is a CUDA stream, so that no lane waits for
another; CUDA's word is not used here, where a stream is appearance, motion or a camera.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.extractors.devices import CAPTURING

WARM_UPS = 2  # runs before a capture, in which libraries set themselves up


class Lane:
    """Work on a processor: plain calls, done when they return, in the calling threads."""

    captures = False
    """Whether work of a fixed shape gains by `capture`."""

    @contextmanager
    def working(self) -> Iterator[None]:
        """Begin work on the lane in this block."""
        yield

    def send(self, arrays: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> Tensor:
        """Arrays of one shape as one tensor of the device, (N, ...)."""
        return torch.from_numpy(arrays if isinstance(arrays, np.ndarray) else np.stack(arrays))

    def fetch(self, result: Tensor) -> Callable[[], np.ndarray]:
        """Begin to bring a tensor from the device; the function waits for it, better outside of `working`."""
        return result.numpy

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """What does the same `work` on the same memory; a result is there until the next. Here, the work itself."""
        return work


class CudaLane(Lane):
    """Work on a GPU, on a CUDA stream; threads take turns to begin it.

    Nothing here has run on a GPU yet: see the limits in the documentation.
    """

    captures = True

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.queue = torch.cuda.Stream(self.device)
        # weights, say, were made on the stream that is current here
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
        """See Lane; waits for this tensor, not for what is begun later."""
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
            # what other threads allocate or copy meanwhile is no part of it, and must not end it
            with torch.cuda.graph(graph, stream=self.queue, capture_error_mode="thread_local"):
                result = work()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


def open_lane(device: str) -> Lane:
    """Return a new lane on a device."""
    return Lane() if torch.device(device).type == "cpu" else CudaLane(device)
