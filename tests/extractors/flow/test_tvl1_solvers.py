"""Which kernel a GPU takes, what is said when one does not run, and that each is tried before it is used."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest
import torch

from lstr.errors import FlowError
from lstr.extractors.flow import tvl1_gpu, workers
from lstr.extractors.flow.tvl1_gpu import PAIR_FLOW, Solver, open_solver, small_pair, try_pair
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.lanes import open_lane
from tests.support.flow_frames import compiled_solve

pytestmark = pytest.mark.skipif(not workers.has_native(), reason="the compiled kernel was not built")
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")


def wrong(i0, i1, u):
    return u + 1


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


def test_a_gpu_takes_our_kernel_first(gpu):
    opened = gpu(cluster=compiled_solve, triton=compiled_solve)
    solver = open_solver("cuda")
    assert solver.name == "cluster" and solver.warnings == [] and opened == ["cluster"]
    open_solver(CUDA)
    assert opened == ["cluster"], "it is compiled and tried once"


@pytest.mark.parametrize(
    "fault, said",
    [
        (FlowError("NVRTC cannot be loaded (no such file)."), "NVRTC cannot be loaded (no such file)."),
        (RuntimeError("CUDA error: no image\nmore lines"), "The cluster kernel of TV-L1 fails: CUDA error: no image."),
        (wrong, "The cluster kernel of TV-L1 computes a different flow from OpenCV."),
        (lambda i0, i1, u: u * float("nan"), "The cluster kernel of TV-L1 computes a different flow from OpenCV."),
    ],
)
def test_triton_stands_in_and_says_why(fault, said, gpu):
    opened = gpu(cluster=fault, triton=compiled_solve)
    assert open_solver("cuda").name == "triton"
    assert open_solver("cuda").warnings == [f"{said} Triton computes flow instead."]
    assert opened == ["cluster", "triton"], "what has failed is not tried again"


def test_no_kernel_is_an_error_with_a_way_out(gpu):
    """Not the compiled_solve, which would need seconds for each chunk and look as if it hung."""
    gpu(cluster=FlowError("No NVRTC."), triton=OSError("no C compiler"))
    with pytest.raises(FlowError, match=r"No NVRTC. The triton kernel of TV-L1 fails: no C compiler.") as caught:
        open_solver("cuda")
    assert "LSTR_FLOW_BACKEND=native" in caught.value.hint


def test_the_environment_names_a_kernel(gpu, monkeypatch):
    gpu(cluster=RuntimeError("no such thing"), triton=compiled_solve)
    monkeypatch.setenv("LSTR_FLOW_KERNEL", "triton")
    assert open_solver("cuda") == Solver("triton", compiled_solve, "triton for a test")
    monkeypatch.setenv("LSTR_FLOW_KERNEL", "cluster")
    with pytest.raises(FlowError, match="no such thing") as caught:
        open_solver("cuda")
    assert "unset LSTR_FLOW_KERNEL" in caught.value.hint
    monkeypatch.setenv("LSTR_FLOW_KERNEL", "clusters")
    with pytest.raises(FlowError, match="'clusters', not one of cluster, triton"):
        open_solver("cpu")


def test_a_processor_has_the_compiled_kernel_instead():
    with pytest.raises(FlowError, match="No kernel of TV-L1 in torch runs on cpu") as caught:
        open_solver("cpu")
    assert "LSTR_FLOW_BACKEND=native" in caught.value.hint


def test_workers_fail_where_they_are_made(gpu, monkeypatch):
    """Not in a thread, chunks later; and what stands in is said by who made them."""
    monkeypatch.setattr("lstr.extractors.devices.has_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    gpu(cluster=FlowError("No NVRTC."), triton=FlowError("Triton is not installed."))
    threads = threading.active_count()
    with pytest.raises(FlowError, match="No NVRTC. Triton is not installed."):
        FlowWorkers(1, backend="cuda")
    assert threading.active_count() == threads
    gpu(cluster=FlowError("No NVRTC."), triton=compiled_solve)
    monkeypatch.setattr("lstr.extractors.lanes.open_lane", lambda device: open_lane("cpu"))
    with FlowWorkers(1, backend="cuda") as made:
        assert made.warnings == ["No NVRTC. Triton computes flow instead."]
    with FlowWorkers(1) as made:
        assert made.warnings == [] and workers.choose_backend() in made.backend
