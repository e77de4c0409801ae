"""Training chunks of a class, for kinds that are to know some before their first step."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lstr.pipelines.datasets.dataset import LabelledVideo
from lstr.pipelines.training.step import Learner

MOST = 1000
"""Chunks of a class that are given, drawn at random where it has more."""


def features_of_classes(learner: Learner, videos: Sequence[LabelledVideo]) -> Callable[[int], Tensor]:
    """For `Model.prepare`: what gives features (N, D) of a class of training videos, on the scale of training.

    The same of the same videos and seed, so that every process of a run has the same.
    """
    random = np.random.default_rng(learner.config.seed)
    mean, std = learner.mean.cpu(), learner.std.cpu()
    return lambda label: _rows_of(videos, label, learner.ignore, random).sub(mean).div(std)


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
