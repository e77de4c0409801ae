"""The configuration of `lstr watch`: each class is a table of its TOML file, and each field an entry.

msgspec checks types and bounds when `config_file` reads the file. A type that msgspec does not know has a method
`parse`, which returns its value from that of the file, or raises ValueError with what is wrong.
"""

import os
import re
from collections.abc import Mapping
from datetime import time
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from lstr.errors import ConfigError, LstrError, MissingCameraError
from lstr.extractors.video.inputs import parse_live
from lstr.extractors.video.zones import Zones, parse_zones
from lstr.settings import parse_bytes, parse_seconds
from lstr.timeline import changed

HOURS = re.compile(r"(\d{1,2}):([0-5]\d)\s*-\s*(\d{1,2}):([0-5]\d)")
ELSEWHERE = re.compile(r"(env|file):(?!//)(.+)")
MIN_BYTES, MAX_SECONDS, DAY_MINUTES = 10**6, 366 * 86400, 24 * 60
RULE = ("on", "off", "min_length", "merge_gap", "highest", "backdate")

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
    def parse(cls, value: Any, folder: Path) -> "Seconds":
        """Return the value of an entry."""
        found = parse_seconds(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= MAX_SECONDS:
            raise ValueError("give a time such as 90, '90s' or '1.5m', at most a year.")
        return cls(found)


class Duration(Seconds):
    """Seconds above 0."""

    @classmethod
    def parse(cls, value: Any, folder: Path) -> Seconds:
        """Return the value of an entry."""
        found = super().parse(value, folder)
        if not found:
            raise ValueError("give a time above 0, such as 90, '90s' or '1.5m'.")
        return found


class Size(int):
    """Bytes, in the file a number or a size such as '10GB'."""

    @classmethod
    def parse(cls, value: Any, folder: Path) -> "Size":
        """Return the value of an entry."""
        found = parse_bytes(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int) or found < MIN_BYTES:
            raise ValueError("give a size of at least 1MB, such as '10GB'.")
        return cls(found)


class Hours(str):
    """A part of each day on this machine's clock, such as 22:00-07:00, which includes midnight."""

    @classmethod
    def parse(cls, value: Any, folder: Path) -> "Hours":
        """Return the value of an entry."""
        if not isinstance(value, str) or not HOURS.fullmatch(value) or max(cls(value).minutes()) > DAY_MINUTES:
            raise ValueError(f"{value!r} is not a part of a day; write '22:00-07:00'.")
        return cls(value)

    def minutes(self) -> tuple[int, int]:
        """Return the minutes of the day at which it begins and ends."""
        parts = HOURS.fullmatch(self)
        assert parts
        return int(parts[1]) * 60 + int(parts[2]), int(parts[3]) * 60 + int(parts[4])

    def contains(self, now: time) -> bool:
        """Return whether a time of the day is within it."""
        (start, end), minute = self.minutes(), now.hour * 60 + now.minute
        return start <= minute < end if start < end else minute >= start or minute < end


class Secret(str):
    """A text, or where it is: `env:NAME` is an environment variable, `file:PATH` the first line of a file."""

    @classmethod
    def parse(cls, value: Any, folder: Path) -> "Secret":
        """Return the value of an entry."""
        if not isinstance(value, str) or not value.strip():
            raise ValueError("write it in quotation marks.")
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
            raise ValueError(f"there is no environment variable {parts[2]}.")
        try:
            found.encode()  # Python keeps bytes that are not UTF-8 as surrogates, which the MQTT library cannot send
        except UnicodeEncodeError as error:
            raise ValueError(f"the environment variable {parts[2]} is not UTF-8.") from error
        return cls(found)


class Address(Secret):
    """The address of a camera or stream. A camera may be unplugged."""

    @classmethod
    def parse(cls, value: Any, folder: Path) -> "Address":
        """Return the value of an entry."""
        address = cls(super().parse(value, folder))
        if address == "-":
            raise ValueError("standard input cannot be opened again; use `lstr detect -`.")
        try:
            found = parse_live(address)
        except MissingCameraError:
            return address
        except LstrError as error:
            raise ValueError(f"{error} {error.hint}".strip()) from error
        if found is None:
            raise ValueError("it is neither a camera nor an address; use `lstr detect` for files.")
        return address


def path_in(folder: Path, text: str) -> Path:
    """Return a path relative to a folder, with `~` expanded. Raises ValueError for text that cannot be a path."""
    try:
        path = folder / Path(text).expanduser()
        path.exists()
    except RuntimeError as error:
        raise ValueError(f"there is no home {Path(text).parts[0]}.") from error
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
    # a model file for this source only
    model: Path | None = None
    # where motion counts; empty for everywhere
    zones: Zones = ()

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
    notify: tuple[str, ...] | None = field(name="tell", default=None)
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
        """Values of Thresholds by name, which override those of the model."""
        chosen = {name: value for name in RULE if (value := getattr(self, name)) is not None}
        if "on" in chosen:
            chosen.setdefault("off", 0.7 * chosen["on"])  # the ratio of the default thresholds
        return chosen


class NotificationConfig(Table, frozen=True):
    """When channels are notified, for actions that set nothing else."""

    cooldown: Seconds = Seconds(0)
    # maximum number of events per hour and channel
    max_per_hour: Annotated[int, Meta(ge=1)] | None = field(name="most_an_hour", default=None)
    # when no channel is notified
    quiet: tuple[Hours, ...] = ()


class PageConfig(Table, frozen=True):
    """Where the page is served."""

    host: Host = "127.0.0.1"
    # None is the port of the last run, else the default one
    port: Port | None = None
    # names by which other machines or a proxy reach the page
    hosts: tuple[PageHost, ...] = ()
    # whether a proxy states correctly that a request came by https
    trusted_proxy: bool = False


class KeepingConfig(Table, frozen=True):
    """How long events are kept."""

    days: Days = 90.0


class ClipsConfig(Table, frozen=True):
    """Which part of the video is kept of an event, and the limits of all clips."""

    # minimum number of seconds before the action, because a clip begins with a key frame
    before: Seconds = Seconds(5)
    after: Seconds = Seconds(5)
    # maximum length of a clip; the event may last longer
    max_seconds: Duration = field(name="longest", default=Duration(120))
    # maximum size of all clips with their images; the oldest are deleted first
    max_bytes: Size = field(name="most", default=Size(10 * 2**30))
    # days after which a clip is deleted
    days: Days = 30.0
    # maximum size of the latest packets of one source in memory
    ring_bytes: Size = field(name="ring", default=Size(64 * 2**20))


class WatchConfig(Table, frozen=True):
    """The whole file."""

    # the file itself
    path: Path
    # the model file of sources that name none; None is the default model
    model: Path | None
    # the folder of the history and the clips
    data: Path
    sources: Mapping[str, SourceConfig]
    actions: Mapping[str, ActionConfig] = {}
    notifications: NotificationConfig = field(name="telling", default=NotificationConfig())
    # the subclass of Notifier and its table, by the name of the channel
    channels: Mapping[str, tuple[Any, Any]] = {}
    page: PageConfig = PageConfig()
    keeping: KeepingConfig = KeepingConfig()
    # None keeps no video
    clips: ClipsConfig | None = None
    # seconds without a frame after which a source counts as lost and is opened again
    timeout: Duration = Duration(300)
