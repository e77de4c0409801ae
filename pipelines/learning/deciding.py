"""Thresholds of a model, chosen out of fold."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lstr.checkpoints.loaded import Checkpoint
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics.actions import measure_events
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.evaluation.backdating import backdated
from lstr.pipelines.evaluation.job import doubts
from lstr.pipelines.evaluation.operating_curves import choose_within
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.learning.parts import folds_of
from lstr.pipelines.progress import Notice
from lstr.pipelines.thresholds.by_actions import Rule, Scored, choose_rule, choose_without_each
from lstr.pipelines.thresholds.choice import write_thresholds
from lstr.timeline import Thresholds

Rules = Mapping[str, Thresholds]

GROUPS = 10
"""How many groups of videos there are at most: thresholds decide on each that were chosen on the others"""


OF_ONE_RECORDING = Thresholds(on=0.35, off=0.175, min_length=0.5, merge_gap=0.5)
"""Where one recording teaches and nothing is left to choose thresholds on: what has seen so little is less sure of new
videos than the usual thresholds ask for. Chosen on models of four single videos, and tried on three more: F1 is .57 and
.46 in place of .30 and .42 on UT-Interaction, .78 in place of .70 on UR Fall"""


@dataclass(frozen=True)
class Decided:
    """What was chosen, which the checkpoint now carries."""

    f1: float | None
    """F1 of the rule on the videos that it was chosen on"""
    without: Mapping[str, Rules] = field(default_factory=dict)
    """What was chosen without each video, by id"""


def decide_unseen(
    scored: Mapping[str, Scored], loaded: Checkpoint, options: LearnOptions
) -> Generator[Notice, None, Decided]:
    """What suits these scores, of models that lacked the videos, and for each video what was chosen without it.

    Videos of one recording are left out together; of a single recording nothing is chosen without it.
    """
    groups = folds_of([*scored], GROUPS) or [[*scored]]
    videos, classes, every = [[scored[i] for i in group] for group in groups], loaded.classes, [*scored.values()]
    rest = [[scored[i] for i in scored if i not in group] for group in groups]
    rule, others = choose_without_each(videos, classes)
    if (wished := options.false_alarms) is not None:
        rule = _within(rule, every, classes, wished)
        others = [_within(own, some, classes, wished) if some else own for own, some in zip(others, rest, strict=True)]
    rules = backdated(rule.by_class, every, classes)
    each = [backdated(own.by_class, some, classes) for own, some in zip(others, rest, strict=True)]
    yield from _keep(rules, every, loaded, wished)
    pairs = zip(groups, each, strict=True) if len(groups) > 1 else ()
    return Decided(rule.f1, {video_id: own for group, own in pairs for video_id in group})


def decide_seen(
    scored: Sequence[Scored], loaded: Checkpoint, options: LearnOptions
) -> Generator[Notice, None, Decided]:
    """The rule that suits these scores, of videos that the feature networks have seen.

    Without any, as of a single recording, OF_ONE_RECORDING for all actions.
    """
    if not scored:
        actions = [label for label in loaded.classes if label not in (BACKGROUND, AMBIGUOUS)]
        if options.false_alarms is not None:
            yield Notice("no video is left to count false alarms on: the thresholds aim at no rate.")
        write_thresholds(loaded, dict.fromkeys(actions, OF_ONE_RECORDING))
        return Decided(None)
    rule = choose_rule(scored, loaded.classes, seen=True)
    if options.false_alarms is not None:
        rule = _within(rule, scored, loaded.classes, options.false_alarms)
    rules = backdated(rule.by_class, scored, loaded.classes)
    yield from _keep(rules, scored, loaded, options.false_alarms)
    return Decided(rule.f1)


def _keep(
    rules: Rules, scored: Sequence[Scored], loaded: Checkpoint, wished: float | None
) -> Generator[Notice, None, None]:
    """Write rules into a checkpoint, and say what is doubtful of a wished rate of false alarms."""
    if wished is not None:
        given = [detect_events(one.scores, loaded.classes, rules, one.truth) for one in scored]
        yield from map(Notice, doubts(measure_events(given, loaded.classes), wished))
    write_thresholds(loaded, rules)


def _within(rule: Rule, scored: Sequence[Scored], classes: Sequence[str], wished: float) -> Rule:
    """In place of a rule the one that finds most for so many false alarms an hour."""
    scores, truth = [one.scores for one in scored], [one.truth for one in scored]
    return replace(rule, by_class=choose_within(scores, truth, classes, wished), f1=None)
