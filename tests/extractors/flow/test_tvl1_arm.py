"""The compiled TV-L1 kernel on 64-bit ARM, as GCC and Clang make it, run by an emulator: against OpenCV here."""

import numpy as np
import pytest

from lstr.extractors.flow import workers
from tests.support.emulated_kernel import COMPILERS, EmulatedKernel, build_for_arm
from tests.support.flow_frames import MOTIONS, NEAR, distance, needs_kernel, opencv, opencv5, pair_of

pytestmark = [pytest.mark.slow, needs_kernel]
EXACT = (*MOTIONS, "16x17", "33x16", "47x33", "64x257", "seq01", "fall-01")


@pytest.fixture(scope="module", params=COMPILERS, ids=lambda compiler: compiler[0])
def arm(request, tmp_path_factory) -> EmulatedKernel:
    return build_for_arm(tmp_path_factory.mktemp("arm"), request.param)


@opencv5
@pytest.mark.parametrize("variant", ["plain", "neon"])
@pytest.mark.parametrize("name", [*EXACT, "cut", "black to noise", "noise to white", "checks to saturated"])
def test_opencvs_flow(arm, monkeypatch, name, variant):
    """To the bit for motion; otherwise NEON, as AVX2, rounds about one root in 10^8 differently, and that grows."""
    assert arm.variants() == ("plain", "neon")
    monkeypatch.setattr(workers, "_tvl1", arm)
    monkeypatch.setattr(workers, "_spare", [])
    before, after = pair_of(name)
    ours, theirs = workers.native_flow(before, after, variant), opencv(before, after)
    if name in EXACT or (variant == "plain" and name != "cut"):
        assert np.array_equal(ours, theirs)
    elif name == "cut":
        assert distance(ours, theirs) < NEAR
    else:
        assert np.isfinite(ours).all()
