"""Typed changes to any frozen dataclass of settings, and what a setting may be."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from lstr.errors import ConfigError, brief

LARGEST = 2**63 - 1
"""Of a whole number in any setting: what an array can hold."""

Settings = TypeVar("Settings")


def check_range(
    config: Any,
    *,
    least: Mapping[str, float] = MappingProxyType({}),
    above: Mapping[str, float] = MappingProxyType({}),
    below: Mapping[str, float] = MappingProxyType({}),
    choices: Mapping[str, Iterable[str]] = MappingProxyType({}),
    prefix: str = "",
) -> None:
    """Raise ConfigError for the first setting of a dataclass that is out of its range, by name and value.

    least is the smallest value that a setting may have; above and below are bounds that it may not reach. A setting
    whose default is a whole number takes whole numbers alone. `prefix` comes before its name in the message.
    """
    for name, options in choices.items():
        value = getattr(config, name)
        if value not in options:
            raise ConfigError(f"{prefix}{name} is {value!r}.", f"Choose one of: {', '.join(options)}.")
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name in dict.fromkeys([*least, *above, *below]):
        value, whole = getattr(config, name), isinstance(defaults[name], int)
        fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        fits = fits and value >= least.get(name, -math.inf) and value < below.get(name, math.inf)
        if not (fits and value > above.get(name, -math.inf)):
            bounds = [f"of at least {least[name]}"] if name in least else []
            bounds += [f"above {above[name]}"] if name in above else []
            bounds += [f"below {below[name]}"] if name in below else []
            what = "a whole number" if whole else "a number"
            raise ConfigError(f"{prefix}{name} is {brief(value)}.", f"Give {what} {' and '.join(bounds)}.")


def override(config: Settings, changes: Mapping[str, Any]) -> Settings:
    """Copy of a frozen dataclass with fields changed; text is read as the type the field has now.

    Raises ConfigError for an unknown name (listing the known ones) and for text of the wrong type.
    """
    current = {field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.init}  # type: ignore[arg-type]
    return dataclasses.replace(config, **typed(current, changes))  # type: ignore[type-var]


def typed(current: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of settings, as the types that their current values have. Raises ConfigError as `override`."""
    made = {}
    for name, value in changes.items():
        if name not in current:
            raise ConfigError(f"There is no setting {name!r}.", f"Choose one of: {', '.join(current)}.")
        made[name] = _typed(name, value, current[name])
    return made


def to_json(config: Any) -> str:
    """Canonical JSON of a dataclass: sorted keys, no spaces, so equal settings give equal text."""
    return json.dumps(dataclasses.asdict(config), sort_keys=True, separators=(",", ":"))


def _typed(name: str, value: Any, current: Any) -> Any:
    """Value converted to the type of the field's current value."""
    if not isinstance(value, str):
        return _accepted(name, value, current)
    text = value.strip()
    if isinstance(current, bool):
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ConfigError(f"{name} is {value!r}, not a yes or a no.", f"Type {name}=true or {name}=false.")
        return text.lower() in ("true", "yes", "1")
    if isinstance(current, int):
        try:
            return _sized(name, int(text), current)
        except ValueError as error:
            raise ConfigError(
                f"{name} is {brief(value)}, not a whole number.", f"Type for example {name}={current}."
            ) from error
    if isinstance(current, float):
        try:
            number = float(text)
        except ValueError as error:
            raise ConfigError(f"{name} is {value!r}, not a number.", f"Type for example {name}={current}.") from error
        if not math.isfinite(number):
            raise ConfigError(f"{name} is {value!r}, not a finite number.", f"Type for example {name}={current}.")
        return number
    if isinstance(current, tuple):
        parts = [part for part in text.split(",") if part.strip()]
        return tuple(_typed(name, part, current[0] if current else "") for part in parts)
    if current is None:
        # An unset field does not tell its type, so JSON's own types are tried before plain text.
        try:
            return json.loads(text)
        except ValueError:
            return text
    if isinstance(current, str):
        return value
    raise ConfigError(f"{name} cannot be changed from text.", "Change it in Python with dataclasses.replace.")


def _sized(name: str, value: int, current: Any) -> int:
    """A whole number that is the size or the count of something. Raises ConfigError."""
    if abs(value) > LARGEST:
        raise ConfigError(f"{name} is {brief(value)}, which is too large.", f"Give a value like {current!r}.")
    return value


def _accepted(name: str, value: Any, current: Any) -> Any:
    """A value that already has a type, if it is the field's."""
    if current is None or value is None:
        return value
    if isinstance(current, tuple) and isinstance(value, (list, tuple)):
        return tuple(_accepted(name, part, current[0]) for part in value) if current else tuple(value)
    if isinstance(value, int) and not isinstance(value, bool):
        _sized(name, value, current)
        value = float(value) if isinstance(current, float) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} is {value}, not a finite number.", f"Give a value like {current!r}.")
    if type(value) is not type(current):
        raise ConfigError(
            f"{name} is {brief(value)}, which is not of type {type(current).__name__}.",
            f"Give a value like {current!r}.",
        )
    return value
