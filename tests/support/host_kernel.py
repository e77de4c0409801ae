"""tvl1_cluster.cu as a library of this machine's processor: the CUDA kernel's threads one after the other."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from lstr.errors import FlowError
from lstr.extractors.flow.tvl1 import INNER, OUTER, WARPS, image_planes, stop_bound
from lstr.extractors.flow.tvl1_cluster import Limits, bindings, layouts, source

FULL = (WARPS, OUTER, INNER)
HOPPER = Limits(processors=132, blocks=16, memory=232_448)


class HostKernel:
    """The kernel, with clusters of any number of blocks; `iterations` of each scale it solved."""

    def __init__(self, library: Path):
        self.library = ctypes.CDLL(str(library))
        self.iterations: list[int] = []

    def solve_in_place(self, planes: int, i0: int, flow: int, h: int, w: int, bound: float, blocks: int, schedule=FULL):
        """One pair, by the addresses that the CUDA kernel takes."""
        pointers = map(ctypes.c_void_p, (planes, i0, flow))
        self.iterations.append(self.library.solve_on_host(*pointers, h, w, ctypes.c_float(bound), blocks, *schedule))

    def solver(self, blocks: int, schedule=FULL) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """A Solve of `tvl1_gpu` with at most `blocks` in a cluster where the scale fits so few."""

        def solve(i0: Tensor, i1: Tensor, u: Tensor) -> Tensor:
            planes, i0, flow = image_planes(i1).contiguous(), i0.contiguous(), u.contiguous().clone()
            h, w = i0.shape[1:]
            fitting = [layout.blocks for layout in layouts(h, w, HOPPER)]
            chosen = max((n for n in fitting if n <= blocks), default=fitting[0])
            for k in range(len(i0)):
                pointers = (tensor[k].data_ptr() for tensor in (planes, i0, flow))
                self.solve_in_place(*pointers, h, w, stop_bound(h, w), chosen, schedule)
            return flow

        return solve


def build_host_kernel(folder: Path) -> HostKernel:
    """Compile it, once for all processes of a run; skips, with the reason, where no compiler is."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler on this machine")
    library, made = folder / "tvl1_cluster.so", folder / f"tvl1_cluster.{os.getpid()}.so"
    if not library.exists():
        # the kernel fuses a multiply and an add by itself, in hardware where this processor can
        fused = ["-mfma"] if "fma" in _flags() else []
        rounding = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
        options = ["-O3", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *rounding, *fused]
        subprocess.run([compiler, *options, "-x", "c++", str(source(True).path), "-o", str(made)], check=True)
        os.replace(made, library)
    return HostKernel(library)


def _flags() -> list[str]:
    if platform.machine() != "x86_64":
        return []
    info = Path("/proc/cpuinfo")
    return info.read_text().split() if info.exists() else []


def need_nvrtc() -> None:
    """Skip, with the reason, where CUDA's compiler is not installed."""
    try:
        bindings()
    except FlowError as error:
        pytest.skip(str(error))
