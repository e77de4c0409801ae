"""Thresholds of each class from validation scores, and the checkpoint that carries them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lstr import checkpoint, metrics
from lstr.batch import predict
from lstr.checkpoint import Checkpoint
from lstr.labels import AMBIGUOUS, BACKGROUND
from lstr.timeline import DEFAULT, Thresholds
from pipelines.datasets.dataset import Split
from pipelines.networks.model_file import change_thresholds, is_model
from pipelines.progress import Finished, Progress

MOST_LEVELS = 50  # scores tried as `on`
OFF_SHARES = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3)  # of `on`, tried as `off`


def choose_thresholds(
    scores: Sequence[np.ndarray], targets: Sequence[np.ndarray], classes: Sequence[str]
) -> dict[str, Thresholds]:
    """The `on` and `off` of each class that reach the highest F1 over the chunks of some videos.

    scores and targets (L, C) of each video. What is scored are the chunks that hysteresis leaves on, as `Timeline`
    decides them; chunks labelled "Ambiguous" do not count. A class that never happens here is not in the result.
    Lengths and gaps stay at their defaults, for they cost delay.
    """
    found = {}
    mask = metrics.counted(np.concatenate(targets) > 0, classes)
    starts = _starts_of(scores)
    for c, label in enumerate(classes):
        truth = np.concatenate([t[:, c] for t in targets])[mask] > 0
        if label in (BACKGROUND, AMBIGUOUS) or not truth.any():
            continue
        curve = np.concatenate([s[:, c] for s in scores])
        best = (-1.0, DEFAULT)
        for on in levels(curve):
            for share in OFF_SHARES:
                value = f1(hysteresis(curve, starts, on, on * share)[mask], truth)
                if value > best[0]:
                    best = value, Thresholds(on, on * share)
        found[label] = best[1]
    return found


def levels(curve: np.ndarray) -> list[float]:
    """Scores to try as `on`: some of those that occur, spread by rank, denser towards the high ones."""
    seen = np.unique(curve[curve > 0])[::-1]
    ranks = np.unique(np.geomspace(1, max(1, len(seen)), MOST_LEVELS).astype(int)) - 1
    return [float(level) for level in seen[ranks]] if len(seen) else []


def hysteresis(curve: np.ndarray, starts: np.ndarray, on: float, off: float) -> NDArray[np.bool_]:
    """Chunks (N,) that are on: from one at `on` to before one below `off`; each video begins off."""
    switch = np.where(curve >= on, 1, np.where(curve < off, 0, -1))  # -1: as before
    switch[starts] = np.where(curve[starts] >= on, 1, 0)
    last = np.maximum.accumulate(np.where(switch >= 0, np.arange(len(curve)), 0))
    return switch[last] == 1


def f1(decided: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Harmonic mean of precision and recall."""
    right = np.count_nonzero(decided & truth)
    return 2 * right / (np.count_nonzero(decided) + np.count_nonzero(truth))


@dataclass(frozen=True)
class Chosen:
    """The file that holds the thresholds now, and for each class `on`, `off`, its F1 and that of the defaults."""

    path: Path
    by_class: dict[str, dict[str, float]]


def choose_for_checkpoint(loaded: Checkpoint, split: Split) -> Iterator[Progress | Finished[Chosen]]:
    """Choose a checkpoint's thresholds on the videos of a split and write them into it. Raises CheckpointError."""
    split = split.narrowed(loaded.config)
    scores = []
    for done, video in enumerate(split.videos):
        yield Progress("choose thresholds", done, len(split.videos))
        scores.append(predict(loaded.model, video.features[:]).numpy())
    yield Progress("choose thresholds", len(scores), len(split.videos))
    truth = [video.targets for video in split.videos]
    found = choose_thresholds(scores, truth, loaded.classes)
    starts, mask = _starts_of(scores), metrics.counted(np.concatenate(truth) > 0, loaded.classes)
    by_class = {}
    for label, rules in found.items():
        c = loaded.classes.index(label)
        curve, on = np.concatenate([s[:, c] for s in scores]), np.concatenate([t[:, c] for t in truth]) > 0
        by, before = (f1(hysteresis(curve, starts, used.on, used.off)[mask], on[mask]) for used in (rules, DEFAULT))
        by_class[label] = {"on": rules.on, "off": rules.off, "F1": by, "before": before}
    yield Finished(Chosen(write_thresholds(loaded, found), by_class))


def _starts_of(scores: Sequence[np.ndarray]) -> np.ndarray:
    """The first chunk of each video in all of them joined."""
    return np.cumsum([0, *map(len, scores)])[:-1]


def write_thresholds(loaded: Checkpoint, thresholds: Mapping[str, Thresholds]) -> Path:
    """Put thresholds into a checkpoint or model file, nothing else of it changed; returns it, which is replaced whole.

    A published file is left as it is: NAME.calibrated.pt beside it gets them. Raises CheckpointError.
    """
    stored = {label: asdict(rules) for label, rules in thresholds.items()}
    if is_model(loaded.path):
        return change_thresholds(loaded.path, stored)
    extra = {**loaded.extra, "thresholds": stored}
    if loaded.format == checkpoint.FORMAT:
        content = checkpoint.read(loaded.path)
        checkpoint.write_atomically(loaded.path, {**content, "extra": json.dumps(extra)})
        return loaded.path
    path = loaded.path.with_name(f"{loaded.path.stem}.calibrated.pt")
    checkpoint.save(path, loaded.model, loaded.classes, loaded.recipe, loaded.metrics, extra, loaded.calibration)
    return path
