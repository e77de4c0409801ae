"""Choose the thresholds of checkpoints on scored videos, and store them in the checkpoints."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lstr.batch import predict
from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.loaded_checkpoint import Checkpoint
from lstr.metrics.actions import labelled_spans, largest_pairs, measure_events, overlaps, spans_of
from lstr.pipelines.evaluation.analysis import measure_with_kinds
from lstr.pipelines.evaluation.false_alarms import choose_within, doubts
from lstr.pipelines.evaluation.scoring import detect_events, labelled_segments
from lstr.pipelines.evaluation.threshold_choice import write_thresholds
from lstr.pipelines.evaluation.thresholds import Scored, choose_rule, choose_without_each
from lstr.pipelines.features.dataset import Split, network_overlap
from lstr.pipelines.model_files.networks import streams_of_checkpoint
from lstr.pipelines.progress import Notice, Progress
from lstr.timeline import DEFAULT, Thresholds

# The least overlap of a detection with a label for its delay to count
LEAST_IOU = 0.1
# How many labels without a delay weigh as much as an action's own
PRIOR_LABELS = 1

# The thresholds if one recording is trained on and no other is left to choose them on. Such a model is less sure of new
# videos than the usual thresholds need. Chosen on models of four single videos and tried on three more: F1 is .57 and
# .46 instead of .30 and .42 on UT-Interaction, and .78 instead of .70 on UR Fall.
ONE_RECORDING = Thresholds(on=0.35, off=0.175, min_length=0.5, merge_gap=0.5)


def backdated(
    rules: Mapping[str, Thresholds], videos: Sequence[Scored], classes: Sequence[str], clock: Clock = CLOCK
) -> dict[str, Thresholds]:
    """Return the rules with the `backdate` that suits each action.

    It is the median delay of the starts of detections behind those of their labels, drawn to 0 if there are few, in
    whole chunks; 0 if detections come early. The scores should be of models that have not seen the videos, because
    those that have are early.
    """
    plain = {label: replace(rule, backdate=0.0) for label, rule in rules.items()}
    late: dict[str, list[float]] = {label: [] for label in classes if label not in (BACKGROUND, AMBIGUOUS)}
    for video in videos:
        found = detect_events(video.scores, classes, plain, video.truth, clock)
        for label, seconds in late.items():
            truth, detected = labelled_spans(video.truth, label, found.seconds), spans_of(found.detections, label)
            pairs = largest_pairs(truth, detected, overlaps(truth, detected) >= LEAST_IOU)
            seconds += (detected[pairs[:, 1], 0] - truth[pairs[:, 0], 0]).tolist()
    for label, seconds in late.items():
        if seconds and label in plain:
            drawn = float(np.median(seconds)) * len(seconds) / (len(seconds) + PRIOR_LABELS)
            chunks = max(0, round(drawn / clock.seconds))
            plain[label] = replace(plain[label], backdate=float(clock.length(chunks)))
    return plain


@dataclass(frozen=True)
class Chosen:
    """Thresholds that a checkpoint now has.

    Attributes:
        f1: Their F1 on the videos that they were chosen on.
        without: The thresholds that were chosen without each video, by id.
    """

    f1: float | None = None
    without: Mapping[str, Mapping[str, Thresholds]] = field(default_factory=dict)


def choose_unseen_thresholds(
    scored: Mapping[str, Scored], groups: Sequence[Sequence[str]], loaded: Checkpoint, false_alarms: float | None = None
) -> Generator[Notice, None, Chosen]:
    """Choose thresholds on videos that networks and models have not seen, and for each video those without it.

    Args:
        scored: The videos by id.
        groups: Ids of videos that are excluded together; a single group has no thresholds of its own.
        loaded: The checkpoint, which then has the thresholds.
        false_alarms: The rate per hour to aim at; None for the highest F1.
    """
    classes, every = loaded.classes, [*scored.values()]
    others = [[scored[i] for i in scored if i not in group] for group in groups]
    rule, without = choose_without_each([[scored[i] for i in group] for group in groups], classes)
    by_class, f1 = rule.by_class, rule.f1
    each = [own.by_class for own in without]
    if false_alarms is not None:
        by_class, f1 = choose_within(every, classes, false_alarms), None
        pairs = zip(each, others, strict=True)
        each = [choose_within(rest, classes, false_alarms) if rest else own for own, rest in pairs]
    each = [backdated(own, rest, classes) for own, rest in zip(each, others, strict=True)]
    yield from _store(backdated(by_class, every, classes), every, loaded, false_alarms)
    pairs_of_groups = zip(groups, each, strict=True) if len(groups) > 1 else ()
    return Chosen(f1, {video_id: own for group, own in pairs_of_groups for video_id in group})


def choose_seen_thresholds(
    scored: Sequence[Scored], loaded: Checkpoint, false_alarms: float | None = None
) -> Generator[Notice, None, Chosen]:
    """Choose thresholds on videos that the networks have seen; use ONE_RECORDING if there are no videos."""
    if not scored:
        if false_alarms is not None:
            yield Notice("no video is left to count false alarms on: the thresholds aim at no rate.")
        actions = [label for label in loaded.classes if label not in (BACKGROUND, AMBIGUOUS)]
        write_thresholds(loaded, dict.fromkeys(actions, ONE_RECORDING))
        return Chosen()
    rule = choose_rule(scored, loaded.classes, seen=True)
    by_class, f1 = rule.by_class, rule.f1
    if false_alarms is not None:
        by_class, f1 = choose_within(scored, loaded.classes, false_alarms), None
    yield from _store(backdated(by_class, scored, loaded.classes), scored, loaded, false_alarms)
    return Chosen(f1)


def _store(
    rules: Mapping[str, Thresholds], scored: Sequence[Scored], loaded: Checkpoint, false_alarms: float | None
) -> Generator[Notice, None, None]:
    if false_alarms is not None:
        found = [detect_events(one.scores, loaded.classes, rules, one.truth) for one in scored]
        yield from map(Notice, doubts(measure_events(found, loaded.classes), false_alarms))
    write_thresholds(loaded, rules)


def choose_stored_thresholds(
    entries: Sequence[tuple[str, Checkpoint, Split]], false_alarms: float | None
) -> Generator[Progress | Notice, None, dict[str, Any]]:
    """Choose the thresholds of named checkpoints on the videos of a split each, and store them.

    Return the document of one or of several. `checkpoint` is the file with the thresholds; `thresholds` has those of
    each class, its F1 of found actions, and that of the default thresholds (`before`); `events` and `default_events`
    are of `measure_with_kinds` for both. With `false_alarms` the thresholds find the most actions with at most this
    many false alarms per hour of all classes together (`false_alarms.choose_within`); else they have the highest F1 of
    found actions (`choose_rule`). Starts are backdated to suit their labels. Raises CheckpointError.
    """
    documents = []
    for name, loaded, whole in entries:
        split, classes = whole.narrowed(loaded.config, streams_of_checkpoint(loaded)), loaded.classes
        scored: list[Scored] = []
        yield Progress(name, 0, len(split.videos))
        for video in split.videos:
            rows = predict(loaded.model, video.features[:]).numpy()
            scored.append(Scored(rows, labelled_segments(split, video)))
            yield Progress(name, len(scored), len(split.videos))
        if false_alarms is None:
            chosen = choose_rule(scored, classes, clock=split.clock).by_class
        else:
            chosen = choose_within(scored, classes, false_alarms, split.clock)
        rules = backdated(chosen, scored, classes, split.clock)
        after, before = (
            measure_with_kinds(
                [detect_events(one.scores, classes, used, one.truth, split.clock) for one in scored], classes
            )
            for used in (rules, DEFAULT)
        )
        document: dict[str, Any] = {
            "checkpoint": str(write_thresholds(loaded, rules)),
            "thresholds": {
                label: {**rule.stored(), "F1": _f1(after, label), "before": _f1(before, label)}
                for label, rule in rules.items()
            },
            "events": after,
            "default_events": before,
        }
        if false_alarms is not None:
            document["aim"] = {"false_alarms_per_hour": false_alarms}
            yield from (Notice(f"{name}: {text}") for text in doubts(after, false_alarms))
        if seen := network_overlap(whole, loaded.config):
            document["seen"] = seen
        documents.append(document)
    return documents[0] if len(documents) == 1 else {"checkpoints": documents}


def _f1(events: Mapping[str, Any], label: str) -> float | None:
    """Return the F1 of a class's found actions; None without a label."""
    one = events["per_class"][label]
    return 2 * one["found"] / (one["labels"] + one["detections"]) if one["labels"] else None
