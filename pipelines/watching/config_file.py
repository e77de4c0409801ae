"""The TOML file of `lstr watch`: read whole, with the entry of each mistake, before anything starts."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lstr.errors import ConfigError
from lstr.pipelines.watching.config import (
    ActionConfig,
    ChannelConfig,
    ClipsConfig,
    KeepingConfig,
    Length,
    PageConfig,
    SourceConfig,
    TellingConfig,
    WatchConfig,
    path_in,
)

# The name of a source or a channel becomes part of addresses and topics.
NAME = re.compile(r"\w[\w. -]{0,63}")
# What msgspec says of a mistake, and where in the value it is.
PLACED = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
# Tables of which there are any number, as [sources.NAME]
NAMED: dict[str, Any] = {"sources": SourceConfig, "actions": ActionConfig, "channels": ChannelConfig}
ENTRIES: dict[str, Any] = {
    "model": Path,
    "timeout": Length,
    "telling": TellingConfig,
    "page": PageConfig,
    "keeping": KeepingConfig,
    "clips": ClipsConfig,
}
MOST_BYTES, LONGEST_LINE = 2**19, 4096
# Mistakes that are told at once
MOST_MISTAKES = 50


def read_config(path: str | Path) -> WatchConfig:
    """Return the checked configuration of a file. Raises ConfigError with the first mistake of each table."""
    path = Path(path)
    content, folder = _content(path), path.absolute().parent
    mistakes: list[str] = []

    def take(name: str, value: Any, kind: Any) -> Any:
        try:
            return msgspec.convert(value, kind, dec_hook=lambda kind, value: _value(kind, value, folder))
        except (msgspec.ValidationError, OverflowError, SystemError) as error:  # the last of msgspec before 0.22
            said = PLACED.fullmatch(str(error))
            assert said
            mistakes.append(f"{name}{said[2] or ''}: {said[1]}")

    found: dict[str, Any] = {"model": None, "sources": {}}
    try:
        found["data"] = _data(path, content)
    except ValueError as error:
        mistakes.append(f"data: {error}")
    for name, value in content.items():
        if name in NAMED:
            tables = take(name, value, dict[str, dict[str, Any]]) or {}
            found[name] = {key: take(f"{name}.{key}", table, NAMED[name]) for key, table in tables.items()}
            if name != "actions":
                wrong = [key for key in tables if not NAME.fullmatch(key)]
                mistakes += [
                    f"{key!r} is no name: use letters, digits, blanks and . _ - (64 at most)." for key in wrong
                ]
        elif name in ENTRIES:
            found[name] = take(name, value, ENTRIES[name])
        elif name != "data":
            mistakes.append(f"unknown setting {name}; it is one of {', '.join(['data', *ENTRIES, *NAMED])}.")
    if not found["sources"] and not any(mistake.startswith("sources") for mistake in mistakes):
        mistakes.append("there is no source; name one: [sources.NAME] with an address.")
    for name, action in found.get("actions", {}).items():
        unknown = [channel for channel in (action and action.tell) or () if channel not in found.get("channels", {})]
        mistakes += [f"actions.{name}.tell: there is no channel {channel!r}." for channel in unknown]
    if mistakes:
        raise error_of(path, mistakes)
    return WatchConfig(path, **found)


def error_of(path: Path, mistakes: Sequence[str]) -> ConfigError:
    """Return the error of a file that has mistakes; it names the first of them where there are many."""
    said = [f"{path}: {mistake}" for mistake in mistakes[:MOST_MISTAKES]]
    more = len(mistakes) - MOST_MISTAKES
    text = "\n".join([*said, f"{more:,} more mistakes follow."] if more > 0 else said)
    return ConfigError(text, f"mend it, then `lstr watch --check {path}`.")


def read_data(path: Path) -> Path:
    """Return the folder of the data that a file names, whatever else is wrong in it. Raises as `read_config`."""
    try:
        return _data(path, _content(path))
    except ValueError as error:
        raise error_of(path, [f"data: {error}"]) from error


def _data(path: Path, content: dict[str, Any]) -> Path:
    named = content.get("data", f"{path.stem}.data")
    if not isinstance(named, str):
        raise ValueError("write it in quotation marks.")
    folder = path_in(path.absolute().parent, named)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is no folder.")
    return folder


def _value(kind: Any, value: Any, folder: Path) -> Any:
    """Return a value of the file as one of a type that msgspec does not know. Raises ValueError."""
    if kind is not Path:
        return kind.read(value, folder)
    if not isinstance(value, str):
        raise ValueError("write it in quotation marks.")
    path = path_in(folder, value)
    if not path.exists():
        raise ValueError(f"there is no file {path}.")
    return path


def _content(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # to open a pipe is to wait for who writes to it
            raise ConfigError(f"{path} is no file.", "name a TOML file.")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES:,} bytes.", "name a TOML file.")
        text = data.decode("utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"There is no file {path}.", f"write one: lstr watch --init {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}).", "name a TOML file.") from error
    long = next((number for number, line in enumerate(text.splitlines(), 1) if len(line) > LONGEST_LINE), None)
    if long:  # names with thousands of points take Python's reader minutes
        raise ConfigError(f"{path}:{long}: the line is longer than {LONGEST_LINE:,} characters.", "divide it.")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "mend that line; a name with letters beyond A to Z, or a space, is in quotation marks."
        raise ConfigError(f"{path} is not TOML: {error}.", hint) from error
    except RecursionError as error:
        raise ConfigError(f"{path} has brackets within brackets, too deep to be read.", "divide it.") from error
