"""Whether a teller decides better than the rule: both tried on videos that neither was chosen on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics import bootstrap
from lstr.metrics.actions import FOUND_IOU, VideoEvents, measure_events, resampled_f1
from lstr.metrics.event_errors import measure_errors
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.evaluation.operating_curves import choose_within
from lstr.pipelines.thresholds.by_actions import LEVELS, Grid, Scored, choose_rule
from lstr.pipelines.thresholds.teaching import TellerData
from lstr.teller import LearntRules
from lstr.timeline import Thresholds

RULE, LEARNT = "rule", "learnt"
FEWEST_LABELS = 50
"""With fewer labelled actions than this a teller has too little to learn from to be tried"""
FEWEST_GROUPS = 4
INNER = 3
"""Parts of the videos by which a teller's thresholds are chosen: each by a teller that lacks it"""
RESAMPLES = 1000
TOLD_GRID = Grid((LEVELS, (0.7, 0.5), (0.0, 0.5, 1.0), (0.0, 0.5)))
Rules = Mapping[str, Thresholds]


@dataclass(frozen=True)
class Told:
    """How good rule and teller are on videos that they lacked, and which is taken."""

    events: Mapping[str, Mapping[str, Any]]
    """What each does, by RULE and LEARNT: `f1`, `false_alarms_per_hour`, `fragmented` labels, `delay` (median, s)"""
    interval: tuple[float, float]
    """What the difference of F1 may be, by resamples of the videos"""
    taken: str
    rules: Rules = field(repr=False)
    """What a checkpoint carries"""
    without: Sequence[Rules] = field(repr=False)
    """What decides on the videos of each group, chosen on the others"""

    def to_dict(self) -> dict[str, Any]:
        """The entry of model.json."""
        events = {name: dict(values) for name, values in self.events.items()}
        return {"events": events, "interval": list(self.interval), "taken": self.taken}


def is_enough(groups: Sequence[Sequence[Scored]], classes: Sequence[str], asked: bool = False) -> bool:
    """Whether there are labels enough that a teller is tried; any are where it was asked for."""
    actions = {*classes} - {BACKGROUND, AMBIGUOUS}
    labels = sum(s.label in actions for group in groups for video in group for s in video.truth)
    return len(groups) >= FEWEST_GROUPS and labels >= (1 if asked else FEWEST_LABELS)


def choose_told(
    groups: Sequence[Sequence[Scored]],
    classes: Sequence[str],
    rules: Rules,
    without: Sequence[Rules],
    wished: float | None = None,
    tell: str = "auto",
    grid: Grid = TOLD_GRID,
) -> Told:
    """Whether a teller decides in place of the rules that were chosen on all groups, and on all but each (`without`).

    The scores are of models that lacked the videos. A teller, and the thresholds of its probabilities, of all other
    groups decide on each, and the thresholds are chosen on probabilities of tellers that lacked the videos too. `auto`
    takes it where its F1 (IoU 0.3) is higher by more than chance: the interval of the difference over resamples of the
    videos is above 0. wished: false alarms an hour that thresholds are chosen for; then a teller with more of them than
    that, and than the rule, is not taken. grid: the thresholds of probabilities that are tried.
    """
    videos = [video for group in groups for video in group]
    ends = np.cumsum([len(group) for group in groups]).tolist()
    places = [list(range(end - len(group), end)) for group, end in zip(groups, ends, strict=True)]
    data = TellerData(videos, classes)
    told: dict[int, Scored] = {}
    learnt: list[Rules] = []
    for at, own in enumerate(places):
        others = [some for place, some in enumerate(places) if place != at]
        thresholds = _thresholds(data, videos, others, classes, wished, grid)
        teller = data.teach([place for some in others for place in some])
        told |= {place: _told(data, teller, place, videos) for place in own}
        learnt.append(LearntRules(without[at], teller, thresholds))
    final = LearntRules(rules, data.teach(range(len(videos))), _choose([*told.values()], classes, wished, grid))
    both = {name: detect_groups(groups, classes, some) for name, some in ((RULE, without), (LEARNT, learnt))}
    draws = bootstrap.draw(len(videos), RESAMPLES)
    resampled = {name: resampled_f1(found, classes, draws) for name, found in both.items()}
    low, high = bootstrap.interval(resampled[LEARNT] - resampled[RULE])
    events = {name: _figures(found, classes) for name, found in both.items()}
    rates = {name: figures["false_alarms_per_hour"] for name, figures in events.items()}
    within = wished is None or rates[LEARNT] <= max(wished, rates[RULE])
    taken = LEARNT if tell == LEARNT or (low > 0 and within) else RULE
    chosen, each = (final, learnt) if taken == LEARNT else (rules, without)
    return Told(events, (low, high), taken, chosen, each)


def _thresholds(
    data: TellerData,
    videos: Sequence[Scored],
    groups: Sequence[Sequence[int]],
    classes: Sequence[str],
    wished: float | None,
    grid: Grid,
) -> Rules:
    """Thresholds of probabilities, chosen on some groups of videos, each by a teller of the others."""
    parts = [[place for group in groups[k::INNER] for place in group] for k in range(min(INNER, len(groups)))]
    found = []
    for part in parts:
        teller = data.teach([place for other in parts if other is not part for place in other])
        found += [_told(data, teller, place, videos) for place in part]
    return _choose(found, classes, wished, grid)


def _told(data: TellerData, teller: Any, place: int, videos: Sequence[Scored]) -> Scored:
    return Scored(data.told(teller, place, videos[place].scores), videos[place].truth)


def _choose(videos: Sequence[Scored], classes: Sequence[str], wished: float | None, grid: Grid) -> Rules:
    if wished is None:
        return choose_rule(videos, classes, grid=grid).by_class
    return choose_within([one.scores for one in videos], [one.truth for one in videos], classes, wished)


def detect_groups(
    groups: Sequence[Sequence[Scored]], classes: Sequence[str], rules: Sequence[Rules]
) -> list[VideoEvents]:
    """What the rules of each group make of its videos."""
    return [
        detect_events(video.scores, classes, own, video.truth)
        for group, own in zip(groups, rules, strict=True)
        for video in group
    ]


def _figures(videos: Sequence[VideoEvents], classes: Sequence[str]) -> dict[str, Any]:
    together = measure_events(videos, classes)["together"]
    labels = measure_errors(videos, classes)["together"]["labels"]
    return {
        "f1": together["iou"][str(FOUND_IOU)]["f1"],
        "found": together["found"],
        "labels": together["labels"],
        "false_alarms_per_hour": together["false_alarms_per_hour"],
        "fragmented": labels["fragmented"] + labels["fragmented_merged"],
        "delay": together["delay"]["p50"],
    }
