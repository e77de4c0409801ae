"""How a machine is shared out: fed, and not oversubscribed."""

import pytest
import torch

from lstr.extractors.flow import workers as flow
from lstr.pipelines.features import extraction as machines
from lstr.pipelines.features.extraction import PROCESS_MEMORY_BYTES as MEMORY
from lstr.pipelines.features.extraction import Machine, Share, free_memory, share, this_machine


@pytest.mark.parametrize(
    ("machine", "n_videos", "shared"),
    [
        (Machine(1), 100, Share(1, 1)),
        (Machine(2), 100, Share(1, 2)),  # two processes of one thread each were no faster, and take twice the memory
        (Machine(4), 100, Share(1, 4)),
        (Machine(16), 100, Share(4, 4)),
        (Machine(18), 100, Share(4, 4)),
        (Machine(16), 2, Share(2, 8)),
        (Machine(16), 1, Share(1, 16)),
        (Machine(16), 0, Share(1, 16)),
        (Machine(16, memory=3 * MEMORY), 100, Share(3, 5)),
        (Machine(64, memory=MEMORY // 2), 100, Share(1, 64)),
        (Machine(16, gpus=1), 100, Share(1, 16)),
        (Machine(128, gpus=8), 1000, Share(8, 16)),
        (Machine(128, gpus=8), 3, Share(3, 42)),
        (Machine(16, gpus=8), 1000, Share(8, 2)),
        (Machine(4, gpus=8), 1000, Share(4, 1)),
    ],
)
def test_the_default_of_a_machine(machine, n_videos, shared):
    assert share(machine, n_videos) == shared
    assert shared.processes * shared.threads <= machine.cores


def test_what_is_asked_for_is_done():
    assert share(Machine(16), 100, processes=8) == Share(8, 2)
    assert share(Machine(2), 100, processes=8) == Share(8, 1)
    assert share(Machine(16), 3, processes=8) == Share(3, 5)
    assert share(Machine(16), 100, threads=1) == Share(16, 1)
    assert share(Machine(16), 100, processes=2, threads=3) == Share(2, 3)


def test_a_numbered_gpu_is_one(monkeypatch):
    """All were taken, and the process of the other one was told of a GPU that it did not see."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [this_machine(device).gpus for device in ("cpu", "cuda", "cuda:0", "cuda:1")] == [0, 2, 1, 1]
    assert share(this_machine("cuda:1"), 5).processes == 1


def test_where_nothing_says_what_is_free_all_memory_is(monkeypatch, tmp_path):
    """As on macOS: more than what is free, and no more than the machine has."""
    free = free_memory()
    monkeypatch.setattr(machines, "MEMORY_INFO", tmp_path / "none")
    monkeypatch.setattr(machines, "MEMORY_LIMIT", tmp_path / "none")
    assert free < free_memory() < 2**50


def test_a_container_has_the_cores_and_the_memory_of_its_quota(monkeypatch, tmp_path):
    cores, free = flow.default_workers(), free_memory()
    quota, limit = tmp_path / "cpu.max", tmp_path / "memory.max"
    monkeypatch.setattr(flow, "CPU_QUOTA", quota)
    monkeypatch.setattr(machines, "MEMORY_LIMIT", limit)
    quota.write_text("max 100000\n")
    limit.write_text("max\n")
    assert flow.default_workers() >= cores and free_memory() > free / 2
    quota.write_text("50000 100000\n")
    limit.write_text("1000000\n")
    assert this_machine("cpu") == Machine(1, 0, 1000000)
