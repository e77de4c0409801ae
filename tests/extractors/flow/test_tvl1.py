"""The compiled TV-L1 kernel against OpenCV's DualTVL1OpticalFlow, here and on emulated 64-bit ARM."""

import numpy as np
import pytest

from lstr.extractors.flow import workers as flow
from tests.support.emulated_kernel import COMPILERS, EmulatedKernel, build_for_arm
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
def test_every_instruction_set_gives_opencvs_flow(name):
    """With AVX to the bit; without it a multiply-add rounds twice, and one rounding in 2^29 differs."""
    before, after = pair_of(name)
    theirs = opencv(before, after)
    for variant in flow.variants():
        ours = flow.native_flow(before, after, variant)
        assert ours.shape == theirs.shape and ours.dtype == np.float32
        if variant.startswith("avx"):
            assert np.array_equal(ours, theirs), variant
        assert distance(ours, theirs) < (NEAR if name in HARD else CLOSE)


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


@pytest.fixture(scope="module", params=COMPILERS, ids=lambda compiler: compiler[0])
def arm(request, tmp_path_factory) -> EmulatedKernel:
    return build_for_arm(tmp_path_factory.mktemp("arm"), request.param)


@opencv5
@pytest.mark.slow
@pytest.mark.parametrize("variant", ["plain", "neon"])
@pytest.mark.parametrize("name", [*EXACT, *HARD])
def test_arm_gives_opencvs_flow(arm, monkeypatch, name, variant):
    """For motion to the bit; elsewhere NEON rounds about one root in 10^8 differently, and the difference grows."""
    assert arm.variants() == ("plain", "neon")
    monkeypatch.setattr(flow, "_tvl1", arm)
    monkeypatch.setattr(flow, "_spare", [])
    before, after = pair_of(name)
    ours, theirs = flow.native_flow(before, after, variant), opencv(before, after)
    if name in EXACT or (variant == "plain" and name != "cut"):
        assert np.array_equal(ours, theirs)
    elif name == "cut":
        assert distance(ours, theirs) < NEAR
    else:
        assert np.isfinite(ours).all()
