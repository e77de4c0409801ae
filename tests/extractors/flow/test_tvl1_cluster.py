"""The CUDA kernel of TV-L1 without a GPU: its source on the host, its layouts, its compiled form, and its launch."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from lstr.extractors.flow import tvl1_gpu
from lstr.extractors.flow.tvl1_cluster import (
    STATIC,
    THREADS,
    ClusterKernel,
    Limits,
    choose_layout,
    compile_source,
    layouts,
    source,
)
from lstr.extractors.flow.workers import native_flow
from tests.support.flow_frames import grey_of, hard_frames, moved, needs_kernel, opencv, opencv5, real_frames
from tests.support.host_kernel import FULL, HOPPER, HostKernel, build_host_kernel, need_nvrtc

BEFORE_HOPPER = Limits(processors=108, blocks=1, memory=166_912)
CUTS = (18, 19)  # of the twenty pairs; there tvl1.c may round a root in ten million otherwise, which grows
QUICK = (1, 2, 5)  # warps, outer and inner iterations


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> HostKernel:
    return build_host_kernel(tmp_path_factory.mktemp("host kernel"))


def solved(frames: np.ndarray, solve) -> np.ndarray:
    """Flow (F - 1, H, W, 2) between frames (F, H, W), by the whole pyramid."""
    return tvl1_gpu.solve_pyramids(torch.from_numpy(frames)[None], solve).movedim(1, -1).numpy()


def twenty_pairs(shared: Path) -> list[np.ndarray]:
    """Pairs (2, H, W) of real frames; those in CUTS are from one video to another."""
    places = [("ut_interaction", f"seq{k:02}", start) for k, start in ((1, 0), (4, 40), (6, 60), (9, 30))]
    places += [("urfall", f"fall-{k:02}", start) for k, start in ((1, 20), (5, 50))]
    videos = [grey_of(real_frames(shared / "data" / s / "videos" / f"{n}.mp4", at, 4)) for s, n, at in places]
    pairs = [np.stack(video[k : k + 2]) for k in range(3) for video in videos]
    return [*pairs, np.stack((videos[0][0], videos[4][3])), np.stack((videos[5][0], videos[2][3]))]


@opencv5
@pytest.mark.long
@pytest.mark.parametrize("schedule", [QUICK, pytest.param(FULL, marks=[pytest.mark.slow, needs_kernel])])
def test_the_kernel_equals_opencv_on_real_pairs_and_cuts(host, shared, schedule):
    """In a short schedule a third of them; a cut never settles."""
    pairs = twenty_pairs(shared)
    for number in range(20) if schedule == FULL else (*range(0, 18, 3), 19):
        host.iterations.clear()
        ours = solved(pairs[number], host.solver(8 if number % 2 else 16, schedule))[0]
        assert np.array_equal(ours, opencv(*pairs[number], schedule)), f"pair {number}"
        if schedule == FULL and number not in CUTS:
            assert np.array_equal(ours, native_flow(*pairs[number])), f"pair {number}"
    assert max(host.iterations) == schedule[1] * schedule[2] or schedule == FULL and max(host.iterations) > 1000


@needs_kernel
@pytest.mark.long
@pytest.mark.parametrize("h, w", [(16, 16), (17, 16), (33, 19), (31, 47), (47, 101), (24, 600)])
def test_any_number_of_blocks_gives_the_same(h, w, host):
    """Bands that do not divide the height, a last band of one row, blocks without a row, rows longer than a block."""
    frames = np.stack(moved(h, w, dx=1.0, dy=-1.0))
    want = native_flow(*frames)
    fitting = [layout.blocks for layout in layouts(h, w, HOPPER)]
    assert {4, 8} <= set(fitting)
    for blocks in fitting:
        assert np.array_equal(solved(frames, host.solver(blocks))[0], want), f"{blocks} blocks"


def test_what_does_not_fit():
    assert layouts(480, 640, HOPPER) == [] and choose_layout(480, 640, 80, HOPPER) is None
    assert choose_layout(180, 320, 80, BEFORE_HOPPER) is None, "one block without its neighbours"
    assert choose_layout(60, 80, 80, BEFORE_HOPPER) == layouts(60, 80, HOPPER)[0]
    assert layouts(17, 3000, HOPPER) == [], "bands of one row are no neighbours of the rows that a median needs"


@pytest.mark.long
@pytest.mark.parametrize(
    "architecture", ["sm_90", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_80", "sm_100"))]
)
def test_the_kernel_compiles_without_spills(architecture):
    """sm_80 has no clusters: there a block takes a pair alone."""
    need_nvrtc()
    code, log = compile_source(source(clusters=architecture != "sm_80"), architecture)
    assert code.startswith(b"\x7fELF") and b"solve_scale" in code
    used = re.search(r"Used (\d+) registers.*?(\d+) bytes smem", log)
    assert int(used[1]) * THREADS <= 65_536, "registers of a processor"
    assert int(used[2]) <= STATIC, log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log, log


@needs_kernel
@pytest.mark.gpu
@pytest.mark.parametrize("w, h", [(320, 180), (320, 240), (340, 256), (121, 90), (47, 33)])
def test_a_gpu_equals_the_processor_to_the_bit(w, h):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    kernel = ClusterKernel(torch.device("cuda", torch.cuda.current_device()))
    if not kernel.fits(h, w):
        pytest.skip(f"{w}x{h} does not fit this GPU's clusters")
    noise = hard_frames(h, w)["noise"]
    frames = np.stack(
        [
            *np.stack(moved(h, w, dx=1.0, dy=-1.0)),
            *np.stack(moved(h, w, dx=1.0, dy=-1.0))[::-1],
            noise,
            np.stack(moved(h, w, dx=1.0, dy=-1.0))[0],
        ]
    )  # cuts among them
    on_gpu = (
        tvl1_gpu.solve_pyramids(torch.from_numpy(frames)[None].cuda(), kernel.solve_scale).movedim(1, -1).cpu().numpy()
    )
    for k in range(len(frames) - 1):
        # the plain form takes roots in double, as OpenCV does
        assert np.array_equal(on_gpu[k], native_flow(frames[k], frames[k + 1], "plain")), f"pair {k}"
