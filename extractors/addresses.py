"""Addresses of sources as they may be shown: without user, password or token."""

import re
from pathlib import Path

# one slash too: a path made of an address has no two in a row
URL = re.compile(
    r"(?<![a-z0-9+.-])(?!file:)([a-z][a-z0-9+.-]*://|(?:rtsps?|rtmps?|https?|srt|tcp|udp):/)(\S+)", re.IGNORECASE
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline
WHOLE = re.compile(r"(?!file:)([a-z][a-z0-9+.-]*://)(.*)", re.IGNORECASE | re.DOTALL)
# the second is a password with a slash in it, no port
USER = re.compile(r"^(?:[^/?#]*@|[^/?#:]*:(?!\d*(?:[/?#]|$))[^@]*@)", re.DOTALL)
SECRET = re.compile(
    r"(?<![a-z0-9])((?:[a-z0-9]+-)*(?:user(?:name)?|login|pass(?:word|wd|phrase)?|pwd|(?:(?:access|auth|api)_?)?"
    r"(?:token|key)|auth|secret|sig(?:nature)?|credential)=)[^&\"']+",
    re.IGNORECASE,
)


STDIN = "standard input"


def without_credentials(text: str) -> str:
    """`text` with what must not be shown taken out of each URL in it: user and password, and secret parameters.

    Cameras put them before the host (`rtsp://user:password@host`), in the query, or in the path
    (`/user=admin&password=…`). Text without a URL, and file: URLs, come back as they are.
    """
    return URL.sub(_masked, text)


def displayed(text: str) -> str:
    """`text` for a terminal: `without_credentials`, and without characters that would steer it."""
    return CONTROL.sub("\ufffd", without_credentials(text))


def shown(source: object) -> str:
    """The name of a source for messages: a path as it is, an address without credentials, a stream by its name."""
    if isinstance(source, str | Path):
        return WHOLE.sub(_masked, str(source)) if WHOLE.match(str(source)) else str(source)
    name = str(getattr(source, "name", "the stream"))
    return STDIN if name == "<stdin>" else name


def _masked(url: re.Match) -> str:
    return url[1] + SECRET.sub(r"\1…", USER.sub("", url[2]))
