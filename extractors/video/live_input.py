"""Addresses of cameras, streams and pipes, and their connection, which is opened again after a cut."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Annotated, BinaryIO, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from lstr.errors import MissingCameraError, MissingPathError, StalledError, VideoError
from lstr.extractors.video.containers import NETWORK
from lstr.extractors.video.frames import GAP_SECONDS
from lstr.files.names import shown

CAMERA = re.compile(r"camera:(\d+)|/dev/video(\d+)")
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# five seconds of FFmpeg's own looking before the first frame would be five seconds of delay
PROMPT = {"analyzeduration": "1000000"}  # microseconds
OVER_TCP = {"rtsp_transport": "tcp"}  # over UDP frames go missing
OPTIONS = {"rtsp": OVER_TCP, "rtsps": OVER_TCP, "udp": {"overrun_nonfatal": "1"}}


@dataclass(frozen=True)
class Input:
    """A live source: `source` (an address, a device, or a binary file) with FFmpeg's options and demuxer."""

    id: str
    """A name for files: of the host and path, never of a user or a query."""
    source: str | BinaryIO = field(repr=False)
    demuxer: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    lasting: bool = True
    """Whether it goes on until it is stopped: its end is a lost connection, and a slow reader drops chunks."""
    is_over: bool = False
    """Whether it has ended before, so that a recording at its address is what was decided until then."""
    named: bool = False
    """Whether a person has chosen the id."""


@dataclass(frozen=True)
class LiveOptions:
    """How a live source is read."""

    clock: Literal["stream", "wall"] = "stream"
    on_lag: Literal["drop", "wait"] | None = None
    """What happens to chunks that come faster than they are taken: `drop` the oldest, or `wait` and let the source
    wait. None drops those of cameras and streams without an end, and waits for pipes and recordings."""
    timeout: Annotated[float, Meta(gt=0)] = 30.0
    """Seconds without a frame, attempts to connect included, after which it has stalled."""
    waiting: int = 4
    """Whole chunks that wait at most."""


def parse_live(source: str | Path) -> Input | None:
    """A live source as `lstr detect` takes it; None where it is a path.

    Raises MissingCameraError for a camera that is not plugged in, and MissingPathError for a standard input that nobody
    writes to and an address of another kind.
    """
    text = str(source)
    if text == "-":
        if sys.stdin.isatty():
            raise MissingPathError(
                "Nothing is piped to standard input.", "pipe a video in: `ffmpeg -i … -f mpegts - | lstr detect -`."
            )
        return Input("stdin", sys.stdin.buffer, options=PROMPT, lasting=False)
    if camera := CAMERA.fullmatch(text):
        return _camera(int(camera[1] or camera[2]))
    if text.startswith("camera:"):
        raise MissingPathError(f"{text} is no camera.", "number it, as in camera:0; `ls /dev/video*` shows them.")
    address = ADDRESS.match(text)
    if not address:
        return None
    scheme = address[1].lower()
    if scheme not in NETWORK:
        known = ", ".join(f"{name}://" for name in NETWORK)
        raise MissingPathError(f"{scheme}:// is no source.", f"name a path, a camera, or an address with {known}.")
    options = PROMPT | OPTIONS.get(scheme, {})
    # a bare TCP connection is closed when what was to be sent has been
    return Input(_id(text), text, options=options, lasting=scheme != "tcp")


def _camera(number: int) -> Input:
    device = Path(f"/dev/video{number}")
    if sys.platform != "linux":
        raise MissingPathError(
            "Cameras are read here through Video4Linux, which only Linux has.",
            "pipe it in: `ffmpeg -f … -i … -f mpegts - | lstr detect -`.",
        )
    if not device.exists():
        found = ", ".join(sorted(map(str, device.parent.glob("video*")))) or "none"
        raise MissingCameraError(
            f"There is no camera {device}.", f"plug it in, and see `ls /dev/video*`; found: {found}."
        )
    return Input(f"camera-{number}", str(device), demuxer="v4l2")


def _id(address: str) -> str:
    """A file name of an address: its host, port and path, without a user, a query or secret parts of the path."""
    try:
        parts = urlsplit(address)
        place = [parts.hostname or "", str(parts.port or ""), *parts.path.split("/")]
    except ValueError:
        place = []
    words = [re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.") for part in place if "=" not in part and "@" not in part]
    return "-".join(filter(None, words)) or "stream"


QUIET = 2.0  # seconds without a frame after which a source counts as stalled


class Link:
    """What came of a source, over its connections; times in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.sign = monotonic()
        """When a frame came last."""
        self.is_connected = False
        self.has_received = False
        """Whether anything ever came."""
        self._is_away, self._left = False, 0.0
        self._changes: list[str] = []

    def take_frame(self, now: float) -> None:
        """A frame came."""
        if self._is_away:
            self._is_away = False
            self._changes.append(f"connected again, after {now - self._left:.0f} s without a frame.")
        self.sign, self.has_received, self.is_connected = now, True, True

    def wait(self) -> None:
        """Whoever waits for a place among the chunks is not silent."""
        self.sign = monotonic()

    def leave(self) -> None:
        """Say that a source which has sent something is away, once it is for longer than a frame stands."""
        silence = monotonic() - self.sign
        if self.has_received and not self._is_away and silence > GAP_SECONDS:
            self._is_away, self._left = True, self.sign
            since = datetime.now() - timedelta(seconds=silence)
            self._changes.append(f"connection lost: nothing has come since {since:%H:%M:%S}; it is connected again.")

    def changes(self) -> list[str]:
        """What has changed since it was asked last, in sentences, each as often as it happened."""
        changes, self._changes = self._changes, []
        return changes

    def describe(self, has_chunks: bool) -> str:
        """connecting, reading, stalled or lost. has_chunks: whether any wait to be taken."""
        if not self.is_connected:
            return "lost" if self.has_received else "connecting"
        if monotonic() - self.sign > QUIET and not has_chunks:
            return "stalled"
        return "reading"


def too_short(source: Input, frames: int) -> VideoError:
    """What a source fails with that ended before anything could be decided."""
    return VideoError(
        f"{shown(source.source)} ended after {frames} frames, before the first decision.",
        "a decision takes a quarter of a second of video, after `--start`; check what writes it.",
    )


def has_ended(source: Input) -> VideoError:
    """What a source fails with that has ended, and is a recording since: it would begin with what was decided."""
    return VideoError(
        f"{shown(source.source)} has ended, and is a recording since.",
        "what is sent live at its address is decided again; `lstr detect` is for recordings.",
    )


def stalled(source: Input, timeout: float) -> StalledError:
    """What a source fails with that has sent nothing for `timeout` seconds."""
    check = "check that it is on, and its address" if source.lasting else "check what writes it"
    return StalledError(
        f"{shown(source.source)} sent no frame for {timeout:g} s.",
        f"{check}; a longer timeout (`--set timeout=SECONDS`) waits longer.",
    )


def given_up(source: Input, timeout: float, lost: VideoError | None) -> VideoError:
    """What ends a source that has been silent for too long: what kept it from its first frame, `lost`, or the silence.

    Before the first frame silence is no stall: nobody knows whether there is a camera at all.
    """
    silent = stalled(source, timeout)
    if lost is None:
        return silent
    return VideoError(str(silent), silent.hint) if isinstance(lost, StalledError) else lost
