"""The TOML file of `lstr watch`: read as a whole, each error named by its entry, before anything starts."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lstr.errors import (
    CheckpointError,
    ConfigError,
    ExtractorError,
    LstrError,
    MissingCameraError,
    ServingError,
)
from lstr.extractors.video.inputs import parse_live
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.detection.model import find_checkpoint
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.pages.server import names_of
from lstr.pipelines.watching.config import ActionConfig, SourceConfig, WatchConfig, path_in
from lstr.pipelines.watching.notifications import notifier_class

# The name of a source or a channel becomes part of addresses and topics.
NAME = re.compile(r"\w[\w. -]{0,63}")
# msgspec's message, and the place of the error in the value.
PLACED = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
MAX_BYTES, MAX_ERRORS = 2**19, 50
# The file that `lstr watch --init` writes, with {name} and {stem} of its name
EXAMPLE = Path(__file__).with_name("example.toml")
# Files of a service in its folder `data`.
HISTORY, CLIPS = "history.sqlite", "clips"


def read_config(path: str | Path) -> WatchConfig:
    """Return the configuration in a file. Raises ConfigError with the first error of each table."""
    path = Path(path)
    content, folder = _read_toml(path), path.absolute().parent
    errors: list[str] = []

    def parse(kind: Any, value: Any) -> Any:
        """Return a value as a type that msgspec does not know. Raises ValueError."""
        if kind is not Path:
            return kind.parse(value, folder)
        if not isinstance(value, str):
            raise ValueError("write it in quotation marks.")
        found_path = path_in(folder, value)
        if not found_path.exists():
            raise ValueError(f"there is no file {found_path}.")
        return found_path

    def convert(entry: str, value: Any, kind: Any) -> Any:
        try:
            return msgspec.convert(value, kind, dec_hook=parse)
        except (msgspec.ValidationError, OverflowError, SystemError) as error:  # SystemError: msgspec before 0.22
            placed = PLACED.fullmatch(str(error))
            assert placed
            errors.append(f"{entry}{placed[2] or ''}: {placed[1]}")

    def convert_channel(entry: str, table: dict[str, Any]) -> Any:
        try:
            notifier = notifier_class(table.get("kind"))
        except ConfigError as error:
            errors.append(f"{entry}.kind: {error} {error.hint}")
            return None
        values = {name: value for name, value in table.items() if name != "kind"}
        return notifier, convert(entry, values, notifier.Config)

    found: dict[str, Any] = {"model": None, "sources": {}}
    try:
        found["data"] = data_folder(path, content)
    except ValueError as error:
        errors.append(f"data: {error}")
    fields = {field.encode_name: field for field in msgspec.structs.fields(WatchConfig) if field.name != "path"}
    for name, value in content.items():
        if name in ("sources", "actions", "channels"):  # msgspec does not name the key of a mapping
            tables = convert(name, value, dict[str, dict[str, Any]]) or {}
            if name == "channels":
                found[name] = {key: convert_channel(f"channels.{key}", table) for key, table in tables.items()}
            else:
                kind = SourceConfig if name == "sources" else ActionConfig
                found[name] = {key: convert(f"{name}.{key}", table, kind) for key, table in tables.items()}
            if name != "actions":
                invalid = [key for key in tables if not NAME.fullmatch(key)]
                errors += [f"{key!r} is not a name: use up to 64 letters, digits, spaces and . _ -" for key in invalid]
        elif name not in fields:
            errors.append(f"unknown setting {name}; choose one of {', '.join(fields)}.")
        elif name != "data":
            found[fields[name].name] = convert(name, value, fields[name].type)
    if not found["sources"] and not any(error.startswith("sources") for error in errors):
        errors.append("there is no source; add a table [sources.NAME] with an address.")
    for name, action in found.get("actions", {}).items():
        unknown = [channel for channel in (action and action.notify) or () if channel not in found.get("channels", {})]
        errors += [f"actions.{name}.tell: there is no channel {channel!r}." for channel in unknown]
    if errors:
        raise _error_of(path, errors)
    return WatchConfig(path, **found)


def check(config: WatchConfig, now: bool = False) -> dict[str, list[str]]:
    """Open the model files, create the channels without connecting, and check that the page can be served.

    Args:
        config: A configuration that was read.
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
            errors.append(f"sources.{name}.address: {error} {error.hint}")
    all_actions = {action for names in known.values() for action in names}
    errors += [
        f"actions.{action}: no model knows it; they know {', '.join(sorted(all_actions))}."
        for action in config.actions
        if all_actions and action not in all_actions
    ]
    for name, (notifier, table) in config.channels.items():
        try:
            made = notifier(name, table)
            if now:
                made.check()
        except ConfigError as error:
            errors.append(f"channels.{name}: {error} {error.hint}".strip())
    try:
        names_of(config.page.host, 0, config.page.hosts)
    except ServingError as error:
        errors.append(f"page.host: {error} {error.hint}")
    if errors:
        raise _error_of(config.path, errors)
    return actions


def actions_in(path: Path) -> list[str]:
    """Return the actions that a model file knows. Raises CheckpointError for another file."""
    if not is_model(path):
        raise CheckpointError(f"{path} is not a model file.", "make one: lstr learn VIDEOS LABELS -o my.lstr")
    return [name for name in open_model(path).about["classes"] if name not in (BACKGROUND, AMBIGUOUS)]


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
    text = content.get("data", f"{path.stem}.data")
    if not isinstance(text, str):
        raise ValueError("write it in quotation marks.")
    folder = path_in(path.absolute().parent, text)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder.")
    return folder


def _error_of(path: Path, errors: Sequence[str]) -> ConfigError:
    lines = [f"{path}: {error}" for error in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        lines.append(f"{len(errors) - MAX_ERRORS:,} more errors follow.")
    return ConfigError("\n".join(lines), f"fix the file, then run `lstr watch --check {path}`.")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise ConfigError(f"{path} is not a file.", "name a TOML file.")
        if path.exists() and path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes.", "name a TOML file.")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"There is no file {path}.", f"write one: lstr watch --init {path}") from error
    except tomllib.TOMLDecodeError as error:
        hint = "fix that line; put names with spaces or letters other than A to Z in quotation marks."
        raise ConfigError(f"{path} is not TOML: {error}.", hint) from error
    except RecursionError as error:
        raise ConfigError(f"The brackets in {path} are nested too deep.", "simplify it.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}).", "name a TOML file.") from error
