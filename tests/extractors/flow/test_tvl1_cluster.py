"""The CUDA kernel of TV-L1 without a GPU: its source on the host, its layouts, its compiled form, and its launch."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

from lstr.extractors.errors import FlowError
from lstr.extractors.flow import tvl1, tvl1_cluster, tvl1_solvers, tvl1_spec, tvl1_torch
from lstr.extractors.flow.cuda_source import Cubin, bindings, compiled
from lstr.extractors.flow.tvl1_cluster import STATIC, THREADS, ClusterKernel, Limits, choose_layout, layouts, source
from lstr.extractors.flow.tvl1_solvers import Solver
from tests.support.flow_frames import grey_of, hard_frames, real_frames
from tests.support.host_kernel import FULL, HOPPER, HostKernel, build_host_kernel, need_nvrtc

BEFORE_HOPPER = Limits(processors=108, blocks=1, memory=166_912)
CUTS = (18, 19)  # of the twenty pairs; there tvl1.c may round a root in ten million otherwise, which grows
QUICK = (1, 2, 5)  # warps, outer and inner iterations
opencv5 = pytest.mark.skipif(
    int(cv2.__version__.split(".")[0]) < 5 or not hasattr(cv2, "optflow"), reason="parity is to OpenCV 5 with optflow"
)
needs_kernel = pytest.mark.skipif(not tvl1.available(), reason="the compiled kernel was not built")


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> HostKernel:
    return build_host_kernel(tmp_path_factory.mktemp("host kernel"))


def solved(frames: np.ndarray, solve) -> np.ndarray:
    """Flow (F - 1, H, W, 2) between frames (F, H, W), by the whole pyramid."""
    return tvl1_torch._flow(torch.from_numpy(frames)[None], solve).movedim(1, -1).numpy()


def opencv(before: np.ndarray, after: np.ndarray, schedule=FULL) -> np.ndarray:
    solver = cv2.optflow.DualTVL1OpticalFlow_create()
    warps, outer, inner = schedule
    solver.setWarpingsNumber(warps)
    solver.setOuterIterations(outer)
    solver.setInnerIterations(inner)
    return solver.calc(before, after, None)


def twenty_pairs(shared: Path) -> list[np.ndarray]:
    """Pairs (2, H, W) of real frames; those in CUTS are from one video to another."""
    places = [("ut_interaction", f"seq{k:02}", start) for k, start in ((1, 0), (4, 40), (6, 60), (9, 30))]
    places += [("urfall", f"fall-{k:02}", start) for k, start in ((1, 20), (5, 50))]
    videos = [grey_of(real_frames(shared / "data" / s / "videos" / f"{n}.mp4", at, 4)) for s, n, at in places]
    pairs = [np.stack(video[k : k + 2]) for k in range(3) for video in videos]
    return [*pairs, np.stack((videos[0][0], videos[4][3])), np.stack((videos[5][0], videos[2][3]))]


@opencv5
@pytest.mark.long
def test_the_kernel_equals_opencv_on_real_pairs_and_cuts(host, shared):
    """In a short schedule; two cuts among the twenty never settle."""
    for number, pair in enumerate(twenty_pairs(shared)):
        ours = solved(pair, host.solver(8 if number % 2 else 16, QUICK))[0]
        assert np.array_equal(ours, opencv(*pair, QUICK)), f"pair {number}"
    assert max(host.iterations[-10:]) == QUICK[1] * QUICK[2], "the cuts never settled"


@opencv5
@needs_kernel
@pytest.mark.slow
def test_the_kernel_equals_opencv_on_real_pairs_and_cuts_to_the_end(host, shared):
    for number, pair in enumerate(twenty_pairs(shared)):
        host.iterations.clear()
        ours = solved(pair, host.solver(8))[0]
        assert np.array_equal(ours, opencv(*pair)), f"pair {number}"
        assert number in CUTS or np.array_equal(ours, tvl1.flow(*pair)), f"pair {number}"
    assert max(host.iterations) > 1000, "the last one is a cut"


def textures(h: int, w: int) -> np.ndarray:
    """A smooth texture (H, W) and the same moved, uint8."""
    image = cv2.GaussianBlur(np.random.default_rng(h * w).random((h + 8, w + 8), np.float32), (0, 0), 2.0)
    image = np.rint(cv2.normalize(image, None, 0, 255, cv2.NORM_MINMAX)).astype(np.uint8)
    return np.stack((image[4 : 4 + h, 4 : 4 + w], image[3 : 3 + h, 5 : 5 + w]))


@needs_kernel
@pytest.mark.long
@pytest.mark.parametrize("h, w", [(16, 16), (17, 16), (33, 19), (31, 47), (47, 101), (24, 600)])
def test_any_number_of_blocks_gives_the_same(h, w, host):
    """Bands that do not divide the height, a last band of one row, blocks without a row, rows longer than a block."""
    frames = textures(h, w)
    want = tvl1.flow(*frames)
    fitting = [layout.blocks for layout in layouts(h, w, HOPPER)]
    assert {4, 8} <= set(fitting)
    for blocks in fitting:
        assert np.array_equal(solved(frames, host.solver(blocks))[0], want), f"{blocks} blocks"


@needs_kernel
@pytest.mark.long
def test_the_kernel_survives_hard_frames(host):
    frames = hard_frames(20, 37)
    for before in frames.values():
        for after in frames.values():
            ours = solved(np.stack((before, after)), host.solver(4, QUICK))
            assert np.isfinite(ours).all()


@pytest.mark.parametrize(
    "w, h, blocks",
    [(320, 180, 8), (180, 320, 8), (320, 240, 16), (340, 256, 16), (320, 320, 16), (317, 211, 16), (256, 144, 8)],
)
def test_working_sizes_fit_a_cluster(w, h, blocks):
    assert layouts(h, w, HOPPER)[0].blocks == blocks
    assert all(layout.memory + STATIC <= HOPPER.memory for layout in layouts(h, w, HOPPER))


def test_what_does_not_fit():
    assert layouts(480, 640, HOPPER) == [] and choose_layout(480, 640, 80, HOPPER) is None
    assert choose_layout(180, 320, 80, BEFORE_HOPPER) is None, "one block without its neighbours"
    assert choose_layout(60, 80, 80, BEFORE_HOPPER) == layouts(60, 80, HOPPER)[0]
    assert layouts(17, 3000, HOPPER) == [], "bands of one row are no neighbours of the rows that a median needs"


def test_few_pairs_get_more_blocks():
    """A pair alone is to end soon; many are to keep every processor at work."""
    assert choose_layout(74, 131, 80, HOPPER).blocks == 2
    assert choose_layout(74, 131, 20, HOPPER).blocks == 8
    assert choose_layout(74, 131, 5, HOPPER).blocks == 16
    assert choose_layout(180, 320, 5, HOPPER).blocks == 16


def test_the_kernel_has_the_definitions_constants():
    text = source(True).path.read_text()
    defined = dict(re.findall(r"^#define (\w+) (.+?)(?: /\*.*)?$", text, re.M))
    assert [int(defined[name]) for name in ("WARPS", "OUTER", "INNER")] == [tvl1_spec.WARPS, tvl1_spec.OUTER, 30]
    assert np.float32(defined["FLAT"].rstrip("f")) == np.float32(tvl1_spec.FLAT)
    assert int(defined["MOST_BLOCKS"]) == max(tvl1_cluster.BLOCKS)
    text = source(True).headers[1].read_text()
    planes = re.search(r"enum \{ (.+), TURNS, PLANES = TURNS \+ (\d) \}", text)
    assert len(planes[1].split(",")) + int(planes[2]) == tvl1_cluster.PLANES


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_the_kernel_compiles_without_spills(architecture):
    """sm_80 has no clusters: there a block takes a pair alone."""
    need_nvrtc()
    cubin = compiled(source(clusters=architecture != "sm_80"), architecture)
    assert cubin.code.startswith(b"\x7fELF") and b"solve_scale" in cubin.code
    used = re.search(r"Used (\d+) registers.*?(\d+) bytes smem", cubin.log)
    assert int(used[1]) * THREADS <= 65_536, "registers of a processor"
    assert int(used[2]) <= STATIC, cubin.log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in cubin.log, cubin.log


class StandIn:
    """The driver of cuda-bindings, but for a GPU: what is launched runs on the host. Structures are the real ones."""

    def __init__(self, real, host: HostKernel, capability: tuple[int, int]):
        self.real, self.host, self.capability = real, host, capability
        self.launches: list[tuple[int, int, int]] = []
        self.allowed: dict[str, int] = {}
        self.current = real.CUcontext(0)

    def __getattr__(self, name):
        if name.startswith("CU"):
            return getattr(self.real, name)
        if name in {"cuModuleLoadData", "cuModuleGetFunction"}:
            return lambda *arguments: (0, name)
        raise AssertionError(f"{name} is not expected")

    def cuDeviceGet(self, index):
        return 0, index

    def cuDevicePrimaryCtxRetain(self, device):
        return 0, self.real.CUcontext(4711)

    def cuCtxGetCurrent(self):
        return 0, self.current

    def cuCtxSetCurrent(self, context):
        self.current = context
        return (0,)

    def cuDeviceGetAttribute(self, attribute, device):
        return 0, HOPPER.memory if self.capability >= (9, 0) else BEFORE_HOPPER.memory

    def cuFuncSetAttribute(self, function, attribute, value):
        self.allowed[attribute.name] = value
        return (0,)

    def cuOccupancyMaxActiveClusters(self, function, config):
        return 0, HOPPER.processors // config.attrs[0].value.clusterDim.x

    def cuLaunchKernelEx(self, config, function, arguments, extra):
        assert int(self.current) == 4711 and int(config.hStream) == 99
        (planes, i0, flow, queue, n_pairs, h, w, bound), types = arguments
        assert len(types) == 8 and config.blockDimX == THREADS
        blocks = config.attrs[0].value.clusterDim.x if config.numAttrs else 1
        assert config.gridDimX % blocks == 0 and config.sharedMemBytes <= self.allowed_memory
        self.launches.append((config.gridDimX, blocks, n_pairs))
        n = 4 * h * w  # bytes of a plane
        for k in range(n_pairs):
            self.host.solve_in_place(planes + 3 * n * k, i0 + n * k, flow + 2 * n * k, h, w, bound, blocks)
        return (0,)

    @property
    def allowed_memory(self) -> int:
        return self.allowed["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"]


def open_on_stand_in(host, capability, monkeypatch) -> tuple[ClusterKernel, StandIn]:
    """The kernel opened on a GPU that is the host."""
    need_nvrtc()
    driver = StandIn(bindings()[0], host, capability)
    properties = SimpleNamespace(major=capability[0], minor=capability[1], multi_processor_count=HOPPER.processors)
    monkeypatch.setattr(tvl1_cluster, "bindings", lambda: (driver, None))
    monkeypatch.setattr(tvl1_cluster, "compiled_or_kept", lambda source, architecture: Cubin(architecture.encode()))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=99))
    return ClusterKernel(torch.device("cuda", 0)), driver


@needs_kernel
@pytest.mark.long
def test_what_is_launched_gives_the_processors_flow(host, monkeypatch):
    kernel, driver = open_on_stand_in(host, (9, 0), monkeypatch)
    assert kernel.limits == HOPPER and kernel.about == "CUDA C++ for sm_90, up to 16 blocks per pair"
    frames = np.stack([textures(40, 53)[0], *textures(40, 53)])
    ours = solved(frames, kernel.solve_scale)
    assert np.array_equal(ours[0], tvl1.flow(*frames[:2])) and np.array_equal(ours[1], tvl1.flow(*frames[1:]))
    assert len(driver.launches) == 5, "one launch for each scale"
    assert all(grid == 2 * blocks and pairs == 2 for grid, blocks, pairs in driver.launches)
    tvl1_solvers.try_pair(Solver("cluster", kernel.solve_scale), torch.device("cpu"))


@pytest.mark.long
def test_a_gpu_without_clusters_solves_small_scales_alone(host, monkeypatch):
    kernel, driver = open_on_stand_in(host, (8, 0), monkeypatch)
    assert kernel.limits.blocks == 1 and kernel.fits(40, 53) and not kernel.fits(180, 320)
    tvl1_solvers.try_pair(Solver("cluster", kernel.solve_scale), torch.device("cpu"))
    assert driver.launches == [(1, 1, 1)]
    with pytest.raises(FlowError, match="320x180 pixels are larger"):
        kernel.solve_scale(*(torch.zeros(1, 180, 320),) * 2, torch.zeros(1, 2, 180, 320))


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
    frames = np.stack([*textures(h, w), *textures(h, w)[::-1], noise, textures(h, w)[0]])  # cuts among them
    on_gpu = tvl1_torch._flow(torch.from_numpy(frames)[None].cuda(), kernel.solve_scale).movedim(1, -1).cpu().numpy()
    for k in range(len(frames) - 1):
        # the plain form takes roots in double, as OpenCV does
        assert np.array_equal(on_gpu[k], tvl1.flow(frames[k], frames[k + 1], "plain")), f"pair {k}"
