"""Apprise: phones, chats and mail, by one address each."""

import logging
import threading
from datetime import datetime, timedelta
from typing import Any

from lstr.errors import ConfigError, DeliveryError
from lstr.pipelines.watching.config import Secret, Table
from lstr.pipelines.watching.event import title
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.notifications import Notifier, ServiceAccess, describe

IMAGE_TIMEOUT_S = 5.0  # that a notice waits for its image
FRESH = timedelta(seconds=15)  # after that no image comes any more
TICK_S = 0.1


class AppriseConfig(Table, frozen=True):
    """An address of Apprise."""

    url: Secret


class AppriseNotifier(Notifier):
    """Sends a sentence with the image of the event, or without it if that takes too long. Raises ConfigError."""

    Config = AppriseConfig
    sends_ends = False  # a sent message cannot be changed

    def __init__(self, name: str, config: AppriseConfig):
        super().__init__(name, config)
        try:
            import apprise
        except ImportError:
            raise ConfigError(
                "Apprise is not installed, which this channel needs.", "pip install 'lstr-video[watch]'"
            ) from None
        for logger in ("apprise", "urllib3"):  # both log addresses with their tokens
            logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
        asset = apprise.AppriseAsset()
        if hasattr(asset, "http_redirects"):  # earlier versions follow all
            asset.http_redirects = False
        self._apprise: Any = apprise.Apprise(asset=asset)
        if not self._apprise.add(config.url):
            raise ConfigError(
                "Apprise does not know its address.", "see the services: https://github.com/caronc/apprise/wiki."
            )
        self._service: ServiceAccess | None = None
        self._closing = threading.Event()

    def open(self, service: ServiceAccess) -> None:
        """Remember where images come from."""
        self._service = service

    def send(self, notice: Notice, now: datetime) -> None:
        """Send a notice."""
        from apprise.attachment.file import AttachFile

        image, find = None, self._service and self._service.find_image
        if find:
            image = find(notice.event.id)
            for _ in range(int(IMAGE_TIMEOUT_S / TICK_S) if now - notice.event.decided < FRESH else 0):
                if image:
                    break
                if self._closing.wait(TICK_S):
                    raise DeliveryError("the program is ending.")
                image = find(notice.event.id)
        attached = AttachFile(str(image)) if image else None
        try:
            arrived = self._apprise.notify(body=describe(notice, now), title=title(notice.event), attach=attached)
        except Exception as error:  # the error of a plug-in may contain its address
            raise DeliveryError(f"Apprise raised {type(error).__name__}.") from None
        if not arrived:
            raise DeliveryError("Apprise could not deliver.")

    def abort(self) -> None:
        """Stop waiting for an image."""
        self._closing.set()
