"""What scores show beyond their mean: by convention, tenth of an action, start, delay, class and video."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics import intervals
from lstr.metrics import per_frame as metrics
from lstr.metrics.actions import VideoEvents, measure_events, resampled_f1
from lstr.metrics.event_errors import measure_errors
from lstr.metrics.per_frame import confusion, detection_delay, per_stage, predicted_classes, published_per_stage
from lstr.metrics.ranked import measure_instances, resampled_instances, start_precision
from lstr.metrics.scoring_rule import EVERY_CHUNK
from lstr.metrics.segmentation import measure_segmentation
from lstr.pipelines.evaluation.false_alarms import describe_curves, sweep
from lstr.pipelines.evaluation.findings import FIGURE_PATHS, figure_at
from lstr.pipelines.evaluation.scoring import Evaluation, counted, labelled_segments, means_of, rule_of
from lstr.pipelines.evaluation.thresholds import Scored
from lstr.timeline import Timeline, thresholds_of

RESAMPLES = 1000
MEANS = ("mAP", "mcAP")
# Videos: with fewer, all of them for the same system is still chance (2 / 2 ** 5 is above .05)
FEWEST = 6
JUDGED = ("mAP", "event F1")
Resampled = dict[str, np.ndarray]


def analyse(evaluation: Evaluation, resampled: Resampled) -> dict[str, Any]:
    """Return the document of an evaluation with everything that a report shows.

    It adds `conventions`: mAP and mcAP corrected and published; `published_rule`: whose code the published one is of;
    `absent_classes`; `interval`: bootstrap over videos; `stages`; `starts`; `segments`; `delay`; `confusion`;
    `per_video`: the mAP of each, NaN without an action, and the share of its chunks decided right; `events`: what
    detection announces, and the thresholds for it; and `instances`: the same when actions end. All but the first and
    `interval` are of every chunk of the videos. All intervals are of the same draws of videos.
    """
    split, scores, clock = evaluation.split, evaluation.scores, evaluation.split.clock
    classes, videos = split.labels.classes, split.videos
    targets = [video.targets for video in videos]
    segments = [labelled_segments(split, video) for video in videos]
    scored, resamples = evaluation.document["lstr"]["per_class"], len(resampled["mAP"])
    draws, rules = intervals.draw(len(videos), resamples), thresholds_of(evaluation.loaded)
    interval = {name: intervals.interval(resampled[name]) for name in MEANS} if resamples else {}
    swept = sweep([Scored(*pair) for pair in zip(scores, segments, strict=True)], classes, rules, clock)
    per_video = []
    for video, rows in zip(videos, scores, strict=True):
        on = video.targets > 0
        right = on[np.arange(len(on)), predicted_classes(rows, classes)][metrics.counted(on, classes)]
        own = metrics.per_frame(rows, video.targets, classes)["mAP"] if len(rows) else float("nan")
        share = float(right.mean()) if len(right) else float("nan")
        per_video.append({"id": video.id, "chunks": len(rows), "mAP": own, "right": share})
    return {
        **evaluation.document,
        "conventions": conventions(evaluation),
        "published_rule": rule_of(evaluation.loaded).code,
        "absent_classes": [name for name in classes if name not in (BACKGROUND, AMBIGUOUS, *scored)],
        "interval": {**interval, "level": intervals.LEVEL, "resamples": resamples} if resamples else None,
        "stages": {
            "corrected": per_stage(scores, targets, classes),
            "published": published_per_stage(np.concatenate(scores), np.concatenate(targets), classes),
        },
        "starts": start_precision(scores, targets, segments, classes, clock=clock, draws=draws),
        "segments": measure_segmentation(scores, targets, classes, draws),
        "delay": detection_delay(scores, targets, segments, classes, clock),
        "confusion": {"classes": list(classes), "counts": confusion(scores, targets, classes).tolist()},
        "per_video": per_video,
        "events": {
            **measure_with_kinds(evaluation.events, classes, draws),
            "thresholds": Timeline(classes, rules, clock).describe(),
            "operating_curves": describe_curves(swept),
        },
        "instances": measure_instances(evaluation.events, classes, draws),
    }


def conventions(evaluation: Evaluation) -> dict[str, Any]:
    """Return mAP, mcAP, videos and chunks by the corrected and by the published convention, of the scored videos.

    Corrected: every chunk but ambiguous ones. Published: those that the published evaluation of the kind scores
    (`lstr.metrics.scoring_rule`); its values are None if it scores no chunk. `seen` counts the videos that networks of
    their features have seen, if any.
    """
    split, seen, found = evaluation.split, evaluation.document.get("seen", ()), {}
    for name, rule in (("corrected", EVERY_CHUNK), ("published", rule_of(evaluation.loaded))):
        scores, targets = counted(split, evaluation.scores, rule)
        scored = [v for v, rows in zip(split.videos, scores, strict=True) if len(rows) or rule is EVERY_CHUNK]
        counts = {"videos": len(scored), "chunks": sum(map(len, scores))}
        if n_seen := sum(video.id in seen for video in scored):
            counts["seen"] = n_seen
        result = means_of(scores, targets, split.labels.classes) if scored else dict.fromkeys(MEANS)
        found[name] = {mean: result[mean] for mean in MEANS} | counts
    return found


def resample(evaluation: Evaluation, resamples: int = RESAMPLES) -> Resampled:
    """Return mAP, mcAP, event F1 and instance mAP (resamples,) of draws of videos, the same for every checkpoint."""
    split, classes = evaluation.split, evaluation.split.labels.classes
    scored = (*counted(split, evaluation.scores, evaluation.rule), classes)
    draws = intervals.draw(len(split.videos), resamples)
    return {
        "mAP": metrics.resampled_means(*scored, draws),
        "mcAP": metrics.resampled_means(*scored, draws, calibrated=True),
        "event F1": resampled_f1(evaluation.events, classes, draws),
        "instance mAP": resampled_instances(evaluation.events, classes, draws),
    }


def compare(
    names: Sequence[str], documents: Sequence[dict[str, Any]], resampled: Sequence[Resampled]
) -> list[dict[str, Any]]:
    """Return how far each later checkpoint is ahead of the first, and the `verdict` on the two.

    That is in mAP, mcAP, event F1 (at an IoU of 0.3) and instance mAP, with intervals over the same resamples (None
    without resamples).
    """
    rows, old = [], documents[0]
    for name, new, means in list(zip(names, documents, resampled, strict=True))[1:]:
        row: dict[str, Any] = {"checkpoint": new["checkpoint"], "against": old["checkpoint"]}
        for figure in resampled[0]:
            values = {when: figure_at(one, FIGURE_PATHS[figure]) for when, one in (("new", new), ("old", old))}
            row[figure] = {**values, "difference": None, "interval": None}
            if values["new"] is not None and values["old"] is not None:
                row[figure]["difference"] = values["new"] - values["old"]
                edges = intervals.interval(means[figure] - resampled[0][figure])
                row[figure]["interval"] = None if np.isnan(edges).any() else edges
        rows.append(row | verdict(name, names[0], row, min(new["videos"], old["videos"])))
    return rows


def verdict(new: str, old: str, row: Mapping[str, Any], n_videos: int) -> dict[str, Any]:
    """Return `better`, the name of the better system or None, and `sentence`, the same for people.

    A difference is more than chance if its interval excludes 0, with at least FEWEST videos; without an interval that
    is unknown.

    Args:
        new: The name of the newer system.
        old: The name of the older one.
        row: For each of JUDGED the values of `new` and `old`, their `difference` (new less old) and its `interval`, by
            the same resamples of the videos for both.
        n_videos: How many videos both were measured on.
    """
    ahead, behind, figures = [], [], []
    for name in JUDGED:
        own = row[name]
        if own["difference"] is None:
            continue
        low, high = own["interval"] or (0, 0)
        if n_videos >= FEWEST:
            ahead += [name] * (low > 0)
            behind += [name] * (high < 0)
        edges = f" [{low:+.2f}, {high:+.2f}]" if own["interval"] else ""
        figures.append(f"{name} {own['new']:.2f} against {own['old']:.2f} ({own['difference']:+.2f}{edges})")
    better = None if bool(ahead) == bool(behind) else new if ahead else old
    if ahead and behind:
        result = f"{new} is better than {old} in {ahead[0]} and worse in {behind[0]}, both by more than chance"
    elif better:
        where = "" if len(ahead or behind) == len(JUDGED) else f" in {(ahead or behind)[0]}"
        result = f"{better} is better than {old if better == new else new}{where}, by more than chance"
    elif n_videos < FEWEST:
        result = f"Which of {old} and {new} is better cannot be told from fewer than {FEWEST} videos"
    elif any(row[name]["interval"] is None for name in JUDGED if row[name]["difference"] is not None):
        result = f"Which of {old} and {new} is better cannot be told without resamples of the videos"
    else:
        result = f"Neither of {old} and {new} is better by more than chance"
    on = f"on {n_videos} video{'' if n_videos == 1 else 's'}"
    return {"better": better, "sentence": f"{result}: {new} has {' and '.join(figures) or 'no figures'}, {on}."}


def measure_with_kinds(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Return what `measure_events` returns, each entry with the `kinds` of `measure_errors`."""
    found, errors = measure_events(videos, classes, draws), measure_errors(videos, classes)
    per_class = {label: one | {"kinds": errors["per_class"][label]} for label, one in found["per_class"].items()}
    return {**found, "together": found["together"] | {"kinds": errors["together"]}, "per_class": per_class}
