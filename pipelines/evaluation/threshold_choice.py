"""The thresholds of a detection: the checkpoint's own, which it carries, and what a caller puts over them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.timeline import Thresholds, changed, thresholds_of

NAMES = ("on", "off", "min_length", "merge_gap", "highest", "backdate")
BY_NAME = f"use a Thresholds, or values of {', '.join(NAMES)} by name."

# One Thresholds for all classes; values by name (those of NAMES; None leaves one as it is) for all
# classes; a Thresholds or such values by class; or None for the checkpoint's own.
ThresholdChoice = Thresholds | Mapping[str, Any] | None


def choose_thresholds(loaded: Checkpoint, choice: ThresholdChoice = None) -> Thresholds | Mapping[str, Thresholds]:
    """Return the thresholds to detect with: of all classes, or by class.

    A class that the choice leaves out keeps the checkpoint's. Raises ConfigError for values that contradict each
    other, and for a name that is neither a class nor a value.
    """
    if isinstance(choice, Thresholds):
        return choice
    if choice is not None and not isinstance(choice, Mapping):
        raise ConfigError(f"{choice!r} are no thresholds.", BY_NAME)
    if choice is None or is_values(choice):
        return thresholds_of(loaded, choice)
    own, stored = thresholds_of(loaded), loaded.extra.get("thresholds") or {}
    chosen: dict[str, Thresholds] = {}
    for label, values in choice.items():
        if label not in loaded.classes:
            raise ConfigError(
                f"{label!r} is no class of {loaded.path}, and no threshold.",
                f"its classes are {', '.join(loaded.classes)}; thresholds are {', '.join(NAMES)}.",
            )
        if isinstance(values, Thresholds):
            chosen[label] = values
        elif isinstance(values, Mapping) and is_values(values):
            if any(value is not None for value in values.values()):
                chosen[label] = changed(stored.get(label, {}), values)
        else:
            raise ConfigError(
                f"{values!r} are no thresholds of a class.",
                BY_NAME,
            )
    return {label: own if isinstance(own, Thresholds) else own[label] for label in loaded.classes} | chosen


def is_values(choice: Mapping[str, Any]) -> bool:
    """Return whether a mapping has thresholds by name, not by class."""
    return all(name in NAMES and not isinstance(value, Thresholds | Mapping) for name, value in choice.items())


def delay_of(choice: ThresholdChoice) -> dict[str, float]:
    """Return the seconds that a choice for all classes adds to `started` and `ended`; none where it is by class."""
    if isinstance(choice, Mapping) and is_values(choice):
        return changed({}, choice).delays()
    return choice.delays() if isinstance(choice, Thresholds) else {"started": 0.0, "ended": 0.0}


def write_thresholds(loaded: Checkpoint, thresholds: Mapping[str, Thresholds]) -> Path:
    """Put thresholds into a checkpoint or model file, nothing else of it changed; returns it, which is replaced whole.

    A published file is left as it is: NAME.thresholds.pt beside it gets them. Raises CheckpointError.
    """
    # Here, because they bring torch, which a detection may not need.
    from lstr import checkpoint
    from lstr.pipelines.model_files.packing import change_model

    stored = {label: rules.stored() for label, rules in thresholds.items()}
    if is_model(loaded.path):
        return change_model(open_model(loaded.path), loaded.path, {"thresholds": stored}).path
    extra = {**loaded.extra, "thresholds": stored}
    if loaded.format == checkpoint.FORMAT:
        content = checkpoint.read(loaded.path)
        checkpoint.write_atomically(loaded.path, {**content, "extra": json.dumps(extra)})
        return loaded.path
    path = loaded.path.with_name(f"{loaded.path.stem}.thresholds.pt")
    checkpoint.save(path, loaded.model, loaded.classes, loaded.recipe, loaded.metrics, extra, loaded.calibration)
    return path
