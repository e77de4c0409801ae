"""CUDA C++ compiled at first use: what is kept, when it is made again, and what is said when it cannot be."""

from __future__ import annotations

import configparser
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from lstr.errors import FlowError
from lstr.extractors.flow import tvl1_cluster
from lstr.extractors.flow.tvl1_cluster import CudaSource, bindings, compile_source, load_code, source
from tests.support.host_kernel import need_nvrtc


@pytest.mark.long
def test_what_does_not_compile_is_named(tmp_path):
    need_nvrtc()
    broken = tmp_path / "broken.cu"
    broken.write_text('extern "C" __global__ void f() { nothing(); }')
    with pytest.raises(FlowError, match=r"does not compile broken.cu for sm_90: broken.cu\(1\): error"):
        compile_source(CudaSource(broken), "sm_90")


@pytest.fixture
def compiler(monkeypatch) -> SimpleNamespace:
    """A compiler and a driver that answer without a GPU; `calls` counts what was compiled."""
    made = SimpleNamespace(calls=Counter(), driver_version=13000)

    def compile_once(source, architecture):
        made.calls[architecture] += 1
        return b"code of " + architecture.encode(), ""

    driver = SimpleNamespace(cuDriverGetVersion=lambda: (0, made.driver_version))
    monkeypatch.setattr(tvl1_cluster, "bindings", lambda: (driver, SimpleNamespace(nvrtcVersion=lambda: (0, 13, 2))))
    monkeypatch.setattr(tvl1_cluster, "compile_source", compile_once)
    return made


def test_a_compiled_kernel_is_kept(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    for _ in range(2):
        assert load_code(source(True), "sm_90") == b"code of sm_90"
    assert compiler.calls["sm_90"] == 1
    load_code(source(True), "sm_100")
    compiler.driver_version += 10
    load_code(source(True), "sm_90")
    load_code(source(False), "sm_90")
    assert compiler.calls == {"sm_90": 3, "sm_100": 1}
    kept = sorted((tmp_path / "home" / "kernels").iterdir())
    assert len(kept) == 4 and all(path.suffix == ".cubin" for path in kept), "nothing temporary is left"


def test_a_damaged_kernel_is_compiled_again(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("LSTR_HOME", str(tmp_path))
    load_code(source(True), "sm_90")
    (path,) = (tmp_path / "kernels").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):
        assert load_code(source(True), "sm_90") == b"code of sm_90"
    assert compiler.calls["sm_90"] == 2


def test_a_home_that_cannot_be_written_costs_a_compilation_only(compiler, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert load_code(source(True), "sm_90") == b"code of sm_90"
    assert compiler.calls["sm_90"] == 2


def test_bindings_that_are_missing_are_a_typed_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(FlowError, match="NVRTC, which compiles the CUDA kernel of TV-L1, cannot be loaded") as caught:
        bindings()
    assert "cuda-bindings" in caught.value.hint


def test_an_installation_has_the_source():
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[3] / "setup.cfg")
    packaged = setup["options.package_data"]["lstr.extractors.flow"].split(", ")
    kernel = source(True)
    for path in (kernel.path, *kernel.headers):
        assert any(path.match(pattern) for pattern in packaged), path.name
    assert re.findall(r'^#include "(.+)"', kernel.path.read_text(), re.M) == [path.name for path in kernel.headers]
