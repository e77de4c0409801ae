"""What the networks of a recipe see of a chunk: its frames and its flow, resized, then cropped."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.flow.workers import DIFFERENCE
from lstr.extractors.images.crops import View, fit, fit_planes
from lstr.extractors.recipe import Recipe

Image = NDArray[np.uint8]
"""(H, W, C), its shorter side that of the recipe."""


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
