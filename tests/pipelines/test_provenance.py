"""What made a result."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lstr.pipelines.provenance import peak_memory_mb, peak_memory_of

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the memory of processes is asked of /proc"
)


def test_what_a_process_held_is_not_what_its_parent_held():
    held = np.ones(25_000_000)  # 200 MB
    waits = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        peak = peak_memory_of(Path(f"/proc/{child.pid}/status"))
        child.stdin.close()
    assert 2 < peak < 100
    assert peak_memory_mb() > held.nbytes / 1e6
