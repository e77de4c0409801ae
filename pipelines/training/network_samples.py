"""Training samples of TSN recognisers from labelled segments of cached videos (Wang et al. 2016, section 3).

A sample is a segment that is cut in equal parts, with a random chunk from each part; or a single chunk. Unlabelled
parts of videos are cut in pieces as long as a typical action, and form a separate class. Every draw depends only on
(seed, epoch, sample), so a resumed run draws the same samples.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import cv2
import numpy as np
import torch

from lstr.chunk import CLOCK
from lstr.extractors.networks.crops import draw_movement, mirror_image
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
# Scales of a crop's sides against the short side; its two sides are at most one step apart (TSN, section 3.3).
SCALES = (1.0, 0.875, 0.75, 0.66)
CORNERS = tuple((x, y) for y in (0.0, 1.0) for x in (0.0, 1.0))
EDGES = ((0.5, 0.0), (0.0, 0.5), (1.0, 0.5), (0.5, 1.0))
# Corners, centre, the middles of the edges, and half way from the centre to the corners (TSN's published code).
PLACES = (*CORNERS, (0.5, 0.5), *EDGES, *((0.25 + x / 2, 0.25 + y / 2) for x, y in CORNERS))
GREY_SHARE = SWAPPED_SHARE = 0.3  # of samples, where `colour` is set
SHAKEN_SHARE = 0.5  # of samples, where `shake` is set: the other half is of a camera that stands still


class Sample(NamedTuple):
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
    """Return a sample for each chunk of some samples, once for each class that it shows."""
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
        self.samples, self.videos, self.stream, self.config = samples, videos, stream, config
        self.is_inverted = stream == "flow" and directed
        self.n_draws = config.draws_of(sum(map(len, videos.values())))
        self.batch_size = min(config.batch_size, self.n_draws)
        # of an epoch; the rest of it is no step, for a batch of one image has no batch-norm statistics
        self.n_batches = self.n_draws // self.batch_size

    def draw_epoch(self, epoch: int) -> list[Key]:
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
        images = [image for key in keys for image in self.read(key)]
        pixels = torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2).copy())
        return pixels.unflatten(0, (len(keys), -1)), tuple(self.samples[index].label for *_, index in keys)

    def read(self, key: Key) -> list[np.ndarray]:
        """Draw the chunks, crop and changes of a sample; return its images (H, W, C), one for each segment."""
        epoch, draw, index = key
        sample, config = self.samples[index], self.config
        random = np.random.default_rng((config.seed, epoch, draw))
        box = draw_box(random, config)
        is_mirrored = config.mirror and bool(random.random() < 0.5)
        # one chunk of each equal part; a short sample gives some of its chunks more than once
        edges = np.linspace(sample.start, sample.end, config.segments + 1)
        chunks = [min(int(random.uniform(a, b)), sample.end - 1) for a, b in zip(edges, edges[1:], strict=False)]
        is_tinted = self.stream == "rgb" and config.colour > 0
        if is_tinted:
            low, high = 1 - config.colour, 1 + config.colour
            order = random.permutation(3) if random.random() < SWAPPED_SHARE else np.arange(3)
            saturation = 0.0 if random.random() < GREY_SHARE else random.uniform(low, high)
            contrast, brightness = random.uniform(low, high, 2).tolist()
        is_shaken = self.stream in COMPARING and config.shake > 0 and random.random() < SHAKEN_SHARE
        movements = [draw_movement(random, config.shake) if is_shaken else None for _ in chunks]
        images = []
        for chunk, movement in zip(chunks, movements, strict=True):
            image = self.videos[sample.video].picture(chunk, self.stream, movement)
            if is_tinted:
                pixels = image[..., order].astype(np.float32)
                grey = pixels.mean(2, keepdims=True)
                mean = grey.mean()
                pixels = (grey + (pixels - grey) * saturation - mean) * contrast + mean * brightness
                image = np.clip(pixels, 0, 255).astype(np.uint8)
            images.append(augment(image, box, is_mirrored, config, self.is_inverted, config.size_in(epoch)))
        return images


def draw_box(random: np.random.Generator, config: FinetuneConfig) -> Box:
    """Draw a crop: of TSN's four sizes in one of 13 places, or with `crop_range` anywhere in the larger image."""
    if not config.crop_range:
        first = int(random.integers(len(SCALES)))
        second = int(np.clip(first + random.integers(-1, 2), 0, len(SCALES) - 1))
        return SCALES[first], SCALES[second], *PLACES[random.integers(len(PLACES))]
    (height, width), whole = config.input_size, config.training_view.whole
    across, down, scale = width / whole[1], height / whole[0], 1.0
    if config.zoom > 1:
        largest = 1 / max(across, down)
        scale = largest * (config.zoom * largest) ** -random.random()
    return scale * across, scale * down, float(random.random()), float(random.random())


def augment(
    image: np.ndarray, box: Box, mirrored: bool, config: FinetuneConfig, inverted: bool, size: tuple[int, int]
) -> np.ndarray:
    """Crop an image (H, W, C) uint8 to (*size, C); the x of mirrored flow may be inverted (255 − v)."""
    view = config.training_view
    image = view.fitted(image)
    # sides are shares of the image that the view makes, positions of the room that is left in this one
    w, h = round(box[0] * view.whole[1]), round(box[1] * view.whole[0])
    x, y = round(box[2] * (image.shape[1] - w)), round(box[3] * (image.shape[0] - h))
    patch: np.ndarray = cv2.resize(image[y : y + h, x : x + w], size[::-1], interpolation=cv2.INTER_LINEAR)
    return mirror_image(patch, flow=inverted) if mirrored else patch
