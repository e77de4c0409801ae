"""Event metrics of scores: what detection would announce, beside what is labelled."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import segments_of
from lstr.labels.segment import Segment
from lstr.metrics import bootstrap
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.pipelines.datasets.dataset import LabelledVideo, Split
from lstr.pipelines.evaluation.operating_curves import describe_curves, sweep
from lstr.pipelines.evaluation.scoring import Evaluation
from lstr.timeline import Thresholds, Timeline, segments_in, thresholds_of

Rules = Thresholds | Mapping[str, Thresholds]


def analyse_events(evaluation: Evaluation, resamples: int) -> dict[str, Any]:
    """Event metrics at the thresholds that `lstr detect` uses, those thresholds, and the operating curves.

    Intervals are of the same draws of videos as those of the per-frame means.
    """
    split, scores, rules = evaluation.split, evaluation.scores, thresholds_of(evaluation.loaded)
    classes, truth = split.labels.classes, [labelled_segments(split, video) for video in split.videos]
    videos = [detect_events(rows, classes, rules, actions) for rows, actions in zip(scores, truth, strict=True)]
    return {
        **measure_events(videos, classes, bootstrap.draw(len(videos), resamples)),
        "thresholds": Timeline(classes, rules).describe(),
        "operating_curves": describe_curves(sweep(scores, truth, classes, rules)),
    }


def detect_events(
    scores: np.ndarray, classes: Sequence[str], rules: Rules, truth: Sequence[Segment] = ()
) -> VideoEvents:
    """What `lstr detect` announces of a video with scores (L, C), and when, beside its labels."""
    timeline, seconds = Timeline(tuple(classes), rules), len(scores) / FEATURES_PER_SECOND
    events = [e for k, row in enumerate(scores) for e in timeline.push((k + 1) / FEATURES_PER_SECOND, row)]
    events += timeline.finish(seconds)
    segments = segments_in(events)
    started = {(event.label, event.start): event.time for event in events if event.event == "started"}
    announced = [started[segment.label, segment.start] for segment in segments]
    return VideoEvents(truth, segments, seconds, announced)


def labelled_segments(split: Split, video: LabelledVideo) -> Sequence[Segment]:
    """A video's labelled actions; from its chunks where the labels are chunks alone."""
    labelled = split.labels.videos[video.id].segments
    return labelled or segments_of(video.targets, split.labels.classes)
