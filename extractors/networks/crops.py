"""Network inputs from a chunk: its frames or flow as images, resized, then cropped once, twice or ten times."""

from collections.abc import Collection
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.flow.workers import DIFFERENCE
from lstr.extractors.networks.network import MIDDLE
from lstr.extractors.recipe import RGB_FRAME, Recipe
from lstr.extractors.video.frames import CHUNK

GREYS = (0, 2, 5)  # frames of a chunk that are the three channels of `grey`
PAIRS = ((0, 1), (1, 3), (3, 5))  # frames whose differences are the three channels of `difference`
COMPARED = {n for pair in PAIRS for n in pair}
WITHOUT_COLOUR = ("grey", "difference")  # streams that use grey frames
AVERAGED = 3  # channels; OpenCV's area interpolation is limited to four
GAIN = 2  # factor of the differences of frames
# Frames of a chunk that a stream of two images sees; the poses are 1/8 s apart, also from one chunk to the next.
ENDS = {"change": (0, CHUNK - 1), "pose": (CHUNK // 2 - 1, CHUNK - 1)}


def frames_seen(streams: Collection[str], rgb_frame: int) -> frozenset[int]:
    """Return the frames of a chunk that the networks of these streams use, and the last one, which pages show."""
    seen = {"rgb": (rgb_frame,), "flow": range(CHUNK), "grey": GREYS, "difference": COMPARED, **ENDS}
    return frozenset({CHUNK - 1}.union(*(seen[stream] for stream in streams)))


def fit(image: NDArray[np.uint8], short_side: int) -> NDArray[np.uint8]:
    """Resize (H, W, C) or (H, W) so that its shorter side is `short_side` pixels, bilinear."""
    height, width = image.shape[:2]
    scale = short_side / min(height, width)
    size = (max(short_side, round(width * scale)), max(short_side, round(height * scale)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), np.uint8)


def cover(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Resize (H, W, C) to the smallest size that covers `height` and `width`, by area interpolation."""
    scale = max(height / image.shape[0], width / image.shape[1])
    size = (max(width, round(image.shape[1] * scale)), max(height, round(image.shape[0] * scale)))
    if size == image.shape[1::-1]:
        return image
    # area interpolation keeps small objects that bilinear interpolation may skip
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    parts = (image[..., n : n + AVERAGED] for n in range(0, image.shape[2], AVERAGED))
    resized = [cv2.resize(np.ascontiguousarray(part), size, interpolation=how) for part in parts]
    return np.asarray(resized[0] if len(resized) == 1 else np.dstack(resized), np.uint8)


def picture_of(stream: str, frames: NDArray[np.uint8], flow: NDArray[np.uint8] | None, at: int) -> NDArray[np.uint8]:
    """Return the image (H, W, C) of a stream for a chunk, not resized yet.

    Args:
        stream: One of STREAMS.
        frames: RGB (6, H, W, 3), or grey (6, H, W) if no stream needs colours.
        flow: Optical flow (10, H, W), for the stream `flow`.
        at: Index of the frame of the stream `rgb`.
    """
    if stream == "rgb":
        return frames[at]
    if stream in ENDS:
        return np.concatenate([frames[end] for end in ENDS[stream]], 2)  # (H, W, 6)
    if stream == "flow":
        assert flow is not None, "the stream of flow needs flow"
        return np.ascontiguousarray(flow.transpose(1, 2, 0))  # (H, W, 10)
    if stream == "grey":
        return np.asarray(cv2.merge([grey_of(frames[n]) for n in GREYS]), np.uint8)
    # differences of bytes need more than a byte
    greys = {n: grey_of(frames[n]).astype(np.int16) for n in COMPARED}
    planes = [np.clip(GAIN * (greys[later] - greys[earlier]) + MIDDLE, 0, 255) for earlier, later in PAIRS]
    return np.stack(planes, 2).astype(np.uint8)


def grey_of(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the brightness (H, W) of an RGB frame (H, W, 3); a grey frame is returned unchanged."""
    return frame if frame.ndim == 2 else np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), np.uint8)


def centre_crop(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Return (1, height, width, C) from the middle of (H, W, C)."""
    y, x = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[None, y : y + height, x : x + width]


def mirror_image(image: NDArray[np.uint8], flow: bool) -> NDArray[np.uint8]:
    """Return the mirror image of (H, W, C); the x component of `flow` is 255 − v."""
    image = image[:, ::-1].copy()
    if flow:
        np.subtract(255, image[..., ::2], out=image[..., ::2])
    return image


@dataclass(frozen=True)
class View:
    """How the input of a stream's network is made: an image is resized, then cropped once, twice or ten times.

    Two crops are the centre and its mirror image.
    """

    size: tuple[int, int]  # height and width of a crop, in pixels
    crops: int  # 1, 2 or 10
    flow: bool = False  # whether the image is flow with a direction; a mirror image inverts its x
    short_side: int | None = None  # length of the shorter side after resizing, in pixels; None to cover `size`
    margin: float = 1.0  # resize to cover this many times `size`
    stream: str = "rgb"
    rgb_frame: int = RGB_FRAME  # index of the frame of the stream `rgb`

    @property
    def whole(self) -> tuple[int, int]:
        """Smallest height and width of a resized image, in pixels."""
        if self.short_side is not None:
            return self.short_side, self.short_side
        return round(self.size[0] * self.margin), round(self.size[1] * self.margin)

    def fitted(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resize an image (H, W, C) for `of`."""
        if self.short_side is not None:
            return fit(image, self.short_side)
        return cover(image, *self.whole)

    def image(self, frames: NDArray[np.uint8], flow: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return the resized image (H, W, C) of a chunk; `frames` and `flow` as for `picture_of`."""
        if self.stream == "flow" and self.short_side is not None:
            assert flow is not None, "the stream of flow needs flow"
            # equal to resizing the interleaved image, but OpenCV is faster on single planes
            return np.asarray(cv2.merge([fit(plane, self.short_side) for plane in flow]), np.uint8)
        if self.stream in ENDS and self.short_side is None:
            # equal to resizing both frames as one image, in half the time
            return np.concatenate([self.fitted(frames[end]) for end in ENDS[self.stream]], 2)
        return self.fitted(picture_of(self.stream, frames, flow, self.rgb_frame))

    def cropped(self, frames: NDArray[np.uint8], flow: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return the crops (crops, height, width, C) of a chunk."""
        return self.of(self.image(frames, flow))

    def corners(self, height: int, width: int) -> list[tuple[int, int]]:
        """Return x and y of the five positions of ten crops: four corners, then the centre.

        Offsets are in quarter steps, as in SSN's transforms.
        """
        h, w = (height - self.size[0]) // 4, (width - self.size[1]) // 4
        return [(0, 0), (4 * w, 0), (0, 4 * h), (4 * w, 4 * h), (2 * w, 2 * h)]

    def of(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the crops (crops, *size, C) of a resized image (H, W, C); of ten, each is followed by its mirror."""
        if self.crops < 10:
            centre = centre_crop(image, *self.size)
            return centre if self.crops == 1 else np.concatenate([centre, mirror_image(centre[0], self.flow)[None]])
        width, (down, across) = image.shape[1], self.size
        mirror = mirror_image(image, self.flow)
        crops = np.empty((10, *self.size, image.shape[2]), np.uint8)
        for i, (x, y) in enumerate(self.corners(*image.shape[:2])):
            crops[2 * i] = image[y : y + down, x : x + across]
            crops[2 * i + 1] = mirror[y : y + down, width - x - across : width - x]
        return crops


def views_of(recipe: Recipe) -> dict[str, View]:
    """Return the views of a recipe's networks, by stream."""
    views = {}
    for stream, part in recipe.parts.items():
        # differences of frames have no direction
        has_direction = stream == "flow" and recipe.algorithm != DIFFERENCE
        short_side = None if part.size else recipe.short_side
        size = recipe.size_of(stream)
        views[stream] = View(size, part.crops, has_direction, short_side, part.margin, stream, recipe.rgb_frame)
    return views


# (6, 2): shift of each frame of a chunk to the right and down, relative to the frame's width.
Movement = NDArray[np.float64]
SLOWEST = 1 / 15  # smallest mean step of a movement, relative to the largest
JITTER = 0.4  # standard deviation of the steps of a movement, relative to their mean


def draw_movement(random: np.random.Generator, largest: float) -> Movement:
    """Draw a movement in one direction, with jitter; its mean step between frames is at most `largest`.

    The step is log-uniform, so that small steps are as likely as large ones.
    """
    step = largest * SLOWEST ** random.random()
    angle = random.uniform(0, 2 * np.pi)
    steps = step * (np.array([np.cos(angle), np.sin(angle)]) + random.normal(0, JITTER, (CHUNK - 1, 2)))
    return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, 0)])


def shaken(frames: NDArray[np.uint8], movement: Movement) -> NDArray[np.uint8]:
    """Shift frames (6, H, W, 3) or (6, H, W) as if the camera moved; new edges repeat border pixels."""
    height, width = frames.shape[1:3]
    moved = np.empty(frames.shape, np.uint8)  # frames may be one, six times
    for frame, (x, y), out in zip(frames, movement * width, moved, strict=True):
        by = np.array([[1, 0, x], [0, 1, y]])
        cv2.warpAffine(frame, by, (width, height), out, cv2.INTER_LINEAR, cv2.BORDER_REPLICATE)
    return moved
