"""The processor of this machine: its name and what it multiplies by itself, as Linux tells."""

from contextlib import suppress
from functools import cache
from pathlib import Path

CPU = Path("/proc/cpuinfo")


def processor_lines() -> list[str]:
    """Model and instruction sets of the processor, as Linux names them; nothing on another system."""
    with suppress(OSError):
        lines = CPU.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        return [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return []


@cache
def instruction_sets() -> frozenset[str]:
    """What the processor can, as Linux abbreviates it: avx512_bf16, amx_tile; nothing on another system."""
    lines = (line.partition(":") for line in processor_lines())
    return frozenset(
        word for name, _, words in lines if name.strip() in ("flags", "Features") for word in words.split()
    )
