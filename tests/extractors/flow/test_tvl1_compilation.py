"""CUDA C++ compiled at first use: what is kept, when it is made again, and what is said when it cannot be."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from lstr.extractors.flow import tvl1_cluster
from lstr.extractors.flow.tvl1_cluster import load_code, source


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
