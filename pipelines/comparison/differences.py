"""What one learning caught and another missed of the same labels, in videos that neither had learnt from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, targets
from lstr.metrics import bootstrap
from lstr.metrics.actions import Spans, VideoEvents, measure_events, resampled_f1
from lstr.metrics.event_errors import JudgedEvents, belong_together, judge_events
from lstr.metrics.per_frame import per_frame
from lstr.pipelines.evaluation.analysis import RESAMPLES, Resampled, compare
from lstr.pipelines.evaluation.findings import without_nan
from lstr.pipelines.evaluation.held_out import HeldOut
from lstr.pipelines.evaluation.scoring import Scores

COUNTED = ("labels", "found_old", "found_new", "false_old", "false_new")


@dataclass(frozen=True)
class Moment:
    """A label or a detection: where to look; times in seconds."""

    video: str
    action: str
    start: float
    end: float


@dataclass(frozen=True)
class Differences:
    """What became better and worse from an old model to a new one."""

    verdict: Mapping[str, Any]
    """`sentence`, and `better`: the name of the better one, None where that is chance; mAP and event F1 with `new`,
    `old`, `difference` and its `interval`"""
    videos: Sequence[str]
    """The ids of those that both have scores of"""
    actions: Mapping[str, Mapping[str, int]]
    """By action `labels`, and what the `old` and `new` model `found_` and `false_` of it"""
    caught: Sequence[Moment]
    """Labels that are found now, and were missed"""
    missed: Sequence[Moment]
    gone: Sequence[Moment]
    """False alarms that are no more"""
    come: Sequence[Moment]
    left_out: Sequence[str]
    """Actions that only one of the models knows"""

    def to_dict(self) -> dict[str, Any]:
        """Its JSON object."""
        return without_nan(asdict(self))


def find_differences(
    names: tuple[str, str], old: HeldOut, new: HeldOut, labels: Labels, renamed: Mapping[str, str] | None = None
) -> Differences | None:
    """Compare two models on the videos of which both have scores, all judged by the same `labels`.

    names: of the old and of the new one. renamed: what the old model's actions are called in the labels. None where
    there is no such video, or no action that both know.
    """
    old = _renamed(old, renamed or {})
    known = [{*one.classes} - {BACKGROUND, AMBIGUOUS} for one in (old, new)]
    actions = [label for label in labels.classes if label in known[0] & known[1]]
    videos = [i for i in sorted(labels.videos) if i in old.scores and i in new.scores]
    videos = [i for i in videos if len(old.scores[i]) == len(new.scores[i]) > 0]
    if not videos or not actions:
        return None
    classes = (BACKGROUND, *actions, AMBIGUOUS)
    labels = _narrowed(labels, videos, classes)
    events = [[_events_of(one, labels, i) for i in videos] for one in (old, new)]
    moments: dict[str, list[Moment]] = {name: [] for name in ("caught", "missed", "gone", "come")}
    counts = {action: dict.fromkeys(COUNTED, 0) for action in actions}
    for video, before, after in zip(videos, *events, strict=True):
        judged = judge_events(before, classes), judge_events(after, classes)
        for action in actions:
            pair = judged[0][action], judged[1][action]
            for name, spans in _changes(*pair).items():
                moments[name] += [Moment(video, action, *map(float, span)) for span in spans]
            for name, number in _counts(*pair).items():
                counts[action][name] += number
    verdict = _verdict(names, (old, new), events, labels, videos, classes)
    return Differences(verdict, videos, counts, **moments, left_out=sorted(known[0] ^ known[1]))


def _renamed(held_out: HeldOut, names: Mapping[str, str]) -> HeldOut:
    """The same with classes called otherwise."""
    detections = {
        video: tuple(replace(segment, label=names.get(segment.label, segment.label)) for segment in found)
        for video, found in held_out.detections.items()
    }
    return HeldOut(tuple(names.get(label, label) for label in held_out.classes), held_out.scores, detections)


def _narrowed(labels: Labels, videos: Sequence[str], classes: tuple[str, ...]) -> Labels:
    """The labels of some videos and classes."""
    segments = {i: tuple(one for one in labels.videos[i].segments if one.label in classes) for i in videos}
    kept = {i: replace(labels.videos[i], segments=some) for i, some in segments.items()}
    return replace(labels, classes=classes, videos=kept)


def _events_of(held_out: HeldOut, labels: Labels, video: str) -> VideoEvents:
    seconds = len(held_out.scores[video]) / FEATURES_PER_SECOND
    return VideoEvents(labels.videos[video].segments, held_out.detections[video], seconds)


def _changes(old: JudgedEvents, new: JudgedEvents) -> dict[str, Spans]:
    """The spans (N, 2) of what differs, by the name of `Differences`; labels are the same for both."""
    before, after = old.detections[old.false], new.detections[new.false]
    both = belong_together(before, after)
    return {
        "caught": new.truth[new.found & ~old.found],
        "missed": new.truth[old.found & ~new.found],
        "gone": before[~both.any(axis=1)],
        "come": after[~both.any(axis=0)],
    }


def _counts(old: JudgedEvents, new: JudgedEvents) -> dict[str, int]:
    found, false = (int(old.found.sum()), int(new.found.sum())), (int(old.false.sum()), int(new.false.sum()))
    return dict(zip(COUNTED, (len(new.truth), *found, *false), strict=True))


def _verdict(
    names: tuple[str, str],
    models: tuple[HeldOut, HeldOut],
    events: Sequence[Sequence[VideoEvents]],
    labels: Labels,
    videos: Sequence[str],
    classes: tuple[str, ...],
) -> dict[str, Any]:
    """What `analysis.compare` says of the two, by the same resamples of the videos."""
    on = [targets(labels.videos[i], classes, len(models[0].scores[i])) for i in videos]
    draws = bootstrap.draw(len(videos), RESAMPLES)
    documents: list[dict[str, Any]] = []
    resampled: list[Resampled] = []
    for name, one, found in zip(names, models, events, strict=True):
        scores = [_columns(one, i, classes) for i in videos]
        means = per_frame(np.concatenate(scores), np.concatenate(on), classes)
        measured = measure_events(found, classes)
        documents.append({"checkpoint": name, "videos": len(videos), "lstr": means, "events": measured})
        drawn = bootstrap.resampled_means(scores, on, classes, draws)
        resampled.append({"mAP": drawn, "event F1": resampled_f1(found, classes, draws)})
    return compare(names, documents, resampled)[0]


def _columns(held_out: HeldOut, video: str, classes: Sequence[str]) -> Scores:
    """The scores (L, C) of these classes; 0 of one that was never scored, as Ambiguous may be."""
    rows = held_out.scores[video]
    place = {label: at for at, label in enumerate(held_out.classes)}
    blank = np.zeros(len(rows), np.float32)
    return np.stack([rows[:, place[label]] if label in place else blank for label in classes], axis=1)
