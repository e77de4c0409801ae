"""The TOML file of `lstr watch`: read whole, with the line of each mistake, before anything starts."""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import time
from pathlib import Path
from typing import Any

from lstr.errors import LstrError
from lstr.extractors.errors import ExtractorError
from lstr.extractors.video.live_input import parse_live
from lstr.pipelines.quantities import seconds_of
from lstr.pipelines.watching.config import (
    ActionConfig,
    ChannelConfig,
    Hours,
    KeepingConfig,
    PageConfig,
    SourceConfig,
    TellingConfig,
    WatchConfig,
)
from lstr.timeline import ThresholdError, Thresholds

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
"""Of a source or a channel: it becomes part of file names, addresses and topics."""
HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?")
WORD = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
ELSEWHERE = re.compile(r"(env|file):(.+)")
NEEDED = {"webhook": "url", "apprise": "url", "command": "command", "mqtt": "host"}
"""What each kind of channel cannot be without."""
KINDS_OF_CHANNEL = {
    "webhook": ("url", "secret"),
    "apprise": ("url",),
    "command": ("command",),
    "mqtt": ("host", "port", "user", "password", "tls", "prefix", "discovery"),
}


class WatchConfigError(LstrError):
    """A file that `lstr watch` cannot use; its message has all that is wrong, each with its line."""

    exit_code = 2


@dataclass(frozen=True)
class Mistake:
    """What is wrong in a line."""

    line: int
    text: str


Parse = Callable[[Any], Any]
Where = tuple[str, ...]


@dataclass
class _Reading:
    """A file while it is read: where its entries are, and what is wrong so far."""

    path: Path
    lines: Mapping[Where, int]
    mistakes: list[Mistake] = field(default_factory=list)

    def complain(self, where: Where, text: str) -> None:
        """Note a mistake at the nearest line that is known."""
        near = where
        while near and near not in self.lines:
            near = near[:-1]
        self.mistakes.append(Mistake(self.lines.get(near, 1), text))

    def entries(self, where: Where, table: Any, known: Mapping[str, Parse]) -> dict[str, Any]:
        """Values of a table by name, those with a mistake left out."""
        if not isinstance(table, dict):
            self.complain(where, f"{'.'.join(where)} has to be a table, as [{'.'.join(where)}].")
            return {}
        made = {}
        for name, value in table.items():
            at = (*where, name)
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {close[0]}?" if close else f"it is one of {', '.join(known)}."
                self.complain(at, f"{'.'.join(at)} is nothing that is known; {hint}")
                continue
            try:
                made[name] = known[name](value)
            except ValueError as error:
                self.complain(at, f"{'.'.join(at)}: {error}")
        return made

    def tables(self, name: str, content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Tables by name, as [sources.hall]; those whose name cannot be used are left out."""
        tables = content.get(name, {})
        if not isinstance(tables, dict):
            self.complain((name,), f"{name} has to be tables, as [{name}.NAME].")
            return
        for key, table in tables.items():
            if name != "actions" and not NAME.fullmatch(key):
                self.complain((name, key), f"{key!r} is no name: use letters, digits, blanks and . _ - (64 at most).")
            else:
                yield key, table


def read_config(path: str | Path) -> WatchConfig:
    """The checked configuration of a file. Raises WatchConfigError with every mistake and its line."""
    path = Path(path)
    text, content = _content(path)
    reading = _Reading(path, lines_of(text))
    config = _read(reading, content)
    if reading.mistakes:
        found = sorted(reading.mistakes, key=lambda mistake: mistake.line)
        said = "\n".join(f"{path}:{mistake.line}: {mistake.text}" for mistake in found)
        raise WatchConfigError(said, f"mend it, then `lstr watch {path} --check`.")
    return config


def read_data(path: Path) -> Path:
    """The folder of the data that a file names, whatever else is wrong in it. Raises as `read_config`."""
    named = _content(path)[1].get("data")
    folder = path.absolute().parent
    return folder / Path(named).expanduser() if isinstance(named, str) else folder / f"{path.stem}.data"


def _content(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise WatchConfigError(f"There is no file {path}.", f"write one: lstr watch --init {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise WatchConfigError(f"{path} cannot be read ({error}).", "name a TOML file.") from error
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WatchConfigError(f"{path} is not TOML: {error}.", "mend that line.") from error


def _read(reading: _Reading, content: dict[str, Any]) -> WatchConfig:
    folder = reading.path.absolute().parent
    tables = ("sources", "actions", "channels", "telling", "page", "keeping")
    top = reading.entries(
        (),
        {name: value for name, value in content.items() if name not in tables},
        {"model": _path(folder), "data": _path(folder, new=True), "timeout": _seconds} | dict.fromkeys(tables, _any),
    )
    telling = {"cooldown": _seconds, "most_an_hour": _whole, "quiet": _hours}
    channels = dict(_channels(reading, content))
    sources = dict(_sources(reading, content, folder))
    if not sources and not any(mistake.text.startswith("sources") for mistake in reading.mistakes):
        reading.complain(("sources",), "there is no source; name one: [sources.NAME] with an address.")
    return WatchConfig(
        path=reading.path,
        model=top.get("model"),
        data=top.get("data", folder / f"{reading.path.stem}.data"),
        sources=sources,
        actions=dict(_actions(reading, content, [*channels, *content.get("channels", {})])),
        telling=TellingConfig(**reading.entries(("telling",), content.get("telling", {}), telling)),
        channels=channels,
        page=PageConfig(**reading.entries(("page",), content.get("page", {}), {"host": _text, "port": _port})),
        keeping=KeepingConfig(**reading.entries(("keeping",), content.get("keeping", {}), {"days": _above})),
        **{name: top[name] for name in ("timeout",) if name in top},
    )


def _sources(reading: _Reading, content: dict[str, Any], folder: Path) -> Iterator[tuple[str, SourceConfig]]:
    for name, table in reading.tables("sources", content):
        where = ("sources", name)
        made = reading.entries(where, table, {"address": _address(folder), "model": _path(folder)})
        if "address" in made:
            yield name, SourceConfig(**made)
        elif isinstance(table, dict) and "address" not in table:
            reading.complain(where, f"{'.'.join(where)} has no address.")


def _actions(reading: _Reading, content: dict[str, Any], channels: list[str]) -> Iterator[tuple[str, ActionConfig]]:
    rule = {"on": _number, "off": _number, "min_length": _seconds, "merge_gap": _seconds, "highest": _truth}
    telling = {"tell": _names(channels), "cooldown": _seconds, "quiet": _hours}
    for name, table in reading.tables("actions", content):
        made = reading.entries(("actions", name), table, rule | telling)
        chosen = {key: made.pop(key) for key in rule if key in made}
        if "on" in chosen and "off" not in chosen:
            chosen["off"] = 0.7 * chosen["on"]  # as far below as the usual rule's
        try:
            yield name, ActionConfig(thresholds=Thresholds(**chosen) if chosen else None, **made)
        except ThresholdError as error:
            reading.complain(("actions", name), str(error))


def _channels(reading: _Reading, content: dict[str, Any]) -> Iterator[tuple[str, ChannelConfig]]:
    folder = reading.path.absolute().parent
    known: dict[str, Parse] = {
        "kind": _one_of(KINDS_OF_CHANNEL),
        "url": _secret(folder),
        "secret": _secret(folder),
        "command": _words,
        "host": _text,
        "port": _port,
        "user": _text,
        "password": _secret(folder),
        "tls": _truth,
        "prefix": _topic,
        "discovery": _topic,
    }
    for name, table in reading.tables("channels", content):
        where = ("channels", name)
        made = reading.entries(where, table, known)
        kind = made.get("kind")
        if kind is None:
            if isinstance(table, dict) and "kind" not in table:
                reading.complain(where, f"{'.'.join(where)} has no kind: {', '.join(KINDS_OF_CHANNEL)}.")
            continue
        for key in made:
            if key != "kind" and key not in KINDS_OF_CHANNEL[kind]:
                reading.complain((*where, key), f"{'.'.join((*where, key))} means nothing to a {kind}.")
        if not made.get(NEEDED[kind]) and NEEDED[kind] not in table:
            reading.complain(where, f"{'.'.join(where)} needs {NEEDED[kind]}.")
        if kind == "webhook" and not str(made.get("url", "http://")).startswith(("http://", "https://")):
            reading.complain((*where, "url"), f"{'.'.join((*where, 'url'))} has to begin with http:// or https://.")
        yield name, ChannelConfig(**made)


def lines_of(text: str) -> dict[Where, int]:
    """The line of each table and entry of a TOML text, by its names; the first line is 1."""
    found: dict[Where, int] = {}
    table: Where = ()
    depth, quotes = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if quotes:  # in a string of several lines
            quotes = "" if quotes in line else quotes
            continue
        if not depth and (header := HEADER.fullmatch(line)):
            table = _parts(header[1])
            found.setdefault(table, number)
            continue
        if not depth and (key := KEY.match(line)):
            found.setdefault((*table, *_parts(key[1])), number)
            line = line[key.end() :]
        quotes = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")
        bare = re.sub(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*', "", line)
        depth = max(0, depth + bare.count("[") - bare.count("]"))
    return found


def _parts(names: str) -> Where:
    return tuple(word.strip("\"'") for word in WORD.findall(names))


def _any(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write it in quotation marks.")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is true or false.")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it is a number.")
    return float(value)


def _above(value: Any) -> float:
    if not 0 < _number(value) < float("inf"):
        raise ValueError("it is a number above 0.")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("it is a whole number from 1 up.")
    return value


def _port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**16:
        raise ValueError("it is a number from 1 to 65535.")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        return seconds_of(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError("it is a time, as 90, '90s' or '1.5m'.")
    return float(value)


def _hours(value: Any) -> tuple[Hours, ...]:
    if not isinstance(value, list):
        raise ValueError("it is a list, as ['22:00-07:00'].")
    return tuple(map(_stretch, value))


def _stretch(value: Any) -> Hours:
    parts = HOURS.fullmatch(value) if isinstance(value, str) else None
    try:
        if parts:
            first, first_minute, last, last_minute = map(int, parts.groups())
            return Hours(time(first, first_minute), time(last % 24, last_minute))
    except ValueError:
        pass
    raise ValueError(f"{value!r} is no part of a day; write '22:00-07:00'.")


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and word for word in value):
        raise ValueError("it is a program and its arguments, as ['notify-send', 'lstr'].")
    return tuple(value)


def _topic(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[^+#\x00-\x1f]*", value) or value.startswith("/"):
        raise ValueError("it is the beginning of a topic, without + and #.")
    return value.rstrip("/")


def _names(known: list[str]) -> Parse:
    def parse(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise ValueError("it is a list of names, as ['phone'].")
        for name in value:
            if name not in known:
                raise ValueError(f"there is no channel {name!r}; name it: [channels.{name}].")
        return tuple(value)

    return parse


def _one_of(known: Mapping[str, Any]) -> Parse:
    def parse(value: Any) -> str:
        if value not in known:
            raise ValueError(f"it is one of {', '.join(known)}.")
        return str(value)

    return parse


def _path(folder: Path, new: bool = False) -> Parse:
    def parse(value: Any) -> Path:
        path = folder / Path(_text(value)).expanduser()
        if not new and not path.exists():
            raise ValueError(f"there is no file {path}.")
        if new and path.exists() and not path.is_dir():
            raise ValueError(f"{path} is no folder.")
        return path

    return parse


def _secret(folder: Path) -> Parse:
    """A text, or where it is: `env:NAME` is in the environment, `file:PATH` is the first line of a file."""

    def parse(value: Any) -> str:
        text = _text(value)
        parts = ELSEWHERE.fullmatch(text)
        if not parts:
            return text
        if parts[1] == "env":
            if parts[2] not in os.environ:
                raise ValueError(f"the environment has no {parts[2]}.")
            return os.environ[parts[2]]
        try:
            return (folder / Path(parts[2]).expanduser()).read_text(encoding="utf-8").split("\n")[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the file of it cannot be read ({error}).") from error

    return parse


def _address(folder: Path) -> Parse:
    def parse(value: Any) -> str:
        address = _secret(folder)(value)
        if address == "-":
            raise ValueError("standard input is no source that comes again.")
        try:
            found = parse_live(address)
        except (LstrError, ExtractorError) as error:
            raise ValueError(f"{error} {getattr(error, 'hint', '')}".strip()) from error
        if found is None:
            raise ValueError("it is no camera and no address; `lstr detect` decides on files.")
        return address

    return parse
