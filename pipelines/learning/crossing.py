"""Every labelled video teaches: models that each lack a fold of the videos measure what a model of all is worth."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lstr.average import mean_of
from lstr.batch import predict
from lstr.checkpoints.checkpoint import load
from lstr.labels.label_set import Labels
from lstr.pipelines.evaluation.scoring import Fold, means_of
from lstr.pipelines.features.dataset import Split, read_split
from lstr.pipelines.learning.parts import TRAINING, VALIDATION
from lstr.pipelines.learning.plan import MODEL, Compared, Doing
from lstr.pipelines.learning.ways import Candidate, Run, Way, best_of, measured_runs, ways_again, ways_of
from lstr.pipelines.learning.workspace import Workspace, write_labels
from lstr.pipelines.model_files.averaging import write_average
from lstr.pipelines.networks.checkpoint_recipe import streams_taken

Scores = NDArray[np.float32]


Trainer = Callable[[Path, Path, str, tuple[int, int], Path, Candidate], Generator[Doing, None, None]]
"""Trains one model: `lstr.pipelines.learning.steps.Steps.train_model`"""


@dataclass(frozen=True)
class Crossed:
    """What came of it."""

    packed: Path
    """The checkpoint that has learnt from every video."""
    folds: list[Fold]
    """Scores of every video by what is made in the same way, and has not learnt from it."""
    compared: Compared


class Crossing:
    """Models of every candidate without each fold, and of the best way without any.

    folds: the fold of each video that is learnt from, from 1; 0 of a video that only teaches. train: trains one model.
    """

    def __init__(
        self,
        workspace: Workspace,
        labels: Labels,
        folds: Mapping[str, int],
        candidates: Sequence[Candidate],
        train: Trainer,
        is_repeated: bool = True,
    ):
        self.workspace, self.labels, self.train = workspace, labels, train
        self.fold_of, self.folds = folds, sorted(set(folds.values()) - {0})
        self.is_repeated = is_repeated
        self.candidates = {one.name: one for one in candidates}
        self.ways = ways_of(candidates, len(self.folds))
        self._scores: dict[tuple[Run, int], list[Scores]] = {}

    def run(self) -> Generator[Doing, None, Crossed]:
        """Train all that is compared, compare, and train the rest of the way that is taken."""
        ways = list(self.ways)
        runs = measured_runs(ways, self.folds)
        total = len(runs) + 2 * len(self.candidates) * (1 + len(self.folds))
        for at, run in enumerate(runs):
            yield from self._train(run, (at, total))
        mAP = {way.name: self._mAP(way) for way in ways}
        if self.is_repeated:
            repeated = ways_again(ways, mAP)
            self.candidates |= {one.name: one for way in repeated for one in way.candidates}
            again = [run for run in measured_runs(repeated, self.folds) if run not in runs]
            for at, run in enumerate(again):
                yield from self._train(run, (len(runs) + at, total))
            mAP |= {way.name: self._mAP(way) for way in repeated}
            runs, ways = runs + again, ways + repeated
        way = best_of(ways, mAP)
        rest = [run for run in way.runs(frozenset(), self.folds) if run not in runs]
        for at, run in enumerate(rest):
            yield from self._train(run, (total - len(rest) + at, total))
        folds = [
            Fold({v.id: rows for v, rows in zip(split.videos, self._scores_of(way, fold), strict=True)})
            for fold, split in self.splits.items()
        ]
        return Crossed(self._packed(way), folds, Compared(mAP, way.name))

    def _folder(self, run: Run) -> Path:
        return self.workspace.models / run.candidate / run.name

    def _file(self, run: Run) -> Path:
        return self._folder(run) / "run" / "checkpoint.pt"

    def _train(self, run: Run, share: tuple[int, int]) -> Generator[Doing, None, None]:
        folder = self._folder(run)
        subsets = {i: VALIDATION if fold in run.held else TRAINING for i, fold in self.fold_of.items()}
        videos = {i: replace(self.labels.videos[i], subset=subset) for i, subset in subsets.items()}
        write_labels(folder / "labels.json", replace(self.labels, videos=videos))
        candidate = self.candidates[run.candidate]
        seen = self.workspace.seen_features(next(iter(run.held), 0))
        features = seen if candidate.seen else self.workspace.features
        yield from self.train(folder / "labels.json", folder / "run", MODEL, share, features, candidate)

    def _packed(self, way: Way) -> Path:
        """What a way makes of all videos: the one model, or a file with their average."""
        files = [self._file(run) for run in way.runs(frozenset(), self.folds)]
        return files[0] if len(files) == 1 else write_average(self.workspace.models / "average.pt", files)

    @cached_property
    def splits(self) -> dict[int, Split]:
        """The videos of each fold, and their features by networks that lack them."""
        whole = read_split(self.workspace.features, self.workspace.labels, TRAINING, skip_missing=True)
        videos = {fold: [v for v in whole.videos if self.fold_of.get(v.id) == fold] for fold in self.folds}
        return {fold: replace(whole, videos=some) for fold, some in videos.items()}

    def _scores_of(self, way: Way, fold: int) -> list[Scores]:
        """Scores (L, C) of each video of a fold by what a way makes without it."""
        found = [self._scores_by(run, fold) for run in way.runs(frozenset({fold}), self.folds)]
        return [rows[0] if len(rows) == 1 else mean_of(rows) for rows in zip(*found, strict=True)]

    def _scores_by(self, run: Run, fold: int) -> list[Scores]:
        if (run, fold) not in self._scores:
            loaded = load(self._file(run))
            split = self.splits[fold].narrowed(loaded.config, streams_taken(loaded))
            rows = [predict(loaded.model, video.features[:]).numpy() for video in split.videos]
            self._scores[run, fold] = rows
        return self._scores[run, fold]

    def _mAP(self, way: Way) -> float:
        """Over the chunks of all videos together, each scored by what lacks it; 0 where no action is labelled."""
        scores = [rows for fold in self.folds for rows in self._scores_of(way, fold)]
        targets = [video.targets for split in self.splits.values() for video in split.videos]
        value = float(means_of(scores, targets, self.labels.classes)["mAP"])
        return value if value == value else 0.0
