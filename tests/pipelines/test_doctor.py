"""What `lstr doctor` says of a GPU."""

import subprocess
import sys

import pytest
import torch

from lstr.extractors.errors import FlowError
from lstr.extractors.flow import tvl1, tvl1_solvers
from lstr.extractors.flow.tvl1_solvers import Solver
from lstr.pipelines import doctor
from lstr.pipelines.doctor import Finding

WHAT = "optical flow on the GPU"


@pytest.fixture
def kernels(monkeypatch):
    """A GPU whose kernel is the Solver, or the error, of the test."""

    def answer(found) -> list[Finding]:
        def open_solver(device):
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(tvl1_solvers, "open_solver", open_solver)
        return list(doctor._gpu_flow())

    return answer


def test_a_gpu_says_which_kernel_solved_a_pair(kernels):
    found = "TV-L1 by the cluster kernel (CUDA C++ for sm_90); one pair of 16x16 pixels solved"
    assert kernels(Solver("cluster", None, "CUDA C++ for sm_90")) == [Finding(WHAT, True, found)]


def test_why_not_another_kernel_is_said(kernels):
    (found,) = kernels(Solver("triton", None, "Triton 3.9.0", lacking=(FlowError("No NVRTC.", "install it."),)))
    assert found.ok and "triton kernel (Triton 3.9.0)" in found.found
    assert found.hint == "No NVRTC. Triton computes flow instead. install it."


def test_a_gpu_without_kernels_is_no_failure(kernels):
    error = FlowError("No kernel of TV-L1 runs on this GPU.", "use --set flow_backend=native.")
    assert kernels(error) == [Finding(WHAT, None, str(error), error.hint)]


def test_without_a_gpu_there_is_nothing_to_say(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert list(doctor._gpu_flow()) == []


@pytest.mark.parametrize("cuda", ["13.2", None])
def test_without_a_gpu_the_build_of_torch_is_named(monkeypatch, cuda):
    """The one for GPUs, with the bytes that it takes for nothing, and what to read; it is no failure."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(doctor, "_unused", lambda: 4_283_000_000)
    found = doctor._gpu()
    assert found.ok is None and found.found.startswith("none; ")
    if cuda:
        assert found.found.endswith("torch is the build for CUDA 13.2, of which 4.3 GB are unused here")
        assert "docs/how-to/install.md" in found.hint and found.found in doctor.notes()
    else:
        assert not found.hint
    assert doctor.notes().count("note: GPU") == bool(cuda)


@pytest.mark.parametrize("system, compiler", [("linux", "apt install gcc"), ("darwin", "xcode-select --install")])
def test_who_has_no_compiled_kernel_is_told_at_the_installation(monkeypatch, system, compiler):
    monkeypatch.setattr(tvl1, "_tvl1", None)
    monkeypatch.setattr(doctor.sys, "platform", system)
    (note,) = (line for line in doctor.notes().splitlines() if "optical flow" in line)
    assert "TV-L1 of OpenCV" in note and compiler in note


def test_what_is_unused_is_counted():
    """By what the packages themselves list."""
    assert doctor._unused() > 1e9 if torch.version.cuda else doctor._unused() >= 0


@pytest.mark.long
def test_it_does_not_import_torchvision():
    """Which takes longer than all else that is looked at."""
    code = "import sys; from lstr.pipelines.doctor import examine; examine(); sys.exit('torchvision' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("libGL.so.1: cannot open shared object file: No such file or directory", "apt install libgl1"),
        ("No module named 'cv2'", "make clean install"),
    ],
)
def test_a_library_of_the_system_that_is_missing_is_named(error, words):
    def check():
        raise ImportError(error)

    found = doctor._try("optical flow", check)
    assert found.ok is False and found.found == error and words in found.hint
