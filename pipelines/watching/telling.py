"""All channels of a configuration: made, run, shown, and ended together."""

from collections.abc import Callable, Collection, Mapping
from time import monotonic

from lstr.pipelines.watching.apprise import Apprise, FindPicture
from lstr.pipelines.watching.channel import Channel
from lstr.pipelines.watching.command import Command
from lstr.pipelines.watching.config import ChannelConfig, CommandConfig, MqttConfig, WatchConfig, WebhookConfig
from lstr.pipelines.watching.delivery import Delivery
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.mqtt import Mqtt, Switch
from lstr.pipelines.watching.webhook import Webhook

# Seconds after the beginning of the end: until what still runs is broken off, and until nobody waits for it.
PATIENCE, CLOSING = 1.2, 2.5


class Telling:
    """Tells people, by all channels of a configuration, what the history says they are to be told.

    Each event is told once by each channel: `new` when it began, and `end` when it ended, by the same id, where the
    channel can update what it told (Apprise cannot, and tells `new` alone). Of an event that ended before a channel
    could be told, `new` holds the end already, and `end` follows all the same: a program that drops doubles by their id
    may have had the first of them. Of the beginning of an event that is older than a day nobody is told any more: a
    notice of yesterday is no notice. It then says so.

    A context manager, which begins to deliver when it is entered. It ends within 3 s; what is not delivered by then
    stays in the history, where the next one finds it. Raises ConfigError.

    say: takes sentences for the log; called from any thread.
    picture: an event's picture by its id, None while there is none; None of a program that makes none.
    switch: called with a source and whether to watch it, when somebody switches it by MQTT; returns at once.
    """

    def __init__(
        self,
        config: WatchConfig,
        history: History,
        say: Callable[[str], None],
        picture: FindPicture | None = None,
        switch: Switch | None = None,
    ):
        made = {
            name: make_channel(name, channel, history, picture, switch) for name, channel in config.channels.items()
        }
        self.deliveries = {name: Delivery(channel, history, say) for name, channel in made.items()}
        """The thread of each channel, by its name."""
        self._actions: Mapping[str, Collection[str]] | None = None
        self._states: dict[str, tuple[bool, bool]] = {}
        """What the channels show of each source, so that only changes are shown."""

    def __enter__(self) -> "Telling":
        for delivery in self.deliveries.values():
            delivery.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def wake(self) -> None:
        """Deliver at once what is new in the history; to be called after each event that is stored or ended."""
        for delivery in self.deliveries.values():
            delivery.wake()

    def sources(self, actions: Mapping[str, Collection[str]]) -> None:
        """Show which sources there are and the actions of each, instead of those before."""
        if actions == self._actions:
            return
        self._actions, self._states = actions, {}
        for delivery in self.deliveries.values():
            delivery.channel.show_sources(actions)

    def source_changed(self, name: str, health: bool, on: bool) -> None:
        """Show whether frames of a source come, and whether it is watched."""
        if self._states.get(name) == (health, on):
            return
        self._states[name] = health, on
        for delivery in self.deliveries.values():
            delivery.channel.show_source(name, health, on)

    def close(self) -> None:
        """End within 3 s; what runs that long is broken off and told again by the next one."""
        began = monotonic()
        for delivery in self.deliveries.values():
            delivery.stop()
        slow = [delivery for delivery in self.deliveries.values() if not delivery.join(began + PATIENCE)]
        for delivery in slow:
            delivery.channel.abort()
        for delivery in slow:
            delivery.join(began + CLOSING)


def make_channel(
    name: str,
    config: ChannelConfig,
    history: History,
    find_picture: FindPicture | None = None,
    switch: Switch | None = None,
) -> Channel:
    """A channel of a configuration, not open yet. Raises ConfigError for one that cannot work."""
    if isinstance(config, WebhookConfig):
        return Webhook(name, config)
    if isinstance(config, CommandConfig):
        return Command(name, config)
    if isinstance(config, MqttConfig):
        return Mqtt(name, config, history, switch)
    return Apprise(name, config, find_picture)
