"""Optical flow between the six frames of a chunk, in threads.

The published features used TV-L1 (the CUDA version of OpenCV's DualTVL1 with its defaults, through denseflow,
`-a=tvl1 -b=20`). Three backends compute it with equal results: the compiled kernel tvl1.c, OpenCV, and `tvl1_gpu` on a
GPU. DIS is another algorithm, many times cheaper, with different features, so it is part of the recipe. The kernel and
OpenCV release Python's global lock while they compute. `difference` computes no flow but the change between frames,
following the RGB differences of TSN (Wang et al. 2016, section 3.2).
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.errors import FlowError
from lstr.extractors.devices import has_gpu
from lstr.extractors.flow.tvl1 import BOUND, SCALES, SMALLEST, STEP
from lstr.extractors.stages import FLOW

try:
    from lstr.extractors.flow import _tvl1
except ImportError:
    _tvl1 = None  # type: ignore[assignment]  # not compiled on this machine

if TYPE_CHECKING:
    from lstr.extractors.flow.tvl1_gpu import BatchingThread

PAIRS = 5  # flow fields per chunk: neighbours inside the chunk, none across its border
Algorithm = Literal["tvl1", "dis", "dis-fast", "dis-ultrafast", "difference"]
# The algorithms of `recipe.flow_algorithm`, and their names in a recipe.
ALGORITHMS: dict[str, str] = {
    "tvl1": "tvl1-opencv5",
    "dis": "dis-medium",
    "dis-fast": "dis-fast",
    "dis-ultrafast": "dis-ultrafast",
    "difference": "difference-yrb",
}
ALGORITHM_OF: dict[str | None, str] = {entry: name for name, entry in ALGORITHMS.items()}  # by the entry of a recipe
DIFFERENCE = "difference"  # its x channel is not a direction, so mirror images do not invert it
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of processor time per period, and the period
Backend = Literal["auto", "native", "opencv", "cuda"]
BACKENDS: tuple[str, ...] = get_args(Backend)
# With this many threads the compiled kernel is as fast as a GPU: at most 53 pairs per second and thread, against 2,090
# on an H200 (benchmarks/gpu-run.json); the 16 threads of that machine computed 334.
GPU_THREADS = 40
DIS_SMALLEST = 16  # pixels; with less OpenCV's DIS fails, or crashes the process
DIS_PRESETS = {
    "dis": cv2.DISOPTICAL_FLOW_PRESET_MEDIUM,
    "dis-fast": cv2.DISOPTICAL_FLOW_PRESET_FAST,
    "dis-ultrafast": cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST,
}


def check_optflow() -> None:
    """Raise FlowError if `cv2` has no `optflow`: plain opencv-python lacks it and may have overwritten the module."""
    if not hasattr(cv2, "optflow"):
        raise FlowError(
            "OpenCV here has no cv2.optflow: opencv-python has overwritten opencv-contrib-python.",
            "pip install --force-reinstall --no-deps opencv-contrib-python",
        )


def to_bytes(flow: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Convert flow in pixels to uint8: clip to ±20, map 0 to 128, round half to even (as denseflow does)."""
    scaled = np.clip(flow, -BOUND, BOUND)
    scaled += BOUND
    scaled *= 255.0 / (2 * BOUND)
    return np.rint(scaled, out=scaled).astype(np.uint8)


_made = threading.local()


def _calculate(
    name: str, make: Callable[[], Any], before: NDArray[np.uint8], after: NDArray[np.uint8]
) -> NDArray[np.float32]:
    """Compute flow (H, W, 2) with one OpenCV object per thread and size: a small image limits TV-L1's later scales."""
    objects: dict[tuple[int, ...], Any] = vars(_made).setdefault(name, {})
    if before.shape not in objects:
        objects[before.shape] = make()
    return objects[before.shape].calc(before, after, None)


def opencv_flow(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return OpenCV's TV-L1 flow (H, W, 2) in pixels between two grey images (H, W)."""
    check_optflow()
    make = cv2.optflow.DualTVL1OpticalFlow_create  # type: ignore[attr-defined]  # not in OpenCV's stubs
    return _calculate("tvl1", make, before, after)


def has_native() -> bool:
    """Return whether the TV-L1 kernel was compiled on this machine."""
    return _tvl1 is not None


def variants() -> tuple[str, ...]:
    """Return the instruction sets that this processor can run, slowest first; the last one is used."""
    return _tvl1.variants() if _tvl1 else ()


class Scratch:
    """Reusable memory of the kernel, two pyramids and the flow of two scales, for one image size and one thread."""

    def __init__(self, h: int, w: int):
        self.shape = (h, w)
        self.kernel = np.empty(_tvl1.workspace_size(w, h), np.uint8)
        # two buffers, because each scale is resized from the previous one
        self.flow = np.empty((2, 2 * h * w), np.float32)
        sizes = [(h, w)]  # rounded as cv2.resize does
        while len(sizes) < SCALES and round(min(sizes[-1]) * STEP) >= SMALLEST:
            sizes.append((round(sizes[-1][0] * STEP), round(sizes[-1][1] * STEP)))
        self.pyramids = [[np.empty(size, np.float32) for size in sizes] for _ in range(2)]


_spare: list[Scratch] = []  # free for reuse; at most one per concurrent thread


def native_flow(before: NDArray[np.uint8], after: NDArray[np.uint8], variant: str = "") -> NDArray[np.float32]:
    """Return TV-L1 flow (H, W, 2) in pixels between two grey images (H, W) by the compiled kernel.

    The result equals OpenCV 5's DualTVL1OpticalFlow with its defaults. OpenCV resizes the image pyramid; tvl1.c does
    everything else.

    Args:
        before: First grey image (H, W) uint8, with at least SMALLEST pixels per side.
        after: Second grey image (H, W) uint8.
        variant: An instruction set of `variants()`; results differ only in rare roundings.
    """
    number = variants().index(variant) if variant else len(variants()) - 1
    try:  # another thread may take the last one
        # memory of another size is dropped: sources rarely alternate between two sizes
        while (scratch := _spare.pop()).shape != before.shape:
            pass
    except IndexError:
        scratch = Scratch(*before.shape)
    for image, scales in zip((before, after), scratch.pyramids, strict=True):
        scales[0][...] = image
        for larger, smaller in pairwise(scales):
            cv2.resize(larger, None, smaller, STEP, STEP, cv2.INTER_LINEAR)
    coarser: NDArray[np.float32] | None = None
    for scale, images in reversed([*enumerate(zip(*scratch.pyramids, strict=True))]):
        h, w = images[0].shape
        u = scratch.flow[scale % 2, : 2 * h * w].reshape(2, h, w)  # x and y are separate planes
        if coarser is None:
            u.fill(0)
        else:
            for coarse, fine in zip(coarser, u, strict=True):
                cv2.resize(coarse, (w, h), dst=fine, interpolation=cv2.INTER_LINEAR)
            np.multiply(u, 1 / STEP, out=u)
        _tvl1.solve_scale(images[0], images[1], u[0], u[1], scratch.kernel, w, h, number)
        coarser = u
    field = u.copy().transpose(1, 2, 0)
    _spare.append(scratch)
    return field


def too_small(algorithm: str | None, width: int, height: int) -> bool:
    """Return whether images of this size in pixels are too small for an algorithm."""
    return algorithm in DIS_PRESETS and min(width, height) < DIS_SMALLEST


def differences(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the changes between consecutive RGB frames (T, H, W, 3): brightness, and red minus blue.

    Returns (2 · (T - 1), H, W) uint8. The value 128 means that nothing changed; changes are clipped at 127 levels.
    """
    grey = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]).astype(np.int16)
    colour = frames[..., 0].astype(np.int16) - frames[..., 2]
    changes = np.stack([np.diff(grey, axis=0), np.diff(colour, axis=0)], 1) + 128  # (T - 1, 2, H, W)
    return np.clip(changes, 0, 255).astype(np.uint8).reshape(-1, *grey.shape[1:])


def choose_backend(
    algorithm: str = "tvl1", wanted: str = "auto", device: str = "cpu", threads: int | None = None
) -> str:
    """Return the backend for an algorithm on this machine: `native`, `opencv` or `cuda`.

    `auto` chooses the GPU if the networks run on one and fewer than GPU_THREADS threads are available; otherwise the
    compiled kernel, or OpenCV without it.

    Args:
        algorithm: A key of ALGORITHMS.
        wanted: One of BACKENDS.
        device: Device of the networks.
        threads: Number of threads for flow; None for one per core.

    Raises:
        FlowError: The wanted backend is not available.
    """
    if wanted == "auto":
        wanted = os.environ.get("LSTR_FLOW_BACKEND") or "auto"
        if wanted not in BACKENDS:
            raise FlowError(f"LSTR_FLOW_BACKEND is {wanted!r}.", f"set it to one of {', '.join(BACKENDS)}.")
    if algorithm != "tvl1":
        if wanted in ("native", "cuda"):
            raise FlowError(f"No {wanted} kernel is available for {algorithm}.", "unset LSTR_FLOW_BACKEND.")
        return "opencv"
    is_slow = not has_native() or (threads or default_workers()) < GPU_THREADS
    if wanted == "auto" and is_slow and device.startswith("cuda") and has_gpu():
        from lstr.extractors.flow import tvl1_gpu

        with suppress(FlowError):  # the GPU has no kernel that runs
            tvl1_gpu.open_solver(device)
            return "cuda"
    if wanted == "auto":
        wanted = "native" if has_native() else "opencv"
    if (wanted == "cuda" and not has_gpu()) or (wanted == "native" and not has_native()):
        hint = "unset LSTR_FLOW_BACKEND, or see `lstr doctor`."
        raise FlowError(f"The flow backend {wanted} is not available on this machine.", hint)
    if wanted == "opencv":
        check_optflow()
    return wanted


TimedFlow = Future[tuple[NDArray[np.uint8], float]]  # fields (2 · pairs, H, W), and the seconds of their computation


class ChunkFlow:
    """The future flow of a chunk; after `result`, `seconds` is the working time of its threads."""

    def __init__(self, parts: Sequence[TimedFlow]):
        self.parts = parts
        self.seconds = 0.0

    def result(self) -> NDArray[np.uint8]:
        """Wait for the flow and return it, (10, H, W), x and y interleaved. Raises the error of the computation."""
        try:
            fields, seconds = zip(*(part.result() for part in self.parts), strict=True)
        except Exception as error:
            FLOW.mark(error)
            raise
        self.seconds = sum(seconds)
        return np.concatenate(fields)  # (10, H, W)


def _timed(compute: Callable[[], NDArray[np.uint8]]) -> tuple[NDArray[np.uint8], float]:
    start = perf_counter()
    return compute(), perf_counter() - start


class FlowWorkers(AbstractContextManager["FlowWorkers"]):
    """Threads that compute flow by one algorithm; use it as a context manager to end them.

    Args are as for `choose_backend`. The attribute `backend` is the backend in use, for records; `warnings` are
    sentences about it for the user. Raises FlowError if the backend is not available or its kernels do not run.
    """

    def __init__(self, workers: int, algorithm: str = "tvl1", backend: str = "auto", device: str = "cpu"):
        chosen = choose_backend(algorithm, backend, device, workers)
        self.workers = workers
        self.algorithm = algorithm
        self.backend = f"opencv {cv2.__version__}" if chosen == "opencv" else chosen
        self._is_native = chosen != "opencv" and has_native()
        # One thread per pair is faster than OpenCV's threads, which would compete with these for the cores.
        self._threads_before = cv2.getNumThreads()
        cv2.setNumThreads(1)
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="flow")  # its threads, which may run networks too
        self.warnings: list[str] = []
        self._batching: BatchingThread | None = None
        if chosen == "cuda":
            from lstr.extractors.flow import tvl1_gpu
            from lstr.extractors.lanes import open_lane

            gpu = device if device.startswith("cuda") else "cuda"
            self.warnings = tvl1_gpu.open_solver(gpu).warnings  # compile and test the kernel now, not later in a thread
            self._batching = tvl1_gpu.BatchingThread(partial(tvl1_gpu.flow_on, open_lane(gpu)))

    @property
    def ahead(self) -> int:
        """Number of chunks to compute at once so that no thread is idle."""
        return 2 * (self._batching.largest if self._batching else self.workers)

    def pair(self, before: NDArray[np.uint8], after: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the flow (2, H, W) uint8 of one pair of grey images (H, W), x then y."""
        if self.algorithm != "tvl1":  # dense inverse search (Kroeger et al. 2016)
            if too_small(self.algorithm, *before.shape):
                raise FlowError(
                    f"DIS flow needs {DIS_SMALLEST} pixels per side, not {before.shape}.",
                    "use --set recipe.flow_algorithm=tvl1.",
                )
            create = cv2.DISOpticalFlow_create  # type: ignore[attr-defined]  # not in OpenCV's stubs
            flow = _calculate(self.algorithm, partial(create, DIS_PRESETS[self.algorithm]), before, after)
        elif self._is_native and min(before.shape) >= SMALLEST:
            flow = native_flow(before, after)
        else:  # OpenCV accepts smaller images than the kernel
            flow = opencv_flow(before, after)
        return to_bytes(flow).transpose(2, 0, 1)

    def submit(self, frames: NDArray[np.uint8]) -> ChunkFlow:
        """Start computing the 5 flow fields of a chunk's RGB frames (6, H, W, 3), which are converted to grey here."""
        if self.algorithm == DIFFERENCE:
            return ChunkFlow([self.pool.submit(_timed, partial(differences, frames))])
        grey = [np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), np.uint8) for frame in frames]
        if self._batching and min(grey[0].shape) >= SMALLEST:
            return ChunkFlow([self._batching.submit(np.stack(grey))])
        pairs = [partial(self.pair, grey[i], grey[i + 1]) for i in range(PAIRS)]
        return ChunkFlow([self.pool.submit(_timed, pair) for pair in pairs])

    def __exit__(self, *exception: object) -> None:
        """Cancel waiting work and end the threads, after at most one more pair per thread."""
        if self._batching:
            self._batching.close()
        self.pool.shutdown(wait=True, cancel_futures=True)
        cv2.setNumThreads(self._threads_before)


def default_workers() -> int:
    """Return the number of usable cores, limited by the CPU quota of a container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # without a quota the file holds "max", or does not exist
        quota, period = map(int, CPU_QUOTA.read_text().split())
        cores = min(cores, quota // period)
    return max(1, cores)


def flow_workers(
    algorithm: str | None, count: int | None = None, backend: str = "auto", device: str = "cpu"
) -> AbstractContextManager[FlowWorkers | None]:
    """Return a context manager of FlowWorkers, or of None if `algorithm` is None. Raises FlowError."""
    if algorithm is None:
        return nullcontext()
    return FlowWorkers(count or default_workers(), algorithm, backend, device)
