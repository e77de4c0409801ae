"""Chunks of videos with a visible pattern for each class, without video files."""

import hashlib
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from lstr.extractors.presets import PRESETS, StreamPreset
from lstr.labels.label_set import BACKGROUND, Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.features.chunk_cache import CachedVideo
from lstr.pipelines.training.network_config import resolve
from lstr.pipelines.training.network_run import Training
from lstr.pipelines.training.recogniser import Initial, NetworksToTrain
from lstr.pipelines.training.training_videos import make_pairs

CLASSES = (BACKGROUND, "rows", "columns")
SIDE, LENGTH, ACTION = 40, 24, 4  # pixels, chunks of a video, chunks of an action

SMALL = {"short_side": 32, "crop": 32, "batch_size": 4, "draws": 4, "segments": 1, "precision": "float32", "mixup": 0}


def planted(n_training: int, n_validation: int = 0) -> tuple[Labels, dict[str, CachedVideo]]:
    """Return labels and chunks of videos v0, v1, …, the last ones for validation.

    All planes have noise, and stripes during an action. Their direction is the class; mirroring preserves it.
    """
    random = np.random.default_rng(0)
    stripes = np.where(np.arange(SIDE)[:, None] % 8 < 4, np.uint8(90), np.uint8(0)) * np.ones((1, SIDE), np.uint8)
    videos, cached = {}, {}
    for v in range(n_training + n_validation):
        chunks = random.integers(96, 160, (LENGTH, 13, SIDE, SIDE)).astype(np.uint8)
        segments = []
        for at, start in enumerate(range(2, LENGTH - ACTION, 2 * ACTION)):
            label = 1 + (at + v) % 2
            chunks[start : start + ACTION] += stripes if label == 1 else stripes.T
            segments.append(Segment(start / 4, (start + ACTION) / 4, CLASSES[label]))
        subset = "training" if v < n_training else "validation"
        videos[f"v{v}"] = VideoLabels(subset, LENGTH / 4, tuple(segments))
        record = {"crc32": [zlib.crc32(np.ascontiguousarray(chunk)) for chunk in chunks]}
        record["sha256"] = hashlib.sha256(f"v{v}".encode()).hexdigest()
        cached[f"v{v}"] = CachedVideo(Path(f"v{v}.npy"), chunks, record, {"rgb_frame": 3})
    return Labels(CLASSES, videos), cached


def planted_training(streams, n_videos=3, n_folds=0, initial=None, n_validation=1, **settings) -> Training:
    labels, cached = planted(n_videos, n_validation)
    preset = replace(PRESETS["fast"], flow=StreamPreset("shufflenetv2")).narrowed(streams)
    initial = initial or dict.fromkeys(streams, Initial())
    changes = {name: str(value) for name, value in {**SMALL, **settings}.items()}
    preset, configs = resolve(preset, {s: initial[s].path and "custom" for s in streams}, changes, "cpu")
    ids = sorted(cached)
    pairs, folds = make_pairs(labels, ids[:n_videos], ids[n_videos:], n_folds, {})
    return Training(NetworksToTrain(preset, configs, initial), labels, cached, pairs, folds)
