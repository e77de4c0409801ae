"""Labelled segments of cached videos as the samples that TSN recognisers learn from (Wang et al. 2016, section 3).

A sample is a segment cut in equal parts, with a chunk drawn at random from each; or a single chunk. Stretches without a
label are cut in pieces as long as a typical action, and are a class of their own. Every draw follows from (seed, epoch,
sample), so a resumed run draws what it would have drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch

from lstr.chunk import CLOCK
from lstr.extractors.networks.crops import Movement, draw_movement, mirror_image
from lstr.extractors.streams import COMPARING
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, runs, targets
from lstr.pipelines.features.chunk_cache import CachedVideo
from lstr.pipelines.training.network_config import FinetuneConfig

# (N, segments, C, H, W) uint8, and the N classes
Images = tuple[torch.Tensor, tuple[int, ...]]
# (epoch, draw, index) of a sample: all that is drawn of it follows from them, and the seed
Key = tuple[int, int, int]
# Width and height of a crop as shares of the fitted image, and its position as shares of the room left.
Box = tuple[float, float, float, float]
# Order of the channels, and factors of saturation, contrast and brightness.
Tint = tuple[tuple[int, ...], float, float, float]
# Scales of a crop's sides against the short side; its two sides are at most one step apart (TSN, section 3.3).
SCALES = (1.0, 0.875, 0.75, 0.66)
CORNERS = tuple((x, y) for y in (0.0, 1.0) for x in (0.0, 1.0))
EDGES = ((0.5, 0.0), (0.0, 0.5), (1.0, 0.5), (0.5, 1.0))
# Corners, centre, the middles of the edges, and half way from the centre to the corners (TSN's published code).
PLACES = (*CORNERS, (0.5, 0.5), *EDGES, *((0.25 + x / 2, 0.25 + y / 2) for x, y in CORNERS))
GREY = SWAPPED = 0.3  # shares of images
SHAKEN = 0.5  # share of samples


@dataclass(frozen=True)
class Sample:
    """Chunks [start, end) of a video, and the class they show."""

    video: str
    start: int
    end: int
    label: int


def samples_of(videos: Mapping[str, tuple[VideoLabels, int]], classes: Sequence[str]) -> list[Sample]:
    """Return one sample per labelled segment, and one per piece of background.

    Each of several overlapping actions is a sample. Ambiguous stretches are in no sample, unless an action is labelled
    there too. A piece of background is as long as the median action.

    Args:
        videos: labels and number of chunks by video id.
    """
    column = {name: index for index, name in enumerate(classes)}
    samples = []
    for video_id, (labels, n_chunks) in videos.items():
        for segment in labels.segments:
            first, last = CLOCK.first(segment.start), min(CLOCK.end(segment.end), n_chunks)
            if segment.label not in (BACKGROUND, AMBIGUOUS) and first < last:
                samples.append(Sample(video_id, first, last, column[segment.label]))
    length = int(np.median([sample.end - sample.start for sample in samples])) if samples else 1
    for video_id, (labels, n_chunks) in videos.items():
        nothing = targets(labels, tuple(classes), n_chunks)[:, column[BACKGROUND]]
        for first, last in runs(nothing > 0):
            pieces = max(1, round((last - first) / length))
            edges = np.linspace(first, last, pieces + 1).round().astype(int)
            spans = zip(edges, edges[1:], strict=False)
            samples += [Sample(video_id, int(a), int(b), column[BACKGROUND]) for a, b in spans]
    return samples


def single_chunks(samples: Sequence[Sample]) -> list[Sample]:
    """Return each chunk of samples as a sample of its own, once for each class that it shows."""
    chunks = (Sample(s.video, at, at + 1, s.label) for s in samples for at in range(s.start, s.end))
    return list(dict.fromkeys(chunks))


class SampleSet:
    """Training samples of a stream, and the draws of each epoch.

    Args:
        directed: whether the x of flow is a direction, which mirroring inverts; the x of differences is not.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        videos: Mapping[str, CachedVideo],
        stream: str,
        config: FinetuneConfig,
        directed: bool = True,
    ):
        self.samples, self.videos, self.stream = samples, videos, stream
        self.config, self.directed = config, directed
        self.n_draws = config.draws_of(sum(map(len, videos.values())))
        self.batch_size = min(config.batch_size, self.n_draws)
        self.n_batches = self.n_draws // self.batch_size
        """in an epoch; the rest of it is no step, for a batch of one image has no batch-norm statistics"""

    def epoch(self, epoch: int) -> list[list[Key]]:
        """Return the batches of an epoch, in their order."""
        drawn, size = self.drawn_in(epoch), self.batch_size
        return [drawn[at * size : (at + 1) * size] for at in range(self.n_batches)]

    def drawn_in(self, epoch: int) -> list[Key]:
        """Return the samples of an epoch: each of a class as often as any other, and classes as `balanced` says."""
        random = np.random.default_rng((self.config.seed, epoch, 2**31))
        labels = np.array([sample.label for sample in self.samples])
        groups, power = [np.arange(len(labels))], self.config.balanced
        if power:
            groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        weights = np.array([float(len(group)) for group in groups]) ** (1 - power)
        wanted = np.ceil((self.n_draws * weights / weights.sum()).round(6)).astype(int)  # a rounding error is no draw
        parts = []
        for group, n in zip(groups, wanted, strict=True):  # whole shuffles of a class, one after the other
            parts.append(np.concatenate([random.permutation(group) for _ in range(-(-n // len(group)))])[:n])
        drawn = random.permutation(np.concatenate(parts))[: self.n_draws]
        return [(epoch, draw, int(index)) for draw, index in enumerate(drawn)]

    def batch(self, keys: Sequence[Key]) -> Images:
        """Return the images and classes of samples. Raises CacheError if a chunk is damaged."""
        samples = [self.draw(key) for key in keys]
        flipped, images = self.stream == "flow" and self.directed, []
        for sample in samples:
            for chunk, movement in zip(sample.chunks, sample.movements, strict=True):
                image = self.videos[sample.video].picture(chunk, self.stream, movement)
                image = tinted(image, sample.tint) if sample.tint else image
                images.append(augment(image, sample.box, sample.mirrored, self.config, flipped))
        pixels = torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2).copy())
        return pixels.unflatten(0, (len(samples), -1)), tuple(sample.label for sample in samples)

    def draw(self, key: Key) -> "Drawn":
        """Draw everything random of a sample, before its images are read."""
        epoch, draw, index = key
        sample, config = self.samples[index], self.config
        random = np.random.default_rng((config.seed, epoch, draw))
        box = draw_plain_crop(random, config) if config.crop_range else draw_crop(random)
        mirrored = config.mirror and bool(random.random() < 0.5)
        chunks = draw_chunks(random, sample, config.segments)
        tint = draw_tint(random, config.colour) if self.stream == "rgb" and config.colour else None
        shakes = self.stream in COMPARING and config.shake > 0 and random.random() < SHAKEN
        movements = [draw_movement(random, config.shake) if shakes else None for _ in chunks]
        return Drawn(sample.video, sample.label, chunks, box, mirrored, tint, movements)


def draw_chunks(random: np.random.Generator, sample: Sample, n_segments: int) -> list[int]:
    """Draw one chunk of each of `n_segments` equal parts; a short sample gives some of its chunks more than once."""
    edges = np.linspace(sample.start, sample.end, n_segments + 1)
    drawn = (random.uniform(a, b) for a, b in zip(edges, edges[1:], strict=False))
    return [min(int(chunk), sample.end - 1) for chunk in drawn]


def draw_crop(random: np.random.Generator) -> Box:
    """Draw a crop in one of 13 places, its sides of two neighbouring scales."""
    first = int(random.integers(len(SCALES)))
    second = int(np.clip(first + random.integers(-1, 2), 0, len(SCALES) - 1))
    return SCALES[first], SCALES[second], *PLACES[random.integers(len(PLACES))]


def draw_plain_crop(random: np.random.Generator, config: FinetuneConfig) -> Box:
    """Draw a crop of the size that features see, or with `zoom` of one near to it, anywhere in the larger image."""
    (height, width), whole = config.size, config.training_view.whole
    across, down, scale = width / whole[1], height / whole[0], 1.0
    if config.zoom > 1:
        largest = 1 / max(across, down)
        scale = largest * (config.zoom * largest) ** -random.random()
    return scale * across, scale * down, float(random.random()), float(random.random())


@dataclass(frozen=True)
class Drawn:
    """Everything random of a training sample."""

    video: str
    label: int
    chunks: list[int]
    box: Box
    mirrored: bool
    tint: Tint | None
    movements: Sequence[Movement | None]
    """How the camera moves in each chunk; None if it does not."""


def draw_tint(random: np.random.Generator, colour: float) -> Tint:
    """Draw changes of up to a share `colour`; three of ten images are grey, and as many have their colours swapped."""
    order = random.permutation(3) if random.random() < SWAPPED else np.arange(3)
    saturation = 0.0 if random.random() < GREY else random.uniform(1 - colour, 1 + colour)
    return tuple(order.tolist()), saturation, *random.uniform(1 - colour, 1 + colour, 2).tolist()


def tinted(image: np.ndarray, tint: Tint) -> np.ndarray:
    """Return an image (H, W, 3) uint8 with other colours."""
    order, saturation, contrast, brightness = tint
    pixels = image[..., order].astype(np.float32)
    grey = pixels.mean(2, keepdims=True)
    mean = grey.mean()
    pixels = grey + (pixels - grey) * saturation
    return np.clip((pixels - mean) * contrast + mean * brightness, 0, 255).astype(np.uint8)


def augment(image: np.ndarray, box: Box, mirrored: bool, config: FinetuneConfig, inverted: bool) -> np.ndarray:
    """Crop an image (H, W, C) uint8 to (*config.size, C); the x of mirrored flow may be inverted (255 − v)."""
    view = config.training_view
    image = view.fitted(image)
    x, y, w, h = patch_of(box, view.whole, image.shape[1], image.shape[0])
    patch: np.ndarray = cv2.resize(image[y : y + h, x : x + w], view.size[::-1], interpolation=cv2.INTER_LINEAR)
    return mirror_image(patch, flow=inverted) if mirrored else patch


def patch_of(box: Box, whole: tuple[int, int], width: int, height: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height in pixels of a crop in a fitted image; its sides are shares of `whole`."""
    w, h = round(box[0] * whole[1]), round(box[1] * whole[0])
    return round(box[2] * (width - w)), round(box[3] * (height - h)), w, h
