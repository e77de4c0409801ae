"""Typed changes to any frozen dataclass of settings, and what a setting may be."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from lstr.errors import ConfigError, brief

LARGEST = 2**63 - 1
"""The largest whole number in any setting: what an array can hold."""
NOUNS = {bool: "yes or no", int: "a whole number", float: "a finite number", str: "text", tuple: "a list"}
FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
# an unset field does not tell its type, so JSON's own are tried before plain text
READ: dict[type, Callable[[str], Any]] = {
    bool: lambda text: FLAGS.get(text.lower(), text),
    int: int,
    float: float,
    type(None): json.loads,
}
"""How text becomes a value of a type."""

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

    A setting whose default is a whole number takes whole numbers alone, from 1 on, or from 0 where the default is 0.
    One whose default is another number takes those from 0 on, and one whose default is true or false takes these.
    `least` has other smallest values, above and below bounds that a number may not reach, choices what text may be.
    One of `least` or choices whose default is None takes that too, and else whole numbers or these. `prefix` comes
    before the name in the message.
    """
    for field in dataclasses.fields(config):
        name, default, value = field.name, field.default, getattr(config, field.name)
        hint = ""
        if default is None and (value is None or name not in (*least, *choices)):
            continue
        if name in choices:
            hint = "" if value in choices[name] else f"Choose one of: {', '.join(choices[name])}."
        elif isinstance(default, bool):
            hint = "" if isinstance(value, bool) else "Give true or false."
        elif default is None or isinstance(default, int | float):
            whole = not isinstance(default, float)
            low = above.get(name, least[name] if name in least else min(default or 0, int(whole)))
            high = below.get(name, math.inf)
            fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not (fits and low <= value < high and value != above.get(name)):
                bounds = [f"above {low}" if name in above else f"of at least {low}"]
                bounds += [f"below {high}"] if name in below else []
                hint = f"Give {'a whole number' if whole else 'a number'} {' and '.join(bounds)}."
        if hint:
            raise ConfigError(f"{prefix}{name} is {brief(value)}.", hint)


def override(config: Settings, changes: Mapping[str, Any]) -> Settings:
    """Copy of a frozen dataclass with fields changed; text is read as the type the field has now.

    Raises ConfigError for an unknown name (listing the known ones) and for text of the wrong type.
    """
    current = {field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.init}  # type: ignore[arg-type]
    return dataclasses.replace(config, **typed(current, changes))  # type: ignore[type-var]


def typed(current: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of settings, as the types that their current values have. Raises ConfigError as `override`."""
    for name in changes:
        if name not in current:
            raise ConfigError(f"There is no setting {name!r}.", f"Choose one of: {', '.join(current)}.")
    return {name: _typed(name, value, current[name]) for name, value in changes.items()}


def to_json(config: Any) -> str:
    """Canonical JSON of a dataclass: sorted keys, no spaces, so equal settings give equal text."""
    return json.dumps(dataclasses.asdict(config), sort_keys=True, separators=(",", ":"))


def _typed(name: str, value: Any, current: Any) -> Any:
    """A value as the type of the field's current value, which text is read as."""
    made, kind = value, type(current)
    if kind is tuple and isinstance(value, str | list | tuple):
        parts = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        return tuple(_typed(name, part, current[0] if current else part) for part in parts)
    if isinstance(value, str):
        with suppress(ValueError):
            made = READ[kind](value.strip()) if kind in READ else value
    if current is None or made is None:
        return made
    if kind is float and type(made) is int and abs(made) <= LARGEST:
        made = float(made)
    fault = ""
    if type(made) is not kind or kind is float and not math.isfinite(made):
        fault = f"not {NOUNS.get(kind, kind.__name__)}"
    elif kind is int and abs(made) > LARGEST:
        fault = "which is too large"
    if fault:
        raise ConfigError(f"{name} is {brief(value)}, {fault}.", f"Give a value like {current!r}.")
    return made
