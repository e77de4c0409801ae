"""Configuration: structs with fields that msgspec checks, and changes to them by name."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, inspect, structs

from lstr.errors import ConfigError, brief

LARGEST = 2**63 - 1  # the largest whole number in any setting: what an array can hold

Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Amount = Annotated[float, Meta(ge=0)]
PositiveAmount = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]

# What is checked of a dataclass: numbers, choices and flags, or None.
PLAIN = (inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.LiteralType, inspect.NoneType)

Config = TypeVar("Config", bound="Settings")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration. Each field is checked by its type and bounds, however the configuration is made.

    Raises ConfigError that names the first wrong field and its value.
    """

    prefix: ClassVar[str] = ""  # what comes before the name of a field in messages

    def __post_init__(self) -> None:
        check_fields(self)

    def replace(self: Config, **changes: Any) -> Config:
        """Return a copy with fields changed, which is checked."""
        return structs.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, in the types of JSON."""
        return msgspec.to_builtins(self)


def check_fields(config: Any) -> None:
    """Raise ConfigError for the first field of a configuration whose value is outside its type or bounds.

    config: a `Settings`, or a dataclass with options of a job, of which numbers, choices and flags are checked.
    """
    kind: Any = type(config)
    for name, wanted in field_types(kind).items():
        value = getattr(config, name)
        try:
            msgspec.convert(value, wanted)
        except ValueError as error:
            raise _error(kind, name, value) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{getattr(kind, 'prefix', '')}{name} is {value}.", "use a finite number.")


@cache
def field_types(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a configuration, with their bounds, by name."""
    if not dataclasses.is_dataclass(kind):
        return {field.name: field.type for field in structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in dataclasses.fields(kind):
        try:
            info = inspect.type_info(hints[field.name])
        except TypeError:  # a union that msgspec does not tell apart, such as of a path and text
            continue
        parts = info.types if isinstance(info, inspect.UnionType) else (info,)
        if all(isinstance(part.type if isinstance(part, inspect.Metadata) else part, PLAIN) for part in parts):
            found[field.name] = hints[field.name]
    return found


@cache
def defaults(kind: type[Settings]) -> dict[str, Any]:
    """Return the defaults of a configuration by name."""
    return {field.name: field.default for field in structs.fields(kind)}


def build(kind: type[Config], values: Mapping[str, Any], strict: bool = False) -> Config:
    """Return a configuration of values by name; unless `strict`, text is read as the type that the field has.

    Raises ConfigError for an unknown name (listing the known ones) and for a value outside its type or bounds.
    """
    types = field_types(kind)
    for name in values:
        if name not in types:
            raise ConfigError(f"Unknown setting: {name!r}.", f"choose one of: {', '.join(types)}.")
    read = dict(values) if strict else {name: _read(value, types[name]) for name, value in values.items()}
    try:
        return msgspec.convert(read, kind, strict=strict)
    except (ValueError, RecursionError) as error:  # also of half characters
        # the message is as in "Expected `int` >= 1 - at `$.n_heads`"
        field = str(error).partition("$.")[2].strip("`").partition("[")[0].partition(".")[0]
        if field not in read:
            hint = "use values of the type of each setting."
            raise ConfigError(f"The settings are invalid: {error}.", hint) from error
        raise _error(kind, field, read[field]) from error


def convert(kind: type, name: str, value: Any) -> Any:
    """Return a value as the type of a field, where text is read; text or a path as it is. Raises ConfigError."""
    if (wanted := field_types(kind).get(name)) is None:
        return value
    value = _read(value, wanted)
    try:
        return msgspec.convert(value, wanted, strict=False)
    except ValueError as error:
        raise _error(kind, name, value) from error


def override(settings: Config, changes: Mapping[str, Any]) -> Config:
    """Return a copy of a configuration with fields changed. Raises as `build`."""
    return build(type(settings), {**structs.asdict(settings), **changes})


def to_json(config: Settings) -> str:
    """Return the canonical JSON of a configuration: sorted keys, no spaces, so equal settings give equal text."""
    return json.dumps(config.to_dict(), sort_keys=True, separators=(",", ":"))


def _read(value: Any, kind: Any) -> Any:
    """Return a value; text for a list is split at commas, and surrounding blanks are removed."""
    if not isinstance(value, str):
        return value
    info = inspect.type_info(kind)
    if isinstance(info, inspect.VarTupleType):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value.strip()


def _error(kind: type, name: str, value: Any) -> ConfigError:
    """Return the error of a wrong value of a field, with a hint such as "use a whole number of at least 1."."""
    info = inspect.type_info(field_types(kind)[name])
    if isinstance(info, inspect.UnionType):
        info = next(part for part in info.types if not isinstance(part, inspect.NoneType))
    if isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.LiteralType):
        hint = f"choose one of: {', '.join(map(str, info.values))}."
    elif isinstance(info, inspect.IntType | inspect.FloatType):
        words = (("of at least", info.ge), ("above", info.gt), ("below", info.lt), ("of at most", info.le))
        bounds = [f"{word} {bound:g}" for word, bound in words if bound is not None and abs(bound) < LARGEST]
        noun = "a whole number" if isinstance(info, inspect.IntType) else "a number"
        hint = f"use {noun} {' and '.join(bounds)}".strip() + "."
    else:
        named = {inspect.BoolType: "true or false", inspect.StrType: "text"}
        hint = f"use {named.get(type(info), 'a list')}."
    return ConfigError(f"{getattr(kind, 'prefix', '')}{name} is {brief(value)}.", hint)


BYTE_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
SECOND_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_bytes(text: str) -> int:
    """Return bytes, written as 20MB, 1.5GiB or 500000. Raises ValueError."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", text, re.IGNORECASE)
    if not parts:
        raise ValueError(f"{text!r} is not a valid size; write 20MB, 1.5GB or a number of bytes.")
    return int(float(parts[1]) * BYTE_UNITS[(parts[2] or "").lower()])


def parse_seconds(text: str) -> float:
    """Return seconds of a time, written as 90, 90s, 1.5m, 2d, 1:30 or 1:02:03.5. Raises ValueError."""
    if clock := re.fullmatch(r"(?:(\d+):)?(\d+):(\d+(?:\.\d*)?)", text):
        hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return 3600 * hours + 60 * minutes + seconds
    if plain := re.fullmatch(r"(\d+(?:\.\d*)?)\s*([smhd]?)", text, re.IGNORECASE):
        return float(plain[1]) * SECOND_UNITS[plain[2].lower()]
    raise ValueError(f"{text!r} is not a valid time; write 90s, 1.5m or 1:30.")


def parse_rate(text: str) -> float:
    """Return times per hour of a rate above 0, written as 2/h, 5/day or 2 (per hour). Raises ValueError."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(?:/\s*(h|hour|d|day))?\s*", text, re.IGNORECASE)
    if not parts or not float(parts[1]):
        raise ValueError(f"{text!r} is not a valid rate; write 2/h, 5/day or a number above 0.")
    return float(parts[1]) / (24 if (parts[2] or "h").lower().startswith("d") else 1)
