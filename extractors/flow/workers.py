"""Optical flow between the six frames of a chunk, in threads.

The published features used TV-L1 (the CUDA twin of OpenCV's DualTVL1 with its defaults, through denseflow,
`-a=tvl1 -b=20`). Here it is computed by the compiled kernel tvl1.c where it was built, by OpenCV itself otherwise,
or on a GPU by `tvl1_gpu`: backends, whose result is the same. DIS is another algorithm, many times cheaper, and makes
other features: it is part of the recipe. Neither the kernel nor OpenCV holds Python's lock while it computes.
`difference` needs no flow: it is the change between frames, after the RGB differences of TSN (Wang et al. 2016, 3.2).
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
# The one whose x is no direction, which a mirror would turn round.
DIFFERENCE = "difference"
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of processor time per period, and the period
Backend = Literal["auto", "native", "opencv", "cuda"]
BACKENDS: tuple[str, ...] = get_args(Backend)
# Threads with which the compiled kernel would be as fast as a GPU: at most 53 pairs a second each, against 2,090 of
# an H200 (benchmarks/gpu-run.json), beside which 16 threads had 334.
GPU_THREADS = 40
DIS_SMALLEST = 16  # pixels; with less OpenCV's DIS fails, or crashes the process
DIS_PRESETS = {
    "dis": cv2.DISOPTICAL_FLOW_PRESET_MEDIUM,
    "dis-fast": cv2.DISOPTICAL_FLOW_PRESET_FAST,
    "dis-ultrafast": cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST,
}


def check_optflow() -> None:
    """Raise FlowError when `cv2` lacks `optflow`, which plain opencv-python lacks and may have overwritten."""
    if not hasattr(cv2, "optflow"):
        raise FlowError(
            "OpenCV here has no cv2.optflow: opencv-python has overwritten opencv-contrib-python.",
            "pip install --force-reinstall --no-deps opencv-contrib-python",
        )


def to_bytes(flow: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Flow in pixels to uint8: clip to ±20, 0 becomes 128, half to even (denseflow's rounding)."""
    scaled = np.clip(flow, -BOUND, BOUND)
    scaled += BOUND
    scaled *= 255.0 / (2 * BOUND)
    return np.rint(scaled, out=scaled).astype(np.uint8)


_made = threading.local()


def _calculate(
    name: str, make: Callable[[], Any], before: NDArray[np.uint8], after: NDArray[np.uint8]
) -> NDArray[np.float32]:
    """Flow (H, W, 2) by this thread's OpenCV object for one size: TV-L1's keeps fewer scales after a small image."""
    objects: dict[tuple[int, ...], Any] = vars(_made).setdefault(name, {})
    if before.shape not in objects:
        objects[before.shape] = make()
    return objects[before.shape].calc(before, after, None)


def opencv_flow(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> NDArray[np.float32]:
    """OpenCV's TV-L1 of one pair of grey images (H, W) as (H, W, 2), pixels."""
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
    """Memory for pairs of one size, of one thread at a time: of the kernel, of two pyramids, of flow of two scales."""

    def __init__(self, h: int, w: int):
        self.shape = (h, w)
        self.kernel = np.empty(_tvl1.workspace_size(w, h), np.uint8)
        # neighbouring scales take turns, because one is resized into the other
        self.flow = np.empty((2, 2 * h * w), np.float32)
        self.pyramids: tuple[list[NDArray[np.float32]], ...] = (
            [np.empty((h, w), np.float32)],
            [np.empty((h, w), np.float32)],
        )
        for scales in self.pyramids:
            while len(scales) < SCALES:
                smaller = np.asarray(cv2.resize(scales[-1], None, None, STEP, STEP, cv2.INTER_LINEAR), np.float32)
                if min(smaller.shape) < SMALLEST:
                    break
                scales.append(smaller)


_spare: list[Scratch] = []  # to use again, one per thread that ran at once


def native_flow(before: NDArray[np.uint8], after: NDArray[np.uint8], variant: str = "") -> NDArray[np.float32]:
    """Return TV-L1 flow (H, W, 2) in pixels between two grey images (H, W) by the compiled kernel.

    The result is that of OpenCV 5's DualTVL1OpticalFlow with its defaults. The image pyramid is OpenCV's own resize;
    everything else is in tvl1.c. `variant` names an instruction set of variants(); their results are the same but for
    rare roundings. Raises ValueError for other input.
    """
    for image in (before, after):
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 2:
            raise ValueError("a frame must be a grey uint8 array (H, W)")
        if min(image.shape) < SMALLEST:
            raise ValueError(f"a frame must have at least {SMALLEST} pixels per side, not {image.shape}")
    if before.shape != after.shape:
        raise ValueError(f"the two frames differ in size: {before.shape} and {after.shape}")
    number = variants().index(variant) if variant else len(variants()) - 1
    try:  # another thread may take the last one
        # memory of another size is dropped: sources of two sizes take turns rarely
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
        u = scratch.flow[scale % 2, : 2 * h * w].reshape(2, h, w)  # x and y lie in planes of their own
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


def algorithm_of(entry: str | None) -> str | None:
    """The algorithm that a recipe's entry names; None for none."""
    return next((name for name, known in ALGORITHMS.items() if known == entry), None)


def too_small(algorithm: str | None, width: int, height: int) -> bool:
    """Whether images of this size, in pixels, are smaller than an algorithm takes."""
    return algorithm in DIS_PRESETS and min(width, height) < DIS_SMALLEST


def dis_flow(algorithm: str, before: NDArray[np.uint8], after: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Dense inverse search (Kroeger et al. 2016) by a key of DIS_PRESETS; shapes as `opencv_flow`."""
    if too_small(algorithm, *before.shape):
        raise FlowError(
            f"DIS flow needs {DIS_SMALLEST} pixels per side, not {before.shape}.",
            "use --set recipe.flow_algorithm=tvl1.",
        )
    create = cv2.DISOpticalFlow_create  # type: ignore[attr-defined]  # not in OpenCV's stubs
    return _calculate(algorithm, partial(create, DIS_PRESETS[algorithm]), before, after)


def differences(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What changes from each RGB frame (T, H, W, 3) to the next: brightness, and red against blue, (2 · (T - 1), H, W).

    128 is no change; larger changes are clipped at 127 levels.
    """
    grey = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]).astype(np.int16)
    colour = frames[..., 0].astype(np.int16) - frames[..., 2]
    changes = np.stack([np.diff(grey, axis=0), np.diff(colour, axis=0)], 1) + 128  # (T - 1, 2, H, W)
    return np.clip(changes, 0, 255).astype(np.uint8).reshape(-1, *grey.shape[1:])


def choose_backend(
    algorithm: str = "tvl1", wanted: str = "auto", device: str = "cpu", threads: int | None = None
) -> str:
    """What computes an algorithm here: `native`, `opencv` or `cuda`.

    `device` is that of the networks. Where it is a GPU, `auto` takes it as long as fewer than GPU_THREADS `threads`
    (None for one per core) would compute flow; otherwise the compiled kernel, else OpenCV. Raises FlowError when this
    machine lacks what is wanted.
    """
    if wanted == "auto":
        wanted = os.environ.get("LSTR_FLOW_BACKEND") or "auto"
        if wanted not in BACKENDS:
            raise FlowError(f"LSTR_FLOW_BACKEND is {wanted!r}.", f"set it to one of {', '.join(BACKENDS)}.")
    is_slow = not has_native() or (threads or default_workers()) < GPU_THREADS
    if algorithm == "tvl1" and wanted == "auto" and is_slow and device.startswith("cuda") and has_gpu():
        from lstr.extractors.flow import tvl1_gpu

        with suppress(FlowError):  # the GPU has no kernel that runs
            tvl1_gpu.open_solver(device)
            return "cuda"
    if algorithm != "tvl1":
        if wanted in ("native", "cuda"):
            raise FlowError(f"No {wanted} kernel is available for {algorithm}.", "unset LSTR_FLOW_BACKEND.")
        return "opencv"
    if wanted == "cuda":
        if not has_gpu():
            raise FlowError("No GPU is available to compute flow.", "unset LSTR_FLOW_BACKEND, or see `lstr doctor`.")
        return "cuda"
    if wanted == "native" and not has_native():
        raise FlowError(
            "The compiled TV-L1 kernel was not built here.", "unset LSTR_FLOW_BACKEND, or see `lstr doctor`."
        )
    if wanted == "opencv" or not has_native():
        check_optflow()
        return "opencv"
    return "native"


# Fields (2 · pairs, H, W), and the seconds that they took.
TimedFlow = Future[tuple[NDArray[np.uint8], float]]


class ChunkFlow:
    """A chunk's flow on its way; `seconds` afterwards is what its threads worked for it."""

    def __init__(self, parts: Sequence[TimedFlow]):
        self.parts = parts
        self.seconds = 0.0

    @classmethod
    def ready(cls, flow: NDArray[np.uint8]) -> "ChunkFlow":
        """Flow (10, H, W) that need not be computed."""
        part: TimedFlow = Future()
        part.set_result((flow, 0.0))
        return cls([part])

    def result(self) -> NDArray[np.uint8]:
        """Wait for it: (10, H, W), x and y interleaved. Raises what the computation raised."""
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


class FlowWorkers:
    """Threads that compute flow by one algorithm; use it as a context manager so that none outlives it.

    `algorithm` is a key of ALGORITHMS, `backend` one of BACKENDS; `backend` afterwards is the one in use, for records,
    and `warnings` what to tell the user of it. `device` is that of the networks, see `choose_backend`. Raises FlowError
    when this machine lacks the backend, or its kernels do not run.
    """

    def __init__(self, workers: int, algorithm: str = "tvl1", backend: str = "auto", device: str = "cpu"):
        chosen = choose_backend(algorithm, backend, device, workers)
        self.workers = workers
        self.algorithm = algorithm
        self.backend = f"opencv {cv2.__version__}" if chosen == "opencv" else chosen
        self._is_native = chosen != "opencv" and has_native()
        # One thread per pair beats OpenCV's own threads, which would contend with these.
        self._threads_before = cv2.getNumThreads()
        cv2.setNumThreads(1)
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="flow")
        """Its threads, which may run networks too."""
        self.warnings: list[str] = []
        self._batching: BatchingThread | None = None
        if chosen == "cuda":
            from lstr.extractors.flow import tvl1_gpu
            from lstr.extractors.lanes import open_lane

            gpu = device if device.startswith("cuda") else "cuda"
            self.warnings = tvl1_gpu.open_solver(gpu).warnings  # compiles and tries its kernel now, and not in a thread
            self._batching = tvl1_gpu.BatchingThread(partial(tvl1_gpu.flow_on, open_lane(gpu)))

    @property
    def ahead(self) -> int:
        """Chunks that may well be on their way at once."""
        return 2 * (self._batching.largest if self._batching else self.workers)

    def pair(self, before: NDArray[np.uint8], after: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Flow of one pair of grey images (H, W) as (2, H, W), x then y."""
        if self.algorithm != "tvl1":
            flow = dis_flow(self.algorithm, before, after)
        elif self._is_native and min(before.shape) >= SMALLEST:
            flow = native_flow(before, after)
        else:  # OpenCV takes smaller images than the kernel
            flow = opencv_flow(before, after)
        return to_bytes(flow).transpose(2, 0, 1)

    def submit(self, frames: NDArray[np.uint8]) -> ChunkFlow:
        """Start the 5 fields of a chunk's frames (6, H, W, 3) RGB; grey is made from these resized frames."""
        if self.algorithm == DIFFERENCE:
            return ChunkFlow([self.pool.submit(_timed, partial(differences, frames))])
        grey = [np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), np.uint8) for frame in frames]
        if self._batching and min(grey[0].shape) >= SMALLEST:
            return ChunkFlow([self._batching.submit(np.stack(grey))])
        pairs = [partial(self.pair, grey[i], grey[i + 1]) for i in range(PAIRS)]
        return ChunkFlow([self.pool.submit(_timed, pair) for pair in pairs])

    def close(self) -> None:
        """Drop what has not begun and end the threads; at most one pair per thread is waited for."""
        if self._batching:
            self._batching.close()
        self.pool.shutdown(wait=True, cancel_futures=True)
        cv2.setNumThreads(self._threads_before)

    def __enter__(self) -> "FlowWorkers":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def default_workers() -> int:
    """Return one per usable core; a container's quota of processor time limits them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # without a quota the file holds "max", or does not exist
        quota, period = map(int, CPU_QUOTA.read_text().split())
        cores = min(cores, quota // period)
    return max(1, cores)


def flow_workers(
    algorithm: str | None, count: int | None = None, backend: str = "auto", device: str = "cpu"
) -> AbstractContextManager[FlowWorkers | None]:
    """What computes flow by an algorithm, to be entered; None for no algorithm. Raises FlowError."""
    if algorithm is None:
        return nullcontext()
    return FlowWorkers(count or default_workers(), algorithm, backend, device)
