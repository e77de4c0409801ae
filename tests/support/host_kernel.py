"""tvl1_cluster.cu compiled for this processor, with the CUDA threads one after another."""

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
    """The kernel with clusters of any size; `iterations` has the number for each solved scale."""

    def __init__(self, library: Path):
        self.library = ctypes.CDLL(str(library))
        self.iterations: list[int] = []

    def solve_in_place(self, planes: int, i0: int, flow: int, h: int, w: int, bound: float, blocks: int, schedule=FULL):
        """Solve one pair, with the addresses that the CUDA kernel takes."""
        pointers = map(ctypes.c_void_p, (planes, i0, flow))
        self.iterations.append(self.library.solve_on_host(*pointers, h, w, ctypes.c_float(bound), blocks, *schedule))

    def solver(self, blocks: int, schedule=FULL) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """Return a Solve of `tvl1_gpu` with at most `blocks` per cluster, or the smallest cluster that fits."""

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
    """Compile the kernel once for all processes; skip the test without a compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler on this machine")
    library, temporary = folder / "tvl1_cluster.so", folder / f"tvl1_cluster.{os.getpid()}.so"
    if not library.exists():
        # fma() of the kernel is one instruction on processors that have it
        info = Path("/proc/cpuinfo")
        has_fma = platform.machine() == "x86_64" and info.exists() and "fma" in info.read_text().split()
        options = "-O3 -std=c++17 -shared -fPIC -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno".split()
        options += ["-fno-trapping-math", *["-mfma"] * has_fma]
        subprocess.run([compiler, *options, "-x", "c++", str(source(True).path), "-o", str(temporary)], check=True)
        os.replace(temporary, library)
    return HostKernel(library)


def need_nvrtc() -> None:
    """Skip the test if CUDA's compiler is not installed."""
    try:
        bindings()
    except FlowError as error:
        pytest.skip(str(error))
