"""Which TV-L1 kernel a GPU uses, and the errors of kernels that fail."""

from contextlib import nullcontext

import pytest
import torch

from lstr.errors import FlowError
from lstr.extractors.flow import tvl1_gpu, workers
from lstr.extractors.flow.tvl1_cluster import source
from lstr.extractors.flow.tvl1_gpu import OPENERS, PAIR_FLOW, Solver, open_solver, small_pair, try_pair
from lstr.extractors.flow.workers import FlowWorkers
from tests.support.flow_frames import compiled_solve, needs_kernel

CPU = torch.device("cpu")
HINT = "LSTR_FLOW_BACKEND=native"


@needs_kernel
def test_reference_flow_of_the_small_pair():
    i0, i1 = small_pair()
    flow = workers.native_flow(i0.byte().numpy(), i1.byte().numpy())
    assert flow.mean((0, 1)) == pytest.approx(PAIR_FLOW, abs=1e-5)
    assert torch.equal(i0.byte().float(), i0), "whole grey levels"
    try_pair(Solver("cluster", compiled_solve), CPU)
    for error in (1, float("nan")):
        with pytest.raises(FlowError, match="cluster"):
            try_pair(Solver("cluster", lambda i0, i1, u, error=error: u + error), CPU)


@needs_kernel
@pytest.mark.parametrize("error", [None, FlowError("NVRTC cannot be loaded."), RuntimeError("no image\nmore lines")])
def test_triton_replaces_a_kernel_that_fails(error, monkeypatch):
    """On a simulated GPU that computes on the CPU."""

    def open_cluster(device):
        if error:
            raise error
        return Solver("cluster", compiled_solve)

    openers = {"cluster": open_cluster, "triton": lambda device: Solver("triton", compiled_solve)}
    monkeypatch.setattr(tvl1_gpu, "OPENERS", openers)
    monkeypatch.setattr(tvl1_gpu, "_opened", {})
    monkeypatch.setattr(tvl1_gpu, "try_pair", lambda solver, device: try_pair(solver, CPU))
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
        assert (HINT in caught.value.hint) == (name != "clusters")
    with pytest.raises(FlowError, match="cpu") as caught:
        open_solver("cpu")
    assert HINT in caught.value.hint
    monkeypatch.setattr(workers, "has_gpu", lambda: True)
    with pytest.raises(FlowError):  # here and not in a thread
        FlowWorkers(1, backend="cuda", device="cuda:0")


def test_compiled_code_is_stored_per_architecture_compiler_and_options():
    keys = {source(c).key(name, driver) for c in (True, False) for name in ("sm_90", "sm_100") for driver in "12"}
    assert len(keys) == 8 and source(True).key("sm_90", "1") in keys
