"""Batches of training samples: read ahead by threads, or cut from images that fit on a GPU.

There crops are cut, resized and mirrored, and only numbers travel to it. Samples are drawn as for images that threads
read, from (seed, epoch, draw); the images differ from those by rounding.
"""

from collections.abc import Generator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lstr.pipelines.finetuning.samples import Drawn, Images, SampleSet, Tint, described, patch_of
from lstr.pipelines.training.batches import SHARE, read_ahead
from lstr.pipelines.training.ranks import Ranks


def batches_from(
    data: SampleSet, epoch: int, loaders: int, ranks: Ranks, device: torch.device
) -> Generator[Images, None, None]:
    """This process's share of the batches of all epochs from one (from 0) on, so that none begins with waiting.

    `loaders` threads read ahead; images that fit on the device are kept there, and no thread reads them. Raises
    CacheError where a chunk is damaged.
    """
    batches = (ranks.share(keys) for number in range(epoch, data.config.epochs) for keys in data.epoch(number))
    if not fit_on(data, device):
        return read_ahead(batches, data.batch, loaders)
    kept = KeptChunks(data, device)
    drawn = ([data.draw(key) for key in keys] for keys in batches)
    return ((kept.images(samples), *described(samples)) for samples in drawn)


class KeptChunks:
    """Every chunk's image of a stream, fitted as parts are cut from it to learn from, on a device."""

    def __init__(self, data: SampleSet, device: torch.device):
        self.config, self.flipped = data.config, data.stream == "flow" and data.directed
        self._images: dict[str, Tensor] = {}
        """(L, C, H, W) uint8 by video"""
        self._greys: dict[str, list[float]] = {}
        for video_id in sorted({sample.video for sample in data.samples}):
            video, greys = data.videos[video_id], self._greys.setdefault(video_id, [])
            for chunk in range(len(video)):
                image = video.picture(chunk, data.stream)
                fitted = torch.from_numpy(self.config.training_view.fitted(image)).permute(2, 0, 1)
                if not chunk:
                    self._images[video_id] = torch.empty(len(video), *fitted.shape, dtype=torch.uint8, device=device)
                self._images[video_id][chunk] = fitted
                greys.append(float(image.mean()))

    def images(self, drawn: Sequence[Drawn]) -> Tensor:
        """Augmented images (N, segments, C, height, width) uint8 of samples, on the device."""
        pixels = torch.cat([self._patch(sample, chunk) for sample in drawn for chunk in sample.chunks])
        mirrored = torch.tensor([sample.mirrored for sample in drawn for _ in sample.chunks], device=pixels.device)
        mirrored = mirrored[:, None, None, None]
        pixels = torch.where(mirrored, pixels.flip(3), pixels)
        tints = [(sample.tint, self._greys[sample.video][chunk]) for sample in drawn for chunk in sample.chunks]
        pixels = pixels.round() if drawn[0].tint is None else _tinted(pixels, tints).clamp(0, 255).floor()
        if self.flipped:
            pixels[:, ::2] = torch.where(mirrored, 255 - pixels[:, ::2], pixels[:, ::2])
        return pixels.to(torch.uint8).unflatten(0, (len(drawn), -1))

    def _patch(self, sample: Drawn, chunk: int) -> Tensor:
        """The crop (1, C, *size) float32 of an image."""
        image = self._images[sample.video][chunk]
        x, y, w, h = patch_of(sample.box, self.config.training_view.whole, image.shape[2], image.shape[1])
        patch = image[None, :, y : y + h, x : x + w].float()
        return functional.interpolate(patch, self.config.size, mode="bilinear")


def fit_on(data: SampleSet, device: torch.device) -> bool:
    """Whether a device is a GPU with room for the images; a processor reads them from the cache as well.

    Pictures of a camera that shakes are other ones each time.
    """
    if device.type != "cuda" or data.is_shaken:
        return False
    needed = 0
    for video_id in {sample.video for sample in data.samples}:
        video = data.videos[video_id]
        needed += len(video) * data.config.training_view.fitted(video.picture(0, data.stream)).size
    return needed <= SHARE * torch.cuda.mem_get_info(device)[0]


def _tinted(pixels: Tensor, tints: Sequence[tuple[Tint | None, float]]) -> Tensor:
    """(M, 3, H, W) with other colours, each image by its tint and its mean grey before it was cut."""
    known = [(tint, grey) for tint, grey in tints if tint is not None]
    order = torch.tensor([tint.order for tint, _ in known], device=pixels.device)  # (M, 3)
    pixels = pixels.gather(1, order[..., None, None].expand_as(pixels))
    rows = [(t.saturation, t.contrast, grey, grey * t.brightness) for t, grey in known]
    columns = torch.from_numpy(np.array(rows, np.float32)).to(pixels.device).unbind(1)
    saturation, contrast, before, after = (column[:, None, None, None] for column in columns)
    grey = pixels.mean(1, keepdim=True)
    return (grey + (pixels - grey) * saturation - before) * contrast + after
