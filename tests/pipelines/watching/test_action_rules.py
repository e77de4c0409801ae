"""What a configuration says of an action over what its model has."""

from types import SimpleNamespace

from lstr.pipelines.watching.action_rules import lateness, overruled, rules_of
from lstr.pipelines.watching.config import ActionConfig
from lstr.timeline import Thresholds

CLASSES = ("Background", "fall", "sit")
OWN = Thresholds(0.82, 0.6, 1.0, 2.0, True, 0.5)


def loaded(**extra):
    return SimpleNamespace(classes=CLASSES, extra={"thresholds": {"fall": OWN.stored()}, **extra})


def test_what_is_not_named_stays_as_the_model_has_it():
    """An entry for one of them set the others to those of no model: false alarms in the place of actions."""
    rules = rules_of(loaded(), {"fall": ActionConfig(min_length=1.5), "unknown": ActionConfig(on=0.1)})
    assert rules["fall"] == Thresholds(0.82, 0.6, 1.5, 2.0, True, 0.5) and rules["sit"] == Thresholds()
    lower = rules_of(loaded(), {"fall": ActionConfig(on=0.3)})["fall"]
    assert lower == Thresholds(0.3, 0.21, 1.0, 2.0, True, 0.5)
    assert rules_of(loaded(), {"fall": ActionConfig(off=0.9)})["fall"].on == 0.9


def test_a_rate_that_was_measured_otherwise_is_of_another_rule():
    assert overruled(loaded(), {"fall": ActionConfig(on=0.3), "sit": ActionConfig()}) == {"fall"}
    assert not overruled(loaded(), {"fall": ActionConfig(on=0.82, off=0.6), "unknown": ActionConfig(on=0.1)})


def test_how_late_an_action_is_told_at_most():
    assert lateness(rules_of(loaded(), {})) == 1.5 and lateness({}) == 0.0
    assert lateness(rules_of(loaded(), {"fall": ActionConfig(min_length=60.0)})) == 60.5
