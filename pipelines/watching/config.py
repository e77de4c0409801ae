"""The TOML file of `lstr watch`: each class is a table of it, and each field an entry.

The file is read as a whole, and each error is named by its entry, before anything starts. msgspec checks types and
bounds. A type that msgspec does not know has a method `_parse`, which converts a value of the file, or raises
ValueError with a sentence for the person who wrote it.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from lstr.errors import CheckpointError, ConfigError, ExtractorError, LstrError, MissingCameraError, ServingError
from lstr.extractors.video.inputs import parse_live
from lstr.extractors.video.zones import Zones, parse_zones
from lstr.files.content import read_text
from lstr.labels.label_set import actions_of
from lstr.pipelines.detection.model import find_checkpoint
from lstr.pipelines.detection.options import NAMES as THRESHOLDS
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.pages.server import names_of
from lstr.pipelines.watching.notifications import notifier_class
from lstr.settings import parse_bytes, parse_seconds
from lstr.timeline import changed

# The file that `lstr watch --init` writes, with {name} and {stem} of its name
EXAMPLE = Path(__file__).with_name("example.toml")
# Files of a service in its folder `data`.
HISTORY, CLIPS = "history.sqlite", "clips"
# The name of a source or a channel becomes part of addresses and topics.
NAME = re.compile(r"\w[\w. -]{0,63}")
# msgspec's message, and the place of the error in the value.
PLACED = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
# A hostile file of a million keys gave 160 MB of errors.
MAX_BYTES, MAX_ERRORS = 2**19, 50
CLOCK = r"(([01]?\d|2[0-3]):[0-5]\d|24:00)"
HOURS = re.compile(rf"{CLOCK}\s*-\s*{CLOCK}")
ELSEWHERE = re.compile(r"(env|file):(?!//)(.+)")
MIN_BYTES, MAX_SECONDS = 10**6, 366 * 86400

Days = Annotated[float, Meta(gt=0, le=36500)]
Port = Annotated[int, Meta(ge=1, le=65535)]
# The name or IP address of a machine without a port. A longer label raises when it is resolved.
LABEL = r"[^\s/:@?#\[\].]{1,63}"
IPV6 = r"[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(%\w+)?"
Host = Annotated[str, Meta(pattern=rf"^({LABEL}(\.{LABEL})*|{IPV6})$")]
# A host as browsers write it, with an optional port.
PageHost = Annotated[str, Meta(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s/:@?#\[\]]+)(:\d{1,5})?$")]


class Seconds(float):
    """Seconds, in the file a number or a time such as '1.5m'."""

    @classmethod
    def _parse(cls, value: Any, folder: Path) -> "Seconds":
        found = parse_seconds(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= MAX_SECONDS:
            raise ValueError("use a time such as 90, '90s' or '1.5m', at most a year.")
        if cls is Duration and not found:
            raise ValueError("use a time above 0, such as 90, '90s' or '1.5m'.")
        return cls(found)


class Duration(Seconds):
    """Seconds above 0."""


class Size(int):
    """Bytes, in the file a number or a size such as '10GB'."""

    @classmethod
    def _parse(cls, value: Any, folder: Path) -> "Size":
        found = parse_bytes(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int) or found < MIN_BYTES:
            raise ValueError("use a size of at least 1MB, such as '10GB'.")
        return cls(found)


class Hours(str):
    """A part of each day on this machine's clock, such as 22:00-07:00, which includes midnight."""

    @classmethod
    def _parse(cls, value: Any, folder: Path) -> "Hours":
        if not isinstance(value, str) or not HOURS.fullmatch(value):
            raise ValueError(f"{value!r} is not a part of a day; write '22:00-07:00'.")
        return cls(value)

    def contains(self, now: time) -> bool:
        """Return whether a time of the day is within it."""
        start, end = (int(hour) * 60 + int(minute) for hour, minute in re.findall(r"(\d+):(\d+)", self))
        minute = now.hour * 60 + now.minute
        return start <= minute < end if start < end else minute >= start or minute < end


class Secret(str):
    """A text, or where it is: `env:NAME` is an environment variable, `file:PATH` the first line of a file."""

    @classmethod
    def _parse(cls, value: Any, folder: Path) -> "Secret":
        if not isinstance(value, str) or not value.strip():
            raise ValueError("write a text in quotation marks, which is not empty.")
        parts = ELSEWHERE.fullmatch(value)
        if not parts:
            return cls(value)
        if parts[1] == "file":
            try:
                return cls(path_in(folder, parts[2]).read_text(encoding="utf-8").split("\n")[0].strip())
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"its file cannot be read ({error}).") from error
        found = os.environ.get(parts[2])
        if found is None:
            raise ValueError(f"the environment variable {parts[2]} is not set.")
        try:
            found.encode()  # Python keeps bytes that are not UTF-8 as surrogates, which the MQTT library cannot send
        except UnicodeEncodeError as error:
            raise ValueError(f"the environment variable {parts[2]} is not UTF-8.") from error
        return cls(found)


class Address(Secret):
    """The address of a camera or stream. A camera may be unplugged."""

    @classmethod
    def _parse(cls, value: Any, folder: Path) -> "Address":
        address = cls(super()._parse(value, folder))
        if address == "-":
            raise ValueError("standard input cannot be opened again; use `lstr detect -`.")
        try:
            found = parse_live(address)
        except MissingCameraError:
            return address
        except LstrError as error:
            raise ValueError(_line(error)) from error
        if found is None:
            raise ValueError("it is neither a camera nor an address; use `lstr detect` for files.")
        return address


def path_in(folder: Path, text: Any) -> Path:
    """Return a path relative to a folder, with `~` expanded. Raises ValueError for what cannot be a path."""
    if not isinstance(text, str):
        raise ValueError("write it in quotation marks.")
    try:
        path = folder / Path(text).expanduser()
        path.exists()
    except RuntimeError as error:
        raise ValueError(f"the home folder {Path(text).parts[0]} does not exist.") from error
    except OSError as error:
        raise ValueError(f"it cannot be a path ({error.strerror}).") from error
    if "\0" in text:
        raise ValueError("it cannot be a path (it has a character of code 0).")
    return path


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file. Its values may be secrets, so its representation hides them."""

    def __repr__(self) -> str:
        return type(self).__name__


class SourceConfig(Table, frozen=True):
    """One camera or stream."""

    address: Address
    model: Path | None = None  # a model file for this source only
    zones: Zones = ()  # where motion counts; empty for everywhere

    def __post_init__(self) -> None:
        parse_zones([[[*corner] for corner in zone] for zone in self.zones])


class ActionConfig(Table, frozen=True):
    """How one action is detected and announced; None is the value for all actions."""

    on: float | None = None
    off: float | None = None
    min_length: Seconds | None = None
    merge_gap: Seconds | None = None
    highest: bool | None = None
    backdate: Seconds | None = None
    # names of channels. An empty tuple notifies no channel; the event is stored all the same.
    notify: tuple[str, ...] | None = None
    # seconds after an event on the same source in which another is stored without a notification
    cooldown: Seconds | None = None
    quiet: tuple[Hours, ...] | None = None

    def __post_init__(self) -> None:
        try:
            changed({}, self.rule)
        except ConfigError as error:
            raise ValueError(str(error)) from error

    @property
    def rule(self) -> dict[str, float]:
        """The values of Thresholds by name that override the thresholds of the model."""
        chosen = {name: value for name in THRESHOLDS if (value := getattr(self, name)) is not None}
        if "on" in chosen:
            chosen.setdefault("off", 0.7 * chosen["on"])  # the ratio of the default thresholds
        return chosen


class NotificationConfig(Table, frozen=True):
    """When channels are notified, for actions that set nothing else."""

    cooldown: Seconds = Seconds(0)
    max_per_hour: Annotated[int, Meta(ge=1)] | None = None  # maximum number of events per hour and channel
    quiet: tuple[Hours, ...] = ()  # when no channel is notified


class PageConfig(Table, frozen=True):
    """Where the page is served."""

    host: Host = "127.0.0.1"
    port: Port | None = None  # None is the port of the last run, else the default one
    hosts: tuple[PageHost, ...] = ()  # names by which other machines or a proxy reach the page
    trusted_proxy: bool = False  # whether a proxy states correctly that a request came by https


class HistoryConfig(Table, frozen=True):
    """How long events are kept."""

    days: Days = 90.0


class ClipsConfig(Table, frozen=True):
    """Which part of the video is kept of an event, and the limits of all clips."""

    before: Seconds = Seconds(5)  # minimum number of seconds before the action, because a clip begins with a key frame
    after: Seconds = Seconds(5)
    max_length: Duration = Duration(120)  # maximum length of a clip; the event may last longer
    max_size: Size = Size(10 * 2**30)  # maximum size of all clips with their images; the oldest are deleted first
    days: Days = 30.0  # days after which a clip is deleted


class WatchConfig(Table, frozen=True):
    """The whole file."""

    model: Path | None  # the model file of sources that name none; None is the default model
    data: Path  # the folder of the history and the clips
    sources: Mapping[str, SourceConfig]
    actions: Mapping[str, ActionConfig] = {}
    notifications: NotificationConfig = NotificationConfig()
    channels: Mapping[str, tuple[Any, Any]] = {}  # the subclass of Notifier and its table, by the name of the channel
    page: PageConfig = PageConfig()
    history: HistoryConfig = HistoryConfig()
    clips: ClipsConfig | None = None  # None keeps no video
    # whether frames are shown and may be stored; otherwise the page draws the people that a model on poses sees
    images: bool = True
    timeout: Duration = Duration(300)  # seconds without a frame after which a source counts as lost and is opened again


def read_config(path: str | Path) -> WatchConfig:
    """Return the configuration in a file. Raises ConfigError with the first error of each table."""
    path = Path(path)
    content, folder = _read_toml(path), path.absolute().parent
    errors: list[str] = []

    def parse(kind: Any, value: Any) -> Any:
        """Return a value as a type that msgspec does not know. Raises ValueError."""
        if kind is not Path:
            return kind._parse(value, folder)
        found_path = path_in(folder, value)
        if not found_path.exists():
            raise ValueError(f"file not found: {found_path}.")
        return found_path

    def convert(entry: str, value: Any, kind: Any) -> Any:
        try:
            return msgspec.convert(value, kind, dec_hook=parse)
        except (msgspec.ValidationError, OverflowError, SystemError) as error:  # SystemError: msgspec before 0.22
            placed = PLACED.fullmatch(str(error))
            assert placed
            text = "its form is not valid; `lstr watch --init FILE` writes an example."
            errors.append(f"{entry}{placed[2] or ''}: {text if ' regex ' in placed[1] else placed[1]}")

    found: dict[str, Any] = {"model": None, "sources": {}}
    try:
        found["data"] = data_folder(path, content)
    except ValueError as error:
        errors.append(f"data: {error}")
    fields = {field.name: field for field in msgspec.structs.fields(WatchConfig)}
    for name, value in content.items():
        if name in ("sources", "actions", "channels"):  # msgspec does not name the key of a mapping
            found[name] = {}
            kind = {"sources": SourceConfig, "actions": ActionConfig}.get(name, dict[str, Any])
            for key, table in (convert(name, value, dict[str, Any]) or {}).items():
                entry = f"{name}.{key}"
                if name != "actions" and not NAME.fullmatch(key):
                    errors.append(f"{entry}: the name is not valid; use up to 64 letters, digits, spaces and . _ -")
                made = found[name][key] = convert(entry, table, kind)
                if name != "channels" or made is None:
                    continue
                try:
                    notifier = notifier_class(made.pop("kind", None))
                    found[name][key] = notifier, convert(entry, made, notifier.Config)
                except ConfigError as error:
                    errors.append(f"{entry}.kind: {_line(error)}")
        elif name not in fields:
            errors.append(f"unknown setting {name}; choose one of {', '.join(fields)}.")
        elif name != "data":
            found[name] = convert(name, value, fields[name].type)
    if found.get("images") is False and found.get("clips"):
        errors.append("clips: `images = false` stores no frame; remove one of them.")
    if not found["sources"] and not any(error.startswith("sources") for error in errors):
        errors.append("no source is defined; add a table [sources.NAME] with an address.")
    for name, action in found.get("actions", {}).items():
        unknown = [channel for channel in (action and action.notify) or () if channel not in found.get("channels", {})]
        errors += [f"actions.{name}.notify: unknown channel {channel!r}." for channel in unknown]
    if errors:
        raise _error_of(path, errors)
    return WatchConfig(**found)


def check(path: Path, config: WatchConfig, now: bool = False) -> dict[str, list[str]]:
    """Open the model files, create the channels without connecting, and check that the page can be served.

    Args:
        path: The file, for messages.
        config: What was read from it.
        now: Whether unplugged cameras are errors too; a service waits for them.

    Returns:
        The actions that the model of each source knows, by the source's name.

    Raises:
        ConfigError: It names the entry of each error.
    """
    errors: list[str] = []
    actions: dict[str, list[str]] = {}
    known: dict[Path | None, list[str]] = {}
    for name, source in config.sources.items():
        model = source.model or config.model
        if model not in known:
            known[model] = []
            try:
                known[model] = actions_in(find_checkpoint(model))
            except (CheckpointError, ExtractorError) as error:
                errors.append(f"{f'sources.{name}.' if source.model else ''}model: {error}")
        actions[name] = known[model]
        try:
            if now:
                parse_live(source.address)
        except MissingCameraError as error:
            errors.append(f"sources.{name}.address: {_line(error)}")
    all_actions = {action for names in known.values() for action in names}
    errors += [
        f"actions.{action}: unknown action; the models know {', '.join(sorted(all_actions))}."
        for action in config.actions
        if all_actions and action not in all_actions
    ]
    for name, (notifier, table) in config.channels.items():
        try:
            made = notifier(name, table)
            if now:
                made.check()
        except ConfigError as error:
            errors.append(f"channels.{name}: {_line(error)}")
    try:
        names_of(config.page.host, 0, config.page.hosts)
    except ServingError as error:
        errors.append(f"page.host: {_line(error)}")
    if errors:
        raise _error_of(path, errors)
    return actions


def actions_in(path: Path) -> list[str]:
    """Return the actions that a model file knows. Raises CheckpointError for another file."""
    if not is_model(path):
        raise CheckpointError(f"{path} is not a model file.", "make one: lstr learn VIDEOS LABELS -o my.lstr")
    return actions_of(open_model(path).about["classes"])


def find_history(path: Path) -> Path:
    """Return the history of a service from its configuration or its data folder. Raises LstrError if it is missing."""
    folder = path
    if not path.is_dir():
        try:
            folder = data_folder(path, _read_toml(path))
        except ValueError as error:
            raise _error_of(path, [f"data: {error}"]) from error
    if not (folder / HISTORY).exists():
        raise LstrError(f"No service has run yet: {folder} has no {HISTORY}.", f"start it: lstr watch {path}")
    return folder / HISTORY


def data_folder(path: Path, content: dict[str, Any]) -> Path:
    """Return the folder that the content of a file names as `data`, or the default one. Raises ValueError."""
    folder = path_in(path.absolute().parent, content.get("data", f"{path.stem}.data"))
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder.")
    return folder


def _line(error: LstrError) -> str:
    """Return the message and the hint of an error in one line."""
    return f"{str(error).rstrip('.')}; {error.hint}" if error.hint else str(error)


def _error_of(path: Path, errors: Sequence[str]) -> ConfigError:
    lines = [f"{path}: {error}" for error in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        lines.append(f"{len(errors) - MAX_ERRORS:,} more errors follow.")
    return ConfigError("\n".join(lines), f"fix the file, then run `lstr watch --check {path}`.")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, most=MAX_BYTES))
    except FileNotFoundError as error:
        raise ConfigError(f"File not found: {path}.", f"write one: lstr watch --init {path}") from error
    except tomllib.TOMLDecodeError as error:
        hint = "fix that line; put names with spaces or letters other than A to Z in quotation marks."
        raise ConfigError(f"{path} is not TOML: {error}.", hint) from error
    except RecursionError as error:
        raise ConfigError(f"The brackets in {path} are nested too deep.", "simplify it.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}).", "name a TOML file.") from error
