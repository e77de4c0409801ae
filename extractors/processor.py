"""What this machine's processor is, as Linux tells it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

CPU = Path("/proc/cpuinfo")
NOTED = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimddp", "bf16", "i8mm")


def _told() -> list[str]:
    """What is said of the first core, a line a fact; nothing on another system."""
    with suppress(OSError):
        return CPU.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    return []


def _facts() -> dict[str, str]:
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in _told())}


def extensions() -> set[str]:
    """Instruction sets as Linux abbreviates them: avx512_vnni, amx_tile; none on another system."""
    facts = _facts()
    return set(f"{facts.get('flags', '')} {facts.get('Features', '')}".split())


def processor_lines() -> list[str]:
    """Model and instruction sets of the processor; nothing on another system."""
    return [line for line in _told() if line.startswith(("model name", "flags", "Features", "CPU part"))]


def about_processor() -> dict:
    """The name of the processor, and which instructions it has of those that networks gain by."""
    known = extensions()
    return {
        "processor": _facts().get("model name", ""),
        "extensions": [name for name in NOTED if name in known],
    }


def gains_by_bfloat16() -> bool:
    """Whether networks are faster in bfloat16 than in float32: with AMX, which multiplies tiles, and on AMD's AVX-512.

    The AVX-512 of an Intel Xeon multiplies bfloat16 too, but no faster than float32, and the conversions cost time. On
    AMD's, Zen 5, networks took half the time. What is not known, such as ARM, counts as not.
    """
    known = extensions()
    return "amx_bf16" in known or (_facts().get("vendor_id") == "AuthenticAMD" and "avx512_bf16" in known)
