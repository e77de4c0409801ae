"""Findings of `lstr doctor` about a missing GPU, kernel or library."""

import pytest
import torch

from lstr.extractors.flow import workers
from lstr.pipelines import doctor


@pytest.mark.parametrize("cuda", ["13.2", None])
def test_a_missing_gpu_names_the_build_of_torch(monkeypatch, cuda):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    finding = doctor.check_gpu()
    assert finding.ok is None and bool(finding.hint) == bool(cuda) == ("13.2" in finding.found)
    assert doctor.notes().count("note: GPU") == bool(cuda)


@pytest.mark.parametrize("system, compiler", [("linux", "apt install gcc"), ("darwin", "xcode-select --install")])
def test_a_missing_kernel_names_the_compiler(monkeypatch, system, compiler):
    monkeypatch.setattr(workers, "_tvl1", None)
    monkeypatch.setattr(doctor.sys, "platform", system)
    assert compiler in doctor.notes()


@pytest.mark.parametrize(
    ("error", "command"), [("libGL.so.1: cannot open shared object file", "apt install libgl1"), ("cv2", "make")]
)
def test_a_missing_library_names_its_package(error, command):
    def fail():
        raise ImportError(error)

    finding = doctor.check("optical flow", fail)
    assert finding.ok is False and finding.found == error and command in finding.hint
