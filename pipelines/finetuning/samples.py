"""Labelled segments of cached videos as the samples that TSN recognisers learn from (Wang et al. 2016, section 3).

A sample is a segment cut in equal parts, with a chunk drawn at random from each. Stretches without a label are cut in
pieces as long as a typical action, and are a class of their own. Every draw follows from (seed, epoch, sample), so a
run that goes on from an epoch draws what it would have drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch.utils.data import Dataset

from lstr.extractors.images.crops import centre_crop, fit, mirror_image
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, end_chunk, first_chunk, runs, targets
from lstr.pipelines.extraction.chunk_cache import CachedVideo


@dataclass(frozen=True)
class Sample:
    """Chunks [start, end) of a video, and the class they show."""

    video: str
    start: int
    end: int
    label: int


@dataclass(frozen=True)
class Augmentation:
    """What a training image goes through: corner crops of several scales, and mirroring (TSN, section 3.3)."""

    short_side: int = 256
    """Pixels that an image is fitted to; as in the recipe."""
    crop: int = 224
    scales: tuple[float, ...] = (1.0, 0.875, 0.75, 0.66)
    """Scales of the crop's sides against `short_side`; its two sides are at most one step apart."""
    mirror: bool = True
    directed: bool = True
    """Whether the x of flow is a direction, which a mirror turns round; that of differences is not"""
    colour: float = 0.0
    """How far contrast, brightness and saturation of RGB are changed, as a share; without any, a red shirt is an action
    where one person shows it."""


def samples_of(videos: Mapping[str, tuple[VideoLabels, int]], classes: Sequence[str]) -> list[Sample]:
    """One sample per labelled segment, and one per piece of background; (labels, chunks) by video id.

    Of actions that overlap each is a sample. Ambiguous stretches are no background, nor an action where none is
    labelled besides. A piece of background is as long as the median action.
    """
    column = {name: index for index, name in enumerate(classes)}
    samples = []
    for video_id, (labels, n_chunks) in videos.items():
        for segment in labels.segments:
            first, last = first_chunk(segment.start), min(end_chunk(segment.end), n_chunks)
            if segment.label not in (BACKGROUND, AMBIGUOUS) and first < last:
                samples.append(Sample(video_id, first, last, column[segment.label]))
    length = int(np.median([sample.end - sample.start for sample in samples])) if samples else 1
    for video_id, (labels, n_chunks) in videos.items():
        nothing = targets(labels, tuple(classes), n_chunks)[:, column[BACKGROUND]]
        for first, last in runs(nothing > 0):
            pieces = max(1, round((last - first) / length))
            edges = np.linspace(first, last, pieces + 1).round().astype(int)
            samples += [
                Sample(video_id, int(a), int(b), column[BACKGROUND]) for a, b in zip(edges, edges[1:], strict=False)
            ]
    return samples


class SampleSet(Dataset):
    """Training samples by (epoch, draw, index): images (segments, C, crop, crop) uint8 of a stream, and their class."""

    def __init__(
        self,
        samples: Sequence[Sample],
        videos: Mapping[str, CachedVideo],
        stream: str,
        n_segments: int,
        augmentation: Augmentation,
        seed: int,
    ):
        self.samples = samples
        self.videos = videos
        self.stream = stream
        self.n_segments = n_segments
        self.augmentation = augmentation
        self.seed = seed

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, at: tuple[int, int, int]) -> tuple[torch.Tensor, int]:
        drawn, images = self.draw(at), []
        for chunk in drawn.chunks:
            image = self.read(drawn.video, chunk)
            image = image if drawn.tint is None else tinted(image, drawn.tint)
            images.append(augment(image, drawn.box, drawn.mirrored, self.augmentation, self.stream))
        pixels = torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2).copy())  # (segments, C, crop, crop)
        return pixels, drawn.label

    def draw(self, at: tuple[int, int, int]) -> "Drawn":
        """What (epoch, draw, index) is."""
        epoch, draw, index = at
        sample = self.samples[index]
        random = np.random.default_rng((self.seed, epoch, draw))
        box = draw_crop(random, self.augmentation)
        mirrored = self.augmentation.mirror and bool(random.random() < 0.5)
        chunks = draw_chunks(random, sample, self.n_segments)
        coloured = self.stream == "rgb" and self.augmentation.colour
        tint = draw_tint(random, self.augmentation.colour) if coloured else None
        return Drawn(sample.video, sample.label, chunks, box, mirrored, tint)

    def read(self, video_id: str, chunk: int) -> np.ndarray:
        """The image (H, W, C) uint8 of a chunk. Raises CacheError where it is damaged."""
        rgb, flow = self.videos[video_id].read(chunk)
        return rgb if self.stream == "rgb" else np.ascontiguousarray(flow.transpose(1, 2, 0))


def draw_chunks(random: np.random.Generator, sample: Sample, n_segments: int) -> list[int]:
    """One chunk of each of `n_segments` equal parts; a short sample gives some of its chunks more than once."""
    edges = np.linspace(sample.start, sample.end, n_segments + 1)
    drawn = (random.uniform(a, b) for a, b in zip(edges, edges[1:], strict=False))
    return [min(int(chunk), sample.end - 1) for chunk in drawn]


Box = tuple[float, float, float, float]
"""Width and height of a crop as shares of the short side, and where it lies as shares of the room left."""


CORNERS = tuple((x, y) for y in (0.0, 1.0) for x in (0.0, 1.0))
EDGES = ((0.5, 0.0), (0.0, 0.5), (1.0, 0.5), (0.5, 1.0))
PLACES = (*CORNERS, (0.5, 0.5), *EDGES, *((0.25 + x / 2, 0.25 + y / 2) for x, y in CORNERS))
"""Corners, centre, the middles of the edges, and half way from the centre to the corners (TSN's published code)."""


GREY = SWAPPED = 0.3  # shares of images


def draw_crop(random: np.random.Generator, augmentation: Augmentation) -> Box:
    """A crop in one of 13 places, its sides of two neighbouring scales."""
    scales = augmentation.scales
    first = int(random.integers(len(scales)))
    second = int(np.clip(first + random.integers(-1, 2), 0, len(scales) - 1))
    return scales[first], scales[second], *PLACES[random.integers(len(PLACES))]


@dataclass(frozen=True)
class Tint:
    """What is done to the colours of an image."""

    order: tuple[int, ...]
    """Order of the channels."""
    saturation: float
    contrast: float
    brightness: float


@dataclass(frozen=True)
class Drawn:
    """A training sample before its images are read."""

    video: str
    label: int
    chunks: list[int]
    box: Box
    mirrored: bool
    tint: Tint | None


def draw_tint(random: np.random.Generator, colour: float) -> Tint:
    """Each property changed by a share of up to `colour`; in three of ten images grey, in as many colours swapped."""
    order = random.permutation(3) if random.random() < SWAPPED else np.arange(3)
    saturation = 0.0 if random.random() < GREY else random.uniform(1 - colour, 1 + colour)
    return Tint(tuple(order.tolist()), saturation, *random.uniform(1 - colour, 1 + colour, 2).tolist())


def tinted(image: np.ndarray, tint: Tint) -> np.ndarray:
    """(H, W, 3) uint8 with other colours."""
    pixels = image[..., tint.order].astype(np.float32)
    grey = pixels.mean(2, keepdims=True)
    mean = grey.mean()
    pixels = grey + (pixels - grey) * tint.saturation
    return np.clip((pixels - mean) * tint.contrast + mean * tint.brightness, 0, 255).astype(np.uint8)


def augment(image: np.ndarray, box: Box, mirrored: bool, augmentation: Augmentation, stream: str) -> np.ndarray:
    """(H, W, C) uint8 → (crop, crop, C); the x of mirrored flow is inverted (255 − v) where it is a direction."""
    image = fit(image, augmentation.short_side)
    height, width = image.shape[:2]
    x, y, w, h = patch_of(box, augmentation.short_side, width, height)
    patch: np.ndarray = cv2.resize(
        image[y : y + h, x : x + w], (augmentation.crop,) * 2, interpolation=cv2.INTER_LINEAR
    )
    return mirror_image(patch, flow=stream == "flow" and augmentation.directed) if mirrored else patch


def patch_of(box: Box, short_side: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of a crop in an image that is fitted to `short_side`, in pixels."""
    w, h = (round(share * short_side) for share in box[:2])
    return round(box[2] * (width - w)), round(box[3] * (height - h)), w, h


class ChunkSet(Dataset):
    """Every chunk of some videos in order, for validation: one centre crop (1, C, crop, crop) uint8, and its place."""

    def __init__(self, videos: Mapping[str, CachedVideo], stream: str, augmentation: Augmentation):
        self.videos = videos
        self.stream = stream
        self.augmentation = augmentation
        self.places = [(video_id, chunk) for video_id, video in videos.items() for chunk in range(len(video))]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        video_id, chunk = self.places[index]
        rgb, flow = self.videos[video_id].read(chunk)
        image = rgb if self.stream == "rgb" else np.ascontiguousarray(flow.transpose(1, 2, 0))
        image = centre_crop(fit(image, self.augmentation.short_side), self.augmentation.crop)  # (1, crop, crop, C)
        return torch.from_numpy(image.transpose(0, 3, 1, 2).copy()), index


class Draws:
    """(epoch, draw, index) of the samples of each epoch: each class as often as any other, each sample of it as often.

    An epoch has `n_draws`, or as many as there are samples. Without `balanced`, each sample is drawn as often.
    """

    def __init__(self, samples: Sequence[Sample], balanced: bool, seed: int, n_draws: int | None = None):
        self.labels = np.array([sample.label for sample in samples])
        self.balanced = balanced
        self.seed = seed
        self.n_draws = n_draws or len(samples)

    def __len__(self) -> int:
        return self.n_draws

    def of(self, epoch: int) -> list[tuple[int, int, int]]:
        """The samples of one epoch, in the order that they are learnt from."""
        random = np.random.default_rng((self.seed, epoch, 2**31))
        groups = [np.arange(len(self.labels))]
        if self.balanced:
            groups = [np.flatnonzero(self.labels == label) for label in np.unique(self.labels)]
        each = -(-len(self) // len(groups))
        drawn = np.concatenate([_repeated(random, group, each) for group in groups])
        drawn = random.permutation(drawn)[: len(self)]
        return [(epoch, draw, int(index)) for draw, index in enumerate(drawn)]


def _repeated(random: np.random.Generator, group: np.ndarray, n: int) -> np.ndarray:
    """`n` of a group: whole shuffles of it, one after the other."""
    rounds = -(-n // len(group))
    return np.concatenate([random.permutation(group) for _ in range(rounds)])[:n]
