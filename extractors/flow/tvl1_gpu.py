"""TV-L1 on a GPU: OpenCV 5's DualTVL1OpticalFlow with its defaults, for batches of chunks.

Pyramid and rounding equal those of the processor (OpenCV, tvl1.c, workers.to_bytes) to the bit. A scale is one launch
of tvl1_cluster.py, whose iterations touch no memory but the processors' own, or 105 launches of tvl1_triton.py. Each
kernel solves one small pair before it is used, so that one that cannot be compiled or launched fails at the start and
not in a thread. No step looks at the values of a tensor, so that the GPU is never waited for.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.errors import FlowError, first_line
from lstr.extractors.flow.tvl1 import BOUND, SCALES, SMALLEST, STEP
from lstr.extractors.lanes import Lane

# solve(i0, i1, u): the flow u (B, 2, H, W) improved at one scale of the images i0, i1 (B, H, W), all float32.
Solve = Callable[[Tensor, Tensor, Tensor], Tensor]
# Grey images (6, H, W) of a chunk, or its flow (10, H, W).
Planes = NDArray[np.uint8]
# Flow, and the seconds of the GPU's thread that it took.
TimedPlanes = Future[tuple[Planes, float]]

VARIABLE = "LSTR_FLOW_KERNEL"
OTHER_BACKEND = "set LSTR_FLOW_BACKEND=native, to compute the same flow on the CPU."
PAIR_SIDE = 16  # pixels of the pair that each kernel solves first
PAIR_FLOW = (0.68063, 0.04207)  # mean flow of that pair in pixels, x and y
PAIR_TOLERANCE = 1e-3  # pixels
LARGEST_BATCH = 16  # chunks, 80 pairs; by a model of the kernel larger batches gain nothing


@dataclass(frozen=True)
class Solver:
    """A kernel of OPENERS on a device; `failures` are the errors of the kernels before it."""

    name: str
    solve: Solve
    about: str = ""  # the compiler and the architecture
    failures: tuple[FlowError, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """A sentence for each kernel that cannot be used, with the one used instead."""
        return [f"{error} {self.name.capitalize()} computes flow instead." for error in self.failures]


_opened: dict[tuple[torch.device, str], Solver | FlowError] = {}
_lock = threading.RLock()


def open_solver(device: torch.device | str) -> Solver:
    """Return the first kernel of OPENERS that runs on a GPU, or the one that $LSTR_FLOW_KERNEL names.

    It is compiled and solves one small pair at the first call. Raises FlowError if none runs.
    """
    device, wanted = torch.device(device), os.environ.get(VARIABLE, "")
    if wanted and wanted not in OPENERS:
        raise FlowError(f"{VARIABLE} is {wanted!r}, not one of {', '.join(OPENERS)}.", f"unset {VARIABLE}.")
    if device.type != "cuda":
        raise FlowError(f"No kernel of TV-L1 in torch runs on {device}.", OTHER_BACKEND)
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    failures: list[FlowError] = []
    for name in [wanted] if wanted else OPENERS:
        kernel = _open_kernel(device, name)
        if isinstance(kernel, Solver):
            return replace(kernel, failures=tuple(failures))
        failures.append(kernel)
    if wanted:
        raise FlowError(str(failures[0]), f"unset {VARIABLE} for another kernel, or {OTHER_BACKEND}")
    raise FlowError(f"No kernel of TV-L1 runs on this GPU. {' '.join(map(str, failures))}", OTHER_BACKEND)


def _open_kernel(device: torch.device, name: str) -> Solver | FlowError:
    """Return a kernel that has solved a pair, or why it does not run; both are kept for later calls."""
    with _lock:  # two threads would compile the same
        if (device, name) not in _opened:
            try:
                if torch.version.hip:
                    raise FlowError(f"The {name} kernel of TV-L1 needs an NVIDIA GPU.")
                with torch.cuda.device(device):
                    kernel: Solver | FlowError = OPENERS[name](device)
                    assert isinstance(kernel, Solver)
                    try_pair(kernel, device)
            except FlowError as error:
                kernel = error
            except Exception as error:  # of compilers, linkers and drivers, which have no type in common
                kernel = FlowError(f"The {name} kernel of TV-L1 fails: {first_line(error)}.")
            _opened[device, name] = kernel
        return _opened[device, name]


def _cluster(device: torch.device) -> Solver:
    from lstr.extractors.flow.tvl1_cluster import ClusterKernel

    kernel = ClusterKernel(device)

    def solve(i0: Tensor, i1: Tensor, u: Tensor) -> Tensor:
        if kernel.fits(*i0.shape[1:]):
            return kernel.solve_scale(i0, i1, u)
        larger = _open_kernel(device, "triton")
        if isinstance(larger, FlowError):
            raise FlowError(str(larger), larger.hint)
        return larger.solve(i0, i1, u)

    return Solver("cluster", solve, kernel.about)


def _triton(device: torch.device) -> Solver:
    if importlib.util.find_spec("triton") is None:
        raise FlowError("Triton is not installed.")
    if [int(part) for part in torch.__version__.split(".")[:2]] < [2, 7]:
        raise FlowError("The Triton of torch before 2.7 has no tuples.")
    import triton  # takes a second to import

    from lstr.extractors.flow import tvl1_triton

    return Solver("triton", tvl1_triton.solve_scale, f"Triton {triton.__version__}")


OPENERS: dict[str, Callable[[torch.device], Solver]] = {"cluster": _cluster, "triton": _triton}


def try_pair(solver: Solver, device: torch.device) -> None:
    """Solve one pair and wait for it. Raises FlowError if the flow is not OpenCV's."""
    i0, i1 = (image.to(device) for image in small_pair())
    flow = solver.solve(i0[None], i1[None], i0.new_zeros(1, 2, PAIR_SIDE, PAIR_SIDE))
    means = flow.mean((2, 3))[0].tolist()
    if not max(abs(a - b) for a, b in zip(means, PAIR_FLOW, strict=True)) < PAIR_TOLERANCE:  # also for NaN
        raise FlowError(f"The {solver.name} kernel of TV-L1 computes a different flow from OpenCV.")


def small_pair() -> tuple[Tensor, Tensor]:
    """Return a pattern, and the same moved by .7 pixels to the right: (PAIR_SIDE, PAIR_SIDE) float32, whole levels."""
    y, x = torch.meshgrid(*[torch.arange(PAIR_SIDE, dtype=torch.float64)] * 2, indexing="ij")

    def pattern(x: Tensor) -> Tensor:
        return (127 + 60 * torch.sin(x / 2.5) + 50 * torch.cos(y / 3 + x / 4)).round().float()

    return pattern(x), pattern(x - 0.7)


def flow_between(frames: Tensor) -> Tensor:
    """Return TV-L1 flow between neighbours of B series of grey images, made on their device and not waited for.

    frames: (B, F, H, W) uint8, sides of 16 pixels or more. Returns (B, F - 1, 2, H, W) float32 in pixels, x then y.
    Raises ValueError for other input, and FlowError where no kernel runs.
    Source: extractors/flow/tvl1.c, itself OpenCV 5 optflow/src/tvl1flow.cpp; Zach, Pock and Bischof 2007.
    """
    if not isinstance(frames, Tensor) or frames.dtype != torch.uint8 or frames.ndim != 4:
        raise ValueError("frames must be a grey uint8 tensor (B, F, H, W)")
    n_series, n_frames, *size = frames.shape
    if not n_series or n_frames < 2:
        raise ValueError("frames must hold one pair or more")
    if min(size) < SMALLEST:
        raise ValueError(f"a frame must have at least {SMALLEST} pixels per side, not {tuple(size)}")
    with torch.no_grad(), torch.cuda.device_of(frames):
        return solve_pyramids(frames, open_solver(frames.device).solve).unflatten(0, (n_series, n_frames - 1))


def solve_pyramids(frames: Tensor, solve: Solve) -> Tensor:
    """Return the flow (B (F - 1), 2, H, W) between neighbours of frames (B, F, H, W), from the coarsest scale on."""
    scales = [frames.float()]
    while len(scales) < SCALES:
        size = [round(side * STEP) for side in scales[-1].shape[-2:]]
        if min(size) < SMALLEST:
            break
        scales.append(resize(scales[-1], size, 1 / STEP))
    smallest = scales[-1][:, 1:].flatten(0, 1)
    u = smallest.new_zeros(len(smallest), 2, *smallest.shape[-2:])
    for images in reversed(scales):
        if u.shape[-2:] != images.shape[-2:]:
            u = resize(u, images.shape[-2:]) * (1 / STEP)
        # with two frames a series `flatten` makes no copy and pairs lie apart, but kernels need them side by side
        before, after = (part.flatten(0, 1).contiguous() for part in (images[:, :-1], images[:, 1:]))
        u = solve(before, after, u)
    return u


def to_bytes(flow: Tensor) -> Tensor:
    """Return flow in pixels as uint8: clipped to ±20, 0 becomes 128, half to even (denseflow's rounding)."""
    return ((flow.clamp(-BOUND, BOUND) + BOUND) * (255.0 / (2 * BOUND))).round().to(torch.uint8)


def resize(image: Tensor, size: Sequence[int], scale: float | None = None) -> Tensor:
    """cv2.resize of float32 images (..., H, W) to `size` (h, w), INTER_LINEAR; `scale` source pixels per pixel.

    Without `scale` it is H / h and W / w. Equal to OpenCV 5 bit for bit except for a last row or column now and then.
    """
    for dim in (-1, -2):
        low, high, part = _taps(image.shape[dim], size[dim], scale, image.device)
        near, far = image.index_select(dim, low), image.index_select(dim, high)
        weights = part if dim == -1 else part[:, None]
        # rounded once, because the product is exact in double: as the fused operations of OpenCV's vector code
        image = ((far - near).double() * weights + near).float()
    return image


@lru_cache(maxsize=256)  # the same few for each batch of a video, which would be ten launches each
def _taps(length: int, wanted: int, scale: float | None, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two pixels that each pixel of a resized row lies between, and its distance from the first.

    Made on the processor and copied at once: tensors of one CUDA stream could be read too early by another.
    """
    at = (torch.arange(wanted, dtype=torch.float64) + 0.5) * (scale or length / wanted) - 0.5
    low = at.floor()
    part = torch.where((low < 0) | (low >= length - 1), 0.0, at - low).float()
    low = low.long().clamp(0, length - 1)
    return low.to(device), (low + 1).clamp(max=length - 1).to(device), part.to(device)


@torch.inference_mode()
def flow_on(lane: Lane, chunks: Sequence[Planes]) -> Planes:
    """Return TV-L1 of chunks' grey images (6, H, W) of one size: (B, 10, H, W), x and y of a pair in turn."""
    with lane.working():
        wait = lane.fetch(to_bytes(flow_between(lane.send(chunks))).flatten(1, 2))
    return wait()


class BatchingThread:
    """Gives `compute` the waiting chunks, those of one size together, at most `largest` at a time, in their order.

    Pairs side by side fill a GPU. It never waits for more chunks than there are, so that a camera's chunk is computed
    at once. An error of `compute` is raised for each chunk of the batch; if memory ran out, halves of the batch are
    tried. `close` drops waiting chunks.
    """

    def __init__(self, compute: Callable[[Sequence[Planes]], Planes], largest: int = LARGEST_BATCH):
        self._compute, self.largest = compute, largest
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
                batch = [waiting for waiting in self._waiting if waiting[0].shape == shape][: self.largest]
                removed = {id(flow) for _, flow in batch}
                self._waiting = deque(waiting for waiting in self._waiting if id(waiting[1]) not in removed)
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
            if isinstance(error, RuntimeError):  # of the device; LstrErrors stay
                sentence = f"The GPU could not compute the flow of a chunk ({first_line(error)})."
                failure = FlowError(sentence, "set LSTR_FLOW_BACKEND=native.")
                failure.__cause__ = error
            for _, flow in batch:
                flow.set_exception(failure)
            return
        seconds = (perf_counter() - start) / len(batch)
        for (_, flow), field in zip(batch, planes, strict=True):
            flow.set_result((field, seconds))
