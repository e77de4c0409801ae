"""The thresholds that watched actions are decided by: the model's own, and over them what a configuration says."""

from collections.abc import Mapping

from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.watching.config import ActionConfig
from lstr.timeline import DEFAULT, Thresholds, changed, thresholds_of


def rules_of(loaded: Checkpoint, actions: Mapping[str, ActionConfig]) -> Mapping[str, Thresholds]:
    """The thresholds of each class."""
    known = _by_class(loaded)
    chosen = {
        name: changed(known[name].stored(), action.rule)
        for name, action in actions.items()
        if action.rule and name in known
    }
    return known | chosen


def overruled(loaded: Checkpoint, actions: Mapping[str, ActionConfig]) -> set[str]:
    """The actions that are not decided as the model's own measurement was made."""
    known, rules = _by_class(loaded), rules_of(loaded, actions)
    chosen = [name for name, action in actions.items() if action.rule and name in known]
    return {name for name in chosen if rules[name] != known[name]}


def lateness(rules: Mapping[str, Thresholds]) -> float:
    """Seconds after its start that an action is told, at most, were each chunk decided at once."""
    return max((rule.min_length + rule.backdate for rule in rules.values()), default=0.0)


def _by_class(loaded: Checkpoint) -> dict[str, Thresholds]:
    """The model's own thresholds of each class."""
    own = thresholds_of(loaded)
    return {label: own if isinstance(own, Thresholds) else own.get(label, DEFAULT) for label in loaded.classes}
