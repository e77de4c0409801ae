"""The server of a service's page, and what a person may want there."""

from threading import Event
from typing import Protocol

from lstr.errors import LstrError
from lstr.extractors.errors import ExtractorError
from lstr.extractors.home import home
from lstr.extractors.video.live_input import parse_live
from lstr.extractors.video.zones import Zones
from lstr.pipelines.serving.kept_address import kept_address
from lstr.pipelines.serving.server import Server
from lstr.pipelines.watching.config import SourceConfig, WatchConfig
from lstr.pipelines.watching.controls import Controls
from lstr.pipelines.watching.health import PATHS, Health, Readable
from lstr.pipelines.watching.site import WatchSite


class Directed(Readable, Protocol):
    """What of a service the page shows and changes."""

    config: WatchConfig

    def pause(self, name: str, paused: bool) -> None:
        """Decide on a source no more, or again."""

    def add(self, name: str, source: SourceConfig) -> None:
        """Decide on a source too."""

    def remove(self, name: str) -> None:
        """Forget a source that was added."""

    def snooze(self, source: str | None, action: str | None, seconds: float) -> None:
        """Tell nobody for so many seconds."""

    def draw(self, name: str, zones: Zones | None) -> None:
        """Let motion count in these zones alone."""


def make_server(service: Directed, ended: Event) -> Server:
    """The server of a service's page, to be entered; its streams end when `ended` is set. Raises as Server."""
    page, clips = service.config.page, service.clips

    def add(name: str, address: str) -> None:
        try:
            parsed = None if address == "-" else parse_live(address)
        except ExtractorError as error:
            raise LstrError(str(error), getattr(error, "hint", "")) from error
        if parsed is None:
            raise LstrError("That is no camera and no address.", "write one, as rtsp://camera/stream.")
        service.add(name, SourceConfig(address))

    controls = Controls(
        pause=lambda name: service.pause(name, True),
        resume=lambda name: service.pause(name, False),
        add=add,
        remove=service.remove,
        snooze=service.snooze,
        draw=service.draw,
        **({"clip": clips.path, "thumb": clips.picture} if clips else {}),
    )
    site = WatchSite(service.board, controls, lambda: ended)
    kept = kept_address(service.config.path, home() / "pages")
    app = site.app()
    app.router.routes += Health(service).routes()
    return Server(app, page.host, page.port, kept, page.hosts, page.trusted_proxy, is_impatient=True, open_paths=PATHS)
