"""Checkpoint, features and labels to per-frame mAP and mcAP, beside what the labels alone would score."""

from time import perf_counter

import numpy as np

from lstr import metrics
from lstr.batch import predict
from lstr.checkpoint import Checkpoint
from lstr.errors import CheckpointError
from lstr.labels import AMBIGUOUS, Labels, select, targets
from pipelines.dataset import Split
from pipelines.detect import check_recipe
from pipelines.extract import Progress


def baseline_scores(labels: Labels, lengths: list[int]) -> dict[str, list[np.ndarray]]:
    """Scores (L, C) a video of the two baselines, from the training subset's labels alone.

    `chance` says the class prior everywhere; `time_prior` the class frequency by chunk index. Without a training
    subset the result is empty.
    """
    if not any(video.subset == "training" for video in labels.videos.values()):
        return {}
    counted = [
        targets(video, labels.classes, max(1, round(video.duration * 4)))
        for video in select(labels, "training").videos.values()
        if video.duration
    ]
    if not counted:
        return {}
    return {
        "chance": [metrics.chance(counted, length) for length in lengths],
        "time_prior": [metrics.time_prior(counted, length) for length in lengths],
    }


def check_fit(loaded: Checkpoint, split: Split) -> None:
    """Raise CheckpointError or RecipeError unless checkpoint, labels and features belong together."""
    if loaded.classes != split.labels.classes:
        ours, theirs = set(loaded.classes), set(split.labels.classes)
        parts = [
            f"only in the {where}: {', '.join(sorted(names))}"
            for where, names in (("checkpoint", ours - theirs), ("labels", theirs - ours))
            if names
        ]
        raise CheckpointError(
            f"{loaded.path} knows other classes than the labels ({'; '.join(parts) or 'another order'}).",
            "give the label file the checkpoint was trained with.",
        )
    check_recipe(loaded, split.folder.recipe, split.folder.path)
    dims = (loaded.config.rgb_dim, loaded.config.flow_dim)
    if split.dims != dims:
        raise CheckpointError(
            f"{loaded.path} takes features of width {dims}, {split.folder.path} holds {split.dims}.",
            "give the feature folder of the checkpoint's recipe.",
        )


def evaluate(loaded: Checkpoint, split: Split, progress: Progress) -> dict:
    """Scores of every chunk of a split against its targets: mAP, mcAP, per class, and the two baselines.

    Raises CheckpointError or RecipeError when checkpoint, labels and features do not belong together.
    """
    check_fit(loaded, split)
    start = perf_counter()
    scores = []
    for done, video in enumerate(split.videos):
        progress(video.id, done, len(split.videos))
        scores.append(predict(loaded.model, video.features[:]).numpy())
    seconds = perf_counter() - start
    return {
        **pooled_metrics(split, {"lstr": scores}),
        "videos": len(split.videos),
        "chunks": split.n_chunks,
        "seconds": round(seconds, 2),
        "checkpoint": str(loaded.path),
        "recipe": split.folder.recipe.id if split.folder.recipe else None,
        "random_weights": bool(split.folder.recipe and split.folder.recipe.is_random),
    }


def pooled_metrics(split: Split, systems: dict[str, list[np.ndarray]]) -> dict:
    """{system: {mAP, mcAP, per_class}} over all chunks of the split together, the two baselines added."""
    truth = np.concatenate([video.targets for video in split.videos])
    lengths = [len(video.features) for video in split.videos]
    systems = systems | baseline_scores(split.labels, lengths)
    return {
        name: metrics.per_frame(np.concatenate(scores), truth, split.labels.classes, AMBIGUOUS)
        for name, scores in systems.items()
    }
