"""TV-L1 optical flow between the six frames of a chunk, in worker processes.

OpenCV's DualTVL1 with its defaults (the published features used the CUDA twin of it through denseflow,
`-a=tvl1 -b=20`): by the compiled kernel of `extractors.tvl1` where there is one, by OpenCV itself otherwise; the
result is the same. Workers are spawned, never forked (OpenCV deadlocks after a fork), one thread each: that beats
OpenCV's own threads. Ctrl-C never reaches a worker, from its first moment on, and it ends itself when its parent is
gone.
"""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

import cv2
import numpy as np

from extractors import tvl1
from extractors.errors import FlowError

BOUND = 20.0  # pixels; flow is clipped to ± this before it becomes a byte
PAIRS = 5  # flow fields a chunk: neighbours inside the chunk, none across its border


def check_optflow() -> None:
    """Raise FlowError when `cv2` lacks `optflow`, which plain opencv-python lacks and may have overwritten."""
    if not hasattr(cv2, "optflow"):
        raise FlowError(
            "OpenCV here has no cv2.optflow: opencv-python has overwritten opencv-contrib-python.",
            "pip install --force-reinstall --no-deps opencv-contrib-python",
        )


def to_bytes(flow: np.ndarray) -> np.ndarray:
    """Flow in pixels to uint8: clip to ±20, 0 becomes 128, half to even (denseflow's rounding)."""
    scaled = (np.clip(flow, -BOUND, BOUND) + BOUND) * (255.0 / (2 * BOUND))
    return np.rint(scaled).astype(np.uint8)


_opencv: dict[tuple[int, ...], object] = {}


def opencv_flow(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """OpenCV's TV-L1 of one pair of grey images (H, W) uint8 as (H, W, 2) float32, pixels.

    One object a size: it lowers its own number of scales for ever after a small image.
    """
    if before.shape not in _opencv:
        check_optflow()
        _opencv[before.shape] = cv2.optflow.DualTVL1OpticalFlow_create()
    return _opencv[before.shape].calc(before, after, None)


def flow_backend() -> str:
    """What computes flow here: `native`, or OpenCV with its version."""
    return "native" if tvl1.available() else f"opencv {cv2.__version__}"


def pair_flow(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """TV-L1 flow of one pair of grey images (H, W) uint8 as (2, H, W) uint8, x then y."""
    native = tvl1.available() and min(before.shape) >= tvl1.SMALLEST
    flow = tvl1.flow(before, after) if native else opencv_flow(before, after)  # (H, W, 2)
    return to_bytes(flow).transpose(2, 0, 1)


def _start_worker() -> None:
    cv2.setNumThreads(1)
    parent = multiprocessing.parent_process()

    def leave_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


class ChunkFlow:
    """A chunk's flow on its way: `result()` waits and gives (10, H, W) uint8, x and y interleaved."""

    def __init__(self, pairs: list[Future]):
        self.pairs = pairs

    def result(self) -> np.ndarray:
        """Raises FlowError when a worker died (out of memory, killed)."""
        try:
            return np.concatenate([pair.result() for pair in self.pairs])  # (10, H, W)
        except BrokenProcessPool as error:
            raise FlowError("A flow worker died.", "lower --workers if memory is short, then run again.") from error


class FlowWorkers:
    """A pool of processes that compute flow; use it as a context manager so that none outlives it."""

    def __init__(self, workers: int):
        if not tvl1.available():
            check_optflow()
        self.workers = workers
        self._pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_start_worker)
        # a blocked signal stays blocked in what is started meanwhile, and waits here until it is let through
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(workers):
                self._pool.submit(os.getpid)  # a task that finds no idle worker starts one
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def submit(self, frames: np.ndarray) -> ChunkFlow:
        """Start the 5 fields of a chunk's frames (6, H, W, 3) RGB; grey is made from these resized frames."""
        grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
        try:
            return ChunkFlow([self._pool.submit(pair_flow, grey[i], grey[i + 1]) for i in range(PAIRS)])
        except BrokenProcessPool as error:
            raise FlowError("A flow worker died.", "lower --workers if memory is short, then run again.") from error

    def close(self) -> None:
        """Drop what has not begun and end the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> "FlowWorkers":
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def default_workers() -> int:
    """One a usable core."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
