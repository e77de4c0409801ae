"""Feature stores in published formats, with an action at known times."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from lstr.chunk import Clock
from tests.support.feature_set import TINY_SETTINGS

FORMATS = ("npy", "npz", "npz packed", "pt")
SECONDS = 12
SEGMENTS = {f"v{n}": [(1.3 + n / 7, 3.1 + n / 3), (6.7, 8.9 - n / 9)] for n in range(5)}
"""Start and end in seconds, at which no chunk of any rate begins"""


def rows_of(video: str, clock: Clock, width: int = 8, seconds: int = SECONDS) -> np.ndarray:
    """Return features (L, width) float32 of a video: noise, with larger first three numbers during the action."""
    length = int(seconds * clock.rate)
    rows = np.random.default_rng([ord(video[-1]), length]).normal(0, 0.3, (length, width)).astype(np.float32)
    for start, end in SEGMENTS[video]:
        first, stop = clock.first(start), clock.end(end)
        rows[max(0, first) : stop, :3] += 2.0
    return rows


def write_labels(path: Path, names: dict[str, str] | None = None) -> Path:
    """Write the labels: three videos for training, one for validation, one for testing."""
    subsets = ("training", "training", "training", "validation", "testing")
    database = {
        (names or {}).get(video, video): {
            "subset": subset,
            "duration": SECONDS,
            "annotations": [{"segment": list(times), "label": "wave"} for times in segments],
        }
        for (video, segments), subset in zip(SEGMENTS.items(), subsets, strict=True)
    }
    path.write_text(json.dumps({"classes": ["Background", "wave"], "database": database}))
    return path


def write_store(path: Path, form: str, arrays: dict[str, np.ndarray]) -> Path:
    """Write arrays in one of FORMATS; return the folder."""
    path.mkdir(parents=True, exist_ok=True)
    for video, rows in arrays.items():
        if form == "npy":
            np.save(path / f"{video}.npy", rows)
        elif form == "npz":
            np.savez(path / f"{video}.npz", features=rows, frames=np.arange(len(rows)))
        elif form == "npz packed":
            np.savez_compressed(path / f"{video}.npz", rows)
        else:
            torch.save({"features": torch.from_numpy(rows)}, path / f"{video}.pt")
    return path


def write_set(folder: Path, form: str, rate: str, width: int = 8) -> tuple[Path, Path, Clock]:
    """Write a store at a rate and its labels; return them and the clock."""
    clock = Clock(Fraction(rate))
    arrays = {video: rows_of(video, clock, width) for video in SEGMENTS}
    return write_store(folder / "store", form, arrays), write_labels(folder / "labels.json"), clock


SMALLEST = {"long_length": "8", "work_length": "6", "long_stride": "2", "l_enc": "1", "l_dec": "1", "dropout": "0"}
TINY = {**TINY_SETTINGS, **{f"model.{name}": value for name, value in SMALLEST.items()}}
TINY |= {"model.kind": "lstr", "train.lr": "0.01", "train.warmup": "0.1"}
"""Settings of a model that learns the action in a few hundred steps"""
