"""Which kernel a GPU takes, when it is compiled and tried, and what is said when one does not run."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from lstr.errors import FlowError
from lstr.extractors.flow import tvl1_cluster, tvl1_gpu, workers
from lstr.extractors.flow.tvl1_cluster import load_code, source
from lstr.extractors.flow.tvl1_gpu import PAIR_FLOW, Solver, open_solver, small_pair, try_pair
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.lanes import open_lane
from tests.support.flow_frames import compiled_solve

pytestmark = pytest.mark.skipif(not workers.has_native(), reason="the compiled kernel was not built")
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")


@pytest.fixture
def gpu(monkeypatch):
    """A GPU on which each kernel does what the test says: gpu(cluster=function or error, triton=…) -> opened names."""

    def with_kernels(**kernels) -> list[str]:
        opened = []

        def opener(name, does):
            def open_kernel(device):
                opened.append(name)
                if isinstance(does, Exception):
                    raise does
                return Solver(name, does, f"{name} for a test")

            return open_kernel

        monkeypatch.setattr(tvl1_gpu, "OPENERS", {name: opener(name, does) for name, does in kernels.items()})
        monkeypatch.setattr(tvl1_gpu, "_opened", {})
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        # a kernel that is tried computes on the processor
        real = try_pair
        monkeypatch.setattr(tvl1_gpu, "try_pair", lambda solver, device: real(solver, CPU))
        return opened

    monkeypatch.delenv("LSTR_FLOW_KERNEL", raising=False)
    return with_kernels


def test_the_known_flow_is_that_of_the_pair():
    i0, i1 = small_pair()
    flow = workers.native_flow(i0.byte().numpy(), i1.byte().numpy())
    assert flow.mean((0, 1)) == pytest.approx(PAIR_FLOW, abs=1e-5)
    assert torch.equal(i0.byte().float(), i0), "whole grey levels"


FAULTS = [
    FlowError("NVRTC cannot be loaded."),
    RuntimeError("CUDA error: no image\nmore lines"),
    lambda i0, i1, u: u + 1,
    lambda i0, i1, u: u * float("nan"),
]


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_our_kernel_comes_first_and_triton_stands_in(fault, gpu):
    """What has failed is not tried again."""
    opened = gpu(cluster=fault or compiled_solve, triton=compiled_solve)
    for device in ("cuda", CUDA):
        solver = open_solver(device)
        assert solver.name == ("triton" if fault else "cluster")
        assert len(solver.warnings) == bool(fault) and not any("\n" in text for text in solver.warnings)
    assert opened == (["cluster", "triton"] if fault else ["cluster"])


def test_the_environment_names_a_kernel(gpu, monkeypatch):
    gpu(cluster=RuntimeError("no such thing"), triton=compiled_solve)
    monkeypatch.setenv("LSTR_FLOW_KERNEL", "triton")
    assert open_solver("cuda") == Solver("triton", compiled_solve, "triton for a test")
    for name, hinted in (("cluster", "LSTR_FLOW_KERNEL"), ("clusters", "")):
        monkeypatch.setenv("LSTR_FLOW_KERNEL", name)
        with pytest.raises(FlowError, match="no such thing" if hinted else name) as caught:
            open_solver("cuda")
        assert hinted in caught.value.hint
    monkeypatch.delenv("LSTR_FLOW_KERNEL")
    with pytest.raises(FlowError) as caught:
        open_solver("cpu")
    assert "LSTR_FLOW_BACKEND=native" in caught.value.hint


def test_workers_fail_where_they_are_made(gpu, monkeypatch):
    """Not in a thread, chunks later; and their warnings are those of the kernel."""
    monkeypatch.setattr("lstr.extractors.devices.has_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    gpu(cluster=FlowError("No NVRTC."), triton=OSError("no C compiler"))
    threads = threading.active_count()
    with pytest.raises(FlowError, match="no C compiler") as caught:
        FlowWorkers(1, backend="cuda")
    assert "LSTR_FLOW_BACKEND=native" in caught.value.hint and threading.active_count() == threads
    gpu(cluster=FlowError("No NVRTC."), triton=compiled_solve)
    monkeypatch.setattr("lstr.extractors.lanes.open_lane", lambda device: open_lane("cpu"))
    with FlowWorkers(1, backend="cuda") as made:
        assert len(made.warnings) == 1
    with FlowWorkers(1) as made:
        assert made.warnings == [] and workers.choose_backend() in made.backend


def test_a_compiled_kernel_is_kept(tmp_path, monkeypatch):
    """By a compiler and a driver that answer without a GPU."""
    calls, driver_version = Counter(), [13000]

    def compile_once(source, architecture):
        calls[architecture] += 1
        return b"code of " + architecture.encode(), ""

    driver = SimpleNamespace(cuDriverGetVersion=lambda: (0, driver_version[0]))
    monkeypatch.setattr(tvl1_cluster, "bindings", lambda: (driver, SimpleNamespace(nvrtcVersion=lambda: (0, 13, 2))))
    monkeypatch.setattr(tvl1_cluster, "compile_source", compile_once)
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    for _ in range(2):
        assert load_code(source(True), "sm_90") == b"code of sm_90"
    assert calls == {"sm_90": 1}
    load_code(source(True), "sm_100")
    driver_version[0] += 10
    load_code(source(True), "sm_90")
    load_code(source(False), "sm_90")
    assert calls == {"sm_90": 3, "sm_100": 1}
    kept = sorted((tmp_path / "home" / "kernels").iterdir())
    assert len(kept) == 4 and all(path.suffix == ".cubin" for path in kept), "nothing temporary is left"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "file"))
    assert load_code(source(True), "sm_90") == b"code of sm_90"
