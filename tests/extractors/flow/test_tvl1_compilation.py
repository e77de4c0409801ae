"""CUDA C++ compiled at first use: what is kept, and when it is compiled again."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from lstr.extractors.flow import tvl1_cluster
from lstr.extractors.flow.tvl1_cluster import load_code, source


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
    (path,) = (tmp_path / "home" / "kernels").iterdir()
    path.write_bytes(path.read_bytes()[:-1])  # damaged
    for _ in range(2):
        assert load_code(source(True), "sm_90") == b"code of sm_90"
    assert calls == {"sm_90": 2}
    load_code(source(True), "sm_100")
    driver_version[0] += 10
    load_code(source(True), "sm_90")
    load_code(source(False), "sm_90")
    assert calls == {"sm_90": 4, "sm_100": 1}
    kept = sorted((tmp_path / "home" / "kernels").iterdir())
    assert len(kept) == 4 and all(path.suffix == ".cubin" for path in kept), "nothing temporary is left"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "file"))
    assert load_code(source(True), "sm_90") == b"code of sm_90"
