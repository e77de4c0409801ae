"""Addresses of sources as they may be shown: without user, password or token."""

import re

URL = re.compile(r"(?<![a-z0-9+.-])(?!file:)([a-z][a-z0-9+.-]*://)(\S+)", re.IGNORECASE)
USER = re.compile(r"^[^/?#]*@")
SECRET = re.compile(
    r"(?<![a-z0-9])((?:[a-z0-9]+-)*(?:user(?:name)?|login|pass(?:word|wd)?|pwd|(?:(?:access|auth|api)_?)?(?:token|key)"
    r"|auth|secret|sig(?:nature)?|credential)=)[^&\"']+",
    re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """`text` with what must not be shown taken out of each URL in it: user and password, and secret parameters.

    Cameras put them before the host (`rtsp://user:password@host`), in the query, or in the path
    (`/user=admin&password=…`). Text without a URL, and file: URLs, come back as they are.
    """
    return URL.sub(lambda url: url[1] + SECRET.sub(r"\1…", USER.sub("", url[2])), text)
