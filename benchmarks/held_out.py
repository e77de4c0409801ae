"""Scores of real videos by models that never saw them, and settings chosen without them.

Every score is kept in a folder by what made it, so that a campaign which was stopped goes on where it was.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from time import process_time

import numpy as np

from lstr.batch import predict
from lstr.checkpoints.checkpoint import load
from lstr.labels.label_set import Labels, targets
from lstr.metrics import per_frame as metrics
from lstr.pipelines.datasets.dataset import LabelledVideo, Split, TwoStreamArray
from lstr.pipelines.features.folder import FeatureFolder
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.run import Task, train_model

GROUP = 2  # videos that are left out together
Settings = Mapping[str, str]
"""`model.x` and `train.x` on top of a preset, or the `penalty` and number of `chunks` of the linear classifier."""
Scores = dict[str, np.ndarray]
"""(L, C) a video"""


class HeldOut:
    """Trains on some videos of a folder and scores others, remembering what it has done in `kept`.

    Each of several folders has streams of its own.
    """

    def __init__(self, folder: FeatureFolder, labels: Labels, preset: str, kept: Path, *others: FeatureFolder):
        self.folder, self.labels, self.preset, self.kept = folder, labels, preset, kept
        self.seconds: dict[str, list[float]] = {}
        """Processor time of each training with its scoring, by settings."""
        self.videos = {}
        for video_id, entry in labels.videos.items():
            loaded = [one.load(video_id) for one in (folder, *others)]
            array = TwoStreamArray(*(np.concatenate(parts, axis=1) for parts in zip(*loaded, strict=True)))
            self.videos[video_id] = LabelledVideo(video_id, array, targets(entry, labels.classes, len(array)))

    def scores(self, settings: Settings, seed: int, training: Sequence[str], testing: Sequence[str]) -> Scores:
        """Scores of the testing videos by a model of these settings that was trained on the training videos."""
        made_by = json.dumps([dict(settings), seed, sorted(training), sorted(testing), self.preset], sort_keys=True)
        path = self.kept / f"{hashlib.sha256(made_by.encode()).hexdigest()[:16]}.npz"
        if not path.exists():
            start = process_time()
            train_on, test_on = ([self.videos[i] for i in ids] for ids in (training, testing))
            if "penalty" in settings:
                found = linear_scores(train_on, test_on, int(settings["chunks"]), float(settings["penalty"]))
            else:
                found = self.trained(settings, seed, train_on, test_on)
            seconds = process_time() - start
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez(file, seconds=seconds, **{f"of {i}": s for i, s in zip(testing, found, strict=True)})
        with np.load(path) as file:
            name = json.dumps(dict(settings), sort_keys=True)
            self.seconds.setdefault(name, []).append(float(file["seconds"]))
            return {i: file[f"of {i}"] for i in testing}

    def trained(
        self, settings: Settings, seed: int, training: list, testing: list, classes: Sequence[str] | None = None
    ) -> list[np.ndarray]:
        """Scores of the testing videos by a new model. classes: of the training targets; None for the labels' own."""
        labels = replace(self.labels, classes=tuple(classes)) if classes else self.labels
        split, run = Split(self.folder, labels, training), self.kept / "run"
        model, config = resolve(self.preset, {**settings, "train.seed": str(seed)}, split.dims)
        shutil.rmtree(run, ignore_errors=True)
        for _ in train_model(Task(split, model, config), run):
            pass
        loaded = load(run / "checkpoint.pt")
        return [predict(loaded.model, video.features[:]).numpy() for video in testing]

    def per_frame(self, scores: Scores) -> dict:
        """mAP, mcAP and per class over all chunks of the scored videos."""
        truth = np.concatenate([self.videos[i].targets for i in scores])
        return metrics.per_frame(np.concatenate([*scores.values()]), truth, self.labels.classes)


def groups_of(ids: Sequence[str]) -> list[list[str]]:
    """The videos in groups of GROUP, in order."""
    return [list(ids[at : at + GROUP]) for at in range(0, len(ids), GROUP)]


def without_each(held: HeldOut, settings: Settings, ids: Sequence[str]) -> dict[int, float]:
    """For each group of videos, the mAP of the others by models that saw neither them nor the group.

    The model without groups g and h scores h for the choice of g, and g for the choice of h, so that a pair needs one
    model. The mAP is over all chunks of the other groups together.
    """
    groups = groups_of(ids)
    found: dict[int, Scores] = {g: {} for g in range(len(groups))}
    for g, h in combinations(range(len(groups)), 2):
        testing = [*groups[g], *groups[h]]
        scores = held.scores(settings, 0, [i for i in ids if i not in testing], testing)
        found[g] |= {i: scores[i] for i in groups[h]}
        found[h] |= {i: scores[i] for i in groups[g]}
    return {g: held.per_frame(scores)["mAP"] for g, scores in found.items()}


def chosen_without(
    held: HeldOut, candidates: Mapping[str, Settings], ids: Sequence[str]
) -> tuple[dict[str, str], dict[str, list[float]]]:
    """For each video the candidate that does best on the other groups' videos; and each candidate's mAPs, a group."""
    found = {name: without_each(held, settings, ids) for name, settings in candidates.items()}
    choice = {}
    for g, group in enumerate(groups_of(ids)):
        best = max(found, key=lambda name: found[name][g])
        choice |= dict.fromkeys(group, best)
    return choice, {name: list(scores.values()) for name, scores in found.items()}


def folds_of(ids: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Training and testing videos of each fold: every group is left out once."""
    for group in groups_of(ids):
        yield [i for i in ids if i not in group], group


def running_mean(rows: np.ndarray, n: int) -> np.ndarray:
    """Mean of each row (L, D) and the up to n − 1 before it."""
    total = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, 0, dtype=np.float64)])
    k = np.arange(len(rows))
    first = np.maximum(k - n + 1, 0)
    return (total[k + 1] - total[first]) / (k + 1 - first)[:, None]


def linear_scores(
    training: list[LabelledVideo], testing: list[LabelledVideo], n: int, penalty: float
) -> list[np.ndarray]:
    """Ridge regression of the targets on the mean of the last n chunks' features: what needs no memory."""
    rows = np.concatenate([running_mean(video.features[:], n) for video in training])
    wanted = np.concatenate([video.targets for video in training]).astype(float)
    mean, std, prior = rows.mean(0), rows.std(0) + 1e-6, wanted.mean(0)
    rows = (rows - mean) / std
    weights = rows.T @ np.linalg.solve(rows @ rows.T + penalty * np.eye(len(rows)), wanted - prior)
    return [(running_mean(video.features[:], n) - mean) / std @ weights + prior for video in testing]
