"""The compiled TV-L1 kernel against OpenCV's DualTVL1OpticalFlow, here and on emulated 64-bit ARM."""

import numpy as np
import pytest

from lstr.extractors.flow import workers as flow
from tests.support.emulated_kernel import COMPILERS, build_for_arm
from tests.support.flow_frames import (
    CLOSE,
    MOTIONS,
    NEAR,
    VIDEOS,
    distance,
    moved,
    needs_kernel,
    opencv,
    opencv5,
    pair_of,
)

pytestmark = needs_kernel
SIZES = ("16x16", "16x17", "33x16", "19x31", "47x33", "77x101", "64x257", "130x79")
HARD = ("black to noise", "noise to white", "checks to saturated", "cut")


@opencv5
@pytest.mark.parametrize("name", [*MOTIONS, *SIZES, *VIDEOS, *HARD, "doubtful root"])
def test_flow_equals_opencvs(name):
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
def test_flow_on_arm_equals_opencvs(compiler, tmp_path, monkeypatch):
    """For motion to the bit; elsewhere NEON rounds about one root in 10^8 differently, and the difference grows."""
    monkeypatch.setattr(flow, "_tvl1", build_for_arm(tmp_path, compiler))
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
