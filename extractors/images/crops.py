"""Frames and flow of a chunk as the networks of a recipe see them: resized, then cropped once, twice or ten times."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.flow.workers import DIFFERENCE
from lstr.extractors.recipe import Recipe

Image = NDArray[np.uint8]
"""(H, W, C), its shorter side that of the recipe."""


def fit(image: NDArray[np.uint8], short_side: int) -> NDArray[np.uint8]:
    """(H, W, C) or (H, W) so that its shorter side is `short_side` pixels, bilinear."""
    height, width = image.shape[:2]
    scale = short_side / min(height, width)
    size = (max(short_side, round(width * scale)), max(short_side, round(height * scale)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), np.uint8)


def fit_planes(planes: NDArray[np.uint8], short_side: int) -> NDArray[np.uint8]:
    """Planes (C, H, W) → (H, W, C) as `fit` makes it of them interleaved; one by one OpenCV resizes them sooner."""
    return np.asarray(cv2.merge([fit(plane, short_side) for plane in planes]), np.uint8)


def centre_crop(image: NDArray[np.uint8], crop: int) -> NDArray[np.uint8]:
    """(H, W, C) → (1, crop, crop, C), from its middle."""
    y, x = (image.shape[0] - crop) // 2, (image.shape[1] - crop) // 2
    return image[None, y : y + crop, x : x + crop]


def mirror_image(image: NDArray[np.uint8], flow: bool) -> NDArray[np.uint8]:
    """The mirror image of (H, W, C); the x component of `flow` is 255 − v."""
    image = image[:, ::-1].copy()
    if flow:
        np.subtract(255, image[..., ::2], out=image[..., ::2])
    return image


def ten_crops(image: NDArray[np.uint8], crop: int, flow: bool = True) -> NDArray[np.uint8]:
    """Four corners, centre, and their mirror images (x flow inverted): (H, W, C) → (10, crop, crop, C).

    Offsets in quarter steps as SSN's transforms.
    """
    height, width = image.shape[:2]
    h, w = (height - crop) // 4, (width - crop) // 4
    mirror = mirror_image(image, flow)
    crops = np.empty((10, crop, crop, image.shape[2]), np.uint8)
    for i, (x, y) in enumerate(((0, 0), (4 * w, 0), (0, 4 * h), (4 * w, 4 * h), (2 * w, 2 * h))):
        crops[2 * i] = image[y : y + crop, x : x + crop]
        crops[2 * i + 1] = mirror[y : y + crop, width - x - crop : width - x]
    return crops


@dataclass(frozen=True)
class View:
    """What a network sees of an image that fits: its centre, this and its mirror image, or ten crops."""

    side: int
    """Pixels of a crop's side."""
    crops: int
    """1, 2 or 10."""
    flow: bool = False
    """Whether the image is flow, whose x a mirror turns round."""

    def of(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(H, W, C) that fits → (crops, side, side, C)."""
        if self.crops == 10:
            return ten_crops(image, self.side, self.flow)
        centre = centre_crop(image, self.side)
        return centre if self.crops == 1 else np.concatenate([centre, mirror_image(centre[0], self.flow)[None]])

    def of_segments(self, segments: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Images of one size → (crops · segments, side, side, C): of each crop all segments, one after the other."""
        views = [self.of(image) for image in segments]
        return views[0] if len(views) == 1 else np.stack(views, 1).reshape(-1, *views[0].shape[1:])

    def trimmed(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """What a device needs of an image to make `of` it: no more than its centre, where nothing else is seen."""
        return image if self.crops == 10 else centre_crop(image, self.side)[0]


@dataclass(frozen=True)
class Inputs:
    """The inputs that a recipe describes; of one stream the images of all segments, before or after cropping."""

    recipe: Recipe

    def rgb(self, frames: NDArray[np.uint8]) -> list[Image]:
        """The central one of a chunk's frames (6, H, W, 3), or one for each segment of the network."""
        n, segments = len(frames), self.recipe.parts["rgb"].segments
        # as mmaction2's SampleFrames picks them from a video of this length
        several = [(2 * i + 1) * n // (2 * segments) for i in range(segments)]
        shown = several if segments > 1 else [self.recipe.rgb_frame]
        return [fit(frames[at], self.recipe.short_side) for at in shown]

    def flow(self, flow: NDArray[np.uint8]) -> list[Image]:
        """A chunk's flow (10, H, W), which has one segment."""
        return [fit_planes(flow, self.recipe.short_side)]

    def view(self, stream: str) -> View:
        """What a network sees of each image."""
        directed = stream == "flow" and self.recipe.algorithm != DIFFERENCE
        return View(self.recipe.crop, self.recipe.parts[stream].crops, directed)

    def cropped(self, stream: str, segments: list[Image]) -> NDArray[np.uint8]:
        """(crops · segments, crop, crop, C) of a chunk."""
        return self.view(stream).of_segments(segments)
