"""What decides on the scores of a model: what it carries, and what a caller puts over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lstr.teller import LearntRules, Teller
from lstr.timeline import DEFAULT, ThresholdError, Thresholds, check_kinds

if TYPE_CHECKING:  # it brings torch, which reading labels does not need
    from lstr.checkpoints.loaded import Checkpoint

TELL = ("auto", "rule", "learnt")
"""What decides: what a model carries, its thresholds alone, or its teller"""


def thresholds_of(
    loaded: Checkpoint, overrides: Mapping[str, Any] | None = None
) -> Thresholds | Mapping[str, Thresholds]:
    """A checkpoint's thresholds, by class where `lstr evaluate` or `lstr learn` has chosen them, else the default ones.

    `overrides` (values of Thresholds by name; None overrides nothing) replace both, for all classes. Where only one of
    `on` and `off` is overridden and contradicts the other, the other follows it. Where the checkpoint carries a teller
    and nothing is overridden the result is LearntRules; `tell` among the overrides is `rule` for the thresholds alone,
    or `learnt`. Raises ThresholdError, also where no teller is that is asked for.
    """
    overrides = dict(overrides or {})
    tell, stored = overrides.pop("tell", None) or "auto", loaded.extra.get("thresholds")
    learnt, is_ruled = loaded.extra.get("teller"), any(value is not None for value in overrides.values())
    _check_tell(tell, bool(learnt), is_ruled)
    if learnt and tell != "rule" and not is_ruled:
        own = {label: Thresholds(**values) for label, values in learnt["thresholds"].items()}
        rules = {label: changed((stored or {}).get(label, {}), {}) for label in loaded.classes}
        return LearntRules(rules, Teller.from_stored(learnt), own)
    if not stored:
        return changed({}, overrides)
    return {label: changed(stored.get(label, {}), overrides) for label in loaded.classes}


def _check_tell(tell: str, has_learnt: bool, is_ruled: bool) -> None:
    """Raise ThresholdError for a way to decide that there is not, or that others contradict."""
    if tell not in TELL:
        raise ThresholdError(f"tell is {tell!r}.", f"choose one of {', '.join(TELL)}.")
    if tell == "learnt" and not has_learnt:
        raise ThresholdError(
            "This model has no learnt way to tell an action, only thresholds.",
            "leave out tell, or learn one with `lstr learn --set learn.tell=learnt`.",
        )
    if tell == "learnt" and is_ruled:
        raise ThresholdError("Thresholds are of the rule, not of what was learnt.", "leave out tell.")


def changed(stored: Mapping[str, Any], overrides: Mapping[str, Any]) -> Thresholds:
    """The default thresholds with `stored` and then `overrides` over them; see `thresholds_of`."""
    chosen = {name: value for name, value in overrides.items() if value is not None}
    merged = {**asdict(DEFAULT), **stored, **chosen}
    check_kinds(merged)
    if "off" not in chosen:
        merged["off"] = min(merged["off"], merged["on"])
    elif "on" not in chosen:
        merged["on"] = max(merged["off"], merged["on"])
    return Thresholds(**merged)
