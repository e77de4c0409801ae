"""Which kernel solves TV-L1 on a device: our CUDA kernel, else the Triton kernels.

Each is tried on one small pair before it is used, so that what cannot be compiled or launched is known at the start and
not in a thread.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import RLock

import torch
from torch import Tensor

from lstr.errors import FlowError, first_line

# solve(i0, i1, u): the flow u (B, 2, H, W) improved at one scale of the images i0, i1 (B, H, W), all float32.
Solve = Callable[[Tensor, Tensor, Tensor], Tensor]

VARIABLE = "LSTR_FLOW_KERNEL"
SIDE = 16  # pixels of the pair that is tried
MEAN_FLOW = (0.68063, 0.04207)  # pixels, x and y, of that pair
CLOSE = 1e-3  # pixels
OTHER_BACKEND = "set LSTR_FLOW_BACKEND=native, which computes the same on the processor."


@dataclass(frozen=True)
class Solver:
    """What solves TV-L1 on a device."""

    name: str
    """One of OPENERS"""
    solve: Solve
    about: str = ""
    """What compiled it, for whom"""
    lacking: tuple[FlowError, ...] = ()
    """Why a kernel before it in OPENERS is not used"""

    @property
    def warnings(self) -> list[str]:
        """What a user is told: a sentence for each kernel that cannot be used, and the one used instead."""
        return [f"{error} {self.name.capitalize()} computes flow instead." for error in self.lacking]


_tried: dict[tuple[torch.device, str], Solver | FlowError] = {}
_lock = RLock()


def open_solver(device: torch.device | str) -> Solver:
    """What solves TV-L1 on a device; a GPU's kernel is tried on one small pair at the first call.

    $LSTR_FLOW_KERNEL names one of OPENERS; without it a GPU takes the first that runs. Raises FlowError where none
    does.
    """
    device, wanted = torch.device(device), os.environ.get(VARIABLE, "")
    if wanted and wanted not in OPENERS:
        raise FlowError(f"{VARIABLE} is {wanted!r}, which is none of {', '.join(OPENERS)}.", f"unset {VARIABLE}.")
    if device.type != "cuda":
        raise FlowError(f"No kernel of TV-L1 in torch runs on {device}.", OTHER_BACKEND)
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if wanted:
        try:
            return _opened(device, wanted)
        except FlowError as error:
            raise FlowError(str(error), f"unset {VARIABLE} for another kernel, or {OTHER_BACKEND}") from None
    lacking: list[FlowError] = []
    for name in OPENERS:
        try:
            return replace(_opened(device, name), lacking=tuple(lacking))
        except FlowError as error:
            lacking.append(error)
    raise FlowError(f"No kernel of TV-L1 runs on this GPU. {' '.join(map(str, lacking))}", OTHER_BACKEND)


def _opened(device: torch.device, name: str) -> Solver:
    """A kernel that was tried. Raises FlowError, each time the same, for one that does not run."""
    with _lock:  # two threads would compile the same
        if (device, name) not in _tried:
            try:
                if torch.version.hip:
                    raise FlowError(f"The {name} kernel of TV-L1 needs an NVIDIA GPU.")
                with torch.cuda.device(device):
                    solver = OPENERS[name](device)
                    try_pair(solver, device)
                _tried[device, name] = solver
            except FlowError as error:
                _tried[device, name] = error
            except Exception as error:  # of compilers, linkers and drivers, which have no type in common
                _tried[device, name] = FlowError(f"The {name} kernel of TV-L1 fails: {first_line(error)}.")
        found = _tried[device, name]
    if isinstance(found, FlowError):
        raise FlowError(str(found), found.hint)
    return found


def _cluster(device: torch.device) -> Solver:
    from lstr.extractors.flow.tvl1_cluster import ClusterKernel

    kernel = ClusterKernel(device)

    def solve(i0: Tensor, i1: Tensor, u: Tensor) -> Tensor:
        if kernel.fits(*i0.shape[1:]):
            return kernel.solve_scale(i0, i1, u)
        return _opened(device, "triton").solve(i0, i1, u)

    return Solver("cluster", solve, kernel.about)


def _triton(device: torch.device) -> Solver:
    if importlib.util.find_spec("triton") is None:
        raise FlowError("Triton is not installed.")
    if [int(part) for part in torch.__version__.split(".")[:2]] < [2, 7]:
        raise FlowError("The Triton of torch before 2.7 knows no tuples.")
    import triton

    from lstr.extractors.flow import tvl1_triton  # with triton, which takes a second to import

    return Solver("triton", tvl1_triton.solve_scale, f"Triton {triton.__version__}")


OPENERS: dict[str, Callable[[torch.device], Solver]] = {"cluster": _cluster, "triton": _triton}


def try_pair(solver: Solver, device: torch.device) -> None:
    """Solve one pair of SIDE x SIDE pixels and wait for it. Raises FlowError where its flow is not the known one."""
    i0, i1 = (image.to(device) for image in small_pair())
    flow = solver.solve(i0[None], i1[None], i0.new_zeros(1, 2, SIDE, SIDE))
    found = flow.mean((2, 3))[0].tolist()
    if not max(abs(a - b) for a, b in zip(found, MEAN_FLOW, strict=True)) < CLOSE:  # NaN is not close
        raise FlowError(f"The {solver.name} kernel of TV-L1 computes another flow than OpenCV.")


def small_pair() -> tuple[Tensor, Tensor]:
    """A pattern that moves by .7 pixels to the right, (SIDE, SIDE) float32: whole grey levels."""
    y, x = torch.meshgrid(*[torch.arange(SIDE, dtype=torch.float64)] * 2, indexing="ij")

    def pattern(x: Tensor) -> Tensor:
        return (127 + 60 * torch.sin(x / 2.5) + 50 * torch.cos(y / 3 + x / 4)).round().float()

    return pattern(x), pattern(x - 0.7)
