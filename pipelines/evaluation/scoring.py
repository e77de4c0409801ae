"""Score a checkpoint on labelled features: per-frame mAP and mcAP, with baselines from the labels alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lstr import streaming
from lstr.batch import predict_ahead
from lstr.chunk import CLOCK, Clock
from lstr.errors import CheckpointError, LabelsError, SeenError
from lstr.labels.label_set import Labels, segments_of, targets, with_ambiguous
from lstr.labels.segment import Segment
from lstr.loaded_checkpoint import Checkpoint
from lstr.metrics import per_frame as metrics
from lstr.metrics.actions import VideoEvents
from lstr.metrics.scoring_rule import EVERY_CHUNK, LSTR_RULE, ScoringRule
from lstr.pipelines.features.dataset import LabelledVideo, Split, describe_overlap, network_overlap, training_videos
from lstr.pipelines.features.folder import check_recipe
from lstr.pipelines.model_files.networks import streams_of_checkpoint
from lstr.pipelines.progress import Finished, Progress
from lstr.timeline import Thresholds, Timeline, segments_in, thresholds_of

Scores = NDArray[np.float32]
Rules = Mapping[str, Thresholds]
# Scores (L, C) by video id, of each fold from a model that was not trained on its videos
Folds = Sequence[Mapping[str, Scores]]
MEASURED_BY_FOLDS = "each scored by a model and feature networks that were not trained on it"
CROSS_VALIDATED = "its actions detected with thresholds chosen on the other videos"


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Options for scoring a split."""

    mode: Literal["batch", "stream"] = "batch"
    """Many windows at once, or one chunk at a time as in `lstr detect`; the scores are equal"""
    published: bool = False
    """Use only the chunks that the published evaluation of each checkpoint's kind scores (`rule_of`)"""
    allow_mismatch: bool = False
    """Allow features of another recipe"""
    allow_seen: bool = False
    """Allow videos that the feature networks were trained on"""
    folds: Folds = ()
    """Scores by other models; only these videos are scored, and baselines use the labels of the other folds"""
    rules: Mapping[str, Rules] = field(default_factory=dict)
    """Thresholds by video id that were chosen without the video; the checkpoint's thresholds are the default"""


@dataclass(frozen=True)
class Evaluation:
    """A checkpoint's scores of a split, and their metrics."""

    loaded: Checkpoint
    split: Split
    scores: list[Scores]  # (L, C) of each video
    # mAP, mcAP and AP per class of the checkpoint and of both baselines, and how they were measured
    document: dict[str, Any]
    rule: ScoringRule = EVERY_CHUNK  # the chunks that are included in the means
    rules: Mapping[str, Rules] = field(default_factory=dict)  # thresholds of single videos, by id
    name: str = ""  # its name in reports and comparisons

    @cached_property
    def events(self) -> list[VideoEvents]:
        """Return the events that `lstr detect` reports for each video.

        Thresholds are the ones that were chosen without the video, or else the checkpoint's.
        """
        own, classes, clock = thresholds_of(self.loaded), self.split.labels.classes, self.split.clock
        return [
            detect_events(rows, classes, self.rules.get(v.id) or own, labelled_segments(self.split, v), clock)
            for v, rows in zip(self.split.videos, self.scores, strict=True)
        ]


def detect_events(
    scores: np.ndarray,
    classes: Sequence[str],
    rules: Thresholds | Mapping[str, Thresholds],
    truth: Sequence[Segment] = (),
    clock: Clock = CLOCK,
) -> VideoEvents:
    """Return the events that `lstr detect` reports for a video with scores (L, C), their times, and the labels."""
    timeline, seconds = Timeline(tuple(classes), rules, clock), clock.at(len(scores))
    events = [e for k, row in enumerate(scores) for e in timeline.push(clock.at(k + 1), row)]
    events += timeline.finish(seconds)
    segments = segments_in(events)
    started = {(event.label, event.start): event.time for event in events if event.event == "started"}
    announced = [started[segment.label, segment.start] for segment in segments]
    ended = [event.time for event in events if event.event == "ended"]
    return VideoEvents(truth, segments, seconds, announced, ended)


def labelled_segments(split: Split, video: LabelledVideo) -> Sequence[Segment]:
    """Return a video's labelled actions; they come from its chunks if the labels are per-chunk targets."""
    labelled = split.labels.videos[video.id].segments
    return labelled or segments_of(video.targets, split.labels.classes, split.clock)


def baseline_scores(labels: Labels, lengths: list[int], clock: Clock = CLOCK) -> dict[str, list[Scores]]:
    """Return the scores (L, C) of each video by the two baselines, from the labels of the training subset.

    The scores of `chance` are the class priors; the scores of `time_prior` are class frequencies by chunk index. The
    result is empty without a training subset.
    """
    trained = [
        targets(video, labels.classes, max(1, clock.nearest(video.duration)), clock)
        for video in labels.videos.values()
        if video.subset == "training" and video.duration
    ]
    if not trained:
        return {}
    return {
        "chance": [metrics.chance(trained, length) for length in lengths],
        "time_prior": [metrics.time_prior(trained, length) for length in lengths],
    }


def check_fit(loaded: Checkpoint, split: Split, scoring: Scoring = Scoring()) -> list[str]:
    """Check that checkpoint, labels and features belong together; return warnings about what `scoring` allows.

    Raises CheckpointError or RecipeError, and SeenError if feature networks were trained on a video to score.
    """
    if with_ambiguous(loaded.classes, split.labels.classes) != split.labels.classes:
        ours, theirs = set(loaded.classes), set(split.labels.classes)
        parts = [
            f"only in the {where}: {', '.join(sorted(names))}"
            for where, names in (("checkpoint", ours - theirs), ("labels", theirs - ours))
            if names
        ]
        raise CheckpointError(
            f"{loaded.path} has other classes than the labels ({'; '.join(parts) or 'another order'}).",
            "use the label file that the checkpoint was trained with.",
        )
    warnings = check_recipe(loaded, split.folder, scoring.allow_mismatch)
    scored = _scored_videos(loaded, split, scoring)
    if scoring.published and loaded.model.scoring_rule is None:
        warnings.append(
            f"no published evaluation of kind {loaded.config.kind} is known: chunks are chosen as in LSTR's."
        )
    n_videos = len(scored.videos)
    if overlap := network_overlap(scored, loaded.config):
        seen = describe_overlap(overlap, n_videos, "videos to score")
        if not scoring.allow_seen:
            raise SeenError(
                f"The {seen}: scores of new videos are probably lower.",
                "measure with `lstr learn`, which uses networks that have not seen the video, or add --allow-seen.",
            )
        warnings.append(f"{loaded.path}: the {seen}: scores of new videos are probably lower.")
    if not scoring.folds and (same := training_videos(loaded, (video.id for video in scored.videos))):
        some = f"{len(same)} of the {n_videos} videos to score, for example {same[0]!r}"
        warnings.append(f"{loaded.path} was trained on {some}: scores of new videos are probably lower.")
    return warnings


def _scored_videos(loaded: Checkpoint, split: Split, scoring: Scoring) -> Split:
    """Return the videos of all folds, if there are any, and with chunks that a published evaluation scores."""
    videos = split.videos
    if scoring.folds:
        videos = [video for video in videos if any(video.id in fold for fold in scoring.folds)]
    if scoring.published:
        rule = rule_of(loaded)
        videos = [video for video in videos if rule.chosen(video.targets, split.labels.classes).any()]
        if not videos:
            raise LabelsError(
                f"{rule.code}'s published evaluation does not score any chunk of these videos with this work memory "
                f"({rule.work_length} chunks).",
                "leave out --published.",
            )
    return replace(split, videos=videos)


def score_split(
    loaded: Checkpoint, split: Split, scoring: Scoring = Scoring(), name: str = "evaluate"
) -> Iterator[Progress | Finished[Evaluation]]:
    """Score every chunk of a split: mAP, mcAP, metrics per class, and the two baselines.

    For a model that anticipates, the document has `anticipation`: mAP and mcAP of its scores by anticipation time.
    `seen` lists videos that feature networks were trained on, with the streams; `learnt_from` lists videos that the
    checkpoint was trained on. `name` is the checkpoint's name in events and reports. Raises as `check_fit`.
    """
    warnings = check_fit(loaded, split, scoring)
    split = split.narrowed(loaded.config, streams_of_checkpoint(loaded))
    rule = rule_of(loaded) if scoring.published else EVERY_CHUNK
    split = _scored_videos(loaded, split, scoring)
    seen = network_overlap(split, loaded.config)
    learnt = [] if scoring.folds else training_videos(loaded, (video.id for video in split.videos))
    start = perf_counter()
    scores: list[Scores] = []  # of each video (L, 1 + n_ahead, C)
    yield Progress(name, 0, len(split.videos))
    unknown = len(split.labels.classes) - len(loaded.classes)  # 1 if only the labels have Ambiguous
    for rows in _scores_of(loaded, split, scoring):
        scores.append(np.pad(rows, ((0, 0), (0, 0), (0, unknown))))
        yield Progress(name, len(scores), len(split.videos))
    seconds = perf_counter() - start
    n_ahead = 0 if scoring.folds else loaded.config.n_ahead
    anticipation: list[dict[str, Any]] = []
    for ahead in range(1, n_ahead + 1):
        predicted, came = counted(split, [rows[:-ahead, ahead] for rows in scores], rule, ahead)
        means = means_of(predicted, came, split.labels.classes) if any(map(len, came)) else {}
        seconds_ahead = split.clock.length(ahead)
        anticipation.append(
            {"chunks": ahead, "seconds": seconds_ahead, "mAP": means.get("mAP"), "mcAP": means.get("mcAP")}
        )
    now = [video[:, 0] for video in scores]
    document = {
        **pooled_metrics(split, {"lstr": now}, rule, scoring.folds),
        **({"anticipation": anticipation} if anticipation else {}),
        "kind": loaded.config.kind,
        "convention": "published" if scoring.published else "corrected",
        "mode": scoring.mode,
        "videos": len(split.videos),
        **({"folds": len(scoring.folds)} if scoring.folds else {}),
        **({"decided_by_others": True} if scoring.rules else {}),
        "chunks": sum(len(rows) for rows in counted(split, now, rule)[0]),
        **({"seconds_per_chunk": split.clock.seconds} if split.clock != CLOCK else {}),
        "seconds": round(seconds, 2),
        "checkpoint": str(loaded.path),
        "recipe": split.folder.recipe.id if split.folder.recipe else None,
        "random_weights": bool(split.folder.recipe and split.folder.recipe.random_streams),
        **({"seen": seen} if seen else {}),
        **({"learnt_from": learnt} if learnt else {}),
        **({"warnings": warnings} if warnings else {}),
    }
    yield Finished(Evaluation(loaded, split, now, document, rule, scoring.rules, name))


def rule_of(loaded: Checkpoint) -> ScoringRule:
    """Return the scoring rule of the published code of a checkpoint's kind; LSTR's rule if it is unknown."""
    return (loaded.model.scoring_rule or LSTR_RULE).of(loaded.config)


def counted(
    split: Split, scores: list[Scores], rule: ScoringRule, ahead: int = 0
) -> tuple[list[Scores], list[NDArray[Any]]]:
    """Return the scores and targets (N, C) of each video's chunks that a rule includes, adapted to the rule.

    The targets are those of the chunks that were predicted `ahead` chunks before.
    """
    classes, pairs = split.labels.classes, []
    for video, rows in zip(split.videos, scores, strict=True):
        keep = rule.chosen(video.targets, classes)[: len(rows)]
        pairs.append((rule.scored(rows[keep], classes), rule.labelled(video.targets[ahead:][keep], classes)))
    return [rows for rows, _ in pairs], [on for _, on in pairs]


def pooled_metrics(
    split: Split, systems: dict[str, list[Scores]], rule: ScoringRule = EVERY_CHUNK, folds: Folds = ()
) -> dict[str, Any]:
    """Return {system: {mAP, mcAP, per_class}} over the chunks of all videos that a rule includes, with both baselines.

    The baselines use the labels of the training videos; with folds, of the videos in other folds.
    """
    baselines: dict[str, dict[str, Scores]] = {}
    for scored_ids in [{*fold} for fold in folds] or [{video.id for video in split.videos}]:
        own = [video for video in split.videos if video.id in scored_ids]
        labels = split.labels
        if folds:
            labels = replace(labels, videos={i: video for i, video in labels.videos.items() if i not in scored_ids})
        for name, rows in baseline_scores(labels, [len(video.features) for video in own], split.clock).items():
            baselines.setdefault(name, {}).update(zip([video.id for video in own], rows, strict=True))
    for name, of_video in baselines.items():
        if len(of_video) == len(split.videos):
            systems = systems | {name: [of_video[video.id] for video in split.videos]}
    return {name: means_of(*counted(split, rows, rule), split.labels.classes) for name, rows in systems.items()}


def means_of(scores: list[Scores], targets: list[NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
    """Return {mAP, mcAP, per_class} over the chunks of all videos, from arrays (N, C) per video."""
    return metrics.per_frame(np.concatenate(scores), np.concatenate(targets), classes)


def _scores_of(loaded: Checkpoint, split: Split, scoring: Scoring) -> Iterator[Scores]:
    """Yield the scores (L, 1 + n_ahead, C) of each video."""
    model = loaded.model
    if scoring.folds:
        known = {video_id: rows for fold in scoring.folds for video_id, rows in fold.items()}
        yield from (known[video.id][:, None] for video in split.videos)
        return
    if scoring.mode == "batch":
        with torch.no_grad():
            constants = model.constants()
        for video in split.videos:
            yield predict_ahead(model, video.features[:], constants=constants).numpy()
        return
    state = streaming.create(model)
    for video in split.videos:
        streaming.reset(state)
        array = video.features
        chunks = ((np.array(array.rgb[k]), np.array(array.flow[k])) for k in range(len(array)))
        rows = [streaming.step_ahead(model, state, rgb, flow).numpy() for rgb, flow in chunks]
        yield np.stack(rows) if rows else np.zeros((0, 1 + loaded.config.n_ahead, model.n_classes), np.float32)
