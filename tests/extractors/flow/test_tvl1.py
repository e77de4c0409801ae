"""The compiled TV-L1 kernel against OpenCV's DualTVL1OpticalFlow, here and on emulated 64-bit ARM."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lstr.extractors.flow import tvl1
from lstr.extractors.flow import workers as flow
from tests.support.flow_frames import (
    distance,
    grey_of,
    hard_frames,
    moved,
    needs_kernel,
    opencv,
    opencv5,
    real_frames,
    texture,
)
from tests.support.processes import check_process

CLOSE, NEAR = 1e-5, 1e-2
"""Mean end-point difference to OpenCV in pixels: for motion, and for frames where rounding errors grow"""
MOTIONS = {
    "translation": dict(dx=2.5, dy=-1.25),
    "large translation": dict(dx=-6.0, dy=3.0),
    "rotation": dict(degrees=2.0),
    "zoom": dict(scale=1.03),
}
VIDEOS = {  # file, first frame, and size
    "seq01": ("ut_interaction/videos/seq01.mp4", 60, (320, 180)),
    "seq04": ("ut_interaction/videos/seq04.mp4", 60, (320, 180)),
    "fall-01": ("urfall/videos/fall-01.mp4", 60, (320, 180)),
    "doubtful root": ("ut_interaction/videos/seq07.mp4", 3, (340, 256)),  # its rounding grows to 4e-4 pixels
}


@pytest.fixture
def pair_of(request):
    """Return two frames by name: a motion, a size such as 47x33, a video, "cut", or two of hard_frames."""

    def pair(name: str) -> list[np.ndarray]:
        if name in MOTIONS:
            return moved(120, 160, **MOTIONS[name])
        if name in VIDEOS:
            file, start, size = VIDEOS[name]
            return grey_of(real_frames(request.getfixturevalue("shared") / "data" / file, start, 2, size))
        if name == "cut":  # samples too far apart for a register; the number of iterations is close to a limit
            return [np.rint(texture(64, 96, seed)).astype(np.uint8) for seed in (11, 12)]
        if " to " in name:
            return [hard_frames(50, 61)[part] for part in name.split(" to ")]
        h, w = map(int, name.split("x"))
        return moved(h, w, dx=1.0, dy=-0.5, seed=h)

    return pair


FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")  # as in setup.py
COMPILERS = (("aarch64-linux-gnu-gcc",), ("clang", "--target=aarch64-linux-gnu", "-fuse-ld=lld"))
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")


def emulated_kernel(command: tuple[str | Path, ...], folder: Path) -> SimpleNamespace:
    """Return a replacement of the module `_tvl1`: a program that allocates its own memory."""

    def solve_scale(i0, i1, u1, u2, workspace, w: int, h: int, variant: int) -> None:
        arguments, result = folder / "arguments", folder / "result"
        planes = (np.asarray(plane, np.float32) for plane in (i0, i1, u1, u2))
        arguments.write_bytes(np.array([w, h, variant], np.int32).tobytes() + b"".join(p.tobytes() for p in planes))
        check_process(*command, arguments, result)
        u1[...], u2[...] = np.fromfile(result, np.float32).reshape(2, h, w)

    variants = tuple(check_process(*command, "variants").split())
    return SimpleNamespace(variants=lambda: variants, workspace_size=lambda w, h: 0, solve_scale=solve_scale)


pytestmark = needs_kernel
SIZES = ("16x16", "16x17", "33x16", "19x31", "47x33", "77x101", "64x257", "130x79")
HARD = ("black to noise", "noise to white", "checks to saturated", "cut")


@opencv5
@pytest.mark.parametrize(
    "name",
    [
        *(*MOTIONS, *SIZES, "seq01", "cut"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("seq04", "fall-01", *HARD[:3], "doubtful root")),
    ],
)
def test_flow_equals_opencvs(name, pair_of):
    """With AVX to the bit; without it a multiply-add rounds twice, and one rounding in 2^29 differs."""
    before, after = pair_of(name)
    expected = opencv(before, after)
    for variant in flow.variants():
        field = flow.native_flow(before, after, variant)
        assert field.shape == expected.shape and field.dtype == np.float32
        assert np.array_equal(field, expected) or not variant.startswith("avx"), variant
        assert distance(field, expected) < (NEAR if name in HARD else CLOSE)


@pytest.mark.parametrize("variant", flow.variants())
def test_reused_memory_does_not_affect_the_flow(variant, monkeypatch):
    """The kernel reuses its memory without clearing it; a stray NaN would spread."""
    before, after = moved(50, 71, dx=1.5, degrees=1.0, seed=10)
    clean = flow.native_flow(before, after, variant)
    scratch = flow.Scratch(50, 71)
    scratch.kernel.fill(0xFF)
    scratch.flow.fill(np.nan)
    monkeypatch.setattr(flow, "_spare", [scratch])
    assert np.array_equal(flow.native_flow(before, after, variant), clean)


EXACT = (*MOTIONS, "16x17", "33x16", "47x33", "64x257", "seq01", "fall-01")


@opencv5
@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS, ids=lambda compiler: compiler[0])
def test_flow_on_arm_equals_opencvs(compiler, pair_of, tmp_path, monkeypatch):
    """For motion to the bit; elsewhere NEON rounds about one root in 10^8 differently, and the difference grows."""
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if not emulator:
        pytest.skip(f"no emulator of 64-bit ARM: none of {', '.join(EMULATORS)}")
    if not shutil.which(compiler[0]):
        pytest.skip(f"no {compiler[0]}, which compiles for 64-bit ARM")
    program, sources = tmp_path / "tvl1", Path(tvl1.__file__).resolve().parent
    warnings = ("-Wall", "-Werror", "-Wno-pass-failed")  # Clang reports loops that it does not vectorise
    files = ("-static", "-I", sources, Path(__file__).with_name("tvl1_program.c"), "-o", program)
    check_process(*compiler, *FLAGS, *warnings, *files)
    monkeypatch.setattr(flow, "_tvl1", emulated_kernel((emulator, program), tmp_path))
    monkeypatch.setattr(flow, "_spare", [])
    assert flow.variants() == ("plain", "neon")
    for name in (*EXACT, *HARD):
        before, after = pair_of(name)
        expected = opencv(before, after)
        for variant in flow.variants():
            field = flow.native_flow(before, after, variant)
            if name in EXACT or (variant == "plain" and name != "cut"):
                assert np.array_equal(field, expected), (name, variant)
            else:
                assert distance(field, expected) < NEAR if name == "cut" else np.isfinite(field).all(), (name, variant)
