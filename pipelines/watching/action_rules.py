"""The thresholds that watched actions are decided by: the model's own, and over them what a configuration says."""

from collections.abc import Mapping

from lstr.checkpoints.loaded import Checkpoint
from lstr.pipelines.thresholds.choice import choose_thresholds
from lstr.pipelines.watching.config import ActionConfig
from lstr.teller import LearntRules
from lstr.timeline import Thresholds


def rules_of(loaded: Checkpoint, actions: Mapping[str, ActionConfig]) -> Mapping[str, Thresholds]:
    """The thresholds of each class. Where the model has a teller, that decides on the actions that no entry is of."""
    chosen = {label: actions[label].rule if label in actions else {} for label in loaded.classes}
    rules = choose_thresholds(loaded, chosen)
    assert isinstance(rules, Mapping), "they are chosen by class"
    return rules


def overruled(loaded: Checkpoint, actions: Mapping[str, ActionConfig]) -> set[str]:
    """The actions that are not decided as the model's own measurement was made."""
    own, rules = rules_of(loaded, {}), rules_of(loaded, actions)
    learnt = own.thresholds if isinstance(own, LearntRules) else {}
    chosen = [name for name, action in actions.items() if action.rule and name in own]
    return {name for name in chosen if name in learnt or rules[name] != own[name]}


def lateness(rules: Mapping[str, Thresholds]) -> float:
    """Seconds after its start that an action is told, at most, were each chunk decided at once."""
    learnt = rules.thresholds.values() if isinstance(rules, LearntRules) else ()
    return max((rule.min_length + rule.backdate for rule in (*rules.values(), *learnt)), default=0.0)
