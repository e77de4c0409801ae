"""Thresholds that are chosen on the scores of a training, and stored in its checkpoint."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.loaded_checkpoint import Checkpoint
from lstr.metrics.actions import measure_events
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.evaluation.backdating import backdated
from lstr.pipelines.evaluation.job import doubts
from lstr.pipelines.evaluation.operating_curves import choose_within
from lstr.pipelines.evaluation.threshold_choice import write_thresholds
from lstr.pipelines.evaluation.thresholds_by_actions import Rule, Scored, choose_rule, choose_without_each
from lstr.pipelines.progress import Notice
from lstr.timeline import Thresholds

# The thresholds if one recording teaches and no other is left to choose them on. Such a model is less sure of new
# videos than the usual thresholds need. Chosen on models of four single videos and tried on three more: F1 is .57 and
# .46
# instead of .30 and .42 on UT-Interaction, and .78 instead of .70 on UR Fall.
ONE_RECORDING = Thresholds(on=0.35, off=0.175, min_length=0.5, merge_gap=0.5)


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

    groups: ids of videos that are left out together; a single group has no thresholds of its own.
    """
    classes, every = loaded.classes, [*scored.values()]
    others = [[scored[i] for i in scored if i not in group] for group in groups]
    rule, without = choose_without_each([[scored[i] for i in group] for group in groups], classes)
    if false_alarms is not None:
        rule = _within(rule, every, classes, false_alarms)
        pairs = zip(without, others, strict=True)
        without = [_within(own, rest, classes, false_alarms) if rest else own for own, rest in pairs]
    each = [backdated(own.by_class, rest, classes) for own, rest in zip(without, others, strict=True)]
    yield from _store_thresholds(backdated(rule.by_class, every, classes), every, loaded, false_alarms)
    pairs_of_groups = zip(groups, each, strict=True) if len(groups) > 1 else ()
    return Chosen(rule.f1, {video_id: own for group, own in pairs_of_groups for video_id in group})


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
    if false_alarms is not None:
        rule = _within(rule, scored, loaded.classes, false_alarms)
    rules = backdated(rule.by_class, scored, loaded.classes)
    yield from _store_thresholds(rules, scored, loaded, false_alarms)
    return Chosen(rule.f1)


def _store_thresholds(
    rules: Mapping[str, Thresholds], scored: Sequence[Scored], loaded: Checkpoint, false_alarms: float | None
) -> Iterator[Notice]:
    if false_alarms is not None:
        given = [detect_events(one.scores, loaded.classes, rules, one.truth) for one in scored]
        yield from map(Notice, doubts(measure_events(given, loaded.classes), false_alarms))
    write_thresholds(loaded, rules)


def _within(rule: Rule, scored: Sequence[Scored], classes: Sequence[str], false_alarms: float) -> Rule:
    """Return a rule with the thresholds that find most at a rate of false alarms."""
    scores, truth = [one.scores for one in scored], [one.truth for one in scored]
    return replace(rule, by_class=choose_within(scores, truth, classes, false_alarms), f1=None)
