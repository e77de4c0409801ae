"""Memory that a training gives back and asks for again at once, kept in between.

glibc returns large blocks to the system when they are freed, and the system clears each page of them when it is touched
again: on a processor a training step frees and touches hundreds of thousands of pages.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # names of glibc's settings (malloc.h)
NEVER = -1
USUAL = {MMAP_MAX: 65536, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
"""What glibc itself comes to in a program that has once freed a block of 32 MB."""
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Variables by which a person says how memory is to be kept."""


@contextmanager
def kept_memory(device: str = "cpu") -> Iterator[bool]:
    """Keep freed memory for what comes next, and give it back at the end; whether that is done.

    On a processor with glibc alone, and not where the person who started this has chosen otherwise.
    """
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if device != "cpu" or not hasattr(library, "gnu_get_libc_version") or any(name in os.environ for name in OWN):
        yield False
        return
    assert library
    kept = library.mallopt(MMAP_MAX, 0) and library.mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield bool(kept)
    finally:
        for name, value in USUAL.items():
            library.mallopt(name, value)
        library.malloc_trim(0)
