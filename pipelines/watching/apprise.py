"""Whatever Apprise reaches: phones, chats and mail, by one address each."""

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError, DeliveryError
from lstr.pipelines.watching.channel import Channel, describe_sentence
from lstr.pipelines.watching.config import AppriseConfig
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.sentence import title

# Seconds that a notice waits for its picture.
PATIENCE = 5.0
# How long after a decision its picture may still come; an older notice has it or goes without.
FRESH = timedelta(seconds=15)
TICK = 0.1

FindPicture = Callable[[str], Path | None]


class Apprise(Channel):
    """Sends a notice with the event's picture, or without where that does not come in time. Raises ConfigError.

    A message that was sent cannot be changed, so that only beginnings are told.

    find_picture: an event's picture by its id, None while there is none; None of a program that makes none.
    """

    updates = False

    def __init__(self, name: str, config: AppriseConfig, find_picture: FindPicture | None):
        super().__init__(name)
        self._apprise = _apprise(name, config.url)
        self._find_picture = find_picture
        self._closing = threading.Event()

    def tell(self, notice: Notice, now: datetime) -> None:
        from apprise.attachment.file import AttachFile

        picture = self._wait_for_picture(notice.event, now)
        attached = AttachFile(str(picture)) if picture else None
        try:
            arrived = self._apprise.notify(
                body=describe_sentence(notice, now), title=title(notice.event), attach=attached
            )
        except Exception as error:  # a plug-in's error may hold its address
            raise DeliveryError(f"Apprise met {type(error).__name__}.") from None
        if not arrived:
            raise DeliveryError("Apprise could not deliver.")

    def abort(self) -> None:
        self._closing.set()

    def _wait_for_picture(self, event: WatchedEvent, now: datetime) -> Path | None:
        """The picture, or None where it does not come in time. Raises DeliveryError when the program ends before."""
        if not self._find_picture:
            return None
        n = int(PATIENCE / TICK) if now - event.decided < FRESH else 0
        for _ in range(n):
            if picture := self._find_picture(event.id):
                return picture
            if self._closing.wait(TICK):
                raise DeliveryError("the program is ending.")
        return self._find_picture(event.id)


def _apprise(name: str, url: str) -> Any:
    try:
        import apprise
    except ImportError:
        raise ConfigError(
            f"The channel {name} needs Apprise, which is not installed.", "pip install 'lstr-video[watch]'"
        ) from None
    for logger in ("apprise", "urllib3"):  # both log addresses, with the tokens in them
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    asset = apprise.AppriseAsset()
    if hasattr(asset, "http_redirects"):  # earlier versions follow all
        asset.http_redirects = False
    found = apprise.Apprise(asset=asset)
    if not found.add(url):
        raise ConfigError(
            f"Apprise does not know the address of the channel {name}.",
            "see its list of services: https://github.com/caronc/apprise/wiki.",
        )
    return found
