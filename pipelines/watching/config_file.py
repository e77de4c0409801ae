"""The TOML file of `lstr watch`: read whole, with the line of each mistake, before anything starts."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lstr.errors import LstrError
from lstr.extractors.video.zones import parse_zones
from lstr.pipelines.watching import config_values as values
from lstr.pipelines.watching.config import (
    ActionConfig,
    ChannelConfig,
    ClipsConfig,
    KeepingConfig,
    PageConfig,
    SourceConfig,
    TellingConfig,
    WatchConfig,
)
from lstr.pipelines.watching.config_values import Parse
from lstr.timeline import ThresholdError, changed

Where = tuple[str, ...]
"""The names of a table or an entry, from the outermost on."""
KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?")
WORD = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
NAME = re.compile(r"\w[\w. -]{0,63}")
"""The name of a source or a channel becomes part of addresses and topics."""
NEEDED = {"webhook": "url", "apprise": "url", "command": "command", "mqtt": "host"}
"""What each kind of channel cannot be without."""
KINDS_OF_CHANNEL = {
    "webhook": ("url", "secret"),
    "apprise": ("url",),
    "command": ("command",),
    "mqtt": ("host", "port", "user", "password", "tls", "prefix", "discovery"),
}

PAGE: dict[str, Parse] = {
    "host": values.host,
    "port": values.port,
    "hosts": values.hosts,
    "trusted_proxy": values.truth,
}
CLIPS: dict[str, Parse] = {
    "before": values.seconds,
    "after": values.seconds,
    "longest": values.length,
    "most": values.size,
    "days": values.days,
    "ring": values.size,
}
IN_BYTES = {"most": "most_bytes", "ring": "ring_bytes"}
"""Entries that are sizes, and what the configuration calls them"""
RULE: dict[str, Parse] = {
    "on": values.number,
    "off": values.number,
    "min_length": values.seconds,
    "merge_gap": values.seconds,
    "highest": values.truth,
    "backdate": values.seconds,
}
"""The entries of an action that are a rule for its scores"""


MOST_BYTES, LONGEST_LINE = 2**19, 4096
MOST_MISTAKES = 50
"""Mistakes that are told at once"""


class WatchConfigError(LstrError):
    """A file that `lstr watch` cannot use; its message has all that is wrong, each with its line."""

    exit_code = 2


@dataclass(frozen=True)
class Mistake:
    """What is wrong in a line."""

    line: int
    text: str


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
                self.complain(at, f"unknown setting {'.'.join(at)}; {hint}")
                continue
            try:
                made[name] = known[name](value)
            except (ValueError, OverflowError) as error:  # a number too large to be one
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
        raise WatchConfigError(said_of(path, reading.mistakes), f"mend it, then `lstr watch --check {path}`.")
    return config


def said_of(path: Path, mistakes: Iterable[Mistake]) -> str:
    """Mistakes of a file in the order of its lines, the first of them where there are many."""
    found = sorted(mistakes, key=lambda mistake: mistake.line)
    said = [f"{path}:{mistake.line}: {mistake.text}" for mistake in found[:MOST_MISTAKES]]
    more = len(found) - MOST_MISTAKES
    return "\n".join([*said, f"{more:,} more mistakes follow."] if more > 0 else said)


def read_data(path: Path) -> Path:
    """The folder of the data that a file names, whatever else is wrong in it. Raises as `read_config`."""
    text, content = _content(path)
    folder, named = path.absolute().parent, content.get("data")
    if not isinstance(named, str):
        return folder / f"{path.stem}.data"
    try:
        return values.path_in(folder, named)
    except ValueError as error:
        mistake = Mistake(lines_of(text).get(("data",), 1), f"data: {error}")
        raise WatchConfigError(said_of(path, [mistake]), f"mend it, then `lstr watch --check {path}`.") from error


def _content(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        if path.exists() and not path.is_file():  # to open a pipe is to wait for who writes to it
            raise WatchConfigError(f"{path} is no file.", "name a TOML file.")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise WatchConfigError(f"{path} is larger than {MOST_BYTES:,} bytes.", "name a TOML file.")
        text = data.decode("utf-8")
    except FileNotFoundError as error:
        raise WatchConfigError(f"There is no file {path}.", f"write one: lstr watch --init {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise WatchConfigError(f"{path} cannot be read ({error}).", "name a TOML file.") from error
    long = next((number for number, line in enumerate(text.splitlines(), 1) if len(line) > LONGEST_LINE), None)
    if long:  # names with thousands of points take Python's reader minutes
        raise WatchConfigError(f"{path}:{long}: the line is longer than {LONGEST_LINE:,} characters.", "divide it.")
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "mend that line; a name with letters beyond A to Z, or a space, is in quotation marks."
        raise WatchConfigError(f"{path} is not TOML: {error}.", hint) from error
    except RecursionError as error:
        raise WatchConfigError(f"{path} has brackets within brackets, too deep to be read.", "divide it.") from error


def _read(reading: _Reading, content: dict[str, Any]) -> WatchConfig:
    folder = reading.path.absolute().parent
    model = values.path_from(folder)
    tables = ("sources", "actions", "channels", "telling", "page", "keeping", "clips")
    top = reading.entries(
        (),
        {name: value for name, value in content.items() if name not in tables},
        {
            "model": model,
            "data": values.path_from(folder, new=True),
            "timeout": values.length,
            **dict.fromkeys(tables, values.any_value),
        },
    )
    telling = {"cooldown": values.seconds, "most_an_hour": values.whole_number, "quiet": values.hours}
    channels = dict(_channels(reading, content))
    sources = dict(_sources(reading, content, folder, model))
    clips = reading.entries(("clips",), content.get("clips", {}), CLIPS)
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
        clips=ClipsConfig(**{IN_BYTES.get(name, name): value for name, value in clips.items()})
        if "clips" in content
        else None,
        page=PageConfig(**reading.entries(("page",), content.get("page", {}), PAGE)),
        keeping=KeepingConfig(**reading.entries(("keeping",), content.get("keeping", {}), {"days": values.days})),
        **{name: top[name] for name in ("timeout",) if name in top},
    )


def _sources(
    reading: _Reading,
    content: dict[str, Any],
    folder: Path,
    model: Parse,
) -> Iterator[tuple[str, SourceConfig]]:
    known: dict[str, Parse] = {
        "address": values.address_from(folder),
        "model": model,
        "zones": parse_zones,
    }
    for name, table in reading.tables("sources", content):
        where = ("sources", name)
        made = reading.entries(where, table, known)
        if "address" in made:
            yield name, SourceConfig(**made)
        elif isinstance(table, dict) and "address" not in table:
            reading.complain(where, f"{'.'.join(where)} has no address.")


def _actions(reading: _Reading, content: dict[str, Any], channels: list[str]) -> Iterator[tuple[str, ActionConfig]]:
    telling = {"tell": values.names_of(channels), "cooldown": values.seconds, "quiet": values.hours}
    for name, table in reading.tables("actions", content):
        made = reading.entries(("actions", name), table, RULE | telling)
        chosen = {key: made.pop(key) for key in RULE if key in made}
        if "on" in chosen and "off" not in chosen:
            chosen["off"] = 0.7 * chosen["on"]  # as far below as the usual rule's
        try:
            changed({}, chosen)
            yield name, ActionConfig(chosen, **made)
        except ThresholdError as error:
            reading.complain(("actions", name), str(error))


def _channels(reading: _Reading, content: dict[str, Any]) -> Iterator[tuple[str, ChannelConfig]]:
    folder = reading.path.absolute().parent
    known: dict[str, Parse] = {
        "kind": values.one_of(KINDS_OF_CHANNEL),
        "url": values.secret_from(folder),
        "secret": values.secret_from(folder),
        "command": values.words,
        "host": values.host,
        "port": values.port,
        "user": values.text,
        "password": values.secret_from(folder),
        "tls": values.truth,
        "prefix": values.topic,
        "discovery": values.topic,
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
