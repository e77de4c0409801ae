"""Checkpoint, features and labels to per-frame mAP and mcAP, beside what the labels alone would score."""

from time import perf_counter

import numpy as np

from lstr import metrics, streaming
from lstr.batch import predict_ahead
from lstr.checkpoint import Checkpoint
from lstr.config import FEATURES_PER_SECOND
from lstr.errors import CheckpointError
from lstr.labels import AMBIGUOUS, Labels, select, targets
from pipelines.dataset import LabelledVideo, Split
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


def evaluate(loaded: Checkpoint, split: Split, progress: Progress, mode: str = "batch") -> dict:
    """Scores of every chunk of a split against its targets: mAP, mcAP, per class, and the two baselines.

    mode is `batch`, the definition, or `stream`, a chunk at a time as `lstr detect` does. A model that anticipates adds
    `anticipation`: mAP and mcAP of what it said about each later chunk, by how far ahead. Raises CheckpointError or
    RecipeError when checkpoint, labels and features do not belong together.
    """
    check_fit(loaded, split)
    split = split.narrowed(loaded.config)
    start = perf_counter()
    scores = []  # of each video (L, 1 + n_ahead, C)
    for done, video in enumerate(split.videos):
        progress(video.id, done, len(split.videos))
        if mode == "stream":
            scores.append(_stream(loaded, video))
        else:
            scores.append(predict_ahead(loaded.model, video.features[:]).numpy())
    seconds = perf_counter() - start
    anticipation = [_ahead(split, scores, ahead) for ahead in range(1, loaded.config.n_ahead + 1)]
    return {
        **pooled_metrics(split, {"lstr": [video[:, 0] for video in scores]}),
        **({"anticipation": anticipation} if anticipation else {}),
        "mode": mode,
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


def _stream(loaded: Checkpoint, video: LabelledVideo) -> np.ndarray:
    """Scores (L, 1 + n_ahead, C) of a video, a chunk at a time."""
    state = streaming.create(loaded.model)
    array = video.features
    rows = ((np.array(array.rgb[k]), np.array(array.flow[k])) for k in range(len(array)))
    return np.stack([streaming.step_ahead(loaded.model, state, rgb, flow).numpy() for rgb, flow in rows])


def _ahead(split: Split, scores: list[np.ndarray], ahead: int) -> dict:
    """What was said about chunk T + ahead at chunk T, against that chunk's targets."""
    longer = [(said, video) for said, video in zip(scores, split.videos, strict=True) if len(said) > ahead]
    if not longer:
        return {"chunks": ahead, "seconds": ahead / FEATURES_PER_SECOND, "mAP": None, "mcAP": None}
    said = np.concatenate([said[:-ahead, ahead] for said, _ in longer])
    came = np.concatenate([video.targets[ahead:] for _, video in longer])
    result = metrics.per_frame(said, came, split.labels.classes, AMBIGUOUS)
    return {"chunks": ahead, "seconds": ahead / FEATURES_PER_SECOND, "mAP": result["mAP"], "mcAP": result["mcAP"]}
