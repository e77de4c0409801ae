"""Thresholds of each class from validation scores, and the checkpoint that carries them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.batch import predict
from lstr.checkpoints import checkpoint
from lstr.checkpoints.loaded import Checkpoint
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics import per_frame as metrics
from lstr.metrics.actions import measure_events
from lstr.pipelines.datasets.dataset import Split
from lstr.pipelines.evaluation.events import detect_events, labelled_segments
from lstr.pipelines.evaluation.hysteresis import hysteresis
from lstr.pipelines.evaluation.operating_curves import at_level, choose_levels, sweep
from lstr.pipelines.model_files.model_file import is_model
from lstr.pipelines.model_files.packing import change_thresholds
from lstr.pipelines.progress import Finished, Progress
from lstr.timeline import DEFAULT, Thresholds

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
    """Scores to try as `on`: below some of those that occur, spread by rank, denser towards the high ones.

    Each is half way to the next score, because one that occurs is decided otherwise where the last bit differs, as
    between the batch computation and the stream.
    """
    seen = np.unique(curve[curve > 0])[::-1].astype(np.float64)
    if not len(seen):
        return []
    between = (seen + np.append(seen[1:], 0)) / 2
    ranks = np.unique(np.geomspace(1, len(seen), MOST_LEVELS).astype(int)) - 1
    return [float(level) for level in between[ranks]]


def f1(decided: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Harmonic mean of precision and recall."""
    right = np.count_nonzero(decided & truth)
    return 2 * right / (np.count_nonzero(decided) + np.count_nonzero(truth))


@dataclass(frozen=True)
class Chosen:
    """The file that holds the thresholds now, and what they give on the videos that they were chosen on."""

    path: Path
    by_class: dict[str, dict[str, float | None]]
    """Of each class `on`, `off`, its F1 over chunks and that of the default thresholds (`before`)"""
    events: dict[str, Any]
    """What `lstr.metrics.actions.measure_events` says of them"""
    default_events: dict[str, Any]
    """And of the default thresholds"""


def choose_for_checkpoint(
    loaded: Checkpoint, split: Split, false_alarms: float | None = None
) -> Iterator[Progress | Finished[Chosen]]:
    """Choose a checkpoint's thresholds on the videos of a split and write them into it. Raises CheckpointError.

    With `false_alarms` those with which most actions are found for at most so many false alarms an hour of all classes
    together (see `operating_curves.choose_levels`); else those of the highest F1 of each class.
    """
    split = split.narrowed(loaded.config)
    scores = []
    for done, video in enumerate(split.videos):
        yield Progress("choose thresholds", done, len(split.videos))
        scores.append(predict(loaded.model, video.features[:]).numpy())
    yield Progress("choose thresholds", len(scores), len(split.videos))
    targets, truth = [v.targets for v in split.videos], [labelled_segments(split, v) for v in split.videos]
    if false_alarms is None:
        found = choose_thresholds(scores, targets, loaded.classes)
    else:
        levels = choose_levels(sweep(scores, truth, loaded.classes), false_alarms)
        found = {label: at_level(on) for label, on in levels.items()}
    events, default_events = (
        measure_events(
            [detect_events(rows, loaded.classes, rules, of) for rows, of in zip(scores, truth, strict=True)],
            loaded.classes,
        )
        for rules in (found, DEFAULT)
    )
    by_class = _by_class(found, scores, targets, loaded.classes)
    yield Finished(Chosen(write_thresholds(loaded, found), by_class, events, default_events))


def _by_class(
    found: Mapping[str, Thresholds], scores: Sequence[np.ndarray], targets: Sequence[np.ndarray], classes: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """The thresholds of each class with their F1 over chunks, and that of the default ones."""
    starts, mask = _starts_of(scores), metrics.counted(np.concatenate(targets) > 0, classes)
    rows, on = np.concatenate(scores), np.concatenate(targets) > 0
    by_class = {}
    for label, rules in found.items():
        c = classes.index(label)
        by, before = (
            f1(hysteresis(rows[:, c], starts, used.on, used.off)[mask], on[mask, c]) if on[mask, c].any() else None
            for used in (rules, DEFAULT)
        )
        by_class[label] = {"on": rules.on, "off": rules.off, "F1": by, "before": before}
    return by_class


def _starts_of(scores: Sequence[np.ndarray]) -> np.ndarray:
    """The first chunk of each video in all of them joined; an empty one has none."""
    starts = np.cumsum([0, *map(len, scores)])
    return np.unique(starts[starts < starts[-1]])


def write_thresholds(loaded: Checkpoint, thresholds: Mapping[str, Thresholds]) -> Path:
    """Put thresholds into a checkpoint or model file, nothing else of it changed; returns it, which is replaced whole.

    A published file is left as it is: NAME.thresholds.pt beside it gets them. Raises CheckpointError.
    """
    stored = {label: asdict(rules) for label, rules in thresholds.items()}
    if is_model(loaded.path):
        return change_thresholds(loaded.path, stored)
    extra = {**loaded.extra, "thresholds": stored}
    if loaded.format == checkpoint.FORMAT:
        content = checkpoint.read(loaded.path)
        checkpoint.write_atomically(loaded.path, {**content, "extra": json.dumps(extra)})
        return loaded.path
    path = loaded.path.with_name(f"{loaded.path.stem}.thresholds.pt")
    checkpoint.save(path, loaded.model, loaded.classes, loaded.recipe, loaded.metrics, extra, loaded.calibration)
    return path
