"""CUDA C++ that is compiled where it runs, by NVRTC, and kept: no compiler need be installed.

NVRTC and the driver are called through cuda-bindings; torch's builds for CUDA bring both.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.errors import FlowError, first_line
from lstr.files.home import home

FOLDER = "kernels"  # of the home folder
CHECK = 4  # bytes of a file's sum, its first


@dataclass(frozen=True)
class CudaSource:
    """A source, and the headers that it includes by their names; it includes nothing else."""

    path: Path
    headers: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()

    def key(self, architecture: str, made_by: str) -> str:
        """What the compiled kernel depends on, as a hash; `made_by` names compiler and driver."""
        content = hashlib.sha256()
        for part in (*self.options, architecture, made_by, *(p.read_text() for p in (self.path, *self.headers))):
            content.update(part.encode() + b"\0")
        return content.hexdigest()


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel; what the compiler said of its registers and memory, unless it was `kept` from before."""

    code: bytes
    log: str = ""
    kept: bool = False


def bindings() -> tuple[Any, Any]:
    """NVRTC and the driver of cuda-bindings. Raises FlowError where they cannot be loaded."""
    try:
        from cuda.bindings import driver, nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # whatever a missing or foreign library raises, the kernel cannot be compiled
        raise FlowError(
            f"NVRTC, which compiles the CUDA kernel of TV-L1, cannot be loaded ({first_line(error)}).",
            "install torch's build for CUDA, which brings it, or cuda-bindings and nvidia-cuda-nvrtc.",
        ) from error
    return driver, nvrtc


def compiled(source: CudaSource, architecture: str) -> Cubin:
    """The source compiled for an architecture, such as sm_90; needs no GPU. Raises FlowError with what NVRTC said."""
    _, nvrtc = bindings()
    texts = [path.read_bytes() for path in source.headers]
    names = [path.name.encode() for path in source.headers]
    path = source.path
    program = checked(nvrtc.nvrtcCreateProgram(path.read_bytes(), path.name.encode(), len(names), texts, names))
    try:
        options = [option.encode() for option in (f"--gpu-architecture={architecture}", *source.options)]
        result = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace")
        log = log.rstrip("\0\n ")
        if int(result):
            reason = next((line for line in log.splitlines() if "error" in line), result.name)
            raise FlowError(f"NVRTC does not compile {path.name} for {architecture}: {reason}")
        return Cubin(_text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def compiled_or_kept(source: CudaSource, architecture: str) -> Cubin:
    """The same as `compiled`, kept under the home folder for every later process of the same compiler and driver.

    What is damaged is made again; where nothing can be written, each process compiles.
    """
    driver, nvrtc = bindings()
    made_by = f"{checked(nvrtc.nvrtcVersion())} {checked(driver.cuDriverGetVersion())}"
    path = home() / FOLDER / f"{source.path.stem}-{architecture}-{source.key(architecture, made_by)[:20]}.cubin"
    with suppress(OSError):
        content = path.read_bytes()
        if zlib.crc32(content[CHECK:]).to_bytes(CHECK, "little") == content[:CHECK]:
            return Cubin(content[CHECK:], kept=True)
    made = compiled(source, architecture)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.tmp-")
        try:
            with open(handle, "wb") as file:
                file.write(zlib.crc32(made.code).to_bytes(CHECK, "little") + made.code)
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    return made


def checked(returned: tuple[Any, ...]) -> Any:
    """What a call of cuda-bindings returned after its code: None, a value or a tuple. Raises FlowError for an error."""
    code, *values = returned
    if int(code):
        raise FlowError(f"CUDA answers {code.name}.")
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def _text(size_of: Callable[..., Any], get: Callable[..., Any], program: Any) -> bytes:
    size = checked(size_of(program))
    text = bytes(max(size, 2))  # NVRTC writes into it, and Python shares every single byte
    checked(get(program, text))
    return text[:size]
