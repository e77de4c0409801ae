"""Flow in worker processes: bytes, layout, and that workers come and go as they should."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

from extractors import flow, tvl1
from extractors.errors import FlowError
from extractors.flow import FlowWorkers, opencv_flow, pair_flow, to_bytes


def texture(shift: float) -> np.ndarray:
    """A smooth grey pattern (64, 96) moved right by `shift` pixels."""
    y, x = np.mgrid[:64, :96].astype(np.float32)
    return (127 + 60 * np.sin((x - shift) / 5) + 60 * np.cos(y / 4 + (x - shift) / 9)).astype(np.uint8)


def test_bytes_round_as_denseflow():
    values = np.array([-30, -20, 0, 20, 30, 1, -1], np.float32)
    assert to_bytes(values).tolist() == [0, 0, 128, 255, 255, 134, 121]


def test_a_pair():
    field = pair_flow(texture(0), texture(2))
    assert field.shape == (2, 64, 96) and field.dtype == np.uint8
    middle = field[:, 16:48, 24:72].astype(float)
    assert abs(np.median(middle[0]) - (128 + 2 / 40 * 255)) < 2, "x comes first, positive to the right"
    assert abs(np.median(middle[1]) - 128) < 2
    assert (pair_flow(texture(0), texture(0)) == 128).all()


@pytest.mark.skipif(not tvl1.available(), reason="the compiled kernel was not built")
def test_both_backends_give_the_same_bytes(monkeypatch):
    native = pair_flow(texture(0), texture(3))
    monkeypatch.setattr(tvl1, "_tvl1", None)
    assert flow.flow_backend().startswith("opencv")
    assert (native == pair_flow(texture(0), texture(3))).all()


def test_a_small_image_does_not_spoil_a_large_one():
    before = opencv_flow(texture(0), texture(3))
    opencv_flow(texture(0)[:20, :20], texture(3)[:20, :20])
    assert (opencv_flow(texture(0), texture(3)) == before).all()


def test_a_chunk_through_workers():
    frames = np.stack([cv2.cvtColor(texture(k), cv2.COLOR_GRAY2RGB) for k in range(6)])
    with FlowWorkers(2) as workers:
        field = workers.submit(frames).result()
    assert field.shape == (10, 64, 96)
    grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    for k in range(5):
        assert (field[2 * k : 2 * k + 2] == pair_flow(grey[k], grey[k + 1])).all()


def test_a_dead_worker_is_a_typed_error():
    frames = np.zeros((6, 64, 96, 3), np.uint8)
    with FlowWorkers(1) as workers:
        workers.submit(frames).result()
        for pid in list(workers._pool._processes):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(FlowError, match="worker died") as caught:
            for _ in range(100):
                workers.submit(frames).result()
                time.sleep(0.05)
    assert "--workers" in caught.value.hint


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_ctrl_c_never_reaches_a_worker():
    """Also not while it starts, when it could not yet ignore it by itself."""
    code = (
        "import os, signal, time\n"
        "from extractors.flow import FlowWorkers\n"
        "if __name__ == '__main__':\n"
        "    with FlowWorkers(2) as workers:\n"
        "        print(*workers._pool._processes, flush=True)\n"
        "        time.sleep(60)\n"
    )
    script = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = [int(p) for p in script.stdout.readline().split()]
    assert len(pids) == 2
    for pid in pids:
        os.kill(pid, signal.SIGINT)
        status = Path(f"/proc/{pid}/status").read_text()
        blocked = next(line for line in status.splitlines() if line.startswith("SigBlk"))
        assert int(blocked.split()[1], 16) & 1 << (signal.SIGINT - 1)
    script.kill()
    script.communicate()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "a worker outlived its parent"
