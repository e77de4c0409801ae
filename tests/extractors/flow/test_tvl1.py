"""The compiled TV-L1 kernel against OpenCV's DualTVL1OpticalFlow, on rendered motion, real frames and hard inputs."""

import itertools
import os
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from lstr.extractors.flow import tvl1
from lstr.extractors.flow import workers as flow
from tests.support.flow_frames import hard_frames

pytestmark = pytest.mark.skipif(
    not flow.has_native(),
    reason="the compiled kernel extractors/flow/_tvl1 was not built (no C compiler at install)",
)

SHARED = Path(os.environ.get("LSTR_SHARED", Path(__file__).parents[4] / "shared"))
AIM = 1e-5  # pixels, mean end-point difference to OpenCV
BOUND = 1e-2  # the same where no motion explains the frames, so that one rounding can grow
opencv5 = pytest.mark.skipif(
    int(cv2.__version__.split(".")[0]) < 5 or not hasattr(cv2, "optflow"),
    reason="parity is to OpenCV 5 with optflow: 4.x computes cubic remap with a table",
)


def texture(h: int, w: int, seed: int = 0) -> np.ndarray:
    """A smooth random texture (H, W) float32 that uses the whole grey range."""
    image = cv2.GaussianBlur(np.random.default_rng(seed).random((h, w), np.float32), (0, 0), 3.0)
    return cv2.normalize(image, None, 0, 255, cv2.NORM_MINMAX)


def moved(h: int, w: int, matrix: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two frames (H, W) uint8 of a texture moved by a 2 x 3 matrix about the image centre, and the true flow."""
    big = texture(h + 64, w + 64, seed)
    y, x = np.mgrid[:h, :w].astype(np.float32)
    centred = np.stack([x - w / 2, y - h / 2, np.ones_like(x)], -1)
    true = (centred @ matrix.T.astype(np.float32)) - centred[..., :2]
    inverse = cv2.invertAffineTransform(matrix)
    back = centred @ inverse.T.astype(np.float32) + np.float32([w / 2 + 32, h / 2 + 32])
    after = cv2.remap(big, back[..., 0], back[..., 1], cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    before = big[32 : 32 + h, 32 : 32 + w]
    return *(np.rint(np.clip(image, 0, 255)).astype(np.uint8) for image in (before, after)), true


def turn(degrees: float = 0.0, scale: float = 1.0, dx: float = 0.0, dy: float = 0.0) -> np.ndarray:
    matrix = cv2.getRotationMatrix2D((0.0, 0.0), degrees, scale)
    matrix[:, 2] = dx, dy
    return matrix


def opencv(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return cv2.optflow.DualTVL1OpticalFlow_create().calc(before, after, None)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Mean end-point difference in pixels."""
    return float(np.hypot(*np.moveaxis(a.astype(np.float64) - b, -1, 0)).mean())


def same_as_opencv(before: np.ndarray, after: np.ndarray, variant: str = "") -> None:
    ours, theirs = flow.native_flow(before, after, variant), opencv(before, after)
    assert ours.shape == theirs.shape and ours.dtype == np.float32
    assert distance(ours, theirs) < AIM
    levels = np.abs(flow.to_bytes(ours).astype(int) - flow.to_bytes(theirs)).mean()
    assert levels <= 0.1


MOTIONS = {
    "translation": turn(dx=2.5, dy=-1.25),
    "large translation": turn(dx=-6.0, dy=3.0),
    "rotation": turn(degrees=2.0),
    "zoom": turn(scale=1.03),
}


@opencv5
@pytest.mark.parametrize("motion", MOTIONS)
def test_same_as_opencv_on_a_moving_texture(motion):
    same_as_opencv(*moved(120, 160, MOTIONS[motion])[:2])


@opencv5
@pytest.mark.parametrize("variant", flow.variants())
def test_every_instruction_set_gives_opencvs_result(variant):
    same_as_opencv(*moved(91, 135, turn(degrees=1.0, dx=1.5), seed=3)[:2], variant)


@opencv5
@pytest.mark.parametrize("h, w", [(16, 16), (16, 17), (33, 16), (19, 31), (47, 33), (77, 101), (64, 257), (130, 79)])
def test_same_as_opencv_at_odd_and_small_sizes(h, w):
    same_as_opencv(*moved(h, w, turn(dx=1.0, dy=-0.5), seed=h)[:2])


def real_frames(video: str, start: int, count: int, w: int, h: int) -> np.ndarray:
    path = SHARED / "data" / video
    if not path.is_file():
        pytest.skip(f"no shared video {path}")
    av = pytest.importorskip("av")
    frames = []
    with av.open(str(path)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number >= start:
                small = cv2.resize(frame.to_ndarray(format="rgb24"), (w, h), interpolation=cv2.INTER_AREA)
                frames.append(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY))
            if len(frames) == count:
                break
    return np.stack(frames)


@opencv5
@pytest.mark.parametrize(
    "video, w, h",
    [
        ("ut_interaction/videos/seq01.mp4", 320, 180),
        ("ut_interaction/videos/seq04.mp4", 340, 256),
        ("urfall/videos/fall-01.mp4", 320, 240),
    ],
)
def test_same_as_opencv_on_real_frames(video, w, h):
    same_as_opencv(*real_frames(video, 60, 2, w, h))


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


@opencv5
@pytest.mark.parametrize("before, after", [("black", "noise"), ("noise", "white"), ("checks", "saturated")])
def test_near_opencv_on_hard_frames(before, after):
    frames = hard_frames(50, 61)
    before, after = frames[before], frames[after]
    assert distance(flow.native_flow(before, after), opencv(before, after)) < BOUND


@opencv5
@pytest.mark.parametrize("variant", flow.variants())
def test_same_as_opencv_across_a_cut(variant):
    """Wild motion: taps too far apart for a register, passes that end in doubt or one iteration too late."""
    before, after = (np.rint(texture(64, 96, seed)).astype(np.uint8) for seed in (11, 12))
    assert distance(flow.native_flow(before, after, variant), opencv(before, after)) < BOUND


@pytest.mark.parametrize("variant", flow.variants())
def test_what_the_memory_held_before_does_not_matter(variant, monkeypatch):
    """It is used again and never cleared as a whole; NaN anywhere would spread."""
    before, after, _ = moved(50, 71, turn(dx=1.5, degrees=1.0), seed=10)
    clean = flow.native_flow(before, after, variant)
    used = flow.Scratch(50, 71)
    used.kernel.fill(0xFF)
    used.flow.fill(np.nan)
    monkeypatch.setattr(flow, "_spare", [used])
    assert np.array_equal(flow.native_flow(before, after, variant), clean)
    assert flow._spare == [used]


GREY = np.zeros((20, 20), np.uint8)


@pytest.mark.parametrize(
    "before, after",
    [
        (GREY.astype(np.float32), GREY.astype(np.float32)),
        (GREY, GREY[:18]),
        (GREY[:15], GREY[:15]),
        (GREY[:, :, None], GREY[:, :, None]),
        (GREY.tolist(), GREY.tolist()),
    ],
    ids=["float", "two sizes", "too small", "three axes", "a list"],
)
def test_other_input_is_refused(before, after):
    with pytest.raises(ValueError):
        flow.native_flow(before, after)
