"""The training chunks that a Colar compares with."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lstr.models.windowed.colar import Colar, choose_exemplars
from lstr.pipelines.datasets.dataset import LabelledVideo
from lstr.pipelines.training.step import Learner

MOST = 1000
"""Chunks of a class that its exemplars are chosen from, drawn at random where it has more."""


def give_exemplars(learner: Learner, videos: Sequence[LabelledVideo]) -> None:
    """Choose the exemplars of a Colar from training videos, on the scale that it is trained on; others need none.

    The same of the same videos and seed, so that every process of a run has the same.
    """
    model = learner.model
    if not isinstance(model, Colar):
        return
    random = np.random.default_rng(learner.config.seed)
    mean, std = learner.mean.cpu(), learner.std.cpu()
    for label in range(model.n_classes):
        rows = _rows_of(videos, label, learner.ignore, random).sub(mean).div(std)  # (N, D)
        chosen = choose_exemplars(rows, model.config.exemplars, learner.config.seed)
        model.exemplars[label] = chosen.to(model.exemplars)


def _rows_of(videos: Sequence[LabelledVideo], label: int, ignore: int | None, random: np.random.Generator) -> Tensor:
    """Features (N, D) of chunks of one class that are not ambiguous, `MOST` at most."""
    places = []
    for v, video in enumerate(videos):
        truth = np.asarray(video.targets)
        has = (truth[:, label] > 0) if ignore is None else (truth[:, label] > 0) & (truth[:, ignore] == 0)
        places += [(v, int(chunk)) for chunk in np.flatnonzero(has)]
    if len(places) > MOST:
        places = [places[i] for i in sorted(random.choice(len(places), MOST, replace=False))]
    by_video: dict[int, list[int]] = defaultdict(list)
    for v, chunk in places:
        by_video[v].append(chunk)
    read = [np.asarray(videos[v].features[np.array(chunks)], dtype=np.float32) for v, chunks in by_video.items()]
    none = videos[0].features[np.zeros(0, dtype=np.int64)]  # (0, D)
    return torch.from_numpy(np.concatenate([none.astype(np.float32), *read]))
