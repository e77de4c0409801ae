"""Images of training chunks that fit on a GPU, where crops are cut, resized and mirrored: only numbers travel to it.

Samples are drawn as for images that threads read, from (seed, epoch, draw); the images differ from those by rounding.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lstr.extractors.images.crops import fit
from lstr.pipelines.finetuning.samples import Drawn, SampleSet, Tint, patch_of, read_image
from lstr.pipelines.training.batches import SHARE


class KeptChunks:
    """Every chunk's image of a stream, fitted to the short side, on a device."""

    def __init__(self, data: SampleSet, device: torch.device):
        self.config, self.flipped = data.config, data.stream == "flow" and data.directed
        self._starts: dict[str, list[int]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._greys: dict[str, list[float]] = {}
        self.pixels = torch.empty(0, dtype=torch.uint8, device=device)
        end = 0
        for video_id in sorted({sample.video for sample in data.samples}):
            starts, greys = self._starts.setdefault(video_id, []), self._greys.setdefault(video_id, [])
            for chunk in range(len(data.videos[video_id])):
                image = read_image(data.videos[video_id], chunk, data.stream)
                fitted = fit(image, self.config.short_side)  # (H, W, C)
                height, width, channels = fitted.shape
                if not end:
                    self.pixels = torch.empty(_n_pixels(data), channels, dtype=torch.uint8, device=device)
                self.pixels[end : end + height * width] = torch.from_numpy(fitted).reshape(-1, channels).to(device)
                starts.append(end)
                greys.append(float(image.mean()))
                end += height * width
            self._sizes[video_id] = height, width

    def images(self, drawn: Sequence[Drawn]) -> Tensor:
        """Augmented images (N, segments, C, crop, crop) uint8 of samples, on the device."""
        numbers, side, device = [], self.config.crop, self.pixels.device
        for sample in drawn:
            height, width = self._sizes[sample.video]
            left, top, *sides = patch_of(sample.box, self.config.short_side, width, height)
            for chunk in sample.chunks:
                first = self._starts[sample.video][chunk] + top * width + left
                numbers.append((first, width, *sides, sample.mirrored))
        table = torch.tensor(numbers, device=device)  # (M, 5), M = N * segments
        origin, row, w, h, mirrored = (column[:, None] for column in table.unbind(1))
        place = torch.arange(side, device=device)[None]  # (1, side)
        turned = torch.where(mirrored > 0, side - 1 - place, place)  # (M, side)
        columns, across = _neighbours(turned, w, side)
        rows, down = _neighbours(place, h, side)
        lines = [(origin + row * line)[..., None] for line in rows]  # (M, side, 1) each
        upper, lower = (self._between(line, columns, across) for line in lines)
        pixels = upper + (lower - upper) * down[:, :, None, None]  # (M, side, side, C)
        tints = [(sample.tint, self._greys[sample.video][chunk]) for sample in drawn for chunk in sample.chunks]
        pixels = pixels.round() if drawn[0].tint is None else _tinted(pixels, tints).clamp(0, 255).floor()
        if self.flipped:
            turn = (mirrored > 0)[..., None, None]  # (M, 1, 1, 1)
            pixels[..., ::2] = torch.where(turn, 255 - pixels[..., ::2], pixels[..., ::2])
        return pixels.to(torch.uint8).permute(0, 3, 1, 2).unflatten(0, (len(drawn), -1))

    def _between(self, line: Tensor, columns: tuple[Tensor, Tensor], share: Tensor) -> Tensor:
        """Pixels (M, side, side, C) float32 of lines (M, side, 1), between two columns (M, side) each."""
        left, right = (self.pixels[line + column[:, None]].float() for column in columns)
        return left + (right - left) * share[:, None, :, None]


def fit_on(data: SampleSet, device: torch.device) -> bool:
    """Whether a device is a GPU with room for the images; a processor reads them from the cache as well."""
    if device.type != "cuda":
        return False
    channels = read_image(data.videos[data.samples[0].video], 0, data.stream).shape[2]
    return _n_pixels(data) * channels <= SHARE * torch.cuda.mem_get_info(device)[0]


def _n_pixels(data: SampleSet) -> int:
    """Pixels of all fitted images together."""
    total = 0
    for video_id in {sample.video for sample in data.samples}:
        video = data.videos[video_id]
        height, width = fit(read_image(video, 0, data.stream), data.config.short_side).shape[:2]
        total += len(video) * height * width
    return total


def _neighbours(place: Tensor, size: Tensor, side: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The pixels around places (M, side) where `size` (M, 1) pixels become `side`, and how far it is from the first.

    As OpenCV's bilinear resizing: pixels have their centres at halves, and the border's pixel goes on.
    """
    at = ((place + 0.5) * size / side - 0.5).clamp_min(0)
    first = at.floor().long().minimum(size - 1)
    return (first, (first + 1).minimum(size - 1)), at - first


def _tinted(pixels: Tensor, tints: Sequence[tuple[Tint | None, float]]) -> Tensor:
    """(M, H, W, 3) with other colours, each image by its tint and its mean grey before it was cut."""
    known = [(tint, grey) for tint, grey in tints if tint is not None]
    order = torch.tensor([tint.order for tint, _ in known], device=pixels.device)  # (M, 3)
    pixels = pixels.gather(3, order[:, None, None].expand_as(pixels))
    rows = [(t.saturation, t.contrast, grey, grey * t.brightness) for t, grey in known]
    columns = torch.from_numpy(np.array(rows, np.float32)).to(pixels.device).unbind(1)
    saturation, contrast, before, after = (column[:, None, None, None] for column in columns)
    grey = pixels.mean(3, keepdim=True)
    return (grey + (pixels - grey) * saturation - before) * contrast + after
