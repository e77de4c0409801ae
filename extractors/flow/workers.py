"""Optical flow between the six frames of a chunk, in threads.

The published features used TV-L1 (the CUDA twin of OpenCV's DualTVL1 with its defaults, through denseflow,
`-a=tvl1 -b=20`). Here it is computed by the compiled kernel of `tvl1` where there is one, by OpenCV itself
otherwise, or on a GPU by `tvl1_torch`: backends, whose result is the same. DIS and Farnebäck are other
algorithms, many times cheaper, and make other features: they are part of the recipe. Neither the kernel nor OpenCV
holds Python's lock while it computes.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from time import perf_counter

import cv2
import numpy as np
import torch

from extractors.errors import FlowError
from extractors.flow import tvl1

BOUND = 20.0  # pixels; flow is clipped to ± this before it becomes a byte
PAIRS = 5  # flow fields a chunk: neighbours inside the chunk, none across its border
ALGORITHMS = {"tvl1": "tvl1-opencv5", "dis": "dis-medium", "farneback": "farneback"}
"""What `--flow` takes, and what the recipe says."""
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of processor time a period, and the period
BACKENDS = ("auto", "native", "opencv", "cuda")
DIS_SMALLEST = 16  # pixels; with less OpenCV's DIS fails, or crashes the process
# Farnebäck as in OpenCV's tutorial: pyramid scale, levels, window, iterations, neighbourhood, its sigma, flags
FARNEBACK = (0.5, 3, 15, 3, 5, 1.2, 0)


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


_made = threading.local()


def _opencv(name: str, shape: tuple[int, int], make: Callable[[], object]) -> object:
    """This thread's OpenCV object for one size: TV-L1's keeps fewer scales for ever after a small image."""
    objects = vars(_made).setdefault(name, {})
    if shape not in objects:
        objects[shape] = make()
    return objects[shape]


def opencv_flow(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """OpenCV's TV-L1 of one pair of grey images (H, W) uint8 as (H, W, 2) float32, pixels."""
    check_optflow()
    return _opencv("tvl1", before.shape, cv2.optflow.DualTVL1OpticalFlow_create).calc(before, after, None)


def tvl1_flow(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """TV-L1 by the compiled kernel; by OpenCV without it, and for images smaller than it takes. As `opencv_flow`."""
    native = tvl1.available() and min(before.shape) >= tvl1.SMALLEST
    return tvl1.flow(before, after) if native else opencv_flow(before, after)


def dis_flow(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Dense inverse search (Kroeger et al. 2016), OpenCV's medium preset; shapes as `opencv_flow`."""
    if min(before.shape) < DIS_SMALLEST:
        raise FlowError(f"DIS flow needs {DIS_SMALLEST} pixels a side, not {before.shape}.", "use --flow tvl1.")
    make = lambda: cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)  # noqa: E731
    return _opencv("dis", before.shape, make).calc(before, after, None)


def farneback_flow(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Polynomial expansion (Farnebäck 2003); shapes as `opencv_flow`."""
    return cv2.calcOpticalFlowFarneback(before, after, None, *FARNEBACK)


def choose_backend(algorithm: str = "tvl1", wanted: str = "auto") -> str:
    """What computes an algorithm here: `native`, `opencv` or `cuda`.

    `auto` takes the compiled kernel, else OpenCV; `cuda` is taken when asked for only, for it was never timed on a GPU.
    Raises FlowError when what is wanted is not there.
    """
    if algorithm != "tvl1":
        if wanted in ("native", "cuda"):
            raise FlowError(f"There is no {wanted} kernel for {algorithm}.", "use --flow-backend auto.")
        return "opencv"
    if wanted == "cuda":
        if not torch.cuda.is_available():
            raise FlowError("There is no GPU to compute flow on.", "use --flow-backend auto, or see `lstr doctor`.")
        return "cuda"
    if wanted == "native" and not tvl1.available():
        raise FlowError(
            "The compiled TV-L1 kernel was not built here.", "use --flow-backend auto, or see `lstr doctor`."
        )
    if wanted == "opencv" or not tvl1.available():
        check_optflow()
        return "opencv"
    return "native"


def batch_flow(grey: list[np.ndarray], device: str) -> np.ndarray:
    """TV-L1 between neighbours of a chunk's grey images (H, W) uint8, on a torch device: (10, H, W) uint8."""
    from extractors.flow.tvl1_torch import flow_batch

    images = torch.from_numpy(np.stack(grey)).to(device)
    fields = flow_batch(images[:-1].contiguous(), images[1:].contiguous()).cpu().numpy()  # (5, H, W, 2)
    return to_bytes(fields).transpose(0, 3, 1, 2).reshape(-1, *grey[0].shape)


class ChunkFlow:
    """A chunk's flow on its way; `seconds` afterwards is what its threads worked for it."""

    def __init__(self, parts: list[Future]):
        self.parts = parts
        self.seconds = 0.0

    @classmethod
    def known(cls, flow: np.ndarray) -> "ChunkFlow":
        """Flow (10, H, W) uint8 that need not be computed."""
        part = Future()
        part.set_result((flow, 0.0))
        return cls([part])

    def result(self) -> np.ndarray:
        """Wait for it: (10, H, W) uint8, x and y interleaved. Raises what the computation raised."""
        fields, seconds = zip(*(part.result() for part in self.parts), strict=True)
        self.seconds = sum(seconds)
        return np.concatenate(fields)  # (10, H, W)


def _timed(compute: Callable[..., np.ndarray], *inputs) -> tuple[np.ndarray, float]:
    start = perf_counter()
    return compute(*inputs), perf_counter() - start


class FlowWorkers:
    """Threads that compute flow by one algorithm; use it as a context manager so that none outlives it.

    `algorithm` is a key of ALGORITHMS, `backend` one of BACKENDS; `backend` afterwards says which it is, for records.
    Raises FlowError when it is not there.
    """

    def __init__(self, workers: int, algorithm: str = "tvl1", backend: str = "auto"):
        chosen = choose_backend(algorithm, backend)
        self.workers = workers
        self.algorithm = algorithm
        self.backend = f"opencv {cv2.__version__}" if chosen == "opencv" else chosen
        tvl1_by = opencv_flow if chosen == "opencv" else tvl1_flow
        self._flow = {"tvl1": tvl1_by, "dis": dis_flow, "farneback": farneback_flow}[algorithm]
        # One thread a pair beats OpenCV's own threads, which would contend with these.
        self._threads_before = cv2.getNumThreads()
        cv2.setNumThreads(1)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="flow")

    def pair(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Flow of one pair of grey images (H, W) uint8 as (2, H, W) uint8, x then y."""
        return to_bytes(self._flow(before, after)).transpose(2, 0, 1)

    def submit(self, frames: np.ndarray) -> ChunkFlow:
        """Start the 5 fields of a chunk's frames (6, H, W, 3) RGB; grey is made from these resized frames."""
        grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
        if self.backend == "cuda" and min(grey[0].shape) >= tvl1.SMALLEST:
            return ChunkFlow([self._pool.submit(_timed, batch_flow, grey, "cuda")])
        return ChunkFlow([self._pool.submit(_timed, self.pair, grey[i], grey[i + 1]) for i in range(PAIRS)])

    def close(self) -> None:
        """Drop what has not begun and end the threads; at most one pair each is waited for."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        cv2.setNumThreads(self._threads_before)

    def __enter__(self) -> "FlowWorkers":
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def default_workers() -> int:
    """One a usable core; a container's quota of processor time counts as so many cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # without a quota the file says "max", or is not there
        quota, period = map(int, CPU_QUOTA.read_text().split())
        cores = min(cores, quota // period)
    return max(1, cores)


def flow_workers(
    algorithm: str | None, count: int | None = None, backend: str = "auto"
) -> AbstractContextManager[FlowWorkers | None]:
    """What computes flow by an algorithm, to be entered; None where there is no flow. Raises FlowError."""
    if algorithm is None:
        return nullcontext()
    return FlowWorkers(count or default_workers(), algorithm, backend)
