"""The compiled TV-L1 kernel against OpenCV's DualTVL1OpticalFlow, on rendered motion, real frames and hard inputs."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from lstr.extractors.flow import tvl1
from lstr.extractors.flow import workers as flow
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
@pytest.mark.parametrize("name", [*MOTIONS, *SIZES, *VIDEOS, *HARD])
def test_every_instruction_set_gives_opencvs_flow(name):
    before, after = pair_of(name)
    theirs = opencv(before, after)
    for variant in ("", *flow.variants()):
        ours = flow.native_flow(before, after, variant)
        assert ours.shape == theirs.shape and ours.dtype == np.float32
        if name in HARD:
            assert distance(ours, theirs) < NEAR
        else:
            assert distance(ours, theirs) < CLOSE
            assert np.abs(flow.to_bytes(ours).astype(int) - flow.to_bytes(theirs)).mean() <= 0.1


def compared(name: str, wires: np.ndarray) -> np.ndarray:
    """Wires (N, patterns) after the comparators that a macro of tvl1_median.h lists."""
    text = (Path(tvl1.__file__).parent / "tvl1_median.h").read_text().replace("\\\n", "")
    (macro,) = re.findall(rf"#define {name} +(.*)", text)
    wires = wires.copy()
    for kind, i, j in re.findall(r"(\w+)\((\d+), (\d+)\)", macro):
        a, b = wires[int(i)].copy(), wires[int(j)].copy()
        if kind != "HIGH":
            wires[int(i)] = np.minimum(a, b)
        if kind != "LOW":
            wires[int(j)] = np.maximum(a, b)
    return wires


def test_comparators_of_two_medians_on_all_zeros_and_ones():
    """Which proves them for all values: four sorted rows, merged two by two, then the middle of both."""
    ones = np.array(list(itertools.product(range(6), repeat=4))).T  # (4, patterns)
    rows = (np.arange(5)[:, None] >= 5 - ones[:, None]).astype(int)  # (4, 5, patterns), each sorted
    pairs = [
        compared("MERGE_ROWS", np.concatenate([one, other[[1, 2, 3, 0, 4]]])) for one, other in (rows[:2], rows[2:])
    ]
    assert all((np.diff(pair, axis=0) >= 0).all() for pair in pairs)
    middle = compared("FIND_MIDDLE", np.concatenate(pairs))[[7, 8, 9, 12, 13, 14]]
    assert np.array_equal(middle, np.sort(rows.reshape(20, -1), axis=0)[7:13])


@pytest.mark.parametrize("variant", flow.variants())
def test_what_the_memory_held_before_does_not_matter(variant, monkeypatch):
    """It is used again and never cleared as a whole; NaN anywhere would spread."""
    before, after = moved(50, 71, dx=1.5, degrees=1.0, seed=10)
    clean = flow.native_flow(before, after, variant)
    used = flow.Scratch(50, 71)
    used.kernel.fill(0xFF)
    used.flow.fill(np.nan)
    monkeypatch.setattr(flow, "_spare", [used])
    assert np.array_equal(flow.native_flow(before, after, variant), clean)
    assert flow._spare == [used]
