"""A network that is ready to compute, as every runtime has it: images of bytes in, features out, all in numpy."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.networks.crops import View


class RunningNetwork(Protocol):
    """A network that is ready to compute, in as many threads as call it."""

    runtime: str

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(N, H, W, C) → (N, D), the maps averaged over space. A row does not depend on N beyond 1e-5."""

    def prepare(self, batches: Iterable[int]) -> None:
        """Make what depends on the number of images, now rather than at the first call with so many."""
        return  # ONNX Runtime takes any number

    def of_fitted(self, chunks: Sequence[Sequence[NDArray[np.uint8]]], view: View) -> NDArray[np.float32]:
        """Images (H, W, C) of each chunk's segments → (chunks, D), averaged over what `view` shows of them.

        Chunks may differ in size, not the segments of one.
        """
        return self.of_crops(np.stack([view.of_segments(segments) for segments in chunks]))

    def of_crops(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(B, images, H, W, C) → (B, D), averaged over the images of a chunk."""
        features = self(images.reshape(-1, *images.shape[2:]))  # (B · images, D)
        return features.reshape(*images.shape[:2], -1).mean(1)
