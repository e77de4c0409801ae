"""TV-L1 on a GPU without a GPU: the CUDA kernel on the host and compiled, the Triton kernels against OpenCV."""

from __future__ import annotations

import ctypes
import os
import pickle
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from lstr.errors import FlowError
from lstr.extractors.flow import tvl1_gpu
from lstr.extractors.flow import workers as flow
from lstr.extractors.flow.tvl1 import INNER, OUTER, WARPS, image_planes, stop_bound
from lstr.extractors.flow.tvl1_cluster import (
    SOURCE,
    STATIC,
    THREADS,
    ClusterKernel,
    bindings,
    compile_kernel,
    compile_options,
    layouts,
)
from lstr.extractors.flow.tvl1_gpu import OPENERS, Solver, flow_between, flow_on
from lstr.extractors.lanes import open_lane
from tests.support.flow_frames import distance, grey_of, hard_frames, moved, needs_kernel, opencv, opencv5, real_frames
from tests.support.processes import check_process

FULL = (WARPS, OUTER, INNER)
HOPPER = {"most_blocks": 16, "block_memory": 232_448}


def host_solver(host: ctypes.CDLL, blocks: int, schedule=FULL):
    """Return a Solve of `tvl1_gpu` with at most `blocks` per cluster, or the smallest cluster that fits."""

    def solve(i0: Tensor, i1: Tensor, u: Tensor) -> Tensor:
        planes, i0, flow = image_planes(i1).contiguous(), i0.contiguous(), u.contiguous().clone()
        (h, w), bound = i0.shape[1:], ctypes.c_float(stop_bound(*i0.shape[1:]))
        fitting = [layout.blocks for layout in layouts(h, w, **HOPPER)]
        chosen = max((n for n in fitting if n <= blocks), default=fitting[0])
        for k in range(len(i0)):
            pointers = (ctypes.c_void_p(tensor[k].data_ptr()) for tensor in (planes, i0, flow))
            host.solve_on_host(*pointers, h, w, bound, chosen, *schedule)
        return flow

    return solve


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> ctypes.CDLL:
    """The CUDA kernel, compiled for the processor."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler on this machine")
    library, info = tmp_path_factory.mktemp("host kernel") / "tvl1_cluster.so", Path("/proc/cpuinfo")
    # fma() of the kernel is one instruction on processors that have it
    has_fma = platform.machine() == "x86_64" and info.exists() and "fma" in info.read_text().split()
    options = "-O3 -std=c++17 -shared -fPIC -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno -fno-trapping-math"
    check_process(compiler, *options.split(), *["-mfma"] * has_fma, "-x", "c++", SOURCE, "-o", library)
    return ctypes.CDLL(str(library))


pytestmark = pytest.mark.long


@needs_kernel
def test_chunks_give_the_same_bytes_as_on_the_cpu(host, shared, monkeypatch):
    video = shared / "data/ut_interaction/videos/seq01.mp4"
    chunks = real_frames(video, 30, 12, (48, 32)).reshape(2, 6, 32, 48, 3)
    monkeypatch.setattr(tvl1_gpu, "open_solver", lambda device: Solver("cluster", host_solver(host, 4)))
    ours = flow_on(open_lane("cpu"), [np.stack(grey_of(chunk)) for chunk in chunks])
    assert ours.dtype == np.uint8 and ours.shape == (2, 10, 32, 48)
    with flow.FlowWorkers(1, backend="native") as workers:
        for chunk, planes in zip(chunks, ours, strict=True):
            assert np.array_equal(planes, workers.submit(chunk).result())


SHORT = (1, 2, 4)  # warps, outer and inner iterations: Triton's interpreter is slow
TRITON = """
import pickle
import sys
import numpy as np
import torch
import triton.language as tl
from lstr.extractors.flow import tvl1_gpu, tvl1_triton

frames, (tvl1_triton.WARPS, tvl1_triton.OUTER, inner) = pickle.load(sys.stdin.buffer)
tvl1_triton.INNER = tl.constexpr(inner)
tvl1_triton.TILE = tl.constexpr(256)  # two tiles, the last one not full
flow = tvl1_gpu.solve_pyramids(torch.from_numpy(frames), tvl1_triton.solve_scale)
np.save(sys.argv[1], flow.movedim(1, -1).numpy())
"""


@opencv5
def test_triton_kernels_equal_opencv(tmp_path):
    """In one batch: pairs that stop after 1 and 5 iterations, in the second launch, and not at all."""
    pytest.importorskip("triton", minversion="3.8")
    random = np.random.default_rng(0)
    smooth = cv2.GaussianBlur(random.random((16, 19), np.float32) * 255, (0, 0), 2)
    raised = [np.isin(np.arange(304), random.permutation(304)[:n]).reshape(16, 19) for n in (0, 8, 304)]
    frames = np.stack([np.stack([smooth, smooth + part]) for part in raised]).round().astype(np.uint8)
    expected = np.stack([opencv(*pair, SHORT) for pair in frames])
    assert (np.abs(expected).max((1, 2, 3)) > 1e-3).tolist() == [False, True, True]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TRITON, tmp_path / "flow.npy"]
    subprocess.run(command, env=environment, input=pickle.dumps((frames, SHORT)), check=True)
    assert np.abs(np.load(tmp_path / "flow.npy") - expected).max() < 1e-6


def test_triton_kernels_compile_for_hopper(tmp_path, monkeypatch):
    triton = pytest.importorskip("triton", minversion="3.3")  # older ones know no tuples
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from lstr.extractors.flow import tvl1_triton

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"errors": "*i64", "arrivals": "*i32", "bound": "fp32", **dict.fromkeys(tvl1_triton.SIZES, "i32")}
    options = {"num_warps": tvl1_triton.TILE.value // 32, "maxnreg": tvl1_triton.REGISTERS, "enable_fp_fusion": False}
    for kernel in (tvl1_triton.warp_kernel, tvl1_triton.median_kernel, tvl1_triton.iterate_kernel):
        signature = {name: types.get(name, "*fp32") for name in kernel.arg_names}
        source = ASTSource(kernel, signature=signature)
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"]


@pytest.mark.gpu
@opencv5
@pytest.mark.parametrize("kernel", OPENERS)
def test_a_gpu_gives_the_flow_of_the_cpu(kernel, monkeypatch):
    """For 64 pairs, from one that stops at once to one that never does."""
    hard = hard_frames(90, 121)
    pairs = [moved(90, 121, degrees=0.1 * k, dx=0.05 * k, seed=k) for k in range(61)]
    pairs += [(hard[a], hard[b]) for a, b in (("black", "black"), ("black", "noise"), ("noise", "white"))]
    monkeypatch.setenv("LSTR_FLOW_KERNEL", kernel)
    flows = flow_between(torch.from_numpy(np.stack(pairs)).to("cuda"))[:, 0].movedim(1, -1)
    assert flows.device.type == "cuda" and flows.shape == (64, 90, 121, 2) and flows.dtype == torch.float32
    assert torch.isfinite(flows).all()  # one rounding may grow without bound where no motion explains the frames
    for pair, field in zip(pairs[:-2], flows[:-2].cpu().numpy(), strict=True):
        expected = flow.opencv_flow(*pair)
        assert distance(field, expected) < 1e-3
        assert np.abs(flow.to_bytes(field).astype(int) - flow.to_bytes(expected)).mean() <= 0.1


QUICK = (1, 2, 5)  # warps, outer and inner iterations


def solved(frames: np.ndarray, solve) -> np.ndarray:
    """Flow (F - 1, H, W, 2) between frames (F, H, W), by the whole pyramid."""
    return tvl1_gpu.solve_pyramids(torch.from_numpy(frames)[None], solve).movedim(1, -1).numpy()


@opencv5
@pytest.mark.parametrize("schedule", [QUICK, pytest.param(FULL, marks=pytest.mark.slow)])
def test_the_cuda_kernel_equals_opencv_on_real_frames(host, shared, schedule):
    """The short schedule tests a third of the 20 pairs; the last two are cuts, where the iteration never converges."""
    places = [("ut_interaction", f"seq{k:02}", start) for k, start in ((1, 0), (4, 40), (6, 60), (9, 30))]
    places += [("urfall", f"fall-{k:02}", start) for k, start in ((1, 20), (5, 50))]
    videos = [grey_of(real_frames(shared / "data" / s / "videos" / f"{n}.mp4", at, 4)) for s, n, at in places]
    pairs = [np.stack(video[k : k + 2]) for k in range(3) for video in videos]
    pairs += [np.stack((videos[0][0], videos[4][3])), np.stack((videos[5][0], videos[2][3]))]
    for number in range(20) if schedule == FULL else (*range(0, 18, 3), 19):
        ours = solved(pairs[number], host_solver(host, 8 if number % 2 else 16, schedule))[0]
        assert np.array_equal(ours, opencv(*pairs[number], schedule)), f"pair {number}"


@needs_kernel
@pytest.mark.parametrize("h, w", [(16, 16), (17, 16), (33, 19), (31, 47), (47, 101), (24, 600)])
def test_the_flow_is_equal_for_each_number_of_blocks(h, w, host):
    """Bands that do not divide the height, a last band of one row, blocks without a row, rows longer than a block."""
    frames = np.stack(moved(h, w, dx=1.0, dy=-1.0))
    expected = flow.native_flow(*frames)
    fitting = [layout.blocks for layout in layouts(h, w, **HOPPER)]
    assert {4, 8} <= set(fitting)
    for blocks in fitting:
        assert np.array_equal(solved(frames, host_solver(host, blocks))[0], expected), f"{blocks} blocks"


@pytest.mark.parametrize(
    "architecture", ["sm_90", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_80", "sm_100"))]
)
def test_the_cuda_kernel_compiles_without_spills(architecture):
    """sm_80 has no clusters: there a block takes a pair alone."""
    try:
        bindings()
    except FlowError as error:
        pytest.skip(str(error))
    code, log = compile_kernel(compile_options(clusters=architecture != "sm_80"), architecture)
    assert code.startswith(b"\x7fELF") and b"solve_scale" in code
    usage = re.search(r"Used (\d+) registers.*?(\d+) bytes smem", log)
    assert int(usage[1]) * THREADS <= 65_536, "registers of a processor"
    assert int(usage[2]) <= STATIC, log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log, log


@needs_kernel
@pytest.mark.gpu
@pytest.mark.parametrize("w, h", [(320, 180), (320, 240), (340, 256), (121, 90), (47, 33)])
def test_a_gpu_equals_the_cpu_to_the_bit(w, h):
    kernel = ClusterKernel(torch.device("cuda", torch.cuda.current_device()))
    if not kernel.fits(h, w):
        pytest.skip(f"{w}x{h} does not fit this GPU's clusters")
    before, after = moved(h, w, dx=1.0, dy=-1.0)
    frames = np.stack([before, after, after, before, hard_frames(h, w)["noise"], before])
    flows = tvl1_gpu.solve_pyramids(torch.from_numpy(frames)[None].cuda(), kernel.solve_scale)
    for k, field in enumerate(flows.movedim(1, -1).cpu().numpy()):
        # the plain variant computes roots in double precision, as OpenCV does
        assert np.array_equal(field, flow.native_flow(frames[k], frames[k + 1], "plain")), f"pair {k}"
