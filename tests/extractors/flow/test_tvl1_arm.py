"""The compiled TV-L1 kernel on 64-bit ARM, as GCC and Clang make it, run by an emulator: against OpenCV here."""

import numpy as np
import pytest

from lstr.extractors.flow import workers
from tests.extractors.flow.test_tvl1 import (
    BOUND,
    MOTIONS,
    distance,
    moved,
    opencv,
    opencv5,
    real_frames,
    texture,
    turn,
)
from tests.support.emulated_kernel import COMPILERS, EmulatedKernel, build_for_arm
from tests.support.flow_frames import hard_frames

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not workers.has_native(), reason="the compiled kernel extractors/flow/_tvl1 was not built"),
]
VARIANTS = ("plain", "neon")


@pytest.fixture(scope="module", params=COMPILERS, ids=lambda compiler: compiler[0])
def arm(request, tmp_path_factory) -> EmulatedKernel:
    return build_for_arm(tmp_path_factory.mktemp("arm"), request.param)


@pytest.fixture
def flow_on_arm(arm, monkeypatch):
    """`workers.native_flow` with the emulated kernel; pyramids are made here."""

    def flow(before: np.ndarray, after: np.ndarray, variant: str) -> np.ndarray:
        with monkeypatch.context() as patch:
            patch.setattr(workers, "_tvl1", arm)
            patch.setattr(workers, "_spare", [])
            return workers.native_flow(before, after, variant)

    return flow


def test_neon_is_what_such_a_processor_uses(arm):
    assert arm.variants() == VARIANTS


@opencv5
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("motion", MOTIONS)
def test_opencvs_flow_of_a_moving_texture_to_the_bit(flow_on_arm, motion, variant):
    before, after, _ = moved(120, 160, MOTIONS[motion])
    assert np.array_equal(flow_on_arm(before, after, variant), opencv(before, after))


@opencv5
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("h, w", [(16, 17), (33, 16), (47, 33), (64, 257)])
def test_opencvs_flow_at_odd_and_small_sizes_to_the_bit(flow_on_arm, h, w, variant):
    before, after, _ = moved(h, w, turn(dx=1.0, dy=-0.5), seed=h)
    assert np.array_equal(flow_on_arm(before, after, variant), opencv(before, after))


@opencv5
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "video, w, h", [("ut_interaction/videos/seq01.mp4", 320, 180), ("urfall/videos/fall-01.mp4", 320, 240)]
)
def test_opencvs_flow_of_real_frames_to_the_bit(flow_on_arm, video, w, h, variant):
    before, after = real_frames(video, 60, 2, w, h)
    assert np.array_equal(flow_on_arm(before, after, variant), opencv(before, after))


@opencv5
@pytest.mark.parametrize("variant", VARIANTS)
def test_near_opencv_across_a_cut(flow_on_arm, variant):
    """No motion explains it: NEON, as AVX2, rounds about one root in 10^8 otherwise, and that grows."""
    before, after = (np.rint(texture(64, 96, seed)).astype(np.uint8) for seed in (11, 12))
    assert distance(flow_on_arm(before, after, variant), opencv(before, after)) < BOUND


@opencv5
@pytest.mark.parametrize("before, after", [("black", "noise"), ("noise", "white"), ("checks", "saturated")])
def test_hard_frames(flow_on_arm, before, after):
    """To the bit without NEON; with it a rounding may grow to any size, and the flow stays finite."""
    before, after = hard_frames(50, 61)[before], hard_frames(50, 61)[after]
    assert np.array_equal(flow_on_arm(before, after, "plain"), opencv(before, after))
    assert np.isfinite(flow_on_arm(before, after, "neon")).all()
