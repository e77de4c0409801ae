"""What `lstr watch` is told to do: sources, actions, channels, the page, clips and how long they are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import time
from pathlib import Path

from lstr.extractors.video.zones import Zones


@dataclass(frozen=True)
class Hours:
    """A part of each day, on this machine's clock; over midnight where `until` is not later than `since`."""

    since: time
    until: time

    def holds(self, now: time) -> bool:
        """Whether it is that time of the day."""
        if self.since < self.until:
            return self.since <= now < self.until
        return now >= self.since or now < self.until


@dataclass(frozen=True)
class SourceConfig:
    """One camera or stream."""

    address: str = field(repr=False)
    """What `lstr detect` takes; it may hold a password, so it is in no message."""
    model: Path | None = None
    """A model file for it alone."""
    zones: Zones = ()
    """Where motion counts; everywhere without one."""


@dataclass(frozen=True)
class ActionConfig:
    """How one action is decided and told; what is None is as for all."""

    rule: Mapping[str, float] = field(default_factory=dict)
    """Values of Thresholds by name, over those of the model."""
    tell: tuple[str, ...] | None = None
    """Names of channels; an empty tuple tells nobody, and the event is stored all the same."""
    cooldown: float | None = None
    """Seconds after an event of it on the same source in which another is stored and not told."""
    quiet: tuple[Hours, ...] | None = None


@dataclass(frozen=True)
class TellingConfig:
    """When people are told, for every action that says nothing else."""

    cooldown: float = 0.0
    """Seconds."""
    most_an_hour: int | None = None
    """Events of which one channel is told within an hour, at most."""
    quiet: tuple[Hours, ...] = ()
    """When nobody is told; what happens then is stored."""


@dataclass(frozen=True)
class ChannelConfig:
    """A way to tell somebody; `kind` names which of the others are used."""

    kind: str
    """`webhook`, `command`, `mqtt` or `apprise`."""
    url: str = field(default="", repr=False)
    """The address of a webhook, or of what Apprise reaches."""
    secret: str = field(default="", repr=False)
    """What a webhook is signed with."""
    command: tuple[str, ...] = field(default=(), repr=False)
    """Program and arguments; it gets the event as JSON on its standard input."""
    host: str = ""
    """The MQTT broker."""
    port: int = 1883
    user: str = field(default="", repr=False)
    """With its password for the broker."""
    password: str = field(default="", repr=False)
    tls: bool = False
    prefix: str = "lstr"
    """What the topics begin with."""
    discovery: str = "homeassistant"
    """The topic under which Home Assistant looks for what is to be discovered; nothing where it is empty."""


@dataclass(frozen=True)
class PageConfig:
    """Where the page is."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None is the one it had before, else the usual one."""
    hosts: tuple[str, ...] = ()
    """Names by which other machines, or a proxy, reach it; with the port where that is another one."""
    trusted_proxy: bool = False
    """Whether a proxy before it says truly that a request came by https."""


@dataclass(frozen=True)
class KeepingConfig:
    """For how long events are kept."""

    days: float = 90.0


@dataclass(frozen=True)
class ClipsConfig:
    """What is kept of the video of an event, and how much of it."""

    before: float = 5.0
    """Seconds before the action began, at least: a clip begins with a key frame."""
    after: float = 5.0
    """Seconds after it ended."""
    longest: float = 120.0
    """Seconds; the clip of an event that lasts longer ends then, and the event goes on."""
    most_bytes: int = 10 * 2**30
    """The most that all clips with their pictures may take; the oldest go first."""
    days: float = 30.0
    """After which a clip goes."""
    ring_bytes: int = 64 * 2**20
    """The most that the newest packets of one source take in memory."""


@dataclass(frozen=True)
class WatchConfig:
    """All of it, checked."""

    path: Path
    """The file it was read from."""
    model: Path | None
    """The model file of sources that name none; None is the default model."""
    data: Path
    """The folder of the history."""
    sources: Mapping[str, SourceConfig]
    actions: Mapping[str, ActionConfig] = field(default_factory=dict)
    telling: TellingConfig = TellingConfig()
    channels: Mapping[str, ChannelConfig] = field(default_factory=dict)
    page: PageConfig = PageConfig()
    keeping: KeepingConfig = KeepingConfig()
    clips: ClipsConfig | None = None
    """None keeps no video."""
    timeout: float = 300.0
    """Seconds without a frame after which a source counts as lost; it is connected again all the same."""
