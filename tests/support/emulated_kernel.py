"""The TV-L1 kernel compiled for 64-bit ARM and run in an emulator, with one process per scale."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lstr.extractors.flow import tvl1

SOURCES = Path(tvl1.__file__).resolve().parent
PROGRAM = Path(__file__).with_name("tvl1_program.c")
FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")  # as in setup.py
COMPILERS = (("aarch64-linux-gnu-gcc",), ("clang", "--target=aarch64-linux-gnu", "-fuse-ld=lld"))
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")


class EmulatedKernel:
    """Replaces the module `_tvl1`."""

    def __init__(self, command: Sequence[str], folder: Path):
        self._command, self._folder = command, folder

    def _run(self, *arguments: object) -> str:
        command = [*self._command, *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def variants(self) -> tuple[str, ...]:
        return tuple(self._run("variants").split())

    def workspace_size(self, w: int, h: int) -> int:
        return 0  # the program allocates its memory

    def solve_scale(self, i0, i1, u1, u2, workspace, w: int, h: int, variant: int) -> None:
        """Improve the flow (u1, u2) in place."""
        arguments, result = self._folder / "arguments", self._folder / "result"
        planes = (np.asarray(plane, np.float32) for plane in (i0, i1, u1, u2))
        arguments.write_bytes(np.array([w, h, variant], np.int32).tobytes() + b"".join(p.tobytes() for p in planes))
        self._run(arguments, result)
        u1[...], u2[...] = np.fromfile(result, np.float32).reshape(2, h, w)


def build_for_arm(folder: Path, compiler: Sequence[str]) -> EmulatedKernel:
    """Compile the kernel with one of COMPILERS; skip the test if the compiler or an emulator is missing."""
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if not emulator:
        pytest.skip(f"no emulator of 64-bit ARM: none of {', '.join(EMULATORS)}")
    if not shutil.which(compiler[0]):
        pytest.skip(f"no {compiler[0]}, which compiles for 64-bit ARM")
    program = folder / "tvl1"
    warnings = ("-Wall", "-Werror", "-Wno-pass-failed")  # Clang reports loops that it does not vectorise
    command = [*compiler, *FLAGS, *warnings, "-static", "-I", SOURCES, PROGRAM, "-o", program]
    subprocess.run(command, check=True)
    return EmulatedKernel((emulator, str(program)), folder)
