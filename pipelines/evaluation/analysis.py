"""What scores show beyond their mean: by convention, tenth of an action, start, delay, class and video."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, segments_of
from lstr.labels.segment import Segment
from lstr.metrics import intervals
from lstr.metrics import per_frame as metrics
from lstr.metrics.actions import VideoEvents, measure_events, resampled_f1
from lstr.metrics.event_errors import measure_errors
from lstr.metrics.instances import measure_instances, resampled_instances
from lstr.metrics.per_frame import per_stage, published_per_stage
from lstr.metrics.scoring_rule import EVERY_CHUNK
from lstr.metrics.segmentation import measure_segmentation
from lstr.metrics.starts import confusion, detection_delay, predicted_classes, start_precision
from lstr.pipelines.evaluation.false_alarms import describe_curves, sweep
from lstr.pipelines.evaluation.findings import FIGURE_PATHS, figure_at
from lstr.pipelines.evaluation.scoring import Evaluation, counted, means_of, rule_of
from lstr.pipelines.evaluation.thresholds import Scored
from lstr.pipelines.features.dataset import LabelledVideo, Split
from lstr.timeline import Thresholds, Timeline, segments_in, thresholds_of

RESAMPLES = 1000
MEANS = ("mAP", "mcAP")
# Videos: with fewer, all of them for the same system is still chance (2 / 2 ** 5 is above .05)
FEWEST = 6
JUDGED = ("mAP", "event F1")
Resampled = dict[str, np.ndarray]


def analyse(evaluation: Evaluation, resampled: Resampled) -> dict[str, Any]:
    """The document of an evaluation with everything that a report shows; keys are added, none changed.

    `conventions`: mAP and mcAP corrected and published; `published_rule`: whose code the published one is of;
    `absent_classes`; `interval`: bootstrap over videos; `stages`; `starts`; `segments`; `delay`; `confusion`;
    `per_video`; `events`: what detection would announce, and `instances`: the same as it was told when it ended. All
    but the first and `interval` are of every chunk of the videos. Intervals are all of the same draws of videos.
    """
    split, scores = evaluation.split, evaluation.scores
    classes, videos = split.labels.classes, split.videos
    targets = [video.targets for video in videos]
    segments = [labelled_segments(split, video) for video in videos]
    scored = evaluation.document["lstr"]["per_class"]
    draws, detected = intervals.draw(len(videos), len(resampled["mAP"])), _detected(evaluation)
    return {
        **evaluation.document,
        "conventions": conventions(evaluation),
        "published_rule": rule_of(evaluation.loaded).code,
        "absent_classes": [name for name in classes if name not in (BACKGROUND, AMBIGUOUS, *scored)],
        "interval": _intervals(resampled),
        "stages": {
            "corrected": per_stage(scores, targets, classes),
            "published": published_per_stage(np.concatenate(scores), np.concatenate(targets), classes),
        },
        "starts": start_precision(scores, targets, segments, classes, clock=split.clock, draws=draws),
        "segments": measure_segmentation(scores, targets, classes, draws),
        "delay": detection_delay(scores, targets, segments, classes, split.clock),
        "confusion": {"classes": list(classes), "counts": confusion(scores, targets, classes).tolist()},
        "per_video": [_of_video(video, rows, classes) for video, rows in zip(videos, scores, strict=True)],
        "events": analyse_events(evaluation, detected, draws),
        "instances": measure_instances(detected, classes, draws),
    }


def conventions(evaluation: Evaluation) -> dict[str, Any]:
    """mAP, mcAP, videos and chunks by the corrected and by the published convention, of the videos that were scored.

    Corrected: every chunk but ambiguous ones. Published: those that the published evaluation of the kind scores
    (`lstr.metrics.scoring_rule`); its values are None where that is no chunk. `seen` counts the videos that networks
    of their features have seen, if they have.
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
    """mAP, mcAP, event F1 and instance mAP (resamples,) of draws of videos with replacement, the same for every
    checkpoint."""
    split, classes = evaluation.split, evaluation.split.labels.classes
    scored = (*counted(split, evaluation.scores, evaluation.rule), classes)
    draws, detected = intervals.draw(len(split.videos), resamples), _detected(evaluation)
    return {
        "mAP": metrics.resampled_means(*scored, draws),
        "mcAP": metrics.resampled_means(*scored, draws, calibrated=True),
        "event F1": resampled_f1(detected, classes, draws),
        "instance mAP": resampled_instances(detected, classes, draws),
    }


def compare(
    names: Sequence[str], documents: Sequence[dict[str, Any]], resampled: Sequence[Resampled]
) -> list[dict[str, Any]]:
    """How far each later checkpoint is ahead of the first in mAP, mcAP, event F1 (at an IoU of 0.3) and instance mAP,
    with intervals over the same resamples (None without any), and the `verdict` on the two."""
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
    """`better`: the name of the system that is, by more than chance, or None; `sentence`: that for people.

    row: for each of JUDGED the values of `new` and `old`, their `difference` (new less old) and its `interval`, by the
    same resamples of the videos for both. A difference is more than chance where its interval leaves out 0 in at least
    FEWEST videos; without an interval nobody can tell. One of a figure that has no value is none.
    """
    signs = {name: _sign(row[name], n_videos) for name in JUDGED}
    figures = " and ".join(f"{name} {_figures(row[name])}" for name in JUDGED if row[name]["difference"] is not None)
    ahead, behind = ([name for name, sign in signs.items() if sign == side] for side in (1, -1))
    better = None if bool(ahead) == bool(behind) else new if ahead else old
    if ahead and behind:
        said = f"{new} is better than {old} in {ahead[0]} and worse in {behind[0]}, both by more than chance"
    elif better:
        where = "" if len(ahead or behind) == len(JUDGED) else f" in {(ahead or behind)[0]}"
        said = f"{better} is better than {old if better == new else new}{where}, by more than chance"
    elif n_videos < FEWEST:
        said = f"Which of {old} and {new} is better cannot be told from fewer than {FEWEST} videos"
    elif any(row[name]["interval"] is None for name in JUDGED if row[name]["difference"] is not None):
        said = f"Which of {old} and {new} is better cannot be told without resamples of the videos"
    else:
        said = f"Neither of {old} and {new} is better by more than chance"
    on = f"on {n_videos} video{'' if n_videos == 1 else 's'}"
    return {"better": better, "sentence": f"{said}: {new} has {figures or 'no figures'}, {on}."}


def _sign(row: Mapping[str, Any], n_videos: int) -> int:
    """1 where the new system is ahead by more than chance, -1 where the old one is, else 0."""
    if n_videos < FEWEST or row["difference"] is None or row["interval"] is None:
        return 0
    low, high = row["interval"]
    return int(low > 0) - int(high < 0)


def _figures(row: Mapping[str, Any]) -> str:
    edges = f" [{row['interval'][0]:+.2f}, {row['interval'][1]:+.2f}]" if row["interval"] else ""
    return f"{row['new']:.2f} against {row['old']:.2f} ({row['difference']:+.2f}{edges})"


def _intervals(resampled: Resampled) -> dict[str, Any] | None:
    if not len(resampled["mAP"]):
        return None
    edges = {name: intervals.interval(resampled[name]) for name in MEANS}
    return {**edges, "level": intervals.LEVEL, "resamples": len(resampled["mAP"])}


def _of_video(video: LabelledVideo, scores: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """A video's own mAP, NaN without an action, and the share of its chunks, ambiguous ones aside, decided right."""
    on = video.targets > 0
    keep = metrics.counted(on, classes)
    right = on[np.arange(len(on)), predicted_classes(scores, classes)][keep]
    return {
        "id": video.id,
        "chunks": len(scores),
        "mAP": metrics.per_frame(scores, video.targets, classes)["mAP"] if len(scores) else float("nan"),
        "right": float(right.mean()) if len(right) else float("nan"),
    }


def measure_with_kinds(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """What `measure_events` says, each entry with its `kinds` of labels and detections as `measure_errors` has them."""
    found, errors = measure_events(videos, classes, draws), measure_errors(videos, classes)
    per_class = {label: one | {"kinds": errors["per_class"][label]} for label, one in found["per_class"].items()}
    return {**found, "together": found["together"] | {"kinds": errors["together"]}, "per_class": per_class}


def analyse_events(evaluation: Evaluation, videos: Sequence[VideoEvents], draws: NDArray[np.int64]) -> dict[str, Any]:
    """Event metrics at the thresholds that `lstr detect` uses, those thresholds, and the operating curves."""
    classes, clock, rules = evaluation.split.labels.classes, evaluation.split.clock, thresholds_of(evaluation.loaded)
    scored = [Scored(rows, video.truth) for rows, video in zip(evaluation.scores, videos, strict=True)]
    found = measure_with_kinds(videos, classes, draws)
    return {
        **found,
        "thresholds": Timeline(classes, rules, clock).describe(),
        "operating_curves": describe_curves(sweep(scored, classes, rules, clock)),
    }


def _detected(evaluation: Evaluation) -> list[VideoEvents]:
    """What `lstr detect` announces of each video, by the thresholds that decide on it."""
    split = evaluation.split
    pairs = zip(evaluation.scores, split.videos, strict=True)
    return [
        detect_events(
            rows, split.labels.classes, evaluation.rules_of(video.id), labelled_segments(split, video), split.clock
        )
        for rows, video in pairs
    ]


def detect_events(
    scores: np.ndarray,
    classes: Sequence[str],
    rules: Thresholds | Mapping[str, Thresholds],
    truth: Sequence[Segment] = (),
    clock: Clock = CLOCK,
) -> VideoEvents:
    """What `lstr detect` announces of a video with scores (L, C), and when, beside its labels."""
    timeline, seconds = Timeline(tuple(classes), rules, clock), clock.at(len(scores))
    events = [e for k, row in enumerate(scores) for e in timeline.push(clock.at(k + 1), row)]
    events += timeline.finish(seconds)
    segments = segments_in(events)
    started = {(event.label, event.start): event.time for event in events if event.event == "started"}
    announced = [started[segment.label, segment.start] for segment in segments]
    told = [event.time for event in events if event.event == "ended"]
    return VideoEvents(truth, segments, seconds, announced, told)


def labelled_segments(split: Split, video: LabelledVideo) -> Sequence[Segment]:
    """A video's labelled actions; from its chunks where the labels are chunks alone."""
    labelled = split.labels.videos[video.id].segments
    return labelled or segments_of(video.targets, split.labels.classes, split.clock)
