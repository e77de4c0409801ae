"""The thread that batches chunks for a GPU: order, sizes, errors, the end. A processor replaces the GPU."""

import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest
import torch

from lstr.errors import FlowError
from lstr.extractors.flow.tvl1_gpu import BatchingThread


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


def test_close_drops_what_has_not_begun():
    device = Device()
    thread = BatchingThread(device, largest=1)
    flows = [thread.submit(chunk(n)) for n in range(5)]
    assert device.at_work.wait(60)
    closing = threading.Thread(target=thread.close)
    closing.start()
    with pytest.raises(CancelledError):
        flows[4].result(60)
    device.go.set()
    closing.join(60)
    assert not closing.is_alive() and flows[0].result()[0].shape == (10, 16, 20) and device.batches == [[0]]
    with pytest.raises(RuntimeError, match="close"):
        thread.submit(chunk(6))
