"""Pictures as the page's scripts make them, against OpenCV's and FFmpeg's, in a real headless Chromium."""

import av
import cv2
import numpy as np
import pytest

from lstr.extractors.images.crops import GAIN, Inputs, fit, grey_of, picture_of
from lstr.extractors.recipe import NetworkRecipe, Recipe
from tests.support.web_pages import DECODING, decoded, encoded, with_scripts

pytestmark = pytest.mark.long

SIZES = [
    ((270, 480), (256, 144)), ((300, 400), (171, 129)), ((144, 256), (229, 129)), ((240, 320), (160, 120)),
    ((360, 480), (120, 90)), ((61, 97), (96, 60)), ((64, 85), (85, 64)),
    ((240, 320), (80, 60)), ((300, 400), (40, 30)), ((200, 240), (120, 50)),
]  # fmt: skip
"""Height and width, then width and height: by whole numbers, halves among them, by others, and by a sample"""


@pytest.fixture(scope="module")
def page(chromium):
    page = with_scripts(chromium, "browser-plans.js", "browser-pictures.js", "browser-colours.js")
    page.add_script_tag(content=DECODING)
    yield page
    page.close()


def noise(height, width, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


@pytest.mark.parametrize(("size", "to"), SIZES)
def test_an_image_is_shrunk_as_opencv_shrinks_it(page, size, to):
    image = noise(*size)
    found = decoded(page.evaluate("([image, to]) => sent(shrink(imageOf(image), to))", [encoded(image), to]))
    expected = cv2.resize(image, to, interpolation=cv2.INTER_AREA)
    assert (found == expected).all()


@pytest.mark.parametrize(("size", "side"), [((180, 320), 256), ((300, 400), 256), ((64, 96), 129), ((300, 200), 129)])
def test_an_image_is_fitted_as_opencv_fits_it(page, size, side):
    image = noise(*size)
    found = decoded(page.evaluate("([image, side]) => sent(fit(imageOf(image), side))", [encoded(image), side]))
    difference = np.abs(found.astype(int) - fit(image, side))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.01


def test_brightness_is_opencv_s(page):
    image = noise(64, 96)
    found = decoded(page.evaluate("(image) => sent(greyOf(imageOf(image)))", encoded(image)))
    assert (found[..., 0] == grey_of(image)).all()


@pytest.mark.parametrize(("matrix", "number"), [("bt601", 5), ("bt709", 1), ("bt2020-ncl", 9), (None, 2)])
@pytest.mark.parametrize("full", [False, True])
def test_colours_are_ffmpeg_s(page, matrix, number, full):
    """To the bit: the page makes RGB of the decoder's planes by the same arithmetic."""
    height, width = 64, 96
    y, u, v = noise(height, width, 1, 1), noise(height // 2, width // 2, 1, 2), noise(height // 2, width // 2, 1, 3)
    planes = np.concatenate([plane.ravel() for plane in (y, u, v)]).reshape(height * 3 // 2, width)
    frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
    frame.colorspace, frame.color_range = number, 2 if full else 1
    found = page.evaluate(
        """([y, u, v, matrix, full]) => {
          const plane = ({ text, width }) => ({ data: bytesOf(text), at: 0, stride: width, step: 1 });
          return sent(rgbOfPlanes({ y: plane(y), u: plane(u), v: plane(v) }, y.width, y.height, matrix, full));
        }""",
        [encoded(y), encoded(u), encoded(v), matrix, full],
    )
    assert (decoded(found) == frame.reformat(format="rgb24").to_ndarray()).all()


@pytest.mark.parametrize("stream", ["rgb", "grey", "difference", "change"])
def test_what_a_stream_shows_of_a_chunk(page, stream):
    frames = np.stack([noise(40, 56, seed=seed) for seed in range(6)])
    found = page.evaluate(
        "([stream, frames]) => sent(pictureOf(stream, frames.map(imageOf), 3))", [stream, [*map(encoded, frames)]]
    )
    assert (decoded(found) == picture_of(stream, frames, None, 3)).all()


VIEWS = [
    ("rgb", {"crops": 1}),
    ("rgb", {"crops": 10, "segments": 3}),
    ("grey", {"crops": 2, "size": (112, 149), "margin": 1.15}),
    ("difference", {"crops": 2, "size": (48, 64), "margin": 1.0}),
    ("change", {"crops": 1, "size": (160, 213)}),
]
"""One of the central frame, fitted by its shorter side; then whole pictures, one of them enlarged"""


@pytest.mark.parametrize(("stream", "part"), VIEWS)
@pytest.mark.parametrize(("height", "width"), [(144, 256), (192, 146)])
def test_what_a_network_sees_of_a_chunk(page, stream, part, height, width):
    network = NetworkRecipe("resnet18", "random", "", mean=(0.0,) * 3, std=(1.0,) * 3, **part)
    recipe = Recipe(**{"rgb": None, "flow": None, stream: network}, flow_algorithm=None, short_side=96, crop=64)
    frames, view = np.stack([noise(height, width, seed=seed) for seed in range(6)]), Inputs(recipe).view(stream)
    about = {"stream": stream, "segments": network.segments, **vars(view)}
    found = page.evaluate(
        """([part, frames, at]) => {
          const { data, dims } = viewOf(part, frames.map(imageOf), at);
          return { text: textOf(data), shape: dims };
        }""",
        [about, [*map(encoded, frames)], recipe.rgb_frame],
    )
    expected, images = Inputs(recipe).cropped(stream, frames)[None], decoded(found)
    assert images.shape == expected.shape
    difference = np.abs(images.astype(int) - expected)
    most = 1 if stream != "difference" else GAIN  # a level of brightness counts twice
    assert difference.max() <= most and (difference > 0).mean() < 0.01
