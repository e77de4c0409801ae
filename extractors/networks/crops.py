"""What the networks of a recipe see of a chunk: its frames or flow as images, fitted, then cropped once, twice or ten
times."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.flow.workers import DIFFERENCE
from lstr.extractors.networks.network import MIDDLE
from lstr.extractors.recipe import RGB_FRAME, Recipe
from lstr.extractors.video.frames import CHUNK

# (H, W, C), as large as its view asks for.
Image = NDArray[np.uint8]
# Frames of a chunk that are the three channels of `grey`.
GREYS = (0, 2, 5)
# Frames whose differences are the three channels of `difference`.
PAIRS = ((0, 1), (1, 3), (3, 5))
# Streams that see frames without their colours.
WITHOUT_COLOUR = ("grey", "difference")
AVERAGED = 3  # channels; OpenCV averages pixels of four at most
GAIN = 2  # steps of the scale that a difference of one step is shown as
# Where only the flow of a chunk is looked at.
NO_FRAMES = np.zeros((CHUNK, 0, 0, 3), np.uint8)
# Frames that `change` compares.
ENDS = [0, CHUNK - 1]


def fit(image: NDArray[np.uint8], short_side: int) -> NDArray[np.uint8]:
    """Resize (H, W, C) or (H, W) so that its shorter side is `short_side` pixels, bilinear."""
    height, width = image.shape[:2]
    scale = short_side / min(height, width)
    size = (max(short_side, round(width * scale)), max(short_side, round(height * scale)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), np.uint8)


def cover(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Resize (H, W, C) to the smallest size of at least `height` and `width`; pixels are averaged."""
    scale = max(height / image.shape[0], width / image.shape[1])
    size = (max(width, round(image.shape[1] * scale)), max(height, round(image.shape[0] * scale)))
    if size == image.shape[1::-1]:
        return image
    # averaging keeps small things that a smaller bilinear image skips
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    parts = (image[..., n : n + AVERAGED] for n in range(0, image.shape[2], AVERAGED))
    resized = [cv2.resize(np.ascontiguousarray(part), size, interpolation=how) for part in parts]
    return np.asarray(resized[0] if len(resized) == 1 else np.dstack(resized), np.uint8)


def picture_of(stream: str, frames: NDArray[np.uint8], flow: NDArray[np.uint8] | None, at: int) -> NDArray[np.uint8]:
    """What one stream shows of a chunk, (H, W, C), not fitted yet.

    frames (6, H, W, 3), or (6, H, W) without colour where no stream needs any; flow (10, H, W); `at` is the frame that
    `rgb` shows.
    """
    if stream == "rgb":
        return frames[at]
    if stream == "change":
        return np.concatenate([frames[end] for end in ENDS], 2)  # (H, W, 6)
    if stream == "flow":
        assert flow is not None, "the stream of flow needs flow"
        return np.ascontiguousarray(flow.transpose(1, 2, 0))  # (H, W, 10)
    if stream == "grey":
        return np.asarray(cv2.merge([grey_of(frames[n]) for n in GREYS]), np.uint8)
    # differences of bytes need more than a byte
    greys = {n: grey_of(frames[n]).astype(np.int16) for n in {n for pair in PAIRS for n in pair}}
    planes = [np.clip(GAIN * (greys[later] - greys[earlier]) + MIDDLE, 0, 255) for earlier, later in PAIRS]
    return np.stack(planes, 2).astype(np.uint8)


def grey_of(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the brightness (H, W) of an RGB frame (H, W, 3); one without colour is unchanged."""
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
    """What the network of a stream sees of a chunk: an image that is fitted, then cropped once, twice or ten times.

    Two crops are the centre and its mirror image.
    """

    # height and width of a crop, in pixels
    size: tuple[int, int]
    # 1, 2 or 10
    crops: int
    # whether the image is flow, whose x a mirror inverts
    flow: bool = False
    # pixels that the shorter side of an image is fitted to; None to let it cover the size
    short_side: int | None = None
    # how many times larger than the size it is made to cover
    margin: float = 1.0
    stream: str = "rgb"
    # the frame of a chunk that `rgb` shows
    rgb_frame: int = RGB_FRAME

    @property
    def whole(self) -> tuple[int, int]:
        """Smallest height and width in pixels of a fitted image."""
        if self.short_side is not None:
            return self.short_side, self.short_side
        return round(self.size[0] * self.margin), round(self.size[1] * self.margin)

    def fitted(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return an image (H, W, C) of any size as `of` takes it."""
        if self.short_side is not None:
            return fit(image, self.short_side)
        return cover(image, *self.whole)

    def image(self, frames: NDArray[np.uint8], flow: NDArray[np.uint8] | None = None) -> Image:
        """Return what the network sees of a chunk, fitted. frames, flow: as for `picture_of`."""
        if self.stream == "flow" and self.short_side is not None:
            assert flow is not None, "the stream of flow needs flow"
            # the bytes of the interleaved image; OpenCV resizes planes one by one in less time
            return np.asarray(cv2.merge([fit(plane, self.short_side) for plane in flow]), np.uint8)
        if self.stream == "change" and self.short_side is None:
            # the bytes of both frames fitted as one picture, in half the time
            return np.concatenate([self.fitted(frames[end]) for end in ENDS], 2)
        return self.fitted(picture_of(self.stream, frames, flow, self.rgb_frame))

    def cropped(self, frames: NDArray[np.uint8], flow: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return (crops, height, width, C) of a chunk."""
        return self.of(self.image(frames, flow))

    def corners(self, height: int, width: int) -> list[tuple[int, int]]:
        """Return x and y of the five places of ten crops: four corners, then the centre.

        Offsets are in quarter steps, as in SSN's transforms.
        """
        h, w = (height - self.size[0]) // 4, (width - self.size[1]) // 4
        return [(0, 0), (4 * w, 0), (0, 4 * h), (4 * w, 4 * h), (2 * w, 2 * h)]

    def of(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return (crops, *size, C) of (H, W, C) that fits; of ten, each place and then its mirror image."""
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
    """Return what the networks of a recipe see, by stream."""
    views = {}
    for stream, part in recipe.parts.items():
        # differences of frames have no direction
        has_direction = stream == "flow" and recipe.algorithm != DIFFERENCE
        short_side = None if part.size else recipe.short_side
        size = recipe.size_of(stream)
        views[stream] = View(size, part.crops, has_direction, short_side, part.margin, stream, recipe.rgb_frame)
    return views


# (6, 2): how far right and down each frame of a chunk lies, as shares of the width of the picture.
Movement = NDArray[np.float64]
# The smallest mean step of a movement, of the largest.
SLOWEST = 1 / 15
# Standard deviation of the steps of one movement, as a share of their mean.
JITTER = 0.4


def draw_movement(random: np.random.Generator, largest: float) -> Movement:
    """A movement in one direction, with jitter; its mean step from frame to frame is at most `largest`.

    Small steps are as likely as large ones: their logarithm is uniform.
    """
    step = largest * SLOWEST ** random.random()
    angle = random.uniform(0, 2 * np.pi)
    steps = step * (np.array([np.cos(angle), np.sin(angle)]) + random.normal(0, JITTER, (CHUNK - 1, 2)))
    return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, 0)])


def shaken(frames: NDArray[np.uint8], movement: Movement) -> NDArray[np.uint8]:
    """Frames (6, H, W, 3), or (6, H, W) without colour, as a camera has them that moves; new edges repeat old ones."""
    height, width = frames.shape[1:3]
    moved = np.empty(frames.shape, np.uint8)  # frames may be one, six times
    for frame, (x, y), out in zip(frames, movement * width, moved, strict=True):
        by = np.array([[1, 0, x], [0, 1, y]])
        cv2.warpAffine(frame, by, (width, height), out, cv2.INTER_LINEAR, cv2.BORDER_REPLICATE)
    return moved
