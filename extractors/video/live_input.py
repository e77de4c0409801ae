"""What is read while it happens: a camera, an address, or standard input, and how FFmpeg opens it."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from lstr.errors import MissingCameraError, MissingPathError
from lstr.extractors.video.containers import NETWORK

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
