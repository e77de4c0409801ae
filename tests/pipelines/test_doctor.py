"""What `lstr doctor` says of a GPU."""

import subprocess
import sys

import pytest
import torch

from lstr.extractors.flow import tvl1
from lstr.pipelines import doctor


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
