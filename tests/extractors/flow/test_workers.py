"""Flow in threads: bytes, layout, algorithms, backends, batches for a GPU, and the kernels that a GPU uses."""

import threading
from contextlib import nullcontext
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
import torch

from lstr.errors import FlowError
from lstr.extractors.flow import tvl1_gpu
from lstr.extractors.flow import workers as workers_module
from lstr.extractors.flow.tvl1_cluster import code_key, compile_options
from lstr.extractors.flow.tvl1_gpu import OPENERS, BatchingThread, Solver, open_solver, try_pair
from lstr.extractors.flow.workers import ALGORITHMS, DIFFERENCE, GPU_THREADS, FlowWorkers, choose_backend, to_bytes
from tests.support.flow_frames import needs_kernel, texture


def compiled_solve(i0: torch.Tensor, i1: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Solve the pair of `try_pair`, which has one scale, with the compiled kernel of the processor."""
    return torch.from_numpy(workers_module.native_flow(*(i[0].byte().numpy() for i in (i0, i1)))).movedim(-1, 0)[None]


def rgb_chunk(seed: int) -> np.ndarray:
    """Return frames (6, 64, 96, 3) of a texture that moves right by two pixels per frame."""
    image = texture(64, 106, seed).astype(np.uint8)
    return np.stack([image[:, 10 - 2 * k : 106 - 2 * k] for k in range(6)])[..., None].repeat(3, -1)


def test_bytes_round_as_denseflow():
    values = np.array([-30, -20, 0, 20, 30, 1, -1], np.float32)
    assert to_bytes(values).tolist() == [0, 0, 128, 255, 255, 134, 121]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != DIFFERENCE])
def test_flow_of_a_pair(algorithm):
    with FlowWorkers(1, algorithm) as workers:
        before, after = rgb_chunk(0)[:2, ..., 0].copy()
        field, still = workers.pair(before, after), workers.pair(before, before)
    assert field.shape == (2, 64, 96) and field.dtype == np.uint8
    middle = field[:, 16:48, 24:72].astype(float)
    assert abs(np.median(middle[0]) - (128 + 2 / 40 * 255)) < 2, "x comes first, positive to the right"
    assert abs(np.median(middle[1]) - 128) < 2
    assert (still == 128).all()


def test_choice_of_the_backend(monkeypatch):
    assert choose_backend("dis") == choose_backend("dis-fast", "opencv") == choose_backend("tvl1", "opencv") == "opencv"
    with pytest.raises(FlowError, match="dis"):
        choose_backend("dis", "native")
    few, many = GPU_THREADS - 1, GPU_THREADS
    with monkeypatch.context() as patch:
        patch.setattr(workers_module, "has_gpu", lambda: True)
        patch.setattr(workers_module, "has_native", lambda: True)
        patch.setattr("lstr.extractors.flow.tvl1_gpu.open_solver", lambda device: None)
        backends = [choose_backend(device=device, threads=n) for device in ("cpu", "cuda:1") for n in (few, many)]
        assert backends == ["native", "native", "cuda", "native"]
        assert choose_backend("tvl1", "native", "cuda:1", few) == "native"
        patch.setattr(workers_module, "has_native", lambda: False)  # OpenCV is ten times slower
        assert choose_backend(device="cuda:1", threads=many) == "cuda"
    monkeypatch.setattr(workers_module, "_tvl1", None)
    assert choose_backend() == "opencv"
    with pytest.raises(FlowError) as caught:
        FlowWorkers(1, backend="native")
    assert "lstr doctor" in caught.value.hint
    monkeypatch.delattr(cv2, "optflow")
    with pytest.raises(FlowError, match="optflow"):
        choose_backend()


@pytest.mark.gpu
def test_many_chunks_of_two_sizes_on_a_gpu():
    chunks = [rgb_chunk(n) if n % 2 else rgb_chunk(n)[:, :, :80].copy() for n in range(20)]
    fields = []
    for backend in ("auto", "cuda"):
        with FlowWorkers(1, backend=backend) as workers:
            fields.append([flow.result().astype(int) for flow in [workers.submit(frames) for frames in chunks]])
    for ours, exact in zip(*fields, strict=True):
        assert ours.shape == exact.shape and abs(ours - exact).mean() <= 0.1


def test_differences_of_brightness_and_of_red_against_blue():
    grey = np.full((6, 16, 20, 3), 90, np.uint8)
    brighter, redder, flash = grey.copy(), grey.copy(), grey.copy()
    brighter[3:] += 10
    redder[3:, ..., 0] += 20
    flash[3:] = 255
    changes = {  # of brightness and colour between frames 2 and 3
        (128, 128): grey, (138, 128): brighter, (134, 148): redder, (255, 128): flash, (0, 128): flash[::-1],
    }  # fmt: skip
    with FlowWorkers(1, DIFFERENCE) as workers:
        for change, frames in changes.items():
            rows = workers.submit(frames).result()[:, 5, 5].reshape(5, 2)
            assert (*rows[2],) == change and (np.delete(rows, 2, axis=0) == 128).all()


def test_dis_refuses_images_that_crash_opencv():
    """OpenCV's DIS ends the whole process on some images of fewer than 16 pixels per side."""
    with FlowWorkers(1, "dis") as workers, pytest.raises(FlowError):
        workers.submit(np.zeros((6, 12, 320, 3), np.uint8)).result()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_threads_compute_the_same_flow(algorithm):
    chunks, results = [rgb_chunk(seed) for seed in range(4)], []
    for count in (1, 2):
        with FlowWorkers(count, algorithm) as workers:
            results.append([flow.result() for flow in [workers.submit(chunk) for chunk in chunks]])
    assert results[0][0].shape == (10, 64, 96) and np.array_equal(*results)


@pytest.mark.parametrize("error", [None, torch.OutOfMemoryError, RuntimeError])
def test_batches_for_a_gpu(error):
    """A batch has one size; it is halved if it exceeds the memory; another error fails only its batch."""
    device_is_free, batches = threading.Event(), []

    def compute(chunks):
        assert device_is_free.wait(60)
        numbers = [int(chunk.flat[0]) for chunk in chunks]
        if error is torch.OutOfMemoryError and len(chunks) > 2 or error is RuntimeError and 1 in numbers:
            raise error("CUDA error\nand a page of advice")
        batches.append(numbers)
        return np.stack([np.full((10, *chunk.shape[1:]), chunk.flat[0], np.uint8) for chunk in chunks])

    heights = [24 if n in (3, 6) else 16 for n in range(9)]
    thread = BatchingThread(compute, largest=1 if error is RuntimeError else 4)
    flows = [thread.submit(np.full((6, height, 20), n, np.uint8)) for n, height in enumerate(heights)]
    device_is_free.set()
    for n, flow in enumerate(flows):
        if n == 1 and error is RuntimeError:
            with pytest.raises(FlowError) as caught:
                flow.result(60)
            assert "LSTR_FLOW_BACKEND=native" in caught.value.hint and "\n" not in str(caught.value)
        else:
            planes, seconds = flow.result(60)
            assert (planes == n).all() and planes.shape == (10, heights[n], 20) and seconds >= 0
    sizes = [{heights[n] for n in batch} for batch in batches]
    largest = {None: 4, torch.OutOfMemoryError: 2, RuntimeError: 1}[error]
    assert all(len(size) == 1 for size in sizes) and max(map(len, batches)) == largest
    thread.close()


@needs_kernel
def test_reference_flow_of_the_small_pair():
    try_pair(Solver("cluster", compiled_solve), torch.device("cpu"))
    for error in (1, float("nan")):
        with pytest.raises(FlowError, match="cluster"):
            try_pair(Solver("cluster", lambda i0, i1, u, error=error: u + error), torch.device("cpu"))


@needs_kernel
@pytest.mark.parametrize("error", [None, FlowError("NVRTC cannot be loaded."), RuntimeError("no image\nmore lines")])
def test_triton_replaces_a_kernel_that_fails_on_a_simulated_gpu(error, monkeypatch):
    openers = {name: Mock(return_value=Solver(name, compiled_solve)) for name in OPENERS}
    openers["cluster"].side_effect = error
    monkeypatch.setattr(tvl1_gpu, "OPENERS", openers)
    monkeypatch.setattr(tvl1_gpu, "_opened", {})
    monkeypatch.setattr(tvl1_gpu, "try_pair", lambda solver, device: try_pair(solver, torch.device("cpu")))
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.delenv("LSTR_FLOW_KERNEL", raising=False)
    solver = open_solver("cuda:0")
    assert solver.name == ("triton" if error else "cluster")
    assert len(solver.warnings) == bool(error) and not any("\n" in text for text in solver.warnings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels")
def test_kernels_without_a_gpu(monkeypatch):
    for name in (*OPENERS, "clusters", ""):
        monkeypatch.setenv("LSTR_FLOW_KERNEL", name)
        with pytest.raises(FlowError, match=name or None) as caught:
            open_solver("cuda:0")
        assert ("LSTR_FLOW_KERNEL" in caught.value.hint) == bool(name)
        assert ("LSTR_FLOW_BACKEND=native" in caught.value.hint) == (name != "clusters")
    with pytest.raises(FlowError, match="cpu"):
        open_solver("cpu")
    monkeypatch.setattr(workers_module, "has_gpu", lambda: True)
    with pytest.raises(FlowError):  # here and not in a thread
        FlowWorkers(1, backend="cuda", device="cuda:0")


def test_compiled_code_is_stored_per_architecture_compiler_and_options():
    options = [compile_options(clusters) for clusters in (True, False)]
    keys = {code_key(o, name, driver) for o in options for name in ("sm_90", "sm_100") for driver in "12"}
    assert len(keys) == 8 and code_key(options[0], "sm_90", "1") in keys
