"""Memory that is kept while a network trains."""

import resource
import sys

import numpy as np
import pytest

from lstr.pipelines.training.loop import kept_memory


def page_faults(n: int) -> int:
    """Of blocks that are made and freed, in this thread: others of earlier tests may still be at work."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(n):
        np.ones(48 << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc alone")
def test_blocks_are_used_again(monkeypatch):
    for name in ("GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    with kept_memory() as kept:
        if not kept:
            pytest.skip("no glibc")
        page_faults(1)
        assert page_faults(4) < 1000
    with kept_memory("cuda") as kept:
        assert not kept
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    with kept_memory() as kept:
        assert not kept
