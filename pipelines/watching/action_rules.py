"""The thresholds that watched actions are decided by: the model's own, and over them what a configuration says."""

from collections.abc import Mapping

from lstr.checkpoints.loaded import Checkpoint
from lstr.pipelines.watching.config import ActionConfig
from lstr.rules import changed, thresholds_of
from lstr.teller import LearntRules
from lstr.timeline import DEFAULT, Thresholds


def rules_of(loaded: Checkpoint, actions: Mapping[str, ActionConfig]) -> Mapping[str, Thresholds]:
    """The thresholds of each class. Where the model has a teller, that decides on the actions that no entry is of."""
    own = thresholds_of(loaded)
    known = _by_class(loaded)
    chosen = {
        name: changed(known[name].stored(), action.rule)
        for name, action in actions.items()
        if action.rule and name in known
    }
    return own.ruled(chosen) if isinstance(own, LearntRules) else known | chosen


def overruled(loaded: Checkpoint, actions: Mapping[str, ActionConfig]) -> set[str]:
    """The actions that are not decided as the model's own measurement was made."""
    own, known, rules = thresholds_of(loaded), _by_class(loaded), rules_of(loaded, actions)
    learnt = own.thresholds if isinstance(own, LearntRules) else {}
    chosen = [name for name, action in actions.items() if action.rule and name in known]
    return {name for name in chosen if name in learnt or rules[name] != known[name]}


def lateness(rules: Mapping[str, Thresholds]) -> float:
    """Seconds after its start that an action is told, at most, were each chunk decided at once."""
    learnt = rules.thresholds.values() if isinstance(rules, LearntRules) else ()
    return max((rule.min_length + rule.backdate for rule in (*rules.values(), *learnt)), default=0.0)


def _by_class(loaded: Checkpoint) -> dict[str, Thresholds]:
    """The model's own thresholds of each class."""
    own = thresholds_of(loaded)
    return {label: own if isinstance(own, Thresholds) else own.get(label, DEFAULT) for label in loaded.classes}
