"""Safe names for paths, and URLs for messages, without user, password or token."""

import os
import re
from pathlib import Path

# also with one slash, because pathlib reduces two slashes of a URL to one
URL = re.compile(
    r"(?<![a-z0-9+.-])(?!file:)([a-z][a-z0-9+.-]*://|(?:rtsps?|rtmps?|https?|srt|tcp|udp):/)(\S+)", re.IGNORECASE
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all control characters except tab and newline
WHOLE = re.compile(r"(?!file:)([a-z][a-z0-9+.-]*://)(.*)", re.IGNORECASE | re.DOTALL)
# the second alternative is a password that contains a slash; digits after the colon are a port instead
USER = re.compile(r"^(?:[^/?#]*@|[^/?#:]*:(?!\d*(?:[/?#]|$))[^@]*@)", re.DOTALL)
SECRET = re.compile(
    r"(?<![a-z0-9])((?:[a-z0-9]+-)*(?:user(?:name)?|login|pass(?:word|wd|phrase)?|pwd|(?:(?:access|auth|api)_?)?"
    r"(?:token|key)|auth|secret|sig(?:nature)?|credential)=)[^&\"']+",
    re.IGNORECASE,
)

MAX_SLUG_BYTES = 200  # leaves room in a file name (255 bytes) for a stream, weights and a suffix
SLUG_CHARACTERS = 48  # of generated names: with four bytes each they fit in MAX_SLUG_BYTES
SLUG = re.compile(r"\w[\w.-]*")
MAX_NAME_BYTES = 255
STDIN = "standard input"


def without_credentials(text: str) -> str:
    """Remove the secrets of URLs from a text: user, password and secret parameters.

    Cameras have them before the host (`rtsp://user:password@host`), in the query, or in the path
    (`/user=admin&password=…`). Text without a URL, and file: URLs, are returned unchanged.
    """
    return URL.sub(_masked, text)


def displayed(text: str) -> str:
    """Return a text that is safe for a terminal: without credentials and control characters."""
    return CONTROL.sub("\ufffd", without_credentials(text))


def shown(source: object) -> str:
    """Return the name of a source for messages: a path, a URL without credentials, or the name of a stream."""
    if isinstance(source, str | Path):
        return WHOLE.sub(_masked, str(source)) if WHOLE.match(str(source)) else str(source)
    name = str(getattr(source, "name", "the stream"))
    return STDIN if name == "<stdin>" else name


def _masked(url: re.Match) -> str:
    return url[1] + SECRET.sub(r"\1…", USER.sub("", url[2]))


def is_slug(name: object) -> bool:
    """Return whether a name is a valid file name without folders: `resnet50`, `tsn_r18`, `a.pth`."""
    return isinstance(name, str) and bool(SLUG.fullmatch(name)) and len(name.encode(errors="replace")) <= MAX_SLUG_BYTES


def slug(text: str, default: str, longest: int = SLUG_CHARACTERS) -> str:
    """Convert a text to a valid slug of up to `longest` characters; `default` if no character remains."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:longest].rstrip("-.") or default


def fault_of(video_id: object) -> str:
    """Return why a video id cannot be the name of a file in a folder, as a phrase after "is"; empty if it can."""
    if not isinstance(video_id, str) or not video_id.strip("/."):
        return "not a name"
    parts = video_id.split("/")
    if not parts[0] or ".." in parts:
        return "a path that leads out of its folder"
    try:
        encoded = [os.fsencode(part) for part in parts]
    except UnicodeEncodeError:
        encoded = []
    if "\0" in video_id or not encoded:
        return "not a valid file name"
    return "too long for a file name" if max(map(len, encoded)) > MAX_NAME_BYTES else ""
