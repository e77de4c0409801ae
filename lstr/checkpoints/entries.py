"""What the entries of a checkpoint have to be: it may come from anywhere, and its JSON may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lstr.errors import CheckpointError


def is_tables(value: Any) -> bool:
    """Whether a value is {stream: {name: tensor}}."""
    return isinstance(value, dict) and all(
        isinstance(stream, str) and isinstance(table, dict) and all(is_tensor(*entry) for entry in table.items())
        for stream, table in value.items()
    )


def is_tensor(name: Any, value: Any) -> bool:
    """Whether an entry of a table is a tensor with a name."""
    from torch import Tensor

    return isinstance(name, str) and isinstance(value, Tensor)


def check_entries(path: Path, classes: Any, parts: Mapping[str, Any]) -> None:
    """Raise CheckpointError, naming the file and the entry, for one of another kind than `save` writes."""
    sound = {name: isinstance(value, dict) or (name == "recipe" and value is None) for name, value in parts.items()}
    sound["classes"] = isinstance(classes, list) and all(isinstance(label, str) for label in classes)
    sound["thresholds"] = is_thresholds(parts["extra"].get("thresholds") if sound["extra"] else None)
    wrong = [name for name, fits in sound.items() if not fits]
    if wrong:
        raise CheckpointError(f"{path}: {wrong[0]} is of another kind.", "Save it again with lstr train.")


def is_thresholds(stored: Any) -> bool:
    """Whether a value is thresholds by class, see `lstr.timeline.Thresholds`; nothing at all means the default ones."""
    return not stored or isinstance(stored, dict) and all(_is_rules(rules) for rules in stored.values())


def _is_rules(rules: Any) -> bool:
    return isinstance(rules, dict) and all(
        name in ("on", "off", "min_length", "merge_gap") and type(value) in (int, float) and 0 <= value <= 1e9
        for name, value in rules.items()
    )
