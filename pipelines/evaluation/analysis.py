"""Detailed analysis of scores, and comparison of checkpoints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.kinds import OURS
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, THUMOS_CLASSES
from lstr.loaded_checkpoint import Checkpoint
from lstr.metrics import intervals
from lstr.metrics import per_frame as metrics
from lstr.metrics.actions import FOUND_IOU, VideoEvents, measure_events, resampled_f1
from lstr.metrics.event_errors import measure_errors
from lstr.metrics.per_frame import confusion, detection_delay, per_stage, predicted_classes, published_per_stage
from lstr.metrics.ranked import measure_instances, resampled_instances, start_precision
from lstr.metrics.scoring_rule import EVERY_CHUNK
from lstr.metrics.segmentation import measure_segmentation
from lstr.models.published import read_publication
from lstr.pipelines.evaluation.chosen_thresholds import describe_curves, describe_delays, sweep
from lstr.pipelines.evaluation.scoring import Evaluation, counted, labelled_segments, means_of, rule_of
from lstr.pipelines.evaluation.thresholds import Scored
from lstr.timeline import Timeline, thresholds_of

RESAMPLES = 1000
MEANS = ("mAP", "mcAP")
# With fewer videos, even if one system is better on all of them, p is 2 / 2 ** 5, which is above .05
MIN_VIDEOS = 6
JUDGED = ("mAP", "event F1")
# Paths in the document of an evaluation to the metrics by which checkpoints are compared
FIGURE_PATHS: Mapping[str, Sequence[str]] = {
    "mAP": ("lstr", "mAP"),
    "mcAP": ("lstr", "mcAP"),
    "event F1": ("events", "together", "iou", str(FOUND_IOU), "f1"),
    "instance mAP": ("instances", "mean"),
}
# Benchmarks with published results by training preset: name and metric
BENCHMARKS = {"thumos14": ("THUMOS'14", "mAP"), "tvseries": ("TVSeries", "mcAP")}
CHECKPOINT_SUFFIXES = (".pt", ".pth", ".lstr")
Resampled = dict[str, np.ndarray]


@dataclass(frozen=True)
class Findings:
    """Analysed checkpoints, their differences from the first one, and published results on the benchmark."""

    judged: Sequence[Evaluation]
    comparison: Sequence[dict[str, Any]] = ()  # a row of `compare` for each checkpoint after the first
    quoted: dict[str, Any] | None = None
    warnings: Sequence[str] = ()

    @property
    def several(self) -> bool:
        """Whether there are several checkpoints to compare."""
        return len(self.judged) > 1

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object that `--json` prints, for one checkpoint or for several; NaN becomes None."""
        result = {**self.judged[0].document}
        if self.several:
            result = {
                "checkpoints": [{"name": entry.name, **entry.document} for entry in self.judged],
                "comparison": list(self.comparison),
            }
        return without_nan({**result, "quoted": self.quoted} if self.quoted else result)


def analyse(evaluation: Evaluation, resampled: Resampled) -> dict[str, Any]:
    """Return additional results for a report, by name.

    `conventions`: mAP and mcAP, corrected and published; `published_rule`: name of the code with the published rule;
    `absent_classes`; `interval`: bootstrap over videos; `stages`; `starts`; `segments`; `delay`; `confusion`;
    `per_video`: mAP (NaN without an action) and share of correct chunks; `events`: metrics of reported events, with
    their thresholds; `instances`: metrics of events that are reported at their end. All except `conventions` and
    `interval` include every chunk of the videos. All intervals use the same resamples of videos.
    """
    split, scores, clock = evaluation.split, evaluation.scores, evaluation.split.clock
    classes, videos = split.labels.classes, split.videos
    targets = [video.targets for video in videos]
    segments = [labelled_segments(split, video) for video in videos]
    scored, resamples = evaluation.document["lstr"]["per_class"], len(resampled["mAP"])
    draws, rules = intervals.draw(len(videos), resamples), thresholds_of(evaluation.loaded)
    interval = {name: intervals.interval(resampled[name]) for name in MEANS} if resamples else {}
    scored_videos = [Scored(*pair) for pair in zip(scores, segments, strict=True)]
    per_video = []
    for video, rows in zip(videos, scores, strict=True):
        on = video.targets > 0
        right = on[np.arange(len(on)), predicted_classes(rows, classes)][metrics.counted(on, classes)]
        own = metrics.per_frame(rows, video.targets, classes)["mAP"] if len(rows) else float("nan")
        share = float(right.mean()) if len(right) else float("nan")
        per_video.append({"id": video.id, "chunks": len(rows), "mAP": own, "right": share})
    return {
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
            "operating_curves": describe_curves(sweep(scored_videos, classes, rules, clock)),
            "delay_curve": describe_delays(scored_videos, classes, rules, clock),
        },
        "instances": measure_instances(evaluation.events, classes, draws),
    }


def conventions(evaluation: Evaluation) -> dict[str, Any]:
    """Return mAP, mcAP, and numbers of videos and chunks by the corrected and by the published convention.

    Corrected: all chunks except ambiguous ones. Published: the chunks that the published evaluation of the kind scores
    (`lstr.metrics.scoring_rule`); values are None without such a chunk. `seen` is the number of videos that feature
    networks were trained on, if there are any.
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
    """Return mAP, mcAP, event F1 and instance mAP (resamples,) of resampled videos, equal for every checkpoint."""
    split, classes = evaluation.split, evaluation.split.labels.classes
    scored = (*counted(split, evaluation.scores, evaluation.rule), classes)
    draws = intervals.draw(len(split.videos), resamples)
    return {
        "mAP": metrics.resampled_means(*scored, draws),
        "mcAP": metrics.resampled_means(*scored, draws, calibrated=True),
        "event F1": resampled_f1(evaluation.events, classes, draws),
        "instance mAP": resampled_instances(evaluation.events, classes, draws),
    }


def compare(judged: Sequence[Evaluation], resampled: Sequence[Resampled]) -> list[dict[str, Any]]:
    """Return the differences of each later checkpoint from the first in the metrics of FIGURE_PATHS, and the `verdict`.

    Intervals use the same resamples of videos for both; they are None without resamples.
    """
    rows, old = [], judged[0]
    for new, means in list(zip(judged, resampled, strict=True))[1:]:
        row: dict[str, Any] = {"checkpoint": new.document["checkpoint"], "against": old.document["checkpoint"]}
        for figure, path in FIGURE_PATHS.items():
            values = {when: figure_at(entry.document, path) for when, entry in (("new", new), ("old", old))}
            row[figure] = {**values, "difference": None, "interval": None}
            if values["new"] is not None and values["old"] is not None:
                row[figure]["difference"] = values["new"] - values["old"]
                edges = intervals.interval(means[figure] - resampled[0][figure])
                row[figure]["interval"] = None if np.isnan(edges).any() else edges
        n_videos = min(new.document["videos"], old.document["videos"])
        rows.append(row | verdict(new.name, old.name, row, n_videos))
    return rows


def verdict(new: str, old: str, row: Mapping[str, Any], n_videos: int) -> dict[str, Any]:
    """Return `better`, the name of the better system or None, and `sentence`, the same as text.

    A difference is significant if its interval excludes 0 and there are at least MIN_VIDEOS videos; without an interval
    this is unknown.

    Args:
        new: The name of the newer system.
        old: The name of the older one.
        row: For each of JUDGED the values of `new` and `old`, their `difference` (new minus old) and its `interval`,
            with the same resamples of videos for both.
        n_videos: The number of videos.
    """
    ahead, behind, figures = [], [], []
    for name in JUDGED:
        own = row[name]
        if own["difference"] is None:
            continue
        low, high = own["interval"] or (0, 0)
        if n_videos >= MIN_VIDEOS:
            ahead += [name] * (low > 0)
            behind += [name] * (high < 0)
        edges = f" [{low:+.2f}, {high:+.2f}]" if own["interval"] else ""
        figures.append(f"{name} {own['new']:.2f} against {own['old']:.2f} ({own['difference']:+.2f}{edges})")
    better = None if bool(ahead) == bool(behind) else new if ahead else old
    if ahead and behind:
        result = f"{new} is significantly better than {old} in {ahead[0]} and significantly worse in {behind[0]}"
    elif better:
        where = "" if len(ahead or behind) == len(JUDGED) else f" in {(ahead or behind)[0]}"
        result = f"{better} is significantly better than {old if better == new else new}{where}"
    elif n_videos < MIN_VIDEOS:
        result = f"{old} and {new} cannot be compared on fewer than {MIN_VIDEOS} videos"
    elif any(row[name]["interval"] is None for name in JUDGED if row[name]["difference"] is not None):
        result = f"{old} and {new} cannot be compared without resamples of the videos"
    else:
        result = f"Neither of {old} and {new} is significantly better"
    on = f"on {n_videos} video{'' if n_videos == 1 else 's'}"
    return {"better": better, "sentence": f"{result}: {new} has {' and '.join(figures) or 'no figures'}, {on}."}


def measure_with_kinds(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Return the result of `measure_events`, each entry with the `kinds` from `measure_errors`."""
    found, errors = measure_events(videos, classes, draws), measure_errors(videos, classes)
    per_class = {label: one | {"kinds": errors["per_class"][label]} for label, one in found["per_class"].items()}
    return {**found, "together": found["together"] | {"kinds": errors["together"]}, "per_class": per_class}


def figure_at(document: Mapping[str, Any], path: Sequence[str]) -> float | None:
    """Return a metric of an evaluation by its path; None if it is missing."""
    value: Any = document
    for key in path:
        value = value[key]
    return None if value is None or math.isnan(value) else float(value)


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return a short, unique name for each checkpoint.

    It is the name of the file, or of its folder if all files have the same name, with more folders until it is
    unique; else a number.
    """
    paths = [path.with_suffix("") if path.suffix in CHECKPOINT_SUFFIXES else path for path in paths]
    if len({path.name for path in paths}) == 1 < len({path.parent for path in paths}):
        paths = [path.parent for path in paths]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{i}. {path.name}" for i, path in enumerate(paths, start=1)]


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not support, by None."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def quoted_for(loaded: Checkpoint) -> dict[str, Any] | None:
    """Return the published results on the benchmark that a checkpoint was trained for; None for other data sets.

    The benchmark follows from the training preset if the checkpoint records it; it is THUMOS'14 if the classes are its
    20 actions. The results come from the publications of all kinds (`lstr.models.kind.Publication`).
    """
    benchmark = BENCHMARKS.get(str(loaded.extra.get("preset", "")).removesuffix("-published"))
    if benchmark is None and {*THUMOS_CLASSES[1:-1]} == {*loaded.classes} - {THUMOS_CLASSES[0], THUMOS_CLASSES[-1]}:
        benchmark = BENCHMARKS["thumos14"]
    if benchmark is None:
        return None
    rows = [
        {"method": publication.name, "features": result.features, "value": result.value, "source": result.seen}
        for publication in map(read_publication, OURS)
        for result in publication.results
        if result.of == " ".join(benchmark)
    ]
    return {"name": benchmark[0], "metric": benchmark[1], "rows": rows, "quoted": True}
