"""Devices that networks run on: the CPU and its instruction sets, or a GPU. Imports torch only for a GPU."""

import ctypes
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

from lstr.errors import DeviceError

GPU_READERS = 3  # videos read at once for a GPU, which computes faster than one reader decodes; not measured
CPU = Path("/proc/cpuinfo")
NOTED = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimddp", "bf16", "i8mm")
# Held by a process while it captures a CUDA graph: PyTorch captures one at a time.
CAPTURING = Lock()

LEAVE_OUT = "set LSTR_DEVICE=cpu to run on the processor; `lstr doctor` shows what this machine has."


def has_gpu() -> bool:
    """Return whether torch finds a usable GPU. Without a GPU driver, torch is not imported, which is slow."""
    if sys.platform == "linux" and not Path("/dev/kfd").exists():  # AMD's
        try:
            ctypes.CDLL("libcuda.so.1")  # what CUDA itself looks for
        except OSError:
            return False
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def fast_precision(device: str) -> str:
    """Return `bf16` where networks are faster in it on this device, else `float32`.

    Processors gain by it with AMX, which multiplies tiles, and on AMD's AVX-512. The AVX-512 of an Intel Xeon
    multiplies bfloat16 too, but no faster than float32, and the conversions cost time. On AMD's, Zen 5, networks took
    half the time. Unknown processors, such as ARM's, use float32.
    """
    if device == "cpu":
        is_amd = _facts().get("vendor_id") == "AuthenticAMD"
        gains = "amx_bf16" in extensions() or (is_amd and "avx512_bf16" in extensions())
        return "bf16" if gains else "float32"
    import torch

    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"


def choose_device(wanted: str | None) -> str:
    """Return an available torch device: `wanted` (cpu, cuda or cuda:N), else $LSTR_DEVICE, else the GPU or the CPU.

    Raises DeviceError for one that this machine or this build of torch lacks, and for any other name.
    """
    wanted = wanted or os.environ.get("LSTR_DEVICE")
    if wanted is None:
        return "cuda" if has_gpu() else "cpu"
    if wanted == "cpu":
        return wanted
    kind, _, number = wanted.partition(":") if isinstance(wanted, str) else ("", "", "")
    if kind != "cuda" or (number and not number.isdecimal()) or wanted.endswith(":"):
        raise DeviceError(f"{wanted!r} is not a device for networks on this machine.", "choose cpu, cuda or cuda:N.")
    reason, hint = "torch is not installed", LEAVE_OUT
    if find_spec("torch") is not None:
        import torch

        if not torch.version.cuda and not torch.version.hip:
            reason = "the installed torch is a CPU-only build"
            hint += " https://pytorch.org/get-started lists the GPU builds."
        elif not torch.cuda.is_available():
            reason = "torch finds no usable GPU"
        elif number and int(number) >= torch.cuda.device_count():
            reason = f"this machine has {torch.cuda.device_count()}, counted from 0"
        else:
            return wanted
    raise DeviceError(f"Device {wanted} is not available: {reason}.", hint)


def extensions() -> set[str]:
    """Return the CPU's instruction sets as Linux abbreviates them, such as avx512_vnni; empty on other systems."""
    facts = _facts()
    return set(f"{facts.get('flags', '')} {facts.get('Features', '')}".split())


def about_processor() -> dict:
    """Return the name of the processor, and which of the instruction sets that speed up networks it has."""
    known = extensions()
    return {"processor": _facts().get("model name", ""), "extensions": [name for name in NOTED if name in known]}


def _facts() -> dict[str, str]:
    """Return Linux's description of the first core, by property; empty on other systems."""
    with suppress(OSError):
        lines = CPU.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
