"""TV-L1 in torch and Triton against the compiled kernel: the result, each pair on its own, and nothing that waits."""

from __future__ import annotations

import os
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch

from lstr.extractors.flow import tvl1, tvl1_torch
from lstr.extractors.flow import workers as flow
from lstr.extractors.flow.tvl1_solvers import KERNELS
from lstr.extractors.flow.tvl1_torch import flow_between
from tests.support.flow_frames import grey_of, hard_frames, real_frames

pytestmark = pytest.mark.long

CLOSE = 1e-3  # pixels, mean end-point difference of a pair
BOUND = 1e-2  # the same where no motion explains the frames, so that one rounding can grow
opencv5 = pytest.mark.skipif(int(cv2.__version__.split(".")[0]) < 5, reason="parity is to OpenCV 5")


def moved(h: int, w: int, degrees: float = 0.0, scale: float = 1.0, dx: float = 0.0, dy: float = 0.0, seed: int = 0):
    """Two frames (H, W) uint8 of a smooth texture turned, zoomed and moved about the image centre."""
    image = cv2.GaussianBlur(np.random.default_rng(seed).random((h + 64, w + 64), np.float32), (0, 0), 3.0)
    image = cv2.normalize(image, None, 0, 255, cv2.NORM_MINMAX)
    matrix = cv2.getRotationMatrix2D((w / 2 + 32, h / 2 + 32), degrees, scale)
    matrix[:, 2] += dx, dy
    after = cv2.warpAffine(image, matrix, image.shape[::-1], flags=cv2.INTER_CUBIC)
    return [np.rint(np.clip(frame[32 : 32 + h, 32 : 32 + w], 0, 255)).astype(np.uint8) for frame in (image, after)]


def batch(pairs) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.from_numpy(np.stack(frames)) for frames in zip(*pairs, strict=True))


def flow_batch(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Flow (B, H, W, 2) of pairs."""
    return flow_between(torch.stack((before, after), 1))[:, 0].movedim(1, -1)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Mean end-point difference in pixels."""
    return float(np.hypot(*np.moveaxis(a.astype(np.float64) - b, -1, 0)).mean())


def same_as_on_the_cpu(before: torch.Tensor, after: torch.Tensor, ours: torch.Tensor, most: float = CLOSE) -> None:
    assert ours.shape == (*before.shape, 2) and ours.dtype == torch.float32
    for a, b, got in zip(before.numpy(), after.numpy(), ours.cpu().numpy(), strict=True):
        expected = tvl1.flow(a, b) if tvl1.available() else flow.opencv_flow(a, b)
        assert distance(got, expected) < most
        assert np.abs(flow.to_bytes(got).astype(int) - flow.to_bytes(expected)).mean() <= 0.1


MOTIONS = [dict(dx=2.5, dy=-1.25), dict(dx=-6.0, dy=3.0), dict(degrees=2.0), dict(scale=1.03)]


@opencv5
def test_same_as_the_compiled_kernel_on_moving_textures():
    frames = batch([moved(60, 80, **motion, seed=seed) for seed, motion in enumerate(MOTIONS)])
    same_as_on_the_cpu(*frames, flow_batch(*frames))


@opencv5
@pytest.mark.parametrize("h, w", [(16, 16), (16, 17), (33, 16), (19, 31), (47, 33), (64, 101)])
def test_same_as_the_compiled_kernel_at_odd_and_small_sizes(h, w):
    frames = batch([moved(h, w, dx=1.0, dy=-0.5, seed=h), moved(h, w, degrees=1.0, seed=w)])
    same_as_on_the_cpu(*frames, flow_batch(*frames))


@opencv5
@pytest.mark.skipif(not hasattr(cv2, "optflow"), reason="no cv2.optflow here")
def test_same_as_opencv_itself():
    before, after = moved(47, 66, degrees=1.0, dx=1.5)
    expected = cv2.optflow.DualTVL1OpticalFlow_create().calc(before, after, None)
    assert distance(flow_batch(*batch([(before, after)]))[0].numpy(), expected) < CLOSE


@opencv5
def test_same_as_the_compiled_kernel_on_real_frames(shared):
    path = shared / "data" / "ut_interaction/videos/seq01.mp4"
    if not path.is_file():
        pytest.skip(f"no shared video {path}")
    pairs = batch([grey_of(real_frames(path, 60, 2, (320, 180)))])
    same_as_on_the_cpu(*pairs, flow_batch(*pairs))


@opencv5
@pytest.mark.slow
def test_hard_frames_give_what_the_compiled_kernel_gives():
    frames = hard_frames(24, 27).values()
    pairs = batch([(a, b) for a in frames for b in frames])
    ours = flow_batch(*pairs)
    assert torch.isfinite(ours).all()
    same_as_on_the_cpu(*pairs, ours, most=BOUND)


def test_identical_frames_do_not_move():
    pairs = batch([(frame, frame) for frame in hard_frames(20, 22).values()])
    assert torch.all(flow_batch(*pairs) == 0)


def test_a_pair_takes_no_notice_of_the_rest_of_its_batch(monkeypatch):
    """One that stops at once, one that never does and two between, in two orders."""
    monkeypatch.setattr(tvl1_torch, "WARPS", 2)
    hard = hard_frames(20, 25)
    pairs = [(hard["black"], hard["black"]), moved(20, 25, dx=0.5), (hard["black"], hard["noise"]), moved(20, 25, dy=3)]
    singles = torch.cat([flow_batch(*batch([pair])) for pair in pairs])
    assert torch.equal(flow_batch(*batch(pairs)), singles)
    assert torch.equal(flow_batch(*batch(pairs[::-1])), singles.flip(0))


def test_early_exit_changes_nothing():
    pairs = batch([moved(16, 20, dx=1.0), moved(16, 20, degrees=4.0, seed=1)])
    still = torch.zeros(2, 2, 16, 20)
    images = [frames.float() for frames in pairs]
    ours = [tvl1_torch.solve_scale(*images, still, early_exit) for early_exit in (True, False)]
    assert torch.equal(*ours) and torch.all(ours[0].abs().amax((1, 2, 3)) > 0.1)


def test_no_step_looks_at_what_a_tensor_holds(monkeypatch):
    """Meta tensors hold nothing, so any such look, which on a GPU would wait and cannot be captured, raises."""
    monkeypatch.setattr(tvl1_torch, "WARPS", 1)  # the rest would be the same again
    monkeypatch.setattr(tvl1_torch, "OUTER", 2)
    frames = torch.zeros(3, 16, 18, dtype=torch.uint8, device="meta")
    ours = flow_batch(frames, frames)
    assert ours.shape == (3, 16, 18, 2) and ours.device.type == "meta"


def test_input_may_be_strided():
    pairs = batch([moved(20, 24, dx=1.0)])
    wide = [frames.repeat_interleave(2, dim=2)[:, :, ::2] for frames in pairs]
    assert torch.equal(flow_batch(*wide), flow_batch(*pairs))


GREY = torch.zeros(2, 2, 20, 20, dtype=torch.uint8)


@pytest.mark.parametrize(
    "frames",
    [GREY.float(), GREY[..., :15, :], GREY[0], GREY[:0], GREY[:, :1], GREY.numpy()],
    ids=["float", "too small", "three axes", "no series", "no pair", "numpy"],
)
def test_other_input_is_refused(frames):
    with pytest.raises(ValueError):
        flow_between(frames)


@opencv5
@pytest.mark.parametrize("h, w", [(16, 21), (91, 135), (180, 320)])
def test_pyramid_and_median_are_opencvs(h, w):
    image = np.random.default_rng(0).random((h, w), np.float32) * 255
    smaller = cv2.resize(image, None, fx=0.8, fy=0.8, interpolation=cv2.INTER_LINEAR)
    ours = tvl1_torch.resize(torch.from_numpy(image), smaller.shape, 1 / 0.8).numpy()
    assert np.abs(ours - smaller).max() < 2e-5
    larger = cv2.resize(smaller, (w, h), interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(tvl1_torch.resize(torch.from_numpy(smaller), (h, w)).numpy(), larger)
    planes = torch.from_numpy(image).expand(1, 2, h, w)
    assert np.array_equal(tvl1_torch.median(planes)[0, 1].numpy(), cv2.medianBlur(image, 5))


TRITON_EQUALS_TORCH = """
import torch
import triton.language as tl
from lstr.extractors.flow import tvl1_torch
from lstr.extractors.flow import tvl1_triton

for module in (tvl1_torch, tvl1_triton):
    module.WARPS, module.OUTER = 1, 2  # the interpreter is slow
tvl1_torch.INNER, tvl1_triton.INNER = 8, tl.constexpr(8)
tvl1_triton.TILE = tl.constexpr(256)  # two tiles, the last one not full

moving, iterate = [], tvl1_torch.iterate
def iterate_and_note(*state):
    state = iterate(*state)
    moving.append(state[-1])
    return state
tvl1_torch.iterate = iterate_and_note

random = torch.Generator().manual_seed(0)
i0 = torch.nn.functional.avg_pool2d(torch.rand(1, 24, 27, generator=random) * 255, 9, 1).repeat(4, 1, 1)
i1 = i0 + torch.tensor([0, 0.05, 0.1, 5])[:, None, None] * torch.randn(16, 19, generator=random)
expected, ours = (module.solve_scale(i0, i1, torch.zeros(4, 2, 16, 19)) for module in (tvl1_torch, tvl1_triton))

# pairs stop at once, after an odd number of iterations, with the last one of a launch, and not at all
assert (1 + torch.stack(moving).sum(0)).clamp(max=16).tolist() == [1, 3, 8, 16]
assert expected.abs().amax((1, 2, 3))[1:].min() > 1e-3
assert (ours - expected).abs().max() < 1e-6
"""


@pytest.mark.long
def test_the_triton_kernels_equal_torch():
    """In Triton's interpreter, which runs kernels on a CPU, one program after the other."""
    pytest.importorskip("triton", minversion="3.9")  # whose interpreter rounds a fused multiply-add once
    done = subprocess.run(
        [sys.executable, "-c", TRITON_EQUALS_TORCH],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_triton_kernels_compile_for_hopper(tmp_path, monkeypatch):
    triton = pytest.importorskip("triton", minversion="3.3")  # older ones know no tuples
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from lstr.extractors.flow import tvl1_triton

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"errors": "*i64", "arrivals": "*i32", "bound": "fp32", **dict.fromkeys(tvl1_triton.SIZES, "i32")}
    warps = tvl1_triton.TILE.value // 32
    options = dict(num_warps=warps, maxnreg=tvl1_triton.REGISTERS, enable_fp_fusion=False)
    for kernel in (tvl1_triton.warp_kernel, tvl1_triton.median_kernel, tvl1_triton.iterate_kernel):
        signature = {name: types.get(name, "*fp32") for name in kernel.arg_names}
        source = ASTSource(kernel, signature=signature)
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"]


@pytest.mark.slow
@opencv5
def test_the_triton_kernels_equal_opencv_on_a_real_pair(shared, tmp_path):
    """The whole schedule in Triton's interpreter: every warp, median and iteration of a pair of a real video."""
    pytest.importorskip("triton", minversion="3.9")  # whose interpreter rounds a fused multiply-add once
    frames = np.stack(grey_of(real_frames(shared / "data/ut_interaction/videos/seq01.mp4", 60, 2, (64, 48))))
    np.save(tmp_path / "frames.npy", frames)
    program = """
import sys, numpy as np, torch
from lstr.extractors.flow import tvl1_torch, tvl1_triton
frames = torch.from_numpy(np.load(sys.argv[1]))[None]
np.save(sys.argv[2], tvl1_torch._flow(frames, tvl1_triton.solve_scale)[0].movedim(0, -1).numpy())
"""
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "frames.npy"), str(tmp_path / "flow.npy")],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        check=True,
    )
    assert np.array_equal(np.load(tmp_path / "flow.npy"), flow.opencv_flow(*frames))


@pytest.mark.parametrize("n_series, n_frames", [(1, 2), (1, 6), (4, 2), (3, 6)])
def test_a_kernel_gets_pairs_side_by_side(n_series, n_frames):
    """A kernel finds pair after pair in memory: of several series of two frames it had read the wrong ones."""
    frames = torch.randint(0, 256, (n_series, n_frames, 24, 20), dtype=torch.uint8)
    seen = []

    def solve(i0, i1, u):
        seen.append((i0, i1))
        return u

    tvl1_torch._flow(frames, solve)
    assert all(images.is_contiguous() and len(images) == n_series * (n_frames - 1) for pair in seen for images in pair)
    assert torch.equal(seen[-1][0], frames[:, :-1].flatten(0, 1).float())
    assert torch.equal(seen[-1][1], frames[:, 1:].flatten(0, 1).float())


def gpu_pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """64 pairs of 90 x 121 pixels, from one that stops at once to one that never does."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    hard = hard_frames(90, 121)
    pairs = [moved(90, 121, degrees=0.1 * k, dx=0.05 * k, seed=k) for k in range(61)]
    return batch(pairs + [(hard[a], hard[b]) for a, b in (("black", "black"), ("black", "noise"), ("noise", "white"))])


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_gpu_gives_the_cpus_flow(kernel, monkeypatch):
    before, after = gpu_pairs()
    monkeypatch.setenv("LSTR_FLOW_KERNEL", kernel)
    ours = flow_batch(before.to("cuda"), after.to("cuda"))
    assert ours.device.type == "cuda"
    same_as_on_the_cpu(before[:-2], after[:-2], ours[:-2])
    assert torch.isfinite(ours).all()  # one rounding may grow without bound where no motion explains the frames
