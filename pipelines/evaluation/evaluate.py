"""Checkpoint, features and labels to per-frame mAP and mcAP, beside what the labels alone would score."""

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from lstr import metrics, streaming
from lstr.batch import predict_ahead, shared_constants
from lstr.checkpoint import Checkpoint
from lstr.config import FEATURES_PER_SECOND, LSTRConfig
from lstr.errors import CheckpointError, LabelsError
from lstr.labels import AMBIGUOUS, Labels, select, targets
from pipelines.datasets.dataset import LabelledVideo, Split
from pipelines.datasets.seen_videos import check_unseen, seen_in, warn_of_training
from pipelines.networks.checkpoint_recipe import check_recipe
from pipelines.progress import Tell


@dataclass(frozen=True)
class Evaluation:
    """A checkpoint's scores of a split, and what they are worth."""

    loaded: Checkpoint
    split: Split
    scores: list[np.ndarray]
    """(L, C) a video"""
    document: dict
    """What `evaluate` gives"""


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


def check_fit(
    loaded: Checkpoint,
    split: Split,
    allow_mismatch: bool = False,
    allow_seen: bool = False,
    published: bool = False,
) -> list[str]:
    """Raise CheckpointError or RecipeError unless checkpoint, labels and features belong together, and SeenError
    where networks of the features have seen a video to score.

    With `allow_mismatch` features of another recipe are no error, with `allow_seen` videos that were seen. Returns
    what to warn of.
    """
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
    warnings = check_recipe(loaded, split.folder.recipe, split.folder.path, allow_mismatch)
    scored = published_set(split, loaded.config) if published else split
    return [*warnings, *check_unseen(loaded, scored, allow_seen), *warn_of_training(loaded)]


def evaluate(
    loaded: Checkpoint,
    split: Split,
    progress: Tell,
    mode: str = "batch",
    published: bool = False,
    allow_seen: bool = False,
) -> dict:
    """Scores of every chunk of a split against its targets: mAP, mcAP, per class, and the two baselines.

    mode is `batch`, many windows at once, or `stream`, a chunk at a time as `lstr detect` does. With `published`, the
    videos and the convention of the published evaluation. A model that anticipates adds `anticipation`: mAP and mcAP
    of what it said about each later chunk, by how far ahead. Videos that networks of their features have seen are
    scored with `allow_seen` only, and `seen` names them with the streams. Raises as `check_fit`.
    """
    return score_and_evaluate(loaded, split, progress, mode, published, allow_seen=allow_seen).document


def score_and_evaluate(
    loaded: Checkpoint,
    split: Split,
    progress: Tell,
    mode: str = "batch",
    published: bool = False,
    allow_mismatch: bool = False,
    allow_seen: bool = False,
) -> Evaluation:
    """As `evaluate`, with the scores it comes from; `allow_mismatch` as for `check_fit`."""
    warnings = check_fit(loaded, split, allow_mismatch, allow_seen, published)
    split = split.narrowed(loaded.config)
    if published:
        split = published_set(split, loaded.config)
    seen = seen_in(split, loaded.config)
    start = perf_counter()
    scores = []  # of each video (L, 1 + n_ahead, C)
    if mode == "stream":
        state = streaming.create(loaded.model)
    else:
        constants = shared_constants(loaded.model)
    for done, video in enumerate(split.videos):
        progress("evaluate", done, len(split.videos))
        if mode == "stream":
            streaming.reset(state)
            scores.append(_stream(loaded, state, video))
        else:
            scores.append(predict_ahead(loaded.model, video.features[:], constants=constants).numpy())
    progress("evaluate", len(split.videos), len(split.videos))
    seconds = perf_counter() - start
    anticipation = [_ahead(split, scores, ahead) for ahead in range(1, loaded.config.n_ahead + 1)]
    now = [video[:, 0] for video in scores]
    document = {
        **pooled_metrics(split, {"lstr": now}, published),
        **({"anticipation": anticipation} if anticipation else {}),
        "convention": "published" if published else "corrected",
        "mode": mode,
        "videos": len(split.videos),
        "chunks": split.n_chunks,
        "seconds": round(seconds, 2),
        "checkpoint": str(loaded.path),
        "recipe": split.folder.recipe.id if split.folder.recipe else None,
        "random_weights": bool(split.folder.recipe and split.folder.recipe.is_random),
        **({"seen": seen} if seen else {}),
        **({"warnings": warnings} if warnings else {}),
    }
    return Evaluation(loaded, split, now, document)


def published_set(split: Split, config: LSTRConfig) -> Split:
    """The videos that the published evaluation scores: those that fill a work memory. Raises LabelsError if none."""
    long_enough = [video for video in split.videos if len(video.features) >= config.work_length]
    if not long_enough:
        raise LabelsError(
            f"No video is as long as the work memory ({config.work_length} chunks), so the published set is empty.",
            "leave out --published.",
        )
    return replace(split, videos=long_enough)


def pooled_metrics(split: Split, systems: dict[str, list[np.ndarray]], published: bool = False) -> dict:
    """{system: {mAP, mcAP, per_class}} over all chunks of the split together, the two baselines added."""
    measure = metrics.published_per_frame if published else metrics.per_frame
    truth = np.concatenate([video.targets for video in split.videos])
    lengths = [len(video.features) for video in split.videos]
    systems = systems | baseline_scores(split.labels, lengths)
    return {name: measure(np.concatenate(scores), truth, split.labels.classes) for name, scores in systems.items()}


def _stream(loaded: Checkpoint, state: streaming.StreamState, video: LabelledVideo) -> np.ndarray:
    """Scores (L, 1 + n_ahead, C) of a video, a chunk at a time."""
    array = video.features
    if not len(array):
        return np.zeros((0, 1 + loaded.config.n_ahead, loaded.model.n_classes), np.float32)
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
