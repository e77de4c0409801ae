"""Flow in threads: bytes, layout, the algorithms, what computes them, and batches for a GPU."""

import threading

import cv2
import numpy as np
import pytest
import torch

from lstr.errors import FlowError
from lstr.extractors.flow import workers as workers_module
from lstr.extractors.flow.tvl1_gpu import BatchingThread
from lstr.extractors.flow.workers import ALGORITHMS, DIFFERENCE, GPU_THREADS, FlowWorkers, choose_backend, to_bytes


def texture(shift: float) -> np.ndarray:
    """A smooth grey pattern (64, 96) moved right by `shift` pixels."""
    y, x = np.mgrid[:64, :96].astype(np.float32)
    return (127 + 60 * np.sin((x - shift) / 5) + 60 * np.cos(y / 4 + (x - shift) / 9)).astype(np.uint8)


def test_bytes_round_as_denseflow():
    values = np.array([-30, -20, 0, 20, 30, 1, -1], np.float32)
    assert to_bytes(values).tolist() == [0, 0, 128, 255, 255, 134, 121]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != DIFFERENCE])
def test_a_pair(algorithm):
    with FlowWorkers(1, algorithm) as workers:
        field = workers.pair(texture(0), texture(2))
        still = workers.pair(texture(0), texture(0))
    assert field.shape == (2, 64, 96) and field.dtype == np.uint8
    middle = field[:, 16:48, 24:72].astype(float)
    assert abs(np.median(middle[0]) - (128 + 2 / 40 * 255)) < 2, "x comes first, positive to the right"
    assert abs(np.median(middle[1]) - 128) < 2
    assert (still == 128).all()


def test_what_computes_flow(monkeypatch):
    assert choose_backend("dis") == choose_backend("dis-fast", "opencv") == choose_backend("tvl1", "opencv") == "opencv"
    with pytest.raises(FlowError, match="dis"):
        choose_backend("dis", "native")
    monkeypatch.setattr(workers_module, "_tvl1", None)
    assert choose_backend() == "opencv"
    with pytest.raises(FlowError) as caught:
        FlowWorkers(1, backend="native")
    assert "lstr doctor" in caught.value.hint
    monkeypatch.delattr(cv2, "optflow")
    with pytest.raises(FlowError, match="optflow"):
        choose_backend()
    # a GPU unless cores are many
    monkeypatch.setattr(workers_module, "has_gpu", lambda: True)
    monkeypatch.setattr("lstr.extractors.flow.tvl1_gpu.open_solver", lambda device: None)
    few, many = GPU_THREADS - 1, GPU_THREADS
    assert choose_backend(device="cuda:1", threads=many) == "cuda", "OpenCV is an order of magnitude behind"
    monkeypatch.setattr(workers_module, "has_native", lambda: True)
    chosen = [choose_backend(device=device, threads=n) for device in ("cpu", "cuda:1") for n in (few, many)]
    assert chosen == ["native", "native", "cuda", "native"]
    assert choose_backend("tvl1", "native", "cuda:1", few) == "native"


@pytest.mark.gpu
def test_chunks_on_a_gpu():
    """Of two sizes, many at once, while they are computed."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    wide = [np.stack([cv2.cvtColor(texture(k + n), cv2.COLOR_GRAY2RGB) for k in range(6)]) for n in range(20)]
    chunks = [frames if n % 2 else frames[:, :, :80].copy() for n, frames in enumerate(wide)]
    fields = []
    for backend in ("auto", "cuda"):
        with FlowWorkers(1, backend=backend) as workers:
            fields.append([flow.result().astype(int) for flow in [workers.submit(frames) for frames in chunks]])
    for ours, exact in zip(*fields, strict=True):
        assert ours.shape == exact.shape and abs(ours - exact).mean() <= 0.1


def test_differences_are_of_brightness_and_of_red_against_blue():
    grey = np.full((6, 16, 20, 3), 90, np.uint8)
    brighter, redder, flash = grey.copy(), grey.copy(), grey.copy()
    brighter[3:] += 10
    redder[3:, ..., 0] += 20
    flash[3:] = 255
    with FlowWorkers(1, DIFFERENCE) as workers:
        found = [workers.submit(frames).result()[:, 5, 5].reshape(5, 2) for frames in (grey, brighter, redder, flash)]
        dark = workers.submit(flash[::-1]).result()[:, 5, 5].reshape(5, 2)
    assert (found[0] == 128).all()
    changed = [rows[2].tolist() for rows in found[1:]]
    assert changed == [[138, 128], [134, 148], [255, 128]]
    assert all((np.delete(rows, 2, axis=0) == 128).all() for rows in found[1:])
    assert dark[2].tolist() == [0, 128]


def test_dis_refuses_what_would_crash_it():
    """OpenCV's DIS ends the whole process on some images of fewer than 16 pixels per side."""
    with FlowWorkers(1, "dis") as workers, pytest.raises(FlowError):
        workers.submit(np.zeros((6, 12, 320, 3), np.uint8)).result()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_threads_give_what_one_gives(algorithm):
    frames = [np.stack([cv2.cvtColor(texture(i + k), cv2.COLOR_GRAY2RGB) for k in range(6)]) for i in range(4)]
    results = []
    for count in (1, 2):
        with FlowWorkers(count, algorithm) as workers:
            results.append([flow.result() for flow in [workers.submit(chunk) for chunk in frames]])
        assert results[-1][0].shape == (10, 64, 96)
    assert np.array_equal(*results)


class Device:
    """Records the batches that it gets, and holds each until `go`; flow is the chunk's own number."""

    def __init__(self, held: bool = True):
        self.batches: list[list[int]] = []
        self.go, self.at_work = threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def __call__(self, chunks):
        self.batches.append([int(chunk.flat[0]) for chunk in chunks])
        self.at_work.set()
        assert self.go.wait(60)
        return np.stack([np.full((10, *chunk.shape[1:]), chunk.flat[0], np.uint8) for chunk in chunks])


def chunk(number: int, height: int = 16) -> np.ndarray:
    return np.full((6, height, 20), number, np.uint8)


def test_what_waits_is_computed_together_and_comes_in_order():
    device = Device()
    thread = BatchingThread(device, largest=4)
    flows = [thread.submit(chunk(0))]
    assert device.at_work.wait(60)
    flows += [thread.submit(chunk(n, 24 if n in (2, 5) else 16)) for n in range(1, 9)]
    device.go.set()
    for n, flow in enumerate(flows):
        planes, seconds = flow.result(60)
        assert (planes == n).all() and planes.shape == (10, 24 if n in (2, 5) else 16, 20) and seconds >= 0
    assert device.batches == [[0], [1, 3, 4, 6], [2, 5], [7, 8]], "never more than four, never of two sizes"
    thread.close()


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, RuntimeError])
def test_an_error_is_of_its_batch_alone(kind):
    """A batch that memory is too small for is halved."""
    held, device = threading.Event(), Device(held=False)

    def compute(chunks):
        assert held.wait(60)
        if any((part == 1).all() for part in chunks) if kind is RuntimeError else len(chunks) > 2:
            raise kind("CUDA error\nand a page of advice")
        return device(chunks)

    thread = BatchingThread(compute, largest=1 if kind is RuntimeError else 8)
    flows = [thread.submit(chunk(n)) for n in range(8)]
    held.set()
    for n, flow in enumerate(flows):
        if n == 1 and kind is RuntimeError:
            with pytest.raises(FlowError) as caught:
                flow.result(60)
            assert "LSTR_FLOW_BACKEND=native" in caught.value.hint and "\n" not in str(caught.value)
        else:
            assert (flow.result(60)[0] == n).all()
    assert max(map(len, device.batches)) <= 2
    thread.close()
