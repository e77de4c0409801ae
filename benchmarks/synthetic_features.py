"""Synthetic two-stream features on real label sequences: online action detection at full size, without videos.

A chunk of a stream is a point in a latent space of few dimensions, taken to the stream's width by a fixed random
matrix, plus a little white noise in every feature. The latent point is a sum of four parts:

- evidence of the action that is on: a direction that all actions share ("something happens") and one of the class's
  own. It builds up over some chunks as an action unfolds and fades when it ends, never before its time; how visible it
  is differs from one instance to the next. An Ambiguous chunk has the shared direction alone, background nothing;
- the video's nuisance: all through a video its scene looks a little like one of the 20 actions, drawn without regard
  to the actions it has (a lawn looks like golf). In a single chunk that is like evidence;
- slow noise, with a memory of seconds;
- fast noise, new in each chunk.

So a single chunk shows little. Averaging over the last seconds takes the fast noise away. What lies further back helps
in two ways. Real videos repeat the same action or two (183 of THUMOS'14's 200 training videos have one class), so that
clear earlier instances show what a faint one is; this the label sequences bring. And a long past, most of it
background, shows what the scene looks like, which can then be separated from evidence. Between actions nothing in the
features shows which class the video is about.

The streams differ as appearance and motion do: appearance separates the classes and hardly shows when, under a strong
nuisance and more slow noise; motion shows when, less well which, under mostly fast noise.

Strengths were chosen before the study, by ridge regression on the latent points: an mAP of 0.2 to 0.3 from one chunk,
more from 2 s, more again from the whole past (measured: 0.29, 0.38, 0.56; the last from 2 s less the mean of all chunks
so far, its scores then weighed by those of the past). A trial of memory-0 on an earlier version changed one thing: the
nuisance was a random vector a video, by which a model knows the 200 training videos by heart, classes included.
"""

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from extractors.errors import OutputError
from lstr.labels import AMBIGUOUS, BACKGROUND, THUMOS_CLASSES
from pipelines.files.atomic import replacing
from pipelines.files.json_files import write_json

SUBSETS = {"train_session_set": "video_validation_*.npy", "test_session_set": "video_test_*.npy"}
"""The lists of data_info.json, and which published targets are theirs."""
ACTIONS = [i for i, name in enumerate(THUMOS_CLASSES) if name not in (BACKGROUND, AMBIGUOUS)]


@dataclass(frozen=True)
class Stream:
    """What one stream shows. Lengths and noises are in one unit, a noise by its standard deviation a dimension."""

    width: int
    """features a chunk"""
    rank: int
    """dimensions of the latent space"""
    shared: float
    """length of the direction all actions share"""
    own: float
    """length of a class's own direction"""
    nuisance: float
    """length, at most, of the class's direction that the video's scene has all the time"""
    slow: float
    fast: float


@dataclass(frozen=True)
class Generator:
    """How features are made; with equal settings the same, to the bit, whatever is made before."""

    rgb: Stream = Stream(width=2048, rank=24, shared=0.5, own=2.2, nuisance=3.0, slow=0.6, fast=1.0)
    flow: Stream = Stream(width=1024, rank=24, shared=2.0, own=2.0, nuisance=2.0, slow=0.3, fast=1.4)
    slow_chunks: float = 16.0
    """Chunks in which slow noise forgets all but 1/e."""
    rise: float = 0.4
    """Share of the way to full evidence (or none) that a chunk goes."""
    visible: tuple[float, float] = (0.3, 1.7)
    """An instance's strength is drawn uniformly between these."""
    white: float = 0.5
    """White noise of each feature, whose standard deviation is about 1 without it."""
    seed: int = 0

    def latents(self, video: str, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Latent points (L, rank) of both streams of a video with one-hot targets (L, 22)."""
        random = np.random.default_rng([self.seed, zlib.crc32(video.encode())])
        visible = _visibility(targets, self.visible, random)
        scene = np.zeros(len(THUMOS_CLASSES))
        scene[random.choice(ACTIONS)] = random.uniform()
        return tuple(self._latent(name, targets, visible, scene, random) for name in ("rgb", "flow"))

    def features(self, video: str, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """RGB (L, 2048) and flow (L, 1024) of a video with one-hot targets (L, 22), float16."""
        random = np.random.default_rng([self.seed, zlib.crc32(video.encode()), 1])
        made = []
        for name, latent in zip(("rgb", "flow"), self.latents(video, targets), strict=True):
            stream = getattr(self, name)
            spread = _fixed(self.seed, name, "features").standard_normal((stream.rank, stream.width), np.float32)
            spread /= np.sqrt(stream.rank) * np.hypot(stream.slow, stream.fast)
            rows = latent.astype(np.float32) @ spread
            rows += self.white * random.standard_normal(rows.shape, np.float32)
            made.append(rows.astype(np.float16))
        return tuple(made)

    def _latent(
        self, name: str, targets: np.ndarray, visible: np.ndarray, scene: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        stream = getattr(self, name)
        shape = (len(targets), stream.rank)
        evidence = targets @ self.means(name) * visible[:, None]
        evidence = lfilter([self.rise], [1, self.rise - 1], evidence, axis=0)
        keep = np.exp(-1 / self.slow_chunks)
        drift = random.standard_normal(shape) * np.sqrt(1 - keep**2)
        drift[0] /= np.sqrt(1 - keep**2)  # as if it had gone on for ever
        nuisance = stream.nuisance * scene @ self.directions(name)[1:]
        slow = stream.slow * lfilter([1], [1, -keep], drift, axis=0)
        return evidence + nuisance + slow + stream.fast * random.standard_normal(shape)

    def means(self, name: str) -> np.ndarray:
        """What each class adds to the latent point of a stream at full evidence: (22, rank)."""
        stream, directions = getattr(self, name), self.directions(name)
        means = stream.shared * directions[0] + stream.own * directions[1:]
        means[THUMOS_CLASSES.index(BACKGROUND)] = 0
        means[THUMOS_CLASSES.index(AMBIGUOUS)] = stream.shared * directions[0]
        return means

    def directions(self, name: str) -> np.ndarray:
        """Of length 1: the direction that all actions share, then each class's own, (1 + 22, rank)."""
        shape = (1 + len(THUMOS_CLASSES), getattr(self, name).rank)
        drawn = _fixed(self.seed, name, "classes").standard_normal(shape)
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _fixed(seed: int, *names: str) -> np.random.Generator:
    """Random numbers that are the same for all videos."""
    return np.random.default_rng([seed, *(zlib.crc32(name.encode()) for name in names)])


def _visibility(targets: np.ndarray, bounds: tuple[float, float], random: np.random.Generator) -> np.ndarray:
    """Strength (L,) of each chunk's instance; targets (L, C) are one-hot, and an instance is a run of one class."""
    label = targets.argmax(axis=1)
    run = np.cumsum(np.append(0, label[1:] != label[:-1]))
    return random.uniform(*bounds, size=run[-1] + 1)[run]


def read_targets(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Published targets (L, 22) by list of data_info.json and video id, from a folder of .npy files."""
    return {
        key: {path.stem: np.load(path) for path in sorted(folder.glob(pattern))} for key, pattern in SUBSETS.items()
    }


def write_features(folder: Path, published: Path, generator: Generator) -> Path:
    """Make a feature folder for the videos of `published`/target_perframe; gives its data_info.json.

    What exists already is not made again. Targets are read from the published folder. Raises OutputError where
    the folder holds features of another generator.
    """
    info = folder / "data_info.json"
    targets = read_targets(published / "target_perframe")
    entry = {
        "data_root": str(published.resolve()),
        "class_names": list(THUMOS_CLASSES),
        "num_classes": len(THUMOS_CLASSES),
        "ignore_index": THUMOS_CLASSES.index(AMBIGUOUS),
        "metrics": "AP",
        "fps": 4,
        "generator": json.loads(json.dumps(asdict(generator))),
        **{key: list(videos) for key, videos in targets.items()},
    }
    if info.exists() and json.loads(info.read_text())["THUMOS"]["generator"] != entry["generator"]:
        raise OutputError(f"{folder} holds features of another generator.", "choose another folder, or remove it.")
    write_json(info, {"THUMOS": entry})
    for videos in targets.values():
        for video, rows in videos.items():
            paths = [folder / f"{stream}_synthetic" / f"{video}.npy" for stream in ("rgb", "flow")]
            if all(path.exists() for path in paths):
                continue
            for path, array in zip(paths, generator.features(video, rows), strict=True):
                with replacing(path) as temporary, temporary.open("wb") as file:
                    np.save(file, array)
    return info
