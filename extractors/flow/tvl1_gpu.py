"""TV-L1 on a GPU: OpenCV 5's DualTVL1OpticalFlow with its defaults, for batches of chunks.

Pyramid and rounding are equal to the CPU version (OpenCV, tvl1.c, workers.to_bytes) to the bit. A scale takes one
launch of tvl1_cluster.py, which iterates in registers and shared memory only, or 105 launches of tvl1_triton.py. Each
kernel solves one small pair before it is used, so that a kernel that cannot be compiled or launched fails at the start
and not later in a thread. No step reads the values of a tensor on the CPU, so the CPU never waits for the GPU.
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

# solve(i0, i1, u) returns the flow u (B, 2, H, W), refined at one scale of the images i0, i1 (B, H, W), all float32.
Solve = Callable[[Tensor, Tensor, Tensor], Tensor]
# Grey images (6, H, W) of a chunk, or its flow (10, H, W).
Planes = NDArray[np.uint8]
# Flow, and its seconds in the GPU's thread.
TimedPlanes = Future[tuple[Planes, float]]

VARIABLE = "LSTR_FLOW_KERNEL"
PAIR_SIDE = 16  # pixels of the pair that each kernel solves first
PAIR_FLOW = (0.68063, 0.04207)  # mean flow of that pair in pixels, x and y
PAIR_TOLERANCE = 1e-3  # pixels
LARGEST_BATCH = 16  # chunks (80 pairs); according to a model of the kernel, larger batches are no faster


@dataclass(frozen=True)
class Solver:
    """A kernel of OPENERS on a device; `failures` are the errors of the kernels that were tried before it."""

    name: str
    solve: Solve
    about: str = ""  # the compiler and the architecture
    failures: tuple[FlowError, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """One sentence for each kernel that cannot be used; it names the kernel used instead."""
        return [f"{error} {self.name.capitalize()} computes flow instead." for error in self.failures]


_opened: dict[tuple[torch.device, str], Solver | FlowError] = {}
_lock = threading.RLock()


def open_solver(device: torch.device | str) -> Solver:
    """Return the first kernel of OPENERS that runs on a GPU, or the kernel that $LSTR_FLOW_KERNEL names.

    The first call compiles it and solves one small pair. Raises FlowError if no kernel runs.
    """
    device, wanted = torch.device(device), os.environ.get(VARIABLE, "")
    if wanted and wanted not in OPENERS:
        raise FlowError(f"{VARIABLE} is {wanted!r}, not one of {', '.join(OPENERS)}.", f"unset {VARIABLE}.")
    if device.type != "cuda":
        raise FlowError(f"TV-L1 on a GPU needs a CUDA device, not {device}.")
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    failures: list[FlowError] = []
    for name in [wanted] if wanted else OPENERS:
        kernel = _open_kernel(device, name)
        if isinstance(kernel, Solver):
            return replace(kernel, failures=tuple(failures))
        failures.append(kernel)
    if wanted:
        raise FlowError(str(failures[0]), f"unset {VARIABLE} for another kernel, or set LSTR_FLOW_BACKEND=native.")
    raise FlowError(f"No kernel of TV-L1 runs on this GPU. {' '.join(map(str, failures))}")


def _open_kernel(device: torch.device, name: str) -> Solver | FlowError:
    """Return a kernel that has solved a pair, or the error that it fails with; both are cached for later calls."""
    with _lock:  # otherwise two threads could compile the same kernel
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
            except Exception as error:  # compilers, linkers and drivers raise unrelated types
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
    """Solve a pattern and the pattern shifted right by 0.7 pixels, and wait for the result.

    Raises FlowError if it differs from OpenCV's flow.
    """
    y, x = torch.meshgrid(*[torch.arange(PAIR_SIDE, dtype=torch.float64)] * 2, indexing="ij")
    images = []
    for at in (x, x - 0.7):
        image = (127 + 60 * torch.sin(at / 2.5) + 50 * torch.cos(y / 3 + at / 4)).round().float()
        images.append(image[None].to(device))
    i0, i1 = images
    flow = solver.solve(i0, i1, i0.new_zeros(1, 2, PAIR_SIDE, PAIR_SIDE))
    means = flow.mean((2, 3))[0].tolist()
    if not max(abs(a - b) for a, b in zip(means, PAIR_FLOW, strict=True)) < PAIR_TOLERANCE:  # also for NaN
        raise FlowError(f"The {solver.name} kernel of TV-L1 computes a different flow from OpenCV.")


def flow_between(frames: Tensor) -> Tensor:
    """Compute TV-L1 flow between neighbouring images of B series, asynchronously on the device of the images.

    Source: extractors/flow/tvl1.c, which follows OpenCV 5 optflow/src/tvl1flow.cpp; Zach, Pock and Bischof 2007.

    Args:
        frames: Grey images (B, F, H, W) uint8 with sides of at least 16 pixels.

    Returns:
        Flow (B, F - 1, 2, H, W) float32 in pixels, x then y.

    Raises:
        FlowError: No kernel runs on the device.
    """
    with torch.no_grad(), torch.cuda.device_of(frames):
        flow = solve_pyramids(frames, open_solver(frames.device).solve)
    return flow.unflatten(0, (len(frames), frames.shape[1] - 1))


def solve_pyramids(frames: Tensor, solve: Solve) -> Tensor:
    """Return the flow (B (F - 1), 2, H, W) between neighbours of frames (B, F, H, W), solved from coarse to fine."""
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
        # for series of two frames `flatten` returns a strided view, but the kernels need contiguous pairs
        before, after = (part.flatten(0, 1).contiguous() for part in (images[:, :-1], images[:, 1:]))
        u = solve(before, after, u)
    return u


def to_bytes(flow: Tensor) -> Tensor:
    """Return flow in pixels as uint8: clipped to ±20, 0 becomes 128, half to even (denseflow's rounding)."""
    return ((flow.clamp(-BOUND, BOUND) + BOUND) * (255.0 / (2 * BOUND))).round().to(torch.uint8)


def resize(image: Tensor, size: Sequence[int], scale: float | None = None) -> Tensor:
    """Resize float32 images (..., H, W) to `size` (h, w) like cv2.resize with INTER_LINEAR.

    `scale` is in source pixels per pixel; the default is H / h and W / w. The result equals OpenCV 5 to the bit, except
    sometimes in the last row or column.
    """
    for dim in (-1, -2):
        low, high, part = _taps(image.shape[dim], size[dim], scale, image.device)
        near, far = image.index_select(dim, low), image.index_select(dim, high)
        weights = part if dim == -1 else part[:, None]
        # the product is exact in double, so this rounds only once, like the fused operations of OpenCV's vector code
        image = ((far - near).double() * weights + near).float()
    return image


@lru_cache(maxsize=256)  # each batch of a video needs the same few, at ten launches each
def _taps(length: int, wanted: int, scale: float | None, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two source pixels around each pixel of a resized row, and its distance from the first.

    Computed on the CPU and copied synchronously: another CUDA stream could read a tensor before it is complete.
    """
    at = (torch.arange(wanted, dtype=torch.float64) + 0.5) * (scale or length / wanted) - 0.5
    low = at.floor()
    part = torch.where((low < 0) | (low >= length - 1), 0.0, at - low).float()
    low = low.long().clamp(0, length - 1)
    return low.to(device), (low + 1).clamp(max=length - 1).to(device), part.to(device)


@torch.inference_mode()
def flow_on(lane: Lane, chunks: Sequence[Planes]) -> Planes:
    """Return the TV-L1 flow (B, 10, H, W) of chunks of grey images (6, H, W) of equal size, x and y interleaved."""
    with lane.working():
        wait = lane.fetch(to_bytes(flow_between(lane.send(chunks))).flatten(1, 2))
    return wait()


class BatchingThread(threading.Thread):
    """A thread that calls `compute` with batches of waiting chunks of equal size, in order, at most `largest` each.

    Large batches keep a GPU busy. The thread never waits for a fuller batch, so that a camera's chunk is computed at
    once. Each chunk of a batch raises the error of `compute`; if the GPU runs out of memory, the batch is split in
    halves. `close` drops waiting chunks.
    """

    def __init__(self, compute: Callable[[Sequence[Planes]], Planes], largest: int = LARGEST_BATCH):
        super().__init__(name="flow", daemon=True)
        self._compute, self.largest = compute, largest
        self._waiting: deque[tuple[Planes, TimedPlanes]] = deque()
        self._change = threading.Condition()
        self._closed = False
        self.start()

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
        self.join()

    def run(self) -> None:
        """Compute batches until `close`."""
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
        except Exception as error:  # raised again where the result is awaited
            if isinstance(error, torch.OutOfMemoryError) and len(batch) > 1:
                half = len(batch) // 2
                self._solve(batch[:half])
                self._solve(batch[half:])
                return
            failure = error
            if isinstance(error, RuntimeError):  # of the device; LstrErrors stay
                sentence = f"The GPU could not compute the flow of a chunk ({first_line(error)})."
                failure = FlowError(sentence)
                failure.__cause__ = error
            for _, flow in batch:
                flow.set_exception(failure)
            return
        seconds = (perf_counter() - start) / len(batch)
        for (_, flow), field in zip(batch, planes, strict=True):
            flow.set_result((field, seconds))
