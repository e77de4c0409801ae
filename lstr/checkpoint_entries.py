"""What the entries of a checkpoint have to be: it may come from anywhere, and its JSON may hold anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from lstr.errors import CheckpointError

Score = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """The stored thresholds of one class, any of which may be left out."""

    on: Score = 0.0
    off: Score = 0.0
    min_length: Score = 0.0
    merge_gap: Score = 0.0
    highest: bool = False
    backdate: Score = 0.0


# Thresholds by class, see `lstr.timeline.Thresholds`.
THRESHOLDS = dict[str, Rule]
# What a checkpoint has as JSON text.
ENTRIES = {"classes": list[str], "recipe": dict | None, "metrics": dict, "extra": dict, "versions": dict}


def read_entries(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that a checkpoint has as JSON text, by name. Raises CheckpointError that names the one at fault."""
    found: dict[str, Any] = {}
    name = ""
    try:
        for name, shape in ENTRIES.items():
            found[name] = msgspec.convert(json.loads(content[name]), shape)
        found["extra"].pop("teller", None)  # of earlier versions: a network that decided instead of the thresholds
        name = "classes"
        "".join(found[name]).encode()  # they are written into files: no lone surrogate
        name = "thresholds"
        msgspec.convert(found["extra"].get(name) or {}, THRESHOLDS)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: {name} is missing or damaged ({error}).", "Save the checkpoint again with lstr train."
        ) from error
    if fault := fault_of_rules(found["classes"], found["extra"].get("thresholds")):
        raise CheckpointError(f"{path} cannot be used: {fault}.", "Save the checkpoint again with lstr train.")
    return found


def fault_of_rules(classes: Sequence[str], stored: Mapping[str, Mapping[str, float]] | None) -> str:
    """What cannot be of the classes and the stored thresholds of a model, in a phrase; nothing where both can."""
    if not classes:
        return "it has no classes"
    for label, rules in (stored or {}).items():
        on, off = rules.get("on"), rules.get("off")
        if max(on or 0, off or 0) > 1:
            return f"a threshold of {label!r} is above 1"
        if on is not None and off is not None and off > on:
            return f"{label!r} would begin at {on:g} and end below {off:g}"
    return ""


def is_tables(value: Any) -> bool:
    """Whether a value is {stream: {name: tensor}}."""
    from torch import Tensor

    return is_made_of(value, dict[str, dict[str, Tensor]])


def is_thresholds(value: Any) -> bool:
    """Whether a value is thresholds by class; nothing at all means the default ones."""
    return not value or is_made_of(value, THRESHOLDS)


def is_made_of(value: Any, shape: Any) -> bool:
    """Whether a value is of a type such as dict[str, int], with all that it holds."""
    try:
        msgspec.convert(value, shape)
    except (ValueError, AttributeError):  # of a tensor in the place of a mapping keys are asked
        return False
    return True
