"""What `lstr watch` is told to do: sources, actions, channels, the page, clips and how long they are kept.

Each class is a table of its TOML file and each field an entry, which `config_file` reads by the field's type. A type of
this module says with `read` what may stand in the file for it, and raises ValueError with what is wrong.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import time
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from lstr.errors import ConfigError, LstrError, MissingCameraError
from lstr.extractors.video.live_input import parse_live
from lstr.extractors.video.zones import Zones, parse_zones
from lstr.pipelines.quantities import bytes_of, seconds_of
from lstr.timeline import changed

HOURS = re.compile(r"(\d{1,2}):([0-5]\d)\s*-\s*(\d{1,2}):([0-5]\d)")
# The name of a host, or an IPv4 address
HOST = re.compile(r"[^\s/:@?#\[\]]+")
ELSEWHERE = re.compile(r"(env|file):(?!//)(.+)")
LEAST_BYTES, MOST_SECONDS, DAY_MINUTES = 10**6, 366 * 86400, 24 * 60
# The entries of an action that are a rule for its scores.
RULE = ("on", "off", "min_length", "merge_gap", "highest", "backdate")

Days = Annotated[float, Meta(gt=0, le=36500)]
Port = Annotated[int, Meta(ge=1, le=65535)]
# What browsers call a host
Reached = Annotated[str, Meta(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s/:@?#\[\]]+)(:\d{1,5})?$")]
# The beginning of an MQTT topic
Topic = Annotated[str, Meta(pattern=r"^(?!/)[^+#\x00-\x1f]*$")]
Word = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]


class Seconds(float):
    """Seconds, in the file as a number or a time such as '1.5m'."""

    @classmethod
    def read(cls, value: Any, folder: Path) -> "Seconds":
        """Return the seconds of a value of the file."""
        found = seconds_of(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= MOST_SECONDS:
            raise ValueError("it is a time, as 90, '90s' or '1.5m', and a year at most.")
        return cls(found)


class Length(Seconds):
    """Seconds above 0."""

    @classmethod
    def read(cls, value: Any, folder: Path) -> Seconds:
        """Return the seconds of a value of the file."""
        found = super().read(value, folder)
        if not found:
            raise ValueError("it is a time above 0, as 90, '90s' or '1.5m'.")
        return found


class Size(int):
    """Bytes, in the file as a number or a size such as '10GB'."""

    @classmethod
    def read(cls, value: Any, folder: Path) -> "Size":
        """Return the bytes of a value of the file."""
        found = bytes_of(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int) or found < LEAST_BYTES:
            raise ValueError("it is a size from 1MB up, as '10GB'.")
        return cls(found)


class Hours(str):
    """A part of each day on this machine's clock, as 22:00-07:00, which is over midnight."""

    @classmethod
    def read(cls, value: Any, folder: Path) -> "Hours":
        """Return a value of the file."""
        if not isinstance(value, str) or not HOURS.fullmatch(value) or max(cls(value)._bounds()) > DAY_MINUTES:
            raise ValueError(f"{value!r} is no part of a day; write '22:00-07:00'.")
        return cls(value)

    def _bounds(self) -> tuple[int, int]:
        """Minutes of the day at which it begins and ends."""
        parts = HOURS.fullmatch(self)
        assert parts
        return int(parts[1]) * 60 + int(parts[2]), int(parts[3]) * 60 + int(parts[4])

    def holds(self, now: time) -> bool:
        """Whether it is that time of the day."""
        (since, until), minute = self._bounds(), now.hour * 60 + now.minute
        if since < until:
            return since <= minute < until
        return minute >= since or minute < until


class Host(str):
    """The name or the address of one machine."""

    @classmethod
    def read(cls, value: Any, folder: Path) -> "Host":
        """Return a value of the file."""
        with suppress(ValueError):
            if isinstance(value, str) and (HOST.fullmatch(value) or ip_address(value)):
                value.encode("idna")
                return cls(value)
        raise ValueError("it is the name or the IP of a host alone, as '192.168.1.2'; a port is an entry of its own.")


class Secret(str):
    """A text, or where it is: `env:NAME` is in the environment, `file:PATH` is the first line of a file."""

    @classmethod
    def read(cls, value: Any, folder: Path) -> "Secret":
        """Return the text that a value of the file is, or names."""
        if not isinstance(value, str) or not value.strip():
            raise ValueError("write it in quotation marks.")
        parts = ELSEWHERE.fullmatch(value)
        if not parts:
            return cls(value)
        if parts[1] == "env":
            if parts[2] not in os.environ:
                raise ValueError(f"the environment has no {parts[2]}.")
            found = os.environ[parts[2]]
            if any("\ud800" <= letter <= "\udfff" for letter in found):  # how Python keeps bytes that are no UTF-8
                raise ValueError(f"{parts[2]} of the environment is no UTF-8.")
            return cls(found)
        try:
            return cls(path_in(folder, parts[2]).read_text(encoding="utf-8").split("\n")[0].strip())
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the file of it cannot be read ({error}).") from error


class Address(Secret):
    """The address of a live source; of a camera too that is not plugged in now."""

    @classmethod
    def read(cls, value: Any, folder: Path) -> "Address":
        """Return the address that a value of the file is, or names."""
        address = cls(super().read(value, folder))
        if address == "-":
            raise ValueError("standard input is no source that comes again.")
        try:
            found = parse_live(address)
        except MissingCameraError:
            return address
        except LstrError as error:
            raise ValueError(f"{error} {getattr(error, 'hint', '')}".strip()) from error
        if found is None:
            raise ValueError("it is no camera and no address; `lstr detect` decides on files.")
        return address


def path_in(folder: Path, written: str) -> Path:
    """Return a path, seen from a folder; `~` is a home. Raises ValueError for what can be none."""
    try:
        path = folder / Path(written).expanduser()
        path.exists()
    except RuntimeError as error:
        raise ValueError(f"there is no home {Path(written).parts[0]}.") from error
    except OSError as error:
        raise ValueError(f"it cannot be a path ({error.strerror}).") from error
    if "\0" in written:
        raise ValueError("it cannot be a path (it has a character of code 0).")
    return path


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file. Its values may be secrets, so that it never shows them."""

    def __repr__(self) -> str:
        return type(self).__name__


class SourceConfig(Table, frozen=True):
    """One camera or stream."""

    address: Address
    """What `lstr detect` takes."""
    model: Path | None = None
    """A model file for it alone."""
    zones: Zones = ()
    """Where motion counts; everywhere without one."""

    def __post_init__(self) -> None:
        parse_zones([[[*corner] for corner in zone] for zone in self.zones])


class ActionConfig(Table, frozen=True):
    """How one action is decided and told; what is None is as for all."""

    on: float | None = None
    off: float | None = None
    min_length: Seconds | None = None
    merge_gap: Seconds | None = None
    highest: bool | None = None
    backdate: Seconds | None = None
    tell: tuple[str, ...] | None = None
    """Names of channels; an empty tuple tells nobody, and the event is stored all the same."""
    cooldown: Seconds | None = None
    """Seconds after an event of it on the same source in which another is stored and not told."""
    quiet: tuple[Hours, ...] | None = None

    def __post_init__(self) -> None:
        try:
            changed({}, self.rule)
        except ConfigError as error:
            raise ValueError(str(error)) from error

    @property
    def rule(self) -> dict[str, float]:
        """Values of Thresholds by name, over those of the model."""
        chosen = {name: value for name in RULE if (value := getattr(self, name)) is not None}
        if "on" in chosen:
            chosen.setdefault("off", 0.7 * chosen["on"])  # as far below as the usual rule's
        return chosen


class TellingConfig(Table, frozen=True):
    """When people are told, for every action that says nothing else."""

    cooldown: Seconds = Seconds(0)
    most_an_hour: Annotated[int, Meta(ge=1)] | None = None
    """Events of which one channel is told within an hour, at most."""
    quiet: tuple[Hours, ...] = ()
    """When nobody is told; what happens then is stored."""


class WebhookConfig(Table, frozen=True, tag_field="kind", tag="webhook"):
    """A webhook."""

    url: Secret
    secret: Secret = Secret("")
    """What it is signed with."""


class AppriseConfig(Table, frozen=True, tag_field="kind", tag="apprise"):
    """What Apprise reaches."""

    url: Secret


class CommandConfig(Table, frozen=True, tag_field="kind", tag="command"):
    """A program that is started for each notice."""

    command: Annotated[tuple[Word, ...], Meta(min_length=1)]
    """Program and arguments; it gets the event as JSON on its standard input."""


class MqttConfig(Table, frozen=True, tag_field="kind", tag="mqtt"):
    """An MQTT broker."""

    host: Host
    port: Port = 1883
    user: str = ""
    """With its password for the broker."""
    password: Secret = Secret("")
    tls: bool = False
    prefix: Topic = "lstr"
    """What the topics begin with."""
    discovery: Topic = "homeassistant"
    """The topic under which Home Assistant looks for what is to be discovered; nothing where it is empty."""


# A way to tell somebody.
ChannelConfig = WebhookConfig | AppriseConfig | CommandConfig | MqttConfig


class PageConfig(Table, frozen=True):
    """Where the page is."""

    host: Host = Host("127.0.0.1")
    port: Port | None = None
    """None is the one it had before, else the usual one."""
    hosts: tuple[Reached, ...] = ()
    """Names by which other machines, or a proxy, reach it; with the port where that is another one."""
    trusted_proxy: bool = False
    """Whether a proxy before it says truly that a request came by https."""


class KeepingConfig(Table, frozen=True):
    """For how long events are kept."""

    days: Days = 90.0


class ClipsConfig(Table, frozen=True):
    """What is kept of the video of an event, and how much of it."""

    before: Seconds = Seconds(5)
    """Seconds before the action began, at least: a clip begins with a key frame."""
    after: Seconds = Seconds(5)
    """Seconds after it ended."""
    longest: Length = Length(120)
    """Seconds; the clip of an event that lasts longer ends then, and the event goes on."""
    most_bytes: Size = field(name="most", default=Size(10 * 2**30))
    """The most that all clips with their pictures may take; the oldest go first."""
    days: Days = 30.0
    """After which a clip goes."""
    ring_bytes: Size = field(name="ring", default=Size(64 * 2**20))
    """The most that the newest packets of one source take in memory."""


class WatchConfig(Table, frozen=True):
    """All of it, checked."""

    path: Path
    """The file it was read from."""
    model: Path | None
    """The model file of sources that name none; None is the default model."""
    data: Path
    """The folder of the history."""
    sources: Mapping[str, SourceConfig]
    actions: Mapping[str, ActionConfig] = {}
    telling: TellingConfig = TellingConfig()
    channels: Mapping[str, ChannelConfig] = {}
    page: PageConfig = PageConfig()
    keeping: KeepingConfig = KeepingConfig()
    clips: ClipsConfig | None = None
    """None keeps no video."""
    timeout: Length = Length(300)
    """Seconds without a frame after which a source counts as lost; it is connected again all the same."""
